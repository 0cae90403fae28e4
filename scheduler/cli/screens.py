"""A terminal as a page that is redrawn in place: on a screen of its own, which is given back on every way out.

Only lines that differ are written, all of them in one write, between the marks of a synchronized update; so nothing
flickers. Ctrl-C, TERM, HUP and QUIT end it, Ctrl-Z gives the terminal back until `fg`, a resize draws anew. A process
that is killed by KILL cannot give anything back: `reset` does.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module `signal` costs an import of enum
import os
import select

from scheduler.cli import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Any

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J", "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""Another screen, no cursor, no line that runs over; and back."""

BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"
"""The marks of a synchronized update; a terminal that does not know them passes over them."""

ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)
HEARD = (*ENDING, _signal.SIGWINCH, _signal.SIGTSTP, _signal.SIGCONT)
QUIT_KEYS, REDRAW = b"qQ\x04", b"\x0c"


class Screen:
    """The terminal on stdout, as long as a `with` block lasts. `left`: the exit code once somebody wants to leave."""

    def __init__(self) -> None:
        self.left: int | None = None
        self._drawn: list[str] | None = None
        self._size = (0, 0)
        self._came: list[int] = []
        self._before: dict[int, object] = {}
        self._keys: list[Any] | None = None
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._listens = True

    def __enter__(self) -> Screen:
        for number in HEARD:
            if _signal.getsignal(number) != _signal.SIG_IGN or number == _signal.SIGWINCH:
                self._before[number] = _signal.signal(number, self._note)
        try:
            self._take()
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        try:
            self._give_back()
        finally:
            for number, action in self._before.items():
                _signal.signal(number, action)
            os.close(self._wake)
            os.close(self._woken)

    def size(self) -> tuple[int, int]:
        """(columns, rows) as they are at this moment."""
        try:
            found = os.get_terminal_size(1)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    def draw(self, lines: list[str]) -> None:
        """Show these lines from the top; those below the last row are not shown."""
        size = self.size()
        shown = lines[: size[1]]
        old = self._drawn if self._size == size else None
        parts = [] if old is not None else ["\x1b[2J"]
        for row in range(max(len(shown), len(old or ()))):
            text = shown[row] if row < len(shown) else ""
            if old is None or row >= len(old) or old[row] != text:
                parts.append(f"\x1b[{row + 1};1H\x1b[K{text}")
        self._drawn, self._size = shown, size
        if parts:
            self._write(BEGIN + "".join(parts) + END)

    def wait(self, for_s: float) -> bool:
        """Wait until time has passed, or something is to be drawn anew, or to be left: whether it is not only time."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._keys is not None and self._listens:
            poll.register(0, select.POLLIN)
        ready = dict(poll.poll(max(0, int(for_s * 1000))))
        if 0 in ready:
            self._hear_keys()
        if self._wake in ready:
            os.read(self._wake, 512)
        while self._came:
            self._obey(self._came.pop(0))
        return bool(ready)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)
        try:
            os.write(self._woken, b".")
        except OSError:
            pass

    def _obey(self, number: int) -> None:
        if number in ENDING:
            self.left = 128 + number
        elif number == _signal.SIGTSTP:
            self._give_back()
            _signal.signal(number, _signal.SIG_DFL)
            os.kill(os.getpid(), number)
            _signal.signal(number, self._note)
            self._take()
        else:
            self._drawn = None

    def _hear_keys(self) -> None:
        try:
            typed = os.read(0, 1)
        except OSError:
            typed = b""
        if not typed:
            self._listens = False
        elif any(key in QUIT_KEYS for key in typed):
            self.left = 0
        elif any(key in REDRAW for key in typed):
            self._drawn = None

    def _take(self) -> None:
        """Take the terminal: keys come one by one and unseen, signals from the keyboard stay what they are."""
        import termios

        if os.isatty(0):
            self._keys = termios.tcgetattr(0)
            mode = termios.tcgetattr(0)
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(0, termios.TCSADRAIN, mode)
        self._drawn = None
        self._write(ENTER)

    def _give_back(self) -> None:
        """The terminal as it was."""
        import termios

        try:
            self._write(LEAVE)
        except OSError:
            pass
        if self._keys is not None:
            try:
                termios.tcsetattr(0, termios.TCSADRAIN, self._keys)
            except termios.error:
                pass

    def _write(self, text: str) -> None:
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        while rest:
            rest = rest[os.write(1, rest) :]


def fitted(
    lines: list[str], rows: int, spared: tuple[str, ...] = (), kept: tuple[str, ...] = ()
) -> tuple[list[str], int]:
    """A page of blocks with blank lines between them in so many rows, and how many of its lines that leaves out.

    The longest blocks are cut first, and say so, but not to less than LIKED lines; then those go that begin with a
    word of `spared`, one after another; then blocks are cut to LEAST lines, then those of `kept` go, then blank lines,
    and the end. Room that is left goes to the last of `kept` up to LIKED lines; to those of `kept` that went, as far as
    LEAST lines of one fit; to what is cut, the shortest first; and then to those of `spared`.
    """
    if len(lines) <= rows:
        return lines, 0
    blocks, told, gone = _blocks(lines), sum(map(bool, lines)), list[int]()
    limits = [len(each) for each in blocks]
    for word, least in ((None, LIKED), *((word, LIKED) for word in spared), (None, LEAST), *((w, LEAST) for w in kept)):
        gone += [at for at, each in enumerate(blocks) if word is not None and _bare(each[0]).startswith(word)]
        limits = [0 if at in gone else min(len(each), least) for at, each in enumerate(blocks)]
        if _taken(limits) <= rows:
            break
    last = [at for at, each in enumerate(blocks) if _bare(each[0]).startswith(kept[-1:] or (CUT,))]
    _grow(blocks, limits, rows, [at for at in last if limits[at]], LIKED)
    for those in (kept, spared):
        _give_back(blocks, limits, rows, [at for at in reversed(gone) if _bare(blocks[at][0]).startswith(those)])
        _grow(blocks, limits, rows, [at for at, limit in enumerate(limits) if limit])
    page = _cut(blocks, limits)
    if len(page) > rows:
        page = [line for line in page if line][:rows]
    return page, told - sum(bool(line) and not line.startswith(CUT) for line in page)


LIKED, LEAST = 6, 3
"""Lines of a block that are kept as long as possible; and its head, the first of it, and how much more there is."""

CUT = "       .. "


def _grow(blocks: list[list[str]], limits: list[int], rows: int, those: list[int], most: int | None = None) -> None:
    """Give the room that is left to these, the shortest first, each to its end or to `most` lines."""
    while _taken(limits) < rows:
        cut = [at for at in those if limits[at] < min(len(blocks[at]), len(blocks[at]) if most is None else most)]
        if not cut:
            return
        limits[min(cut, key=lambda at: limits[at])] += 1


def _give_back(blocks: list[list[str]], limits: list[int], rows: int, gone: list[int]) -> None:
    """Show those that went again, as far as LEAST lines of one fit."""
    for at in gone:
        least = min(len(blocks[at]), LEAST)
        limits[at] = least if _taken(limits) + 1 + least <= rows else 0


def _taken(limits: list[int]) -> int:
    """The rows of a page of blocks that get so many lines, blank lines between them."""
    shown = [each for each in limits if each]
    return sum(shown) + max(0, len(shown) - 1)


def _cut(blocks: list[list[str]], limits: list[int]) -> list[str]:
    """The page of these blocks, each cut to its limit."""
    page: list[str] = []
    for each, limit in zip(blocks, limits, strict=True):
        if limit:
            cut = each if len(each) <= limit else [*each[: limit - 1], _more(len(each) - limit + 1)]
            page += [""] * bool(page) + cut
    return page


def _bare(line: str) -> str:
    """A line without the colour that it begins with."""
    return line.partition("m")[2] if line.startswith("\x1b[") else line


def _more(count: int) -> str:
    return f"{CUT}{say.counted(count, 'line')} more"


def _blocks(lines: list[str]) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line:
            blocks[-1].append(line)
        elif blocks[-1]:
            blocks.append([])
    return [each for each in blocks if each]
