"""What every table of a queue is made with: STRICT tables in one metadata, columns that must be there, closed lists."""

from __future__ import annotations

from typing import Any

from sqlalchemy import INTEGER as INT
from sqlalchemy import CheckConstraint, Column, MetaData, Table, text

metadata = MetaData()


def table(name: str, *parts: Any, **options: Any) -> Table:
    """A STRICT table."""
    return Table(name, metadata, *parts, sqlite_strict=True, **options)


def given_id(name: str = "id") -> Column[Any]:
    """A key that SQLite gives; with `sqlite_autoincrement` none is given twice."""
    return Column(name, INT, primary_key=True, autoincrement=True)


def must(name: str, kind: Any, default: str | None = None) -> Column[Any]:
    """A column that is never NULL. `default` is SQL."""
    return Column(name, kind, nullable=False, server_default=None if default is None else text(default))


def one_of(column: str, words: tuple[str, ...], *, or_null: bool = False) -> CheckConstraint:
    """A column holds one of these words."""
    listed = f"{column} IN ({', '.join(repr(word) for word in words)})"
    return CheckConstraint(f"{column} IS NULL OR {listed}" if or_null else listed)
