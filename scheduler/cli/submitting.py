"""`submit`: jobs go in, one for each input or for each row of a file; all of them, or none."""

from __future__ import annotations

from scheduler import wake
from scheduler.cli import requests, say, sight
from scheduler.cli.bar import Bar
from scheduler.cli.fast import Call
from scheduler.client import Client
from scheduler.errors import SchedqError, UsageError
from scheduler.store import peek, turnstile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from scheduler.asked import Asking

    Specs = list[dict[str, Any]]

MANY = 1000
"""So many jobs take long enough for a bar."""


def submit(call: Call) -> int:
    """Queue what a call asks for and print the ids, one a line; nothing else goes to stdout."""
    client = Client()
    if call.flag("resume") and not call.text("batch") and call.text("source") is None:
        raise UsageError("--resume goes on with a batch; name it: --batch NAME")
    asking, count, specs = _asked(client, call)
    if call.flag("dry_run"):
        from scheduler.cli import foretelling

        return foretelling.foretell(call, client, asking, count, specs)
    if asking.faults:
        raise _refusal(call, client, asking, count)
    bar = Bar("queueing", len(asking.rows)) if len(asking.rows) > MANY else None
    try:
        client.enqueue(asking.rows, lambda ids: _told(call, client, ids, bar), resume=call.flag("resume"), tell=bar)
    except SchedqError as error:
        if bar is not None:
            bar.clear()
        raise _summed(call, error, count) from None
    requests.note_moved(client)
    if call.flag("resume"):
        _note_resumed(client.fates, call.text("batch") or "")
    elif known := client.fates.count("known"):
        say.note(f"note: {client.fates.count('added')} queued, {known} {'was' if known == 1 else 'were'} there already")
    note_counted(client.counts)
    try:
        _notes(client, specs, held=call.flag("hold"))
    except (OSError, SchedqError):
        pass  # the ids are out, and what else there is to say is no reason to call that a failure
    return 0


def options_of(call: Call) -> dict[str, Any]:
    """The options of the jobs that a call says, as a Client takes them."""
    timeout_s = call.duration_s("timeout")
    if timeout_s == 0.0:
        raise UsageError(f"--timeout {call.text('timeout')} would end every attempt at once; give it 1ms or more")
    from scheduler import given

    more: dict[str, Any] = {}
    if call.many("label"):
        more["labels"] = given.labels(call.many("label"), "--label")
    if call.text("begin") is not None:
        more["begin"] = given.begin(call.text("begin"), "--begin")
    if call.many("after"):
        more["after"] = call.many("after")
    if call.text("on_parent") is not None:
        more["on_parent"] = call.text("on_parent")
    return {**requests.options_of(call), "timeout_s": timeout_s, "hold": call.flag("hold"), **more}


def _asked(client: Client, call: Call) -> tuple[Asking, int, Specs]:
    """(the requests of a call, checked; how many they are; what their providers declare)."""
    options = options_of(call)
    if call.text("source") is not None:
        return _of_file(client, call, options)
    if not call.text("slug"):
        raise UsageError("submit needs SLUG and INPUT, or --from FILE; schedq providers list shows the providers")
    left_out: list[str] = []
    spec, sources = requests.asked(client, call, call.many("input"), left_out)
    if left_out:
        _note_left_out(left_out, call.text("slug") or "")
    if len(sources) > 1:
        _note_twice(sources)
    bar = Bar("checking", len(sources)) if len(sources) > MANY else None
    each_after = call.text("each_after") or ""
    try:
        asking, count = client.asking(
            call.text("slug") or "", sources, spec=spec, resume=call.flag("resume"), tell=bar, each_after=each_after,
            **options,
        )  # fmt: skip
    finally:
        if bar is not None:
            bar.clear()
    return asking, count, [spec]


def _of_file(client: Client, call: Call, options: dict[str, Any]) -> tuple[Asking, int, Specs]:
    for key, why in (
        ("input", "has the inputs itself"), ("example", "has the inputs itself"), ("name", "names each job itself"),
        ("each_after", "says itself what each job comes after"),
    ):  # fmt: skip
        if call.values.get(key):
            flag = "an INPUT" if key == "input" else f"--{key.replace('_', '-')}"
            raise UsageError(f"{flag} was given too, and the file of --from {why}; leave out one of them")
    from scheduler.inputs import jobs_file
    from scheduler.night.batch import Batch

    jobs = jobs_file.read(call.text("source") or "")
    if call.text("key") and "{name}" not in (call.text("key") or "") and jobs.count > 1:
        raise UsageError("--key without {name} in it is one job's, and the file has more rows; use its key `key`")
    batch = Batch(client, call.text("slug") or "", options, resume=call.flag("resume"))
    bar = Bar("checking", jobs.count) if jobs.count > MANY else None
    try:
        batch.add_all(jobs, bar)
    finally:
        if bar is not None:
            bar.clear()
    return batch.asking, jobs.count, batch.specs()


def _refusal(call: Call, client: Client, asking: Asking, count: int) -> SchedqError:
    """The error for a call of which some requests are bad: also what the queue would say of the others."""
    from scheduler.errors import all_of
    from scheduler.store import intake

    resume, rows = call.flag("resume"), asking.rows
    more = intake.foretold(client.paths, rows, resume=resume, refused=asking.refused)[1] if rows else []
    seen = {where for _, where, _ in asking.faults}
    also = [(asking.asked_as[index][0], where, error) for index, where, error in more if where not in seen]
    return _summed(call, all_of([*asking.faults, *also], count, "jobs" if call.text("source") else "inputs"), count)


def _summed(call: Call, error: SchedqError, count: int) -> SchedqError:
    """The same error, of many rows summed up by what is wrong, and with a file of all."""
    from scheduler.errors import LISTED

    error = placed(call, error)
    if len(error.faults) <= LISTED:
        return error
    from scheduler.night import faults

    summed = type(error)(faults.summed(error.faults, count, call.text("source") or ""))
    summed.faults = error.faults
    return summed


def placed(call: Call, error: SchedqError) -> SchedqError:
    """The same error; of the only row of a file, with the name of that."""
    from scheduler.errors import LINE

    source = call.text("source")
    if source is None or not str(error).startswith(LINE):
        return error
    from scheduler.inputs.sources import quoted

    return type(error)(f"{'stdin' if source == '-' else quoted(source)}, {error}")


def _told(call: Call, client: Client, ids: list[int], bar: Bar | None) -> None:
    if bar is not None:
        bar.clear()
    if call.flag("json"):
        document: dict[str, Any] = {"schema_version": 1, "ids": ids, "batch": call.text("batch")}
        if call.flag("resume"):
            document["resumed"] = {fate: client.fates.count(fate) for fate in ("added", "reopened", "replaced", *LEFT)}
        text = say.document(document)
    else:
        text = "\n".join(map(str, ids))
    try:
        say.out(text)
    except (SchedqError, say.Quiet):
        say.note(f"schedq: queued as {_ids(ids)}, which stdout did not take")
        raise


LEFT = ("succeeded", "unended")


def _ids(ids: list[int]) -> str:
    if len(ids) > 1 and ids[-1] - ids[0] == len(ids) - 1:
        return f"{ids[0]}-{ids[-1]}"
    return ",".join(map(str, ids))


def resumed(fates: list[str]) -> str:
    """What became of the rows of a batch that was submitted again, in numbers."""
    succeeded, unended = (fates.count(each) for each in LEFT)
    known = fates.count("known")
    return (
        f"{fates.count('added')} added, {fates.count('reopened')} opened again, {_replaced(fates)}{succeeded + unended}"
        f" left as they are ({succeeded} succeeded, {unended} not ended)"
        + (f", {known} the same by their key" if known else "")
    )


def _replaced(fates: list[str]) -> str:
    count = fates.count("replaced")
    return f"{count} opened again with {'its' if count == 1 else 'their'} request replaced, " if count else ""


def note_counted(counts: dict[str, int], would: str = "") -> None:
    """Say what is to be said of a call beside what became of each row, by intake.COUNTED; `would`, of a dry run."""
    if doomed := counts.get("doomed"):
        one = doomed == 1
        say.note(
            f"note: {doomed} of these {would or 'will'} end failed in the scheduler's next turn, for the parent that"
            f" {'it comes' if one else 'they come'} after has ended without success"
        )
    if unclear := counts.get("unclear"):
        say.note(
            f"note: {unclear} {would and 'would be '}added though jobs of that batch that did not succeed have the same"
            " name, for more than one could be meant; a --key of its own for each says which"
        )


def _note_resumed(fates: list[str], batch: str) -> None:
    say.note(f"note: {f'batch {batch}: ' if batch else ''}{resumed(fates)}")


def _note_left_out(paths: list[str], slug: str) -> None:
    from scheduler.inputs.sources import named as called

    named = ", ".join(map(called, paths[:5])) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    say.note(
        f"note: {say.counted(len(paths), 'entry' if len(paths) == 1 else 'entrie')} left out, which are no files"
        f" that {slug} takes: {named}"
    )


def _note_twice(sources: list[str]) -> None:
    """Say which files a pattern and a folder, say, name both: who means that gets it, and who does not is told."""
    import os

    from scheduler.inputs.sources import quoted

    seen: set[str] = set()
    twice = []
    for each in sources:
        whole = os.path.abspath(each)
        if whole in seen:
            twice.append(each)
        seen.add(whole)
    if twice:
        named = ", ".join(map(quoted, twice[:5])) + (f" and {len(twice) - 5} more" if len(twice) > 5 else "")
        say.note(f"note: {say.counted(len(twice), 'input')} given more than once, and queued as often: {named}")


def _notes(client: Client, specs: Specs, *, held: bool) -> None:
    if held:
        say.note("note: held until schedq release")
    elif any(stops := peek.stopped(client.paths)):
        word = "drained" if stops[1] else "paused"
        say.note(f"note: the queue is {word}, so nothing starts yet; schedq queue resume ends that")
    for missing in filter(None, map(requests.not_installed, specs)):
        say.note(f"note: {missing}; {'the job waits' if len(specs) == 1 else 'its jobs wait'} until then")
    if not wake.scheduler_runs(client.paths):
        say.note("note: no scheduler runs, so nothing starts yet; start it: schedq up")
    elif (stopped := turnstile.stopped_scheduler(client.paths)) is not None:
        say.note(f"note: {turnstile.about_stopped(stopped)}")
    elif (about := sight.told(client.paths)) is None:
        say.note("note: the scheduler does not answer just now; if that stays so: schedq up --takeover")
    elif about.get("leaving") == "down":
        say.note("note: the scheduler is going down and starts nothing new; schedq up starts another when it has gone")
    else:
        sight.note_unknown(about)
