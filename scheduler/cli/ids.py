"""Which jobs a call means: `7`, `3-9,12`, `last`, or filters."""

from __future__ import annotations

from scheduler.cli.fast import Call
from scheduler.cli.grammar import nearest
from scheduler.cli.options import OUTCOMES, STATES
from scheduler.config import Paths
from scheduler.errors import BrokenManifest, NoSuchJob, UnknownProvider, UsageError

FILTERS = ("batch", "label", "slug", "state", "outcome", "name", "mine", "user", "since")
MOST = 1_000_000


def numbers(words: list[str], paths: Paths) -> list[int]:
    """The ids that words name, in order and once each. UsageError for what is no id, NoSuchJob for an empty queue."""
    found: dict[int, None] = {}
    for word in words:
        for part in word.split(","):
            for job_id in _range(part.strip(), word, paths):
                found[job_id] = None
    return list(found)


def one(word: str, paths: Paths) -> int:
    """The single id that a word names."""
    found = numbers([word], paths)
    if len(found) != 1:
        raise UsageError(f"{word!r} names {len(found)} jobs, and this takes one")
    return found[0]


def _range(part: str, word: str, paths: Paths) -> range:
    from scheduler.store import peek

    if part == "last":
        last = peek.last_id(paths)
        if last is None:
            raise NoSuchJob(f"no job in {paths.home} yet; schedq submit makes one")
        return range(last, last + 1)
    first, dash, last_word = part.partition("-")
    if not _is_number(first) or (dash and not _is_number(last_word)):
        raise UsageError(f"{word!r} is no job id; write 7, 3-9,12 or last")
    low, high = int(first), int(last_word) if dash else int(first)
    if high < low:
        raise UsageError(f"{word!r} runs backwards; write {high}-{low}")
    if high - low >= MOST:
        raise UsageError(f"{word!r} names more than {MOST} jobs; use filters like --batch")
    return range(low, high + 1)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18


def filters(call: Call) -> dict[str, object]:
    """The filters that a call gives, as store.peek.ids takes them."""
    given: dict[str, object] = {key: call.values[key] for key in FILTERS if call.values.get(key)}
    if "since" in given:
        from scheduler.cli import moments

        given["since"] = moments.since(str(given["since"]))
    if given.pop("mine", False):
        if "user" in given:
            raise UsageError("--mine and --user both name who submitted it; give one of them")
        from scheduler.store import identity

        given["user"] = identity.user()
    for key, words in (("state", STATES), ("outcome", OUTCOMES)):
        if key in given:
            given[key] = _words(f"--{key}", str(given[key]), words)
    return given


def _words(flag: str, text: str, known: tuple[str, ...]) -> list[str]:
    """What a list with commas names, once each. UsageError for a word that is none of `known`."""
    found = list(dict.fromkeys(each.strip() for each in text.split(",")))
    for word in found:
        if word not in known:
            raise UsageError(f"{flag} {word!r} is none of {', '.join(known)}{nearest(word, list(known))}")
    return found


def chosen(call: Call, paths: Paths) -> list[int] | None:
    """The jobs of a call by ids or filters; None if it gave neither. UsageError if it gave both.

    NoSuchJob for a --batch and UnknownProvider for a --slug that is nobody's: a slip is not taken for "nothing to do".
    """
    given = asked(call)
    if given:
        return found(given, paths)
    words = call.many("ids")
    return numbers(words, paths) if words else None


def asked(call: Call) -> dict[str, object]:
    """The filters of a call that may give ids instead. UsageError if it gave both."""
    given = filters(call)
    if given and call.many("ids"):
        raise UsageError(f"{call.verb} takes ids or filters, not both: leave out the filters or the ids")
    return given


def found(given: dict[str, object], paths: Paths) -> list[int]:
    """The jobs that meet these filters. NoSuchJob or UnknownProvider where one names what was never there."""
    from scheduler.store import peek

    jobs = peek.ids(paths, given)
    if not jobs and {"slug", "batch", "label"} & set(given):
        _require_known(given, paths)
    return jobs


def _require_known(given: dict[str, object], paths: Paths) -> None:
    """Raise for a slug that is neither a provider's nor a job's, a batch or label that no job has; with the nearest."""
    from scheduler.store import history, peek

    slug, batch = given.get("slug"), given.get("batch")
    batches, slugs = peek.names(paths, str(batch))
    if slug is not None and slug not in slugs:
        _require_provider(str(slug), slugs, paths)
    if batch is not None and batches is not None:
        hint = nearest(str(batch), batches)
        raise NoSuchJob(f"no job has the batch {batch!r} in the queue at {paths.home}{hint or SHOWS_BATCHES}")
    for label in map(str, given.get("label") or ()):  # type: ignore[call-overload]
        labels = history.labels(paths, label)
        if labels is not None:
            hint = nearest(label, labels) or "; schedq submit --label LABEL gives it one"
            raise NoSuchJob(f"no job has the label {label!r} in the queue at {paths.home}{hint}")


SHOWS_BATCHES = "; schedq show ID names the batch that a job has, and schedq submit --batch NAME gives it one"


def _require_provider(slug: str, with_jobs: list[str], paths: Paths) -> None:
    """UnknownProvider, with the nearest, for a slug that no job and no manifest has; a broken manifest is one."""
    from scheduler import catalog

    try:
        catalog.load(paths).spec(slug)
    except UnknownProvider as error:
        hint = nearest(slug, with_jobs)
        if not hint or "did you mean" in str(error):
            raise
        raise UnknownProvider(f"no provider {slug!r}, and no job of one{hint}") from None
    except BrokenManifest:
        pass


def needed(call: Call, paths: Paths) -> list[int]:
    """The jobs of a call, which must name some."""
    found = chosen(call, paths)
    if found is None:
        raise UsageError(f"{call.verb} needs jobs: ids like 7 or 3-9,12 or last, or filters like --batch NAME")
    return found
