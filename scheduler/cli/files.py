"""`schedq files`: what a provider needs of files, what is there, fetched when that is asked for, verified."""

from __future__ import annotations

import os
from typing import Any

from scheduler import catalog, wake
from scheduler.cli import endings, say
from scheduler.cli.fast import Call
from scheduler.cli.ticker import Ticker
from scheduler.clock import monotonic_s
from scheduler.config import Paths
from scheduler.errors import SchedqError, Temporary, UsageError
from scheduler.host import download, named_files, unpacking

Spec = dict[str, Any]
Row = dict[str, Any]

QUIET_S, TICK_S = 15.0, 0.2
"""How often is said how far a file is: where nobody looks at a terminal, and where somebody does."""

GOOD = (named_files.THERE, named_files.FOLDER, named_files.GOOD, named_files.UNDECLARED)


def files(call: Call) -> int:
    """List a provider's files, fetch or verify them. 1 if one is not what it should be, 75 if that may change."""
    spec = catalog.load(Paths()).spec(call.text("slug") or "")
    asked = [word for word in ("list", "fetch", "verify") if call.flag(word)]
    if len(asked) > 1:
        raise UsageError(f"--{asked[0]} and --{asked[1]} are two things; ask for one, then for the other")
    if call.flag("overwrite") and asked != ["fetch"]:
        raise UsageError("--overwrite says what --fetch may replace; give both")
    try:
        with endings.raised():
            rows = {"fetch": _fetch, "verify": _verify}.get("".join(asked), _list)(spec, call)
    except endings.Ended as ended:
        raise ended.interrupted("what was fetched stays, and the same call goes on after it") from None
    good = all(row["state"] in GOOD for row in rows)
    if call.flag("json"):
        names = {"schema_version": 1, "slug": spec["slug"], "variant": spec["variant"]}
        say.out(say.document({**names, "files": rows, "good": good}))
    else:
        _print(spec, rows)
    if asked in ([], ["list"]) or good:
        return 0
    return Temporary.exit_code if all(row.get("again") for row in rows if row["state"] not in GOOD) else 1


def _list(spec: Spec, _call: Call) -> list[Row]:
    return [named_files.state_of(spec, file) for file in spec["files"]]


def _verify(spec: Spec, _call: Call) -> list[Row]:
    rows = []
    for file in spec["files"]:
        with Progress(named_files.path_of(spec, file), "reading") as progress:
            rows.append(named_files.verified(spec, file, progress.told))
    return rows


def _fetch(spec: Spec, call: Call) -> list[Row]:
    """Fetch what is not there, one file after another; one that cannot be had does not keep the others from it."""
    over = call.flag("overwrite")
    rows = [_judged(spec, file, overwrite=over) for file in spec["files"]]
    _refuse_no_room([row for row in rows if row["wanted"] and row["url"]])
    replaced: set[str] = set()
    done: dict[int, Row] = {}
    for at, (file, row) in sorted(enumerate(zip(spec["files"], rows, strict=True)), key=lambda each: _last(each[1][1])):
        anew = over and (row["archive"] in replaced or row["state"] in named_files.ODD)
        if not row.pop("wanted") and not (row["archive"] and anew):
            done[at] = row
            continue
        try:
            done[at] = _fetched(spec, file, row, anew=anew)
            replaced.add(row["path"])
            if over:
                _doubt([each["path"] for each in rows if each["archive"] == row["path"]])
        except SchedqError as error:
            say.note(f"schedq: {error}")
            now = named_files.state_of(spec, file)
            state = now["state"] if now["state"] not in GOOD else row["state"]
            again = error.exit_code == Temporary.exit_code
            done[at] = {**now, "state": state, "text": str(error), "again": again}
    wake.nudge(Paths())
    return [done[at] for at in range(len(rows))]


def _last(row: Row) -> bool:
    """What is unpacked comes after the archives, wherever it is declared."""
    return row["archive"] is not None


def _doubt(folders: list[str]) -> None:
    for folder in folders:
        try:
            unpacking.doubt(folder)
        except OSError as error:
            raise SchedqError(f"{folder} cannot be noted to be of another archive: {error.strerror}") from None


def _judged(spec: Spec, file: Row, *, overwrite: bool) -> Row:
    """What is there of a file, and whether it is to be fetched."""
    row = named_files.state_of(spec, file)
    if overwrite and row["state"] == named_files.THERE and row["sha256"]:
        with Progress(row["path"], "reading") as progress:
            row = named_files.verified(spec, file, progress.told)
    gone = row["state"] in (named_files.MISSING, named_files.PART)
    odd = row["state"] in named_files.ODD
    if odd and not overwrite:
        row["text"] += "; --overwrite with --fetch replaces it"
    return {**row, "wanted": gone or (odd and overwrite)}


def _refuse_no_room(rows: list[Row]) -> None:
    """Temporary if a disk cannot hold all that is to be fetched to it, as far as its size is declared."""
    wanted: dict[int, int] = {}
    where: dict[int, str] = {}
    for row in rows:
        folder = os.path.dirname(row["path"])
        while not os.path.isdir(folder) and os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
        disk = os.stat(folder).st_dev
        part = (row["have_bytes"] or 0) if row["state"] == named_files.PART else 0
        wanted[disk] = wanted.get(disk, 0) + max(0, (row["bytes"] or 0) - part)
        where[disk] = folder
    for disk, bytes_ in wanted.items():
        found = os.statvfs(where[disk])
        free = found.f_bavail * found.f_frsize
        if bytes_ > free:
            raise Temporary(
                f"the files take {named_files.size(bytes_)} more, and the disk of {where[disk]} has "
                f"{named_files.size(free)} free; nothing was fetched. Free some and ask again"
            )


def _fetched(spec: Spec, file: Row, row: Row, *, anew: bool) -> Row:
    if row["archive"]:
        archive = named_files.state_of(spec, named_files.archive_of(spec, file))
        if archive["state"] == named_files.SHORT:
            raise SchedqError(
                f"{row['path']} is unpacked from another archive: {archive['text']}. Nothing was unpacked; run: "
                f"{named_files.fetching(_name(spec), [archive])}"
            )
        with Progress(row["path"], "unpacking") as progress, Progress(row["archive"], "reading") as checking:
            unpacking.unpack(
                row["archive"], row["path"], progress.told, progress.say, sha256=archive["sha256"], anew=anew,
                checking=checking.told,
            )  # fmt: skip
        return named_files.state_of(spec, file)
    if not row["url"]:
        raise SchedqError(
            f"{row['path']}: {spec['manifest']} gives no address of it; put it there, then run: "
            f"schedq files {_name(spec)} --verify"
        )
    with Progress(row["path"], "fetching") as progress, Progress(row["path"], "checking") as checking:
        found = download.fetch(row, progress.told, checking.told, progress.say)
    now = {**named_files.state_of(spec, file), "found_sha256": found}
    state = named_files.GOOD if now["sha256"] else named_files.UNDECLARED
    say.note(f"{now['path']}: {named_files.size(now['have_bytes'] or 0)}, " + _judgement({**now, "state": state}))
    return {**now, "state": state}


def _judgement(row: Row) -> str:
    if row["state"] == named_files.UNDECLARED:
        return f"not checked, as no sha256 is declared; it is {row['found_sha256']}"
    return str(row["state"])


class Progress:
    """How far one file is, on stderr: in a line that is written over on a terminal, else now and then in one more."""

    def __init__(self, path: str, verb: str) -> None:
        self._name, self._verb, self._ticker = os.path.basename(path), verb, Ticker()
        self._began: tuple[float, int] | None = None
        self._said_s = monotonic_s()

    def __enter__(self) -> Progress:
        """Nothing is said before something comes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take the line away."""
        self._ticker.clear()

    def say(self, text: str) -> None:
        """Something else, on a line of its own."""
        self._ticker.clear()
        say.note(text)

    def told(self, done: int, of: int | None) -> None:
        """So many bytes are there, of so many, None = nobody says."""
        now_s = monotonic_s()
        if self._began is None:
            self._began = (now_s, done)
        if now_s - self._said_s < (TICK_S if self._ticker.on else QUIET_S):
            return
        self._said_s = now_s
        text = f"{self._verb} {self._name}: {self._far(done, of, now_s)}"
        if self._ticker.on:
            self._ticker.show(text)
        else:
            say.note(text)

    def _far(self, done: int, of: int | None, now_s: float) -> str:
        began_s, before = self._began or (now_s, done)
        rate = (done - before) / (now_s - began_s) if now_s > began_s else 0.0
        told = named_files.size(done) + (f" of {named_files.size(of)}, {100 * done // of} %" if of else "")
        if rate > 0:
            told += f", {named_files.size(int(rate))}/s"
            if of and of > done:
                told += f", {say.span((of - done) / rate)} left"
        return told


def _name(spec: Spec) -> str:
    return f"{spec['slug']}:{spec['variant']}" if spec["variant"] else str(spec["slug"])


def _print(spec: Spec, rows: list[Row]) -> None:
    name = _name(spec)
    if not rows:
        say.out(f"{name} needs no files")
        return
    for row in rows:
        have = row["have_bytes"] if row["have_bytes"] is not None else row["bytes"]
        size = "-" if have is None else f"{have} bytes"
        colour = "green" if row["state"] in GOOD else "red"
        digest = row["sha256"] or row.get("found_sha256") or ""
        about = f"{size:>18}  sha256 {digest[:16] or '-'}"
        say.out(f"{say.paint(say.fill(row['state'], 13), colour)} {about}".rstrip())
        say.out(f"    {say.plain(row['path'])}")
        if row["url"]:
            say.out(f"    {say.plain(row['url'])}")
        if row["text"] and row["state"] not in (named_files.MISSING,):
            say.out("\n".join(say.wrap(row["text"], "    ")))
    lacks = [
        row
        for row in rows
        if row["state"] in (named_files.MISSING, named_files.PART, *named_files.ODD) and (row["url"] or row["archive"])
    ]
    if lacks:
        bytes_ = sum(row["bytes"] or 0 for row in lacks)
        size = f" ({named_files.size(bytes_)})" if bytes_ else ""
        be = "is" if len(lacks) == 1 else "are"
        odd = any(row["state"] in named_files.ODD for row in lacks)
        told = (
            f"{len(lacks)} of {say.counted(len(rows), 'file')} {be} not {'what is declared' if odd else 'there'}{size}"
        )
        say.note(f"{told}: {named_files.fetching(name, lacks)}")
