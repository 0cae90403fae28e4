"""Brings a database to the newest revision, with Alembic; imported only when there is something to migrate."""

from __future__ import annotations

import logging
import sqlite3

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, event
from sqlalchemy.engine import Connection
from sqlalchemy.pool import StaticPool

from scheduler import config


def migrate(connection: sqlite3.Connection, to: str = "head") -> None:
    """Run all missing revisions up to `to`, in one transaction.

    Call it inside the turnstile, on a writer's connection.
    """
    logging.getLogger("alembic").setLevel(logging.WARNING)
    engine = create_engine("sqlite://", creator=lambda: connection, poolclass=StaticPool)
    event.listen(engine, "begin", _begin)
    settings = Config()
    settings.set_main_option("script_location", config.migrations_folder().replace("%", "%%"))
    with engine.begin() as tx:
        settings.attributes["connection"] = tx
        command.upgrade(settings, to)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
