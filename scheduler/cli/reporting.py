"""`schedq report`: what became of a batch, or of all jobs since a time, on one page; and its exit code for CI."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import replace

from scheduler.cli import moments, report_page, say
from scheduler.cli.fast import Call
from scheduler.clock import seconds
from scheduler.config import Paths, absolute
from scheduler.errors import NoSuchJob, Temporary, UsageError
from scheduler.night import gathering
from scheduler.night.comparing import compared
from scheduler.night.report import Report
from scheduler.night.stepping import with_steps

FORMS = ("html", "junit")
"""Forms that are written into files."""

NO_PLACE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)
AT_ONCE = 256 << 10


def report(call: Call) -> int:
    """0 all good, 1 something failed or has not ended, 4 no such batch. With files alone stdout has the verdict."""
    paths = Paths()
    _refuse_two(call)
    found = _gathered(call, paths)
    before = _before(found, call.text("against"), paths)
    if before is not None:
        found = replace(found, against=compared(found, before))
    found = with_steps(found)
    on_stdout = [form for form in FORMS if call.text(form) == "-"]
    for form in FORMS:
        target = call.text(form)
        if target is not None and target != "-":
            _write(_document(found, form), target, paths)
    if on_stdout:
        _print(_document(found, on_stdout[0]))
    elif call.flag("json"):
        from scheduler.night.as_json import as_json

        say.out(say.document(as_json(found)))
    elif call.flag("md"):
        from scheduler.night.markdown import markdown

        _print(f"{line}\n" for line in markdown(found))
    elif any(call.text(form) for form in FORMS):
        say.out(report_page.verdict(found))
    else:
        say.out("\n".join(report_page.page(found)))
    return found.exit_code


def _refuse_two(call: Call) -> None:
    """UsageError where two things would go to stdout, or jobs are named in two ways."""
    if call.text("batch") is not None and call.text("since") is not None:
        raise UsageError("report takes a batch or --since, not both: leave out one of them")
    given = [f"--{form} -" for form in FORMS if call.text(form) == "-"]
    given += [f"--{form}" for form in ("json", "md") if call.flag(form)]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} would both go to stdout; name a file for one of them, or leave it out")


def _gathered(call: Call, paths: Paths) -> Report:
    batch, since = call.text("batch"), call.text("since")
    if since is not None:
        return gathering.gathered(paths, None, seconds(moments.since(since)))
    if batch is None or batch == "last":
        newest = gathering.newest(paths)
        if batch == "last" and "last" in gathering.newest(paths, 1000):
            newest = ["last"]
        if not newest:
            if batch == "last":
                raise NoSuchJob(f"no batch in the queue at {paths.home}; schedq submit --batch NAME makes one")
            say.note("no batch yet; these are the jobs since 20:00, and --since takes another time")
            return gathering.gathered(paths, None, seconds(moments.since("20:00")))
        batch = newest[0]
        say.note(f"the newest batch, {batch}; --since 20:00 has all jobs since then")
    return gathering.gathered(paths, batch)


def _before(found: Report, against: str | None, paths: Paths) -> Report | None:
    """The report to compare with, None for none: a first batch has none before it. UsageError, NoSuchJob."""
    if against is None:
        return None
    if against == "last" and found.batch is None:
        raise UsageError(
            "--against last is the batch before this one, and --since names none; name it: --against BATCH"
        )
    name = gathering.earlier(paths, found.batch or "") if against == "last" else against
    if name is None:
        say.note(f"there is none to compare it with: none before {found.batch} has any of its cases, or a name like it")
        return None
    if name == found.batch:
        raise UsageError(f"--against {name!r} is the same batch; name an earlier one, or last")
    return gathering.gathered(paths, name)


def _document(found: Report, form: str) -> Iterable[str]:
    if form == "html":
        from scheduler.night.html import html

        return html(found)
    from scheduler.night.junit import junit

    return (f"{line}\n" for line in junit(found))


def _blocks(parts: Iterable[str]) -> Iterator[bytes]:
    """Text as blocks of bytes; what is no text of UTF-8 as a question mark."""
    some: list[str] = []
    letters = 0
    for part in parts:
        some.append(part)
        letters += len(part)
        if letters >= AT_ONCE:
            yield "".join(some).encode("utf-8", "replace")
            some, letters = [], 0
    yield "".join(some).encode("utf-8", "replace")


def _print(parts: Iterable[str]) -> None:
    for block in _blocks(parts):
        say.data(block)


def _write(parts: Iterable[str], target: str, paths: Paths) -> None:
    """Into a file by temp and rename, in the place of what was there; a device or a pipe is written into."""
    from scheduler import outputs

    path = absolute(target, "the file")
    device = False
    try:
        device = not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path)
    except OSError:
        pass
    if not device:
        outputs.refuse_kept(path, paths.home)
        if os.path.isdir(path):
            raise UsageError(f"{path} is a folder; name a file in it, like {os.path.join(path, 'report.html')}")
    beside = path if device else f"{path}.{os.getpid()}.tmp"
    try:
        with open(beside, "wb") as file:
            for block in _blocks(parts):
                file.write(block)
        if not device:
            os.rename(beside, path)
    except OSError as error:
        if not device and os.path.lexists(beside):
            os.unlink(beside)
        kind: type[UsageError | Temporary] = UsageError if error.errno in NO_PLACE else Temporary
        raise kind(f"{path} cannot be written: {error.strerror}; name another place") from None
    say.note(f"wrote {path}")
