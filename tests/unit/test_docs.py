"""The README promises what is there: its commands, options, exit codes, providers and settings."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from scheduler import config, errors
from scheduler.cli.fast import parse
from scheduler.cli.grammar import GROUPS, NIGHT, VERBS
from scheduler.simulate import trace

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
CALLS = sorted(
    {
        re.split(r"\s{2,}#|;|`", found)[0].strip()
        for found in re.findall(r"(?:^ {4}|bin/|; |`)schedq ([a-z][^`\n]*)", README, re.MULTILINE)
    }
)


def verb_of(words: list[str]) -> tuple[str, list[str]]:
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in VERBS:
            return name, words[length:]
    if words[0] in GROUPS and GROUPS[words[0]][1]:
        return f"{words[0]} {GROUPS[words[0]][1]}", words[1:]
    raise AssertionError(f"the README names `schedq {' '.join(words)}`, which is no verb")


def test_the_readme_shows_the_main_verbs() -> None:
    assert {call.split()[0] for call in CALLS} >= {
        "run",
        "submit",
        "status",
        "wait",
        "result",
        "log",
        "cancel",
        "up",
        "down",
    }


@pytest.mark.parametrize("call", CALLS)
def test_a_command_of_the_readme_is_one_that_is_understood(call: str) -> None:
    if "VERB" not in call:
        name, rest = verb_of(shlex.split(re.sub(r"\s>.*$", "", call)))
        parse(VERBS[name], rest)


@pytest.mark.parametrize("text", [README, VERBS["simulate"].told], ids=["README", "help"])
def test_the_night_that_is_shown_as_an_example_can_be_simulated_and_says_what_is_optional(text: str) -> None:
    shown = text[text.index('{"capacity_gib"') :].partition("\n\n")[0]
    assert NIGHT in (shown, shown.replace("\n    ", "\n"))
    night = trace.read(shown, "the example")
    assert [job.priority for job in night.jobs] == [5, 0]
    told = " ".join(text.replace("`", "").split())
    assert "warm_s (what a run usually takes), priority (0) and lower_bound_s are optional" in told


def test_the_readme_says_which_memory_counts_while_a_worker_loads() -> None:
    rule = README.partition("A worker starts when")[2].partition("\n## ")[0]
    assert "MemFree" in rule and "cache" in rule and "E3" in rule and "E4" in rule


def test_both_readmes_and_the_manifest_say_that_capiti_translates_dna() -> None:
    manifests = (ROOT / "manifests" / "README.md").read_text()
    title = (ROOT / "manifests" / "capiti" / "provider.toml").read_text().splitlines()[1]
    for text in (README, manifests):
        [row] = re.findall(r"^\| `capiti` \|.*$", text, re.MULTILINE)
        assert "DNA" in row and "translated" in row
    assert title.startswith("title = ") and "DNA" in title and "translated" in title


def test_the_exit_codes_of_the_readme_are_those_that_errors_have() -> None:
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", README, re.MULTILINE)}
    raised = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    assert documented == raised | {0}


def test_the_providers_of_the_readme_are_those_that_ship() -> None:
    table = README.split("## Providers")[1].split("## ")[0]
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert listed == {path.parent.name for path in (ROOT / "manifests").glob("*/provider.toml")}


def test_the_folders_of_the_readme_are_the_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SCHEDQ_HOME", "SCHEDQ_ENVS", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    table = dict(re.findall(r"^\| `(SCHEDQ_\w+)` \|.*\| `(~[^`]+)` \|$", README, re.MULTILINE))
    assert table["SCHEDQ_HOME"] == config.home().replace(str(tmp_path), "~")
    assert table["SCHEDQ_ENVS"] == config.envs()[0].replace(str(tmp_path), "~")
