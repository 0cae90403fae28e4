"""Which jobs a verb means: filters as a query that one index leads. Standard library only.

What leads is what bounds the cost, whatever the history: a batch, a label, what was submitted since, a user, an
outcome, or states and provider. The other filters only look at the rows that it finds; the `+` before a column says so
to SQLite, which has no statistics here and would guess. A name alone looks at every job.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

QUEUED = "state = 'queued'"
ACTIVE = "state IN ('held', 'admitted', 'running')"
ENDED = "state IN ('succeeded', 'failed', 'cancelled', 'timed_out', 'refused')"
PARTS = (
    ("jobs INDEXED BY jobs_revisions", QUEUED, ("queued",)),
    ("jobs", ACTIVE, ("held", "admitted", "running")),
    ("jobs", ENDED, ("succeeded", "failed", "cancelled", "timed_out", "refused")),
)
"""The conditions of the indexes over states, word for word, and the states of each; one is not chosen unless named."""

USERS = (
    "WITH RECURSIVE who (name) AS (SELECT min(user) FROM jobs"
    " UNION ALL SELECT (SELECT min(user) FROM jobs WHERE user > who.name) FROM who WHERE who.name IS NOT NULL) "
)
"""Every user that has jobs, found from each to the next in the index that begins with them."""

LABELLED = "SELECT id FROM labels CROSS JOIN jobs ON jobs.id = labels.job_id WHERE label = ?"


def query(filters: dict[str, Any]) -> tuple[str, list[Any]]:
    """(SELECT, its values) of the ids that meet every filter, rising. TypeError for a key that is no filter."""
    given = as_counted({key: value for key, value in filters.items() if value is not None})
    rest, values = conditions(given)
    if "batch" in given:
        return _ordered("SELECT id FROM jobs WHERE batch = ? AND batch IS NOT NULL" + rest), [given["batch"], *values]
    if "label" in given:
        return _ordered(f"{LABELLED}{rest}"), [words(given["label"])[0], *values]
    if "since" in given:
        if "user" in given:
            lead, leads = "user = ? AND submitted_at >= ?", [given["user"], given["since"]]
        else:
            lead, leads = "user IN (SELECT name FROM who) AND submitted_at >= ?", [given["since"]]
        return USERS * ("user" not in given) + _ordered(f"SELECT id FROM jobs WHERE {lead}{rest}"), [*leads, *values]
    if "outcome" in given:
        meant = words(given["outcome"])
        lead = f"outcome IN ({_marks(meant)}) AND outcome IS NOT NULL"
        return _ordered(f"SELECT id FROM jobs WHERE {lead}{rest}"), [*meant, *values]
    if "state" in given or "slug" in given:
        return _by_state(given, rest, values)
    if "user" in given:
        return _ordered(f"SELECT id FROM jobs WHERE user = ?{rest}"), [given["user"], *values]
    return _ordered(f"SELECT id FROM jobs WHERE 1{rest}"), values


def as_counted(given: dict[str, Any]) -> dict[str, Any]:
    """These filters with states as people count them: what its worker refused is refused, and not failed.

    In the queue it is failed, with the outcome `refused`; who asks for an outcome besides means the states there.
    """
    asked = words(given["state"]) if "state" in given and "outcome" not in given else []
    if ("refused" in asked) == ("failed" in asked):
        return given
    if "failed" in asked:
        return {**given, "but": "refused"}
    if asked == ["refused"]:
        return {**given, "state": ["failed", "refused"], "outcome": ["refused"]}
    return {**given, "state": [*asked, "failed"], "failed_as": "refused"}


def conditions(given: dict[str, Any]) -> tuple[str, list[Any]]:
    """Every filter as a condition that leads no index, each after an AND, and their values."""
    terms: list[str] = []
    values: list[Any] = []
    for key, value in given.items():
        term, more = _term(key, value)
        terms.append(term)
        values += more
    return "".join(f" AND {term}" for term in terms), values


def _by_state(given: dict[str, Any], rest: str, values: list[Any]) -> tuple[str, list[Any]]:
    wanted = words(given["state"]) if "state" in given else None
    slug, colon, variant = given.get("slug", "").partition(":")
    lead, leads = ("", [])
    if slug:
        lead, leads = " AND slug = ?" + " AND variant = ?" * bool(colon), [slug, variant][: 1 + bool(colon)]
    selects, all_values = [], []
    for table, condition, states in PARTS:
        meant = states if wanted is None else [state for state in wanted if state in states]
        if meant:
            named = f" AND state IN ({_marks(meant)})" if condition != QUEUED else ""
            selects.append(f"SELECT id FROM {table} WHERE {condition}{named}{lead}{rest}")
            all_values += [*(meant if named else ()), *leads, *values]
    return _ordered(" UNION ALL ".join(selects) or "SELECT id FROM jobs WHERE 0"), all_values


def _term(key: str, value: Any) -> tuple[str, list[Any]]:
    """One filter as a condition that leads no index."""
    if key in ("state", "outcome"):
        meant = words(value)
        return f"+{key} IN ({_marks(meant)})", meant
    if key == "but":
        return "+outcome IS NOT ?", [value]
    if key == "failed_as":
        return "(+state <> 'failed' OR +outcome = ?)", [value]
    if key == "slug":
        slug, colon, variant = value.partition(":")
        return ("+slug = ? AND +variant = ?", [slug, variant]) if colon else ("+slug = ?", [slug])
    if key == "since":
        return "+submitted_at >= ?", [value]
    if key == "name":
        return "+name GLOB ?", [value]
    if key == "label":
        has = "EXISTS (SELECT 1 FROM labels AS l WHERE l.label = ? AND l.job_id = jobs.id)"
        meant = words(value)
        return " AND ".join([has] * len(meant)), meant
    if key in ("batch", "user"):
        return f"+{key} = ?", [value]
    raise TypeError(f"jobs are not filtered by {key!r}")


def words(value: Any) -> list[str]:
    """What a filter that takes a word or several was given."""
    return [value] if isinstance(value, str) else list(value)


def _marks(words: Any) -> str:
    return ",".join("?" * len(words))


def _ordered(select: str) -> str:
    return select + " ORDER BY id"
