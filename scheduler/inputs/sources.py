"""Where inputs come from: arguments expanded to files, files read whole, anything else named for what it is.

Imported by the fast paths: standard library only.
"""

from __future__ import annotations

import os
import stat

from scheduler import config
from scheduler.errors import InvalidInput, UsageError
from scheduler.inputs import formats
from scheduler.inputs.cache import signature

MIB = 1 << 20
_limits: dict[object, int] = {}


def quoted(path: str) -> str:
    """A path as it can be shown: with quotes and escapes where it has blanks, line ends or bytes that are no text."""
    return path if path.isprintable() and " " not in path and path else repr(path)


def expand(sources: list[str], accept: list[str] | None = None, left_out: list[str] | None = None) -> list[str]:
    """The inputs that these arguments mean: `-` kept, patterns and folders expanded in order.

    Of a folder those of its files whose endings are accepted (any unless `accept` is given), sorted; `left_out` gets
    the paths of its other files and folders. UsageError names every argument that is missing or has nothing.
    """
    found: list[str] = []
    wrong: list[str] = []
    for source in sources:
        if source == "-":
            if "-" in found:
                wrong.append("- is given twice, and standard input can be read once; leave out one")
            found.append(source)
        elif not _there(source) and any(each in source for each in "*?["):
            import glob

            matched = sorted(each for each in glob.glob(source, recursive=True) if not os.path.isdir(each))
            if not matched:
                wrong.append(f"{quoted(source)} matches no file; correct the pattern")
            found += matched
        elif not _there(source):
            wrong.append(_missing(source))
        elif os.path.isdir(source):
            try:
                inside, others, broken = _in_folder(source, accept or [])
            except OSError as error:
                wrong.append(f"the folder {quoted(source)} cannot be read: {error.strerror}")
                continue
            wrong += broken
            if not inside and not broken:
                of_them = f" that ends in {', '.join(accept)}" if accept else ""
                wrong.append(f"{quoted(source)} is a folder, and no file lies in it{of_them}; name files, or another")
            found += inside
            if left_out is not None:
                left_out += others
        else:
            found.append(source)
    if wrong:
        more = f"\nand {len(wrong) - 20} more" if len(wrong) > 20 else ""
        raise UsageError("\n".join(wrong[:20]) + more)
    return found


def _in_folder(folder: str, accept: list[str]) -> tuple[list[str], list[str], list[str]]:
    """(the files of a folder that have an accepted ending, what else lies in it, what is wrong with links that should
    be among the first), sorted; hidden ones are none of them."""
    inside: list[str] = []
    others: list[str] = []
    broken: list[str] = []
    with os.scandir(folder) as entries:
        for each in sorted(entries, key=lambda entry: entry.name):
            if each.name.startswith("."):
                continue
            path = os.path.join(folder, each.name)
            fits = not accept or formats.accepted(formats.suffix(each.name, accept), accept)
            try:
                kind = os.stat(path).st_mode
            except FileNotFoundError:
                (broken if fits else others).append(_missing(path) if fits else path)
                continue
            except OSError as error:
                (broken if fits else others).append(
                    f"{quoted(path)} cannot be read: {error.strerror}" if fits else path
                )
                continue
            (inside if fits and stat.S_ISREG(kind) else others).append(path)
    return inside, others, broken


KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip
"""What lies at a path that is no file."""


def named(path: str) -> str:
    """A path as it can be shown, with what lies there if that is no file."""
    try:
        kind = KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except (OSError, ValueError):
        kind = "a link that leads nowhere" if os.path.islink(path) else None
    return f"{quoted(path)} ({kind})" if kind else quoted(path)


def _there(path: str) -> bool:
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def _missing(path: str) -> str:
    import difflib

    config.absolute(path, "the input")
    bare = path.rstrip("/")
    if os.path.islink(path):
        return f"{quoted(path)} is a link to {quoted(os.readlink(path))}, which is not there; correct the link"
    if bare != path and os.path.isfile(bare):
        return f"{quoted(path)} ends with a slash, and {quoted(bare)} is a file; leave out the slash"
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")[:2000]
    except NotADirectoryError:
        return f"{quoted(path)} is not there: {quoted(_file_in(folder))} is a file and no folder; correct the path"
    except (OSError, ValueError):
        whole = f"; the folder {quoted(folder)} is not there either" if folder else ""
        return f"{quoted(path)} is not there{whole}; correct the path"
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {quoted(os.path.join(folder, near[0]))}?" if near else "correct the path"
    return f"{quoted(path)} is not there; {hint}"


def _file_in(folder: str) -> str:
    """The part of a path that is no folder, and so ends the way."""
    while folder and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    return folder


def read(source: str) -> tuple[bytes, str, str | None]:
    """An input's bytes, its file name and the folder that it lies in; of `-` the name is `stdin`, the folder None.

    UsageError for what is no readable regular file, without blocking on it; InvalidInput over `input_max_mib`.
    """
    limit = largest()
    if source == "-":
        import sys

        if sys.stdin is None:
            raise UsageError("- means standard input, and that is closed; name a file")
        data = sys.stdin.buffer.read(limit + 1)
        if len(data) > limit:
            raise InvalidInput(_too_large("standard input", len(data), limit, at_least=True))
        return data, "stdin", None
    fd = opened(source, "")
    try:
        size = os.fstat(fd).st_size
        if size > limit:
            raise InvalidInput(_too_large(quoted(source), size, limit))
        with open(fd, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise UsageError(f"{quoted(source)} cannot be read: {error.strerror}") from None
    finally:
        os.close(fd)
    if len(data) > limit:
        raise InvalidInput(_too_large(quoted(source), len(data), limit, at_least=True))
    path = config.absolute(source, "the input")
    name = os.fsencode(os.path.basename(path)).decode("utf-8", "replace")
    return data, name, os.path.dirname(path)


def largest() -> int:
    """The largest input in bytes: `input_max_mib`, read again when the configuration changes."""
    key = (os.environ.get("SCHEDQ_INPUT_MAX_MIB"), *(str(signature(each)) for each in config.config_files()))
    if key not in _limits:
        _limits.clear()
        _limits[key] = int(config.settings().number("input_max_mib") * MIB)
    return _limits[key]


def refuse_large(data: bytes, what: str) -> None:
    """InvalidInput for bytes that a file would not be read for: over `input_max_mib`."""
    if len(data) > largest():
        raise InvalidInput(_too_large(what, len(data), largest()))


def _too_large(what: str, size: int, limit: int, at_least: bool = False) -> str:
    return (
        f"{what} has {'at least ' if at_least else ''}{size} bytes ({size / MIB:.1f} MiB), and an input may have "
        f"{limit} ({limit / MIB:.1f} MiB); make it smaller, or raise input_max_mib in the configuration"
    )


def opened(path: str, what: str) -> int:
    """A descriptor of a readable regular file; never waits for a pipe. UsageError says what it is instead."""
    shown = what or quoted(path)
    try:
        seen = os.stat(path)
        if stat.S_ISREG(seen.st_mode):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return fd
            os.close(fd)
            seen = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(_missing(path) if not what else f"{shown} is not there") from None
    except PermissionError:
        raise UsageError(f"{shown} may not be read by you; change its permissions (chmod u+r)") from None
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{shown} is no path: it holds a NUL character") from None
    kinds = {
        stat.S_IFDIR: "a folder; name its files", stat.S_IFIFO: "a pipe; hand its data over as - (standard input)",
        stat.S_IFCHR: "a device; name a file, or - for standard input", stat.S_IFBLK: "a device; name a file",
        stat.S_IFSOCK: "a socket; name a file",
    }  # fmt: skip
    raise UsageError(f"{shown} is {kinds.get(stat.S_IFMT(seen.st_mode), 'no regular file; name a file')}")
