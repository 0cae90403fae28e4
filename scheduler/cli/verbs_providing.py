"""The verbs for who makes a provider or fits one to this machine: new, try, set. A part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import JSON, SLUG, Argument, Option, Verb

PROVIDING: tuple[Verb, ...] = (
    Verb(
        "providers new",
        "creating:new",
        "Write the folder of a new provider that answers an echo, to be changed from there.",
        told="Resident, on the kit, unless another kind is asked for. A folder that is there, and a name that a"
        " provider has, are refused (exit 3).",
        arguments=(Argument("SLUG", "its name: lower-case letters, digits and _, a letter first"),),
        options=(
            Option(
                "--python", "P", "its interpreter, or the folder of a venv or conda environment; else python3 on PATH"
            ),
            Option("--oneshot", "", "a command that is run anew for each job"),
            Option("--legacy", "", "a worker as older trees have them, which knows nothing of schedq"),
            Option("--into", "PATH", "the folder that its folder is made in; the current one unless given"),
            JSON,
        ),
        examples=(
            "schedq providers new fold --python ~/miniforge3/envs/fold",
            "schedq providers new dock --oneshot --into ~/providers",
        ),
    ),
    Verb(
        "providers try",
        "trying:try_",
        "Run a worker here, for one input, without the queue.",
        told="Its environment, request and checks are those of a job, its log goes to stderr and its reply to stdout;"
        " what it took is said at the end. No scheduler is needed. Exit codes are those of run; Ctrl-C stops it, twice"
        " kills it. Where what it declares does not fit now it is not started (exit 75, never: 3).",
        arguments=(
            Argument("DIR", "the folder of a provider, or a provider's name"),
            Argument("INPUT", "the input file; - reads it from stdin", least=0),
        ),
        options=(
            Option("--param", "NAME=VALUE", "set one parameter of the provider", many=True),
            Option("--variant", "NAME", "a variant of it"),
            Option("--example", "", "take the input that came with the provider"),
            Option(
                "--device", "DEVICE", "show it this device: id or its beginning, number; else it sees none", many=True
            ),
            Option("--out", "PATH", "keep its outputs there; else they are listed, and not kept"),
            Option("--timeout", "DURATION", "stop it after this long, loading and all (exit 124)"),
            Option("--anyway", "", "start it although what it declares does not fit now"),
            JSON,
        ),
        examples=(
            "schedq providers try ./fold --example",
            "schedq providers try ./fold target.json --param times=3 --device 0",
        ),
    ),
    Verb(
        "providers set",
        "setting:set_",
        "Set a value of a provider for this machine, in your config.toml.",
        told="Any number, path, time-out or environment value (env.NAME) of its manifest; a list is written as TOML has"
        " it. What the provider would not be understood with is refused, and the file stays as it is.",
        arguments=(
            SLUG,
            Argument("KEY", "like gpu.vram_budget_gb, start_timeout_s, python or env.NAME"),
            Argument("VALUE", "what it is to be", least=0),
        ),
        options=(Option("--unset", "", "take it out, so that the manifest's own counts again"), JSON),
        examples=(
            "schedq providers set boltz vram_budget_gb 30",
            "schedq providers set boltz env.BOLTZ_CACHE /data/boltz",
            "schedq providers set boltz start_timeout_s 30m",
            "schedq providers set boltz vram_budget_gb --unset",
        ),
    ),
)
