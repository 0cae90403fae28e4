"""Statements as quickly as SQLite carries them out: rows with names, straight from the driver's connection.

The scheduler reads a dozen small tables every turn, and a result of SQLAlchemy's costs three times what the answer
itself does. The statement runs inside the transaction of `tx` like any other.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

_KINDS: dict[str, type[tuple[Any, ...]]] = {}


def found(tx: Connection, statement: str, values: Mapping[str, Any] | None = None) -> list[Any]:
    """Every row, its columns as attributes."""
    cursor = _raw(tx).execute(statement, values or {})
    kind = _KINDS.get(statement)
    if kind is None:
        kind = _KINDS[statement] = namedtuple("Row", [column[0] for column in cursor.description])  # noqa: PYI024
    return [kind(*row) for row in cursor]


def first(tx: Connection, statement: str, values: Mapping[str, Any] | None = None) -> Any:
    """The first row, None if there is none."""
    rows = found(tx, statement, values)
    return rows[0] if rows else None


def value(tx: Connection, statement: str, values: Mapping[str, Any] | None = None) -> Any:
    """The first column of the first row, None if there is none."""
    row = _raw(tx).execute(statement, values or {}).fetchone()
    return None if row is None else row[0]


def write(tx: Connection, statement: str, values: Mapping[str, Any] | None = None) -> Any:
    """Carry out a statement that changes rows; the driver's cursor, with `rowcount` and `lastrowid`.

    Text that is no UTF-8 (a name of somebody's file or process) is stored with its odd bytes escaped.
    """
    try:
        return _raw(tx).execute(statement, values or {})
    except UnicodeEncodeError:
        return _raw(tx).execute(statement, {name: _storable(each) for name, each in (values or {}).items()})


def _storable(each: Any) -> Any:
    return each.encode("utf-8", "backslashreplace").decode() if isinstance(each, str) else each


def _raw(tx: Connection) -> Any:
    return tx.connection.driver_connection
