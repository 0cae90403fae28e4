"""One table of verbs: the fast parser and the Typer commands read the same things from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.cli import full, grammar, ids
from scheduler.cli.fast import Call, parse
from scheduler.errors import UsageError
from scheduler.model import outcome, states

ARGVS = [
    "submit boltz a.yaml b.yaml --param x=1 --param=y=2 --overwrite --json",
    "submit --name n boltz --out out/{id} a.yaml --priority -5",
    "submit boltz -- --odd.json -",
    "submit boltz --param=x= --key k a",
    "run boltz in.json --timeout 5m --example",
    "run boltz -",
    "status",
    "status 3-9,12 last --json --mine",
    "status --batch night --state failed --name g*",
    "show 7 --json",
    "log last -f",
    "log 7 --follow --attempt 2",
    "result 7 --pointer /a/0 -o out.pdb",
    "result 7 -oout.pdb --json",
    "wait 1 2 3 --timeout=2h",
    "cancel --batch night --dry-run --yes",
    "up --foreground --takeover",
    "down --now",
    "install boltz esm2",
    "install boltz --offline --find-links wheels --find-links=more",
    "install boltz --python python3.11",
    "install boltz --from-env ~/envs/boltz",
    "uninstall boltz esm2 --dry-run --json",
    "uninstall --all-unused",
    "files boltz:big --fetch --overwrite",
    "files boltz --verify --json",
    "db backup",
    "db backup /mnt/safe.db",
    "why last --json",
    "room boltz:big --json",
    "machine show",
    "machine show --json",
    "machine declare",
    "machine declare 4711 --vram 24 --ram=0.5",
    "machine declare --remove alphafold --json",
    "providers check",
    "providers show boltz --json",
]


def by_typer(argv: list[str]) -> dict[str, object]:
    calls: list[Call] = []
    app = full.build(lambda _verb, call: calls.append(call) or 0)
    done = CliRunner().invoke(app, argv, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return calls[0].values


@pytest.mark.parametrize("line", ARGVS)
def test_the_fast_parser_and_typer_read_the_same_from_one_argv(line: str) -> None:
    argv = [word.strip("'") for word in line.split(" ")]
    verb, rest = grammar.verb_of(argv)
    assert verb is not None
    assert parse(verb, rest).values == by_typer(argv)


@pytest.mark.parametrize("verb", grammar.TABLE, ids=lambda verb: verb.name)
def test_the_help_of_every_verb_names_all_that_it_takes_and_shows_an_example(verb: grammar.Verb) -> None:
    done = CliRunner().invoke(full.build(), [*verb.name.split(), "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert done.exit_code == 0
    assert verb.summary in " ".join(done.output.split())
    for option in verb.options:
        assert option.flag in done.output
    for argument in verb.arguments:
        assert argument.metavar in done.output
    assert verb.examples
    for example in verb.examples:
        assert example in done.output
    assert max(map(len, done.output.splitlines())) <= 80


@pytest.mark.parametrize("verb", grammar.TABLE, ids=lambda verb: verb.name)
def test_every_example_is_a_call_that_parses(verb: grammar.Verb) -> None:
    import shlex

    for example in verb.examples:
        program, *argv = shlex.split(example)
        found, rest = grammar.verb_of(argv)
        assert program == "schedq"
        assert found is verb
        parse(verb, rest)


@pytest.mark.parametrize("verb", grammar.TABLE, ids=lambda verb: verb.name)
def test_every_verb_has_somebody_who_carries_it_out(verb: grammar.Verb) -> None:
    import importlib

    module, _, function = verb.run.partition(":")
    assert callable(getattr(importlib.import_module("scheduler.cli." + module), function))


FRONT_PAGE = [
    "run", "submit", "status", "why", "log", "result", "wait", "cancel", "exec", "validate", "report", "up", "down",
    "doctor",
]  # fmt: skip


def test_the_front_page_shows_14_verbs_each_in_one_line_and_the_rest_apart() -> None:
    done = CliRunner().invoke(full.build(), ["--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    panels = done.output.split("╭─ ")[1:]
    titles = {panel.split(" ─")[0]: panel for panel in panels}
    everyday = [line for line in titles[grammar.EVERYDAY].splitlines()[1:] if line.startswith("│ ")]
    assert [line.split()[1] for line in everyday] == FRONT_PAGE
    assert all(grammar.VERBS[line.split()[1]].summary in line for line in everyday)
    assert set(grammar.GROUPS) <= set(titles["Groups"].split())
    assert "serve" not in done.output


def test_help_and_version_are_understood_in_front_and_as_a_word() -> None:
    assert grammar.verb_of(["--help"]) == (None, ["--help"])
    assert grammar.verb_of(["help", "submit"]) == (None, ["submit", "--help"])
    assert grammar.verb_of(["db"]) == (None, ["db", "--help"])
    assert grammar.verb_of(["--version", "--json"]) == (grammar.VERBS["version"], ["--json"])


@pytest.mark.parametrize("group", grammar.GROUPS)
def test_a_groups_help_lists_its_verbs_and_shows_an_example(group: str) -> None:
    done = CliRunner().invoke(full.build(), [group, "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert done.exit_code == 0 and f"schedq {group}" in done.output
    for name in grammar.VERBS:
        if name.startswith(group + " "):
            assert name.split()[1] in done.output


@pytest.mark.parametrize("group", grammar.GROUPS)
def test_the_examples_on_a_groups_page_parse(group: str) -> None:
    done = CliRunner().invoke(full.build(), [group, "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    examples = [line.strip() for line in done.output.splitlines() if line.strip().startswith("schedq ")]
    assert examples
    for example in examples:
        verb, rest = grammar.verb_of(example.split()[1:])
        assert verb is not None and verb.name.split()[0] == group
        parse(verb, rest)


def test_no_word_at_all_is_status() -> None:
    assert grammar.verb_of([]) == (grammar.VERBS["status"], [])
    assert grammar.verb_of(["--json"]) == (grammar.VERBS["status"], ["--json"])


def test_a_groups_bare_name_stands_for_its_list() -> None:
    assert grammar.verb_of(["workers", "--json"]) == (grammar.VERBS["workers list"], ["--json"])
    assert grammar.verb_of(["workers", "--help"]) == (None, ["workers", "--help"])
    assert grammar.verb_of(["machine"]) == (grammar.VERBS["machine show"], [])
    assert grammar.verb_of(["machine", "declare", "7"]) == (grammar.VERBS["machine declare"], ["7"])


@pytest.mark.parametrize(
    ("argv", "near"),
    [(["sumbit"], "submit"), (["statsu"], "status"), (["provider"], "providers"), (["db", "bakup"], "backup")],
)
def test_a_word_that_is_no_verb_names_the_nearest(argv: list[str], near: str) -> None:
    for words in (argv, ["help", *argv]):
        with pytest.raises(UsageError, match=f"did you mean {near}"):
            grammar.verb_of(words)


def test_the_words_of_filters_are_those_of_the_model() -> None:
    assert set(ids.STATES) == set(states.JOB) - {"(insert)"}
    assert ids.OUTCOMES == outcome.KINDS


@pytest.mark.parametrize("words", [*(verb.name.split() for verb in grammar.TABLE), ["db"], []])
def test_the_help_shows_no_types_of_a_programming_language(words: list[str]) -> None:
    done = CliRunner().invoke(full.build(), [*words, "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert "--help" in done.output
    for word in ("<bool>", "<str>", "<list", "list[", "TEXT"):
        assert word not in done.output


@pytest.mark.parametrize(
    ("verb", "states", "outcomes"),
    [
        ("status", ids.STATES, ids.OUTCOMES), ("wait", ids.STATES, ids.OUTCOMES), ("cancel", ids.STATES[:4], ()),
        ("hold", ("queued", "admitted"), ()), ("release", ("held",), ()), ("update", ids.STATES[:4], ()),
        ("requeue", ids.STATES[5:], ids.OUTCOMES[1:]),
    ],
)  # fmt: skip
def test_the_help_of_a_filter_lists_in_a_few_whole_lines_what_the_verb_can_use(
    verb: str, states: tuple[str, ...], outcomes: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(full.build(), [verb, "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    below = done.output.rpartition("╯")[2]
    text = " ".join(below.split())
    assert f"--state: {', '.join(states)}" in text and len(below.strip().splitlines()) <= 8
    assert (f"--outcome: {', '.join(outcomes)}" in text) if outcomes else ("--outcome" not in done.output)


def test_the_help_of_a_filter_says_that_refused_requests_are_not_failed() -> None:
    done = CliRunner().invoke(full.build(), ["status", "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    text = " ".join(done.output.split())
    assert "what its worker refused is refused, not failed" in text


def test_the_help_of_simulate_shows_a_night_word_for_word() -> None:
    done = CliRunner().invoke(full.build(), ["simulate", "--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    shown = [line.strip() for line in done.output.splitlines()]
    first = shown.index(grammar.NIGHT.splitlines()[0])
    assert [line.strip() for line in grammar.NIGHT.splitlines()] == shown[first : first + 6]


def test_the_examples_ask_providers_that_ship() -> None:
    shipped = {path.parent.name for path in Path(grammar.__file__).parents[2].glob("manifests/*/provider.toml")}
    for verb in grammar.TABLE:
        if verb.arguments and verb.arguments[0].metavar in ("SLUG", "SLUGS") and verb.name != "providers new":
            for example in verb.examples:
                rest = [word for word in example.removeprefix(f"schedq {verb.name}").split() if word[0] != "-"]
                assert not rest or rest[0] in shipped, example


@pytest.mark.parametrize(
    ("word", "verb"),
    [
        *((word, f"workers {word}") for word in ("retire", "pin", "unpin", "warm")),
        *((word, f"queue {word}") for word in ("pause", "resume", "drain")),
        ("reset", "providers reset"), ("list", "providers list"), ("check", "providers check"),
        ("declare", "machine declare"), ("backup", "db backup"), ("stop", "down"), ("start", "up"),
        *((word, "cancel") for word in ("rm", "kill", "del", "delete")),
        *((word, "status") for word in ("ps", "ls", "stat")), ("top", "status --watch"), ("watch", "status --watch"),
        ("info", "show"), ("logs", "log"), ("output", "result"),
    ],
)  # fmt: skip
def test_a_word_that_stands_for_a_verb_of_ours_names_it(word: str, verb: str) -> None:
    with pytest.raises(UsageError, match=f"no verb '{word}'; did you mean schedq {verb}[?,]"):
        grammar.verb_of([word])


def test_every_verb_that_another_word_stands_for_is_there() -> None:
    for name in grammar.elsewhere().values():
        for each in name.replace(", or", ",").replace("schedq ", "").split(", "):
            assert grammar.verb_of(each.split())[0] in grammar.TABLE, each


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("providers reset", "providers reset needs SLUG (providers); schedq providers list shows them"),
        ("run", "schedq providers list shows them"), ("show", "schedq status shows them"),
        ("workers pin", "schedq workers shows them"), ("restart --now", "restart has no option --now; it takes none"),
        ("simulate", "schedq simulate --help shows what it takes"),
    ],
)  # fmt: skip
def test_what_lists_the_words_that_are_missing_is_named(line: str, told: str) -> None:
    verb, rest = grammar.verb_of(line.split())
    assert verb is not None
    with pytest.raises(UsageError) as caught:
        parse(verb, rest)
    assert str(caught.value).endswith(told)


def test_the_front_page_names_the_version_option() -> None:
    done = CliRunner().invoke(full.build(), ["--help"], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert "--version" in done.output


def test_help_and_readme_say_set_aside_of_nothing() -> None:
    texts = [Path(full.__file__).parents[2].joinpath("README.md").read_text()]
    texts += [f"{verb.summary} {verb.told} {' '.join(each.help for each in verb.options)}" for verb in grammar.TABLE]
    assert not [text for text in texts if "set aside" in text.lower()]


@pytest.mark.parametrize("verb", ["submit", "run", "update"])
def test_the_help_of_max_attempts_says_what_it_does_not_change(verb: str) -> None:
    [option] = [each for each in grammar.VERBS[verb].options if each.key == "max_attempts"]
    assert "A job that killed two workers is quarantined whatever this says" in option.help
