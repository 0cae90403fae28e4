"""Long lists: through a pager on a terminal, straight out everywhere else."""

from __future__ import annotations

import os
from itertools import chain

from scheduler.cli import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHELL, USUAL, LESS = "/bin/sh", "less", "FRX"
"""What runs a pager, the pager where $PAGER names none, and how it behaves where $LESS says nothing: it leaves by
itself if all of it fits, lets colour through, and leaves the page on the screen."""

CANNOT_RUN, HELD_BYTES = (126, 127), 1 << 20
"""What a shell answers for a command that it cannot run or find; more than a pipe ever holds unread."""


def rows(fd: int = 1) -> int:
    """How many lines the terminal on `fd` has; 24 where it does not tell."""
    try:
        return os.get_terminal_size(fd).lines or 24
    except OSError:
        return 24


def out(lines: Iterable[str]) -> None:
    """Print lines; on a terminal with fewer rows than that, through $PAGER or less. Who leaves it early has enough."""
    source, begun = iter(lines), []
    command = _pager()
    if command is not None:
        room = rows()
        for line in source:
            begun.append(line)
            if len(begun) >= room:
                break
        else:
            command = None
    blocks = _blocks(chain(begun, source))
    for block in blocks if command is None else _left(command, blocks):
        say.data(block)


def _pager() -> str | None:
    """The command that pages, None where nothing is to be paged."""
    if not os.isatty(1) or os.environ.get("TERM", "dumb") == "dumb":
        return None
    named = os.environ.get("PAGER")
    if named is not None:
        return named if named.strip() not in ("", "cat") else None
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return USUAL if any(os.access(os.path.join(each, USUAL), os.X_OK) for each in folders if each) else None


def _left(command: str, blocks: Iterator[bytes]) -> Iterable[bytes]:
    """Pipe blocks into a pager and wait until it is left; what nobody has seen then, where it cannot be run."""
    import _signal  # type: ignore[import-not-found]

    reader, writer = os.pipe()
    try:
        environment = {"LESS": LESS, **os.environ}
        child = os.posix_spawn(
            SHELL, ["sh", "-c", command], environment, file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0)]
        )
    except OSError:
        os.close(writer)
        return blocks
    finally:
        os.close(reader)
    before = _signal.signal(_signal.SIGINT, _signal.SIG_IGN)  # Ctrl-C is the pager's
    first: list[bytes] = []  # of a pager that does not run no more is taken than a pipe holds
    taken = 0
    try:
        for block in blocks:
            first += [block] if taken <= HELD_BYTES else []
            rest = memoryview(block)
            while rest:
                done = os.write(writer, rest)
                rest, taken = rest[done:], taken + done
    except BrokenPipeError:
        pass
    finally:
        os.close(writer)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        _signal.signal(_signal.SIGINT, before)
    return chain(first, blocks) if code in CANNOT_RUN and taken <= HELD_BYTES else ()


def _blocks(lines: Iterable[str]) -> Iterator[bytes]:
    for line in lines:
        yield (line + "\n").encode("utf-8", "backslashreplace")
