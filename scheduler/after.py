"""What a job comes after, as people write it: `7`, `3-9,12`, `last`, a batch or a name, each with `:ok` or `:any`.

`job:7` and `batch:NAME` are what they say, whatever rows of the same call are called.
Imported by the fast paths: standard library only. Which jobs a word means is found in the queue (store/gates).
"""

from __future__ import annotations

from scheduler.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class Word(NamedTuple):
        """One thing to come after. `kind`: id, last, batch, or name: of a row of the same call, a batch, a key."""

        kind: str
        name: str
        id: int
        need: str

else:
    from collections import namedtuple

    Word = namedtuple("Word", "kind name id need")  # noqa: PYI024

OK, ANY = NEEDS = ("ok", "any")
"""What has to become of a parent: it succeeds, or it ends however it does."""

FAIL, HOLD = ON_PARENT = ("fail", "hold")
"""What becomes of a job whose parent did not succeed although it needed that."""

MOST = 1000
"""Jobs that one word may name one by one; more are better a batch."""


def words(text: str) -> list[Word]:
    """What one AFTER names: an id each, or one batch or name. UsageError for what can be none."""
    name, colon, need = text.rpartition(":")
    if not colon or need not in NEEDS:
        name, need = text, OK
    name = name.strip()
    if name.startswith("batch:"):
        return [Word("batch", _filled(name.removeprefix("batch:"), text), 0, need)]
    if name.startswith("job:"):
        digits = name.removeprefix("job:")
        if not digits.isdecimal() or not digits.isascii() or len(digits) > 18:
            raise UsageError(f"--after {text}: job: takes a job's id; write job:7")
        return [Word("id", name, int(digits), need)]
    if _filled(name, text) == "last":
        return [Word("last", name, 0, need)]
    if name.strip("0123456789-,") or not name.strip("-,") or not name.isascii():
        return [Word("name", name, 0, need)]
    found: dict[int, None] = {}
    for part in name.split(","):
        found.update(dict.fromkeys(_range(part, text)))
        if len(found) > MOST:
            raise UsageError(f"--after {text} names more than {MOST} jobs; give them one --batch and name that")
    return [Word("id", name, each, need) for each in found]


def one_batch(text: str) -> tuple[str, str]:
    """(batch, need) of an --each-after."""
    name, colon, need = text.rpartition(":")
    if not colon or need not in NEEDS:
        name, need = text, OK
    if not name.removeprefix("batch:"):
        raise UsageError(f"--each-after {text!r} names no batch; write --each-after BATCH or BATCH:any")
    return name.removeprefix("batch:"), need


def on_parent(value: object, what: str = "--on-parent") -> str:
    """`fail` or `hold`; None is fail. UsageError for another word."""
    if value is None or value == "":
        return FAIL
    if value not in ON_PARENT:
        raise UsageError(f"{what} {value!r} is none of {', '.join(ON_PARENT)}")
    return str(value)


def _filled(name: str, text: str) -> str:
    if not name:
        raise UsageError(f"--after {text!r} names nothing; write a job's id, last, or a batch, with :ok or :any")
    return name


def _range(part: str, text: str) -> range:
    first, dash, last = part.partition("-")
    if not first.isdecimal() or len(first) > 18 or (dash and (not last.isdecimal() or len(last) > 18)):
        raise UsageError(f"--after {text}: {part!r} is no job id; write 7, 3-9,12 or last, and batch:NAME for a batch")
    low, high = int(first), int(last) if dash else int(first)
    if high < low:
        raise UsageError(f"--after {text}: {part!r} runs backwards; write {high}-{low}")
    if high - low >= MOST:
        raise UsageError(f"--after {text} names more than {MOST} jobs; give them one --batch and name that")
    return range(low, high + 1)
