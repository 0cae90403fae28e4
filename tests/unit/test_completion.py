"""Completion knows verbs, options, and the names of a queue and its manifests; it makes nothing, and never fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from driven import Queue
from queues import writing
from terminals import Terminal
from test_cli_startup import HEAVY, ROOT, SLOW, loaded
from test_scans import noted, walks

from scheduler.cli import completing, grammar, naming, shells
from scheduler.config import Paths
from scheduler.declared.layers import FLAT


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Queue:
    """A queue for tests that only look."""
    return queue_in(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def own(tmp_path: Path) -> Queue:
    """The same for a test that changes it."""
    return queue_in(tmp_path)


def queue_in(tmp_path: Path) -> Queue:
    """A queue with five jobs of two batches, a label, and a schedule; `schedq` is on its PATH."""
    made = Queue(tmp_path)
    made.provider()
    made.provider("fold", more="[variants.big.host]\nram_budget_gb = 0.2")
    made.input("one.json"), made.input("two.json")
    assert made("submit", "echo", "one.json", "two.json", "--batch", "night", "--label", "gpu=yes").code == 0
    assert made("submit", "fold:big", "one.json", "--hold", "--batch", "noon:1").code == 0
    assert made("submit", "fold", "one.json", "two.json").code == 0
    assert made("cancel", "5").code == 0
    assert made("schedule", "add", "--zone", "UTC", "0 22 * * *", "validate", "--all").code == 0
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "schedq").write_text(f'#!/bin/sh\nexec {sys.executable} -m scheduler "$@"\n')
    (bin / "schedq").chmod(0o755)
    made.env |= {"PATH": f"{bin}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return made


def offered(queue: Queue, *words: str) -> list[str]:
    done = queue(*words, _SCHEDQ_WORDS="bash")
    assert done.code == 0 and done.err == ""
    return done.out.splitlines()


def test_each_kind_of_name_is_offered_where_it_may_stand(queue: Queue) -> None:
    assert offered(queue, "sub") == ["submit"]
    assert {"submit", "workers", "help"} <= set(offered(queue, ""))
    assert "serve" not in offered(queue, "")
    assert offered(queue, "workers", "wri") == ["write-off"]
    assert offered(queue, "help", "workers", "wa") == ["warm"]
    assert set(offered(queue, "run", "fo")) == {"fold", "fold:big"}
    assert offered(queue, "run", "ech", "") == ["\tfiles"]
    assert offered(queue, "cancel", "") == ["4", "3", "2", "1", "last"]
    assert offered(queue, "cancel", "3", "") == ["4", "2", "1", "last"]
    assert offered(queue, "cancel", "1-") == ["1-4", "1-3", "1-2", "1-1"]
    assert offered(queue, "release", "") == ["3", "last"]
    assert offered(queue, "requeue", "") == ["5", "last"]
    assert offered(queue, "result", "") == ["5", "last"]
    assert offered(queue, "show", "9") == []
    assert set(offered(queue, "status", "--batch", "")) == {"night", "noon:1"}
    assert set(offered(queue, "report", "")) == {"night", "noon:1", "last"}
    assert offered(queue, "status", "--batch=ni") == ["--batch=night"]
    assert offered(queue, "status", "--label", "") == ["gpu=yes"]
    assert offered(queue, "status", "--state", "fa") == ["failed"]
    assert offered(queue, "status", "--state", "failed,ref") == ["failed,refused"]
    assert "failed,failed" not in offered(queue, "status", "--state", "failed,")
    assert offered(queue, "status", "--outcome", "quar") == ["quarantined"]
    assert offered(queue, "cancel", "--state", "fa") == []
    assert offered(queue, "submit", "echo", "--on-parent", "") == ["fail", "hold"]
    assert offered(queue, "submit", "echo", "--param", "lo") == ["loud="]
    assert offered(queue, "schedule", "remove", "") == ["1"]
    assert offered(queue, "providers", "set", "echo", "vram") == ["vram_budget_gb"]
    assert offered(queue, "completion", "z") == ["zsh"]


def test_options_are_offered_once_but_those_that_can_be_given_again(queue: Queue) -> None:
    assert "--all" in offered(queue, "validate", "--")
    assert "--all" not in offered(queue, "validate", "--all", "--")
    assert "--label" in offered(queue, "submit", "--label", "x", "--l")
    assert offered(queue, "cancel", "--", "--") == []
    assert offered(queue, "workers", "--js") == ["--json"]
    assert offered(queue, "--vers") == ["--version"]


def test_a_call_inside_a_call_is_completed_as_that_call(queue: Queue) -> None:
    assert offered(queue, "schedule", "add", "--zone", "UTC", "0 22 * * *", "vali") == ["validate"]
    assert offered(queue, "schedule", "add", "0 22 * * *", "run", "fold:") == ["fold:big"]


def test_a_running_job_is_offered_however_many_came_after_it(own: Queue) -> None:
    with writing(Paths(str(own.home))) as db:
        db.execute("UPDATE jobs SET state = 'running' WHERE id = 1")
        db.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
            " INSERT INTO jobs (slug, user, host_id, state, submitted_at, ended_at, outcome, name)"
            " SELECT 'echo', 'u', 'h', 'succeeded', submitted_at, submitted_at, 'ok', 'b' FROM n, jobs WHERE id = 5"
        )
    assert offered(own, "cancel", "")[0] == "1"
    assert len(offered(own, "show", "")) == 61


@pytest.mark.parametrize(
    "words",
    [[], [""], ["nonsense", ""], ["workers", "nonsense", ""], ["db", "--"], ["run", "--param", ""], ["a\nb", "\udcff"],
     ["--", "x"], ["submit", "--state", ""], ["status", "--nope=", "-"], ["version", ""]],
)  # fmt: skip
def test_before_there_is_a_queue_completion_answers_says_no_error_and_makes_none(
    words: list[str], tmp_path: Path
) -> None:
    made = Queue(tmp_path)
    done = made(*words, _SCHEDQ_WORDS="zsh")
    assert (done.code, done.err) == (0, "")
    assert not made.home.exists()


def test_slugs_and_variants_are_known_before_any_manifest_was_compiled(tmp_path: Path) -> None:
    made = Queue(tmp_path)
    made.provider("fold", more="[variants.big.host]\nram_budget_gb = 0.2")
    (made.manifests / "broken").mkdir()
    (made.manifests / "broken" / "provider.toml").write_text("[")
    assert offered(made, "run", "fold") == ["fold", "fold:big"]
    assert not made.home.exists()


def test_a_queue_that_cannot_be_read_offers_no_names_and_says_no_error(own: Queue) -> None:
    for each in own.home.glob("*.db*"):
        each.unlink()
    assert offered(own, "cancel", "") == []
    assert offered(own, "run", "ech") == ["echo"]


def test_completion_loads_no_framework_and_no_slow_module(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(queue.env, "_SCHEDQ_WORDS", "bash")
    code, names = loaded(queue, "cancel", "")
    assert code == 0
    assert {name.partition(".")[0] for name in names} & (HEAVY | SLOW) == set()


def test_what_a_site_sets_most_are_keys_that_it_can_set() -> None:
    assert set(naming.KEYS) <= set(FLAT)


def test_no_question_of_completion_walks_through_the_jobs(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    there = Paths(str(queue.home))
    with noted(monkeypatch) as seen:
        for verb in grammar.TABLE:
            for argument in verb.arguments:
                naming.words(verb, argument.metavar, [], "", there)
            for option in verb.options:
                naming.values(verb, option, [], "", there)
    assert any("ORDER BY first_at" in each for each in seen) and any("ORDER BY id DESC" in each for each in seen)
    assert walks(there, seen) == []


@pytest.mark.parametrize("verb", grammar.TABLE, ids=lambda verb: verb.name)
def test_every_option_of_every_verb_is_offered(verb: grammar.Verb) -> None:
    flags = {word for word, _ in completing.answer([*verb.name.split(), "--"])}
    assert flags == {option.flag for option in verb.options} | {"--help"}


@pytest.mark.parametrize("verb", grammar.TABLE, ids=lambda verb: verb.name)
def test_every_value_can_be_asked_for_without_a_fault(verb: grammar.Verb, paths: Paths) -> None:
    for option in verb.options:
        if option.metavar:
            naming.values(verb, option, ["capiti"], "", paths)
    for argument in verb.arguments:
        naming.words(verb, argument.metavar, [], "", paths)


SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(schedq completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -U compinit; compinit -D -u; eval "$(schedq completion zsh)"'),
}
ASKED = """#!/bin/sh
if [ -z "$_SCHEDQ_WORDS" ] && [ "$1" != completion ]; then printf ASKED; printf '[%s]' "$@"; exit; fi
exec {python} -m scheduler "$@"
"""


def there(shell: str) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed here")
    return shell


class Typist:
    """A shell on a terminal in which Tab asks the real schedq, and Enter shows the words that it was called with."""

    def __init__(self, queue: Queue, shell: str) -> None:
        (queue.folder / "bin" / "schedq").write_text(ASKED.format(python=sys.executable))
        command, setup = SHELLS[there(shell)]
        prompt = {"PS1": "> ", "PROMPT": "> ", "TERM": "dumb", "INPUTRC": os.devnull, "ZDOTDIR": str(queue.folder)}
        self.terminal = Terminal(command, rows=200, env={**queue.env, **prompt}, cwd=queue.folder)
        self("unset zle_bracketed_paste 2>/dev/null; " + setup + "; echo rea''dy\n", "ready")

    def __call__(self, keys: str, until: str) -> str:
        """Press these keys; what was written after that, once `until` is in it."""
        at = len(self.terminal.written)
        self.terminal.type(keys.encode())
        self.terminal.until(lambda _: until in self.terminal.written[at:].decode(errors="replace"))
        return self.terminal.written[at:].decode(errors="replace")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("schedq canc\t4\n", "[cancel][4]"),
        ("schedq schedule remove \t\n", "[schedule][remove][1]"),
        ("schedq run fold:b\tone\t\n", "[run][fold:big][one.json]"),
        ("schedq status --batch=ni\t\n", "[status][--batch=night]"),
        ("schedq status --batch no\t--js\t\n", "[status][--batch][noon:1][--json]"),
        ("schedq status --state=failed,ref\t\n", "[status][--state=failed,refused]"),
        ("schedq status --label gp\t\n", "[status][--label][gpu=yes]"),
        ("schedq submit echo --param lo\ttrue\n", "[submit][echo][--param][loud=true]"),
        ("schedq schedule add '0 22 * * *' vali\t--al\t\n", "[schedule][add][0 22 * * *][validate][--all]"),
    ],
)
def test_a_tab_in_a_real_shell_completes_the_word(queue: Queue, shell: str, typed: str, asked: str) -> None:
    typist = Typist(queue, shell)
    try:
        line, _, last = typed.rpartition("\t")
        seen = ""
        for part in line.split("\t"):
            seen = typist(part + "\t", part[-1])
        assert f"ASKED{asked}" in typist(last, "ASKED["), seen
    finally:
        typist.terminal.close()


def test_zsh_shows_what_each_job_is(queue: Queue) -> None:
    typist = Typist(queue, "zsh")
    try:
        seen = typist("schedq cancel \t", "last")
        assert "held, fold:big one" in seen and "queued, echo two" in seen
    finally:
        typist.terminal.close()


def test_fish_completes_and_shows_what_each_word_is(queue: Queue) -> None:
    def asked(line: str) -> list[str]:
        script = f"{shells.FISH}\ncomplete -C {line!r}"
        done = subprocess.run(
            [there("fish"), "--no-config", "-c", script], env={**queue.env, "HOME": str(queue.folder)},
            cwd=queue.folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert asked("schedq canc") == ["cancel\tCancel jobs, waiting or running."]
    assert "3\theld, fold:big one" in asked("schedq cancel ")
    assert asked("schedq run fold:b")[0].startswith("fold:big\t")
    assert {"one.json", "two.json"} <= {each.partition("\t")[0] for each in asked("schedq run echo ")}
    assert asked("schedq status --batch=ni") == ["--batch=night\tbatch"]
    assert asked("schedq status --state failed,ref") == ["failed,refused"]


def test_the_shell_that_is_used_is_the_one_whose_script_is_printed(queue: Queue) -> None:
    assert queue("completion", SHELL="/usr/bin/fish").out == queue("completion", "fish").out
    for wrong in (queue("completion", "zhs"), queue("completion", SHELL="/bin/tcsh"), queue("completion", SHELL="")):
        assert wrong.code == 2 and "there are those for bash, zsh, fish" in wrong.err
    for flag in ("--install-completion", "--show-completion"):
        assert "schedq completion prints" in queue(flag).err
