"""Which jobs a verb means: filters as the condition of a query. Standard library only."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def conditions(filters: dict[str, Any]) -> tuple[str, list[Any]]:
    """(WHERE, its values) for `peek.ids`; the live states repeat the condition of their index."""
    terms, values = ["1"], []
    for key, value in filters.items():
        if value is None:
            continue
        if key in ("state", "outcome"):
            words = [value] if isinstance(value, str) else list(value)
            terms.append(f"{key} IN ({','.join('?' * len(words))})")
            values += words
            if key == "state" and set(words) <= {"held", "admitted", "running"}:
                terms.append("state IN ('held', 'admitted', 'running')")
        elif key == "slug":
            slug, colon, variant = value.partition(":")
            terms.append("slug = ?" + (" AND variant = ?" if colon else ""))
            values += [slug, variant] if colon else [slug]
        elif key == "since":
            terms.append("submitted_at >= ?")
            values.append(value)
        elif key == "name":
            terms.append("name GLOB ?")
            values.append(value)
        elif key in ("batch", "user"):
            terms.append(f"{key} = ? AND {key} IS NOT NULL")
            values.append(value)
        else:
            raise TypeError(f"jobs are not filtered by {key!r}")
    return " AND ".join(terms), values
