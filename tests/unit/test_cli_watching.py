"""`status --watch`: a page that stays, on a terminal that is given back; and in a pipe, where it is printed anew."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from queues import submitted, writing
from terminals import Terminal

from scheduler.cli import screens, watching
from scheduler.clock import seconds
from scheduler.config import Paths
from scheduler.errors import Temporary, UsageError

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "scheduler"]
AT = "2026-11-29T12:00:00.000000Z"
WATCH = ("status", "--watch", "--every", "100ms")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(str(tmp_path / "home"))
    submitted(made, 3, name="ligand")
    return made


@pytest.fixture
def env(tmp_path: Path, paths: Paths) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDQ_")}
    kept.pop("COLUMNS", None)
    return {**kept, "HOME": str(tmp_path), "SCHEDQ_HOME": paths.home, "PYTHONPATH": str(ROOT), "TERM": "xterm"}


Begin = Callable[..., Terminal]


@pytest.fixture
def begin(env: dict[str, str]) -> Iterator[Begin]:
    """A call on a terminal; ended with the test."""
    begun: list[Terminal] = []

    def on(*words: str, columns: int = 80, rows: int = 24, **more: str) -> Terminal:
        begun.append(Terminal([*COMMAND, *words], columns, rows, env={**env, **more}, cwd="/"))
        return begun[-1]

    yield on
    for each in begun:
        each.close()


def is_given_back(terminal: Terminal) -> bool:
    return terminal.modes == {"alternate": False, "cursor": True, "wraps": True, "updating": False} and (
        terminal.now() == terminal.before
    )


def shown(terminal: Terminal, word: str = "q leaves") -> str:
    return terminal.until(lambda screen: word in screen)


@pytest.mark.parametrize(
    ("leave", "code"),
    [
        (b"q", 0), (b"\x03", 130), (b"\x1c", 131), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130),
    ],
    ids=str,
)  # fmt: skip
def test_every_way_out_gives_the_terminal_back(begin: Begin, leave: Any, code: int) -> None:
    terminal = begin(*WATCH)
    screen = shown(terminal)
    assert "waiting (3)" in screen and terminal.modes["alternate"] and not terminal.modes["cursor"]
    assert terminal.now() != terminal.before, "keys come one by one and unseen"
    if isinstance(leave, bytes):
        terminal.type(leave)
    else:
        os.kill(terminal.child.pid, leave)
    assert terminal.ended() == code and is_given_back(terminal)


def test_an_error_gives_the_terminal_back_and_is_told_after_that(
    begin: Begin, paths: Paths, env: dict[str, str]
) -> None:
    wrong = "from scheduler.cli import screens\nwith screens.Screen() as s:\n s.draw(['x'])\n raise SystemExit('wrong')"
    terminal = Terminal([sys.executable, "-c", wrong], env=env, cwd="/")
    try:
        assert terminal.ended() == 1 and is_given_back(terminal)
        assert "wrong" in terminal.lines[0]
    finally:
        terminal.close()


def test_what_changes_is_drawn_in_place_and_nothing_else(begin: Begin, paths: Paths) -> None:
    terminal = begin(*WATCH)
    shown(terminal, "waiting (3)")
    before = len(terminal.written)
    submitted(paths, 1)
    shown(terminal, "waiting (4)")
    written = terminal.written[before:]
    assert b"\x1b[2J" not in written and b"pools: not recorded" not in written
    assert written.count(screens.BEGIN.encode()) == written.count(screens.END.encode())


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(begin: Begin) -> None:
    terminal = begin(*WATCH)
    shown(terminal)
    os.kill(terminal.child.pid, signal.SIGTSTP)
    terminal.until(lambda _: not terminal.modes["alternate"])
    # nobody lets a session's leader go on that a terminal stopped: it is an orphan, whose stop the kernel leaves out
    shown(terminal)
    assert terminal.modes["alternate"] and not terminal.modes["cursor"]
    os.kill(terminal.child.pid, signal.SIGCONT)
    terminal.type(b"q")
    assert terminal.ended() == 0 and is_given_back(terminal)


def test_in_a_shell_ctrl_z_stops_it_and_fg_goes_on(env: dict[str, str], tmp_path: Path) -> None:
    shell = Terminal(["bash", "--norc", "--noprofile", "-i"], env={**env, "PS1": "$ "}, cwd=tmp_path)
    try:
        shell.until(lambda screen: "$ " in screen)
        shell.type(f"{sys.executable} -m scheduler status --watch --every 100ms\r".encode())
        shown(shell)
        shell.type(b"\x1a")
        shell.until(lambda screen: "Stopped" in screen and not shell.modes["alternate"])
        assert shell.modes["cursor"] and shell.modes["wraps"]
        shell.type(b"fg\r")
        assert "waiting (3)" in shown(shell) and shell.modes["alternate"]
        shell.type(b"q")
        shell.until(lambda _: not shell.modes["alternate"])
        shell.type(b"exit $?\r")
        assert shell.ended() == 0
    finally:
        shell.close()


def test_a_terminal_that_gets_smaller_is_drawn_anew_and_says_what_it_leaves_out(begin: Begin, paths: Paths) -> None:
    for n in range(9):
        submitted(paths, 2, slug=f"p{n}", name="x")
    terminal = begin("status", "--watch", "--every", "1h", rows=50)
    assert "left out" not in shown(terminal)
    terminal.resize(60, 10)
    screen = shown(terminal, "left out")
    assert "waiting (21)" in screen and ".." in screen and len(terminal.lines) == 10
    assert terminal.lines[9].endswith("lines left out")
    assert max(map(len, terminal.lines)) <= 60
    terminal.resize(80, 60)
    terminal.until(lambda screen: "p8" in screen and "left out" not in screen)


def test_a_page_is_not_drawn_over_by_names_that_are_too_long_for_a_tiny_terminal(begin: Begin, paths: Paths) -> None:
    submitted(paths, 1, name="表" * 60)
    terminal = begin(*WATCH, columns=30, rows=12)
    shown(terminal)
    assert not terminal.modes["wraps"]


def test_a_dumb_terminal_gets_the_page_again_and_no_escapes(begin: Begin, paths: Paths) -> None:
    terminal = begin(*WATCH, rows=60, TERM="dumb")
    terminal.until(lambda screen: "waiting (3)" in screen)
    submitted(paths)
    terminal.until(lambda screen: "waiting (4)" in screen)
    assert b"\x1b" not in terminal.written
    terminal.type(b"\x03")
    assert terminal.ended() in (130, -2)


def test_without_colour_a_watch_draws_no_colour(begin: Begin) -> None:
    terminal = begin(*WATCH, NO_COLOR="1")
    shown(terminal)
    assert b"\x1b[33m" not in terminal.written and b"\x1b[2m" not in terminal.written


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_pipe_gets_the_page_again_after_each_change_and_ends_with_its_reader(
    env: dict[str, str], paths: Paths, words: tuple[str, ...]
) -> None:
    with subprocess.Popen(
        [*COMMAND, *WATCH, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd="/"
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        first = os.read(child.stdout.fileno(), 1 << 16)
        submitted(paths)
        second = os.read(child.stdout.fileno(), 1 << 16)
        assert b"\x1b" not in first + second
        if words:
            assert first.count(b"\n") == second.count(b"\n") == 1 and b'"queued": 4' in second
        else:
            assert b"waiting (3)" in first and b"waiting (4)" in second
        child.stdout.close()
        assert child.wait(10) == 141
        assert child.stderr.read() == b""


def test_chosen_jobs_are_watched_too_the_live_ones_first(begin: Begin, paths: Paths) -> None:
    submitted(paths, 2, batch="night", name="x")
    with writing(paths) as db:
        db.execute("UPDATE jobs SET state = 'succeeded', ended_at = ? WHERE id = 4", (AT,))
    terminal = begin(*WATCH, "--batch", "night")
    screen = shown(terminal)
    assert "batch night: 2 jobs, 1 succeeded, 1 to come" in screen
    assert screen.index("queued") < screen.index("succeeded  ")
    assert "no scheduler runs" in screen


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("status", "--every", "2s"), "--every says how often --watch draws"),
        (("status", "--watch", "--every", "2"), "is not a duration"),
        (("status", "--watch", "--every", "1ms"), "too often"),
        (("status", "--csv"), "give ids or filters"),
        (("status", "1", "--csv", "--json"), "do not go together"),
        (("status", "1", "--csv", "--watch"), "do not go together"),
    ],
)
def test_what_does_not_go_together_is_refused(env: dict[str, str], argv: tuple[str, ...], told: str) -> None:
    done = subprocess.run([*COMMAND, *argv], capture_output=True, text=True, env=env, cwd="/")
    assert done.returncode == 2 and done.stdout == "" and told in done.stderr, done


def whole(**over: Any) -> dict[str, Any]:
    job = {"id": 1, "state": "running", "ends_in_s": 10.0, "starts_in_s": None, "progress": None}
    workers = [{"id": 1, "state": "ready", "idle_s": 3.0, "charges": [{"charge_gib": 1.0, "used_gib": 0.5}]}]
    pool = {"id": "host", "charged_gib": 1.0, "live_gib": 7.0}
    return {"at": AT, "jobs": [job], "workers": workers, "pools": [pool], "others": [], "counts": {}, **over}


def test_the_queue_is_looked_at_only_when_it_has_changed_or_for_a_long_time_was_not(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_s, looks = 100.0, []

    def look() -> dict[str, Any]:
        looks.append(at_s)
        return whole()

    monkeypatch.setattr(watching, "monotonic_s", lambda: at_s)
    sight = watching.Sight(paths, look)
    sight.seen()
    at_s = 104.0
    later = sight.seen()
    assert looks == [100.0]
    assert seconds(later["at"]) == seconds(AT) + 4
    assert later["jobs"][0]["ends_in_s"] == 6.0 and later["workers"][0]["idle_s"] == 7.0
    submitted(paths)
    sight.seen()
    assert looks == [100.0, 104.0]
    at_s += watching.LOOK_S
    sight.seen()
    assert len(looks) == 3


def test_a_look_that_fails_leaves_what_was_seen_and_says_why(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [whole(), Temporary("the disk is full"), whole()]

    def look() -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    sight = watching.Sight(paths, look)
    sight.seen()
    submitted(paths)
    assert sight.seen()["jobs"] and sight.fault == "the disk is full"
    sight.seen()
    assert sight.fault == "" and not answers


def test_a_queue_in_which_nothing_happens_is_not_printed_again() -> None:
    first, later = whole(), whole(at="2026-11-29T12:00:09.000000Z", facts_at=AT)
    later["workers"] = [{**later["workers"][0], "idle_s": 12.0, "charges": [{"charge_gib": 1.0, "used_gib": 0.6}]}]
    later["pools"] = [{**later["pools"][0], "live_gib": 7.5}]
    later["jobs"] = [{**later["jobs"][0], "ends_in_s": 1.0}]
    assert watching.essence(first) == watching.essence(later)
    later["jobs"][0]["progress"] = {"done": 1}
    assert watching.essence(first) != watching.essence(later)


PAGE = ["head", "", "pool", "p1", "", "running (9)", *[f"r{n}" for n in range(9)], "", "recently ended", "e1", "e2"]


def test_a_page_that_fits_is_shown_as_it_is() -> None:
    assert screens.fitted(PAGE, len(PAGE)) == (PAGE, 0)


@pytest.mark.parametrize("rows", range(3, len(PAGE)))
def test_a_page_that_does_not_fit_is_cut_to_the_rows_and_counts_what_it_leaves_out(rows: int) -> None:
    shown, left_out = screens.fitted(PAGE, rows, ("recently ended", "pool"))
    assert len(shown) <= rows and left_out > 0
    kept = [line for line in shown if line and not line.startswith(screens.CUT)]
    assert left_out == sum(map(bool, PAGE)) - len(kept)
    assert shown[0] == "head" and "running (9)" in shown


def test_the_longest_part_is_cut_first_and_then_what_matters_least_goes() -> None:
    shown, _ = screens.fitted(PAGE, 16, ("recently ended",))
    assert "e2" in shown and "r3" in shown and "       .. 4 lines more" in shown
    shown, _ = screens.fitted(PAGE, 12, ("recently ended",))
    assert "recently ended" not in shown and "r3" in shown


FULL = [
    "scheduler 1", "", "pool", "p1", "p2", "", "worker", *[f"w{n}" for n in range(5)], "", "running (3)",
    *[f"r{n}" for n in range(6)], "", "waiting (9)", *[f"q{n}" for n in range(8)], "", "recently ended",
    *[f"e{n}" for n in range(5)], "", "3 failed",
]  # fmt: skip


@pytest.mark.parametrize("rows", range(15, 40))
def test_the_workers_stay_as_long_as_there_is_room_for_a_few_lines_of_each_part(rows: int) -> None:
    """And no room that a line of theirs would fit into is left free."""
    shown, _ = screens.fitted(FULL, rows, watching.SPARED, watching.KEPT)
    assert "worker" in shown and "w0" in shown and "running (3)" in shown and "waiting (9)" in shown
    assert len(shown) == min(rows, len(FULL)) or "w4" in shown
    assert "w4" in shown or "       .. 1 line more" not in shown


def test_of_a_small_terminal_the_workers_get_their_lines_before_others_get_more_than_a_few() -> None:
    shown, _ = screens.fitted(FULL, 23, watching.SPARED, watching.KEPT)
    assert [line for line in shown if line[:1] == "w" and line[1:].isdigit()] == ["w0", "w1", "w2", "w3", "w4"]


def test_room_that_is_left_goes_to_what_went_before_it_goes_to_what_was_cut() -> None:
    few = ["head", "", "worker", "w0", "", "running (3)", *[f"r{n}" for n in range(12)]]
    shown, left_out = screens.fitted(few, 12, (), ("worker",))
    assert shown[2:4] == ["worker", "w0"] and len(shown) == 12 and left_out == 7


def test_how_often_is_two_seconds_unless_told() -> None:
    assert watching.every_s(None) == 2.0 and watching.every_s(0.5) == 0.5
    with pytest.raises(UsageError, match="too often"):
        watching.every_s(0.01)
