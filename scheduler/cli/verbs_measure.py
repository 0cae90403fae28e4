"""The verb that measures what a provider uses: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import JSON, MORE, Argument, Option, Verb

MEASURE = Verb(
    "measure",
    "measuring:measure",
    "Run a provider's validation cases alone, and say what memory they use.",
    told="Queued like any job; each runs when no other worker of this queue is on its placement, with all that the pool"
    " can give, so that what declares no budget, or one that is too large, can be measured too. Ctrl-C cancels the"
    " cases. A larger job than the cases uses more: let one of them be the largest that you ask for.",
    arguments=(Argument("SLUG", "the provider, or SLUG:VARIANT"),),
    options=(
        Option("--write", "", "put the measured budgets into [providers.SLUG] of your config.toml"),
        Option("--reset", "", "forget what was learned of this provider, and measure nothing"),
        JSON,
    ),
    examples=("schedq measure capiti", "schedq measure pyrodigal --write", "schedq measure capiti --reset"),
    panel=MORE,
    fast=True,
)
