"""The migrations, the schema that they are to make, and the revision that the fast paths look for are one."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from queues import asked, scheduler, submitted, writing
from sqlalchemy import create_engine

from scheduler import config
from scheduler.config import Paths
from scheduler.errors import NewerSchema, OlderSchema
from scheduler.model import outcome, states
from scheduler.store import connection, engine, peek, schema
from scheduler.store.migrate import migrate

ROOT = Path(__file__).resolve().parents[2]


def checks(sql: str) -> set[str]:
    """The CHECK conditions in a CREATE TABLE, blanks evened out."""
    found = set()
    for start in re.finditer(r"CHECK \(", sql):
        at, open_ones = start.end(), 1
        while open_ones:
            open_ones += {"(": 1, ")": -1}.get(sql[at], 0)
            at += 1
        found.add(re.sub(r"\s+", " ", sql[start.end() : at - 1]))
    return found


def shape(db: sqlite3.Connection) -> dict[str, object]:
    """Everything that a database's schema says, but the order of its statements and its triggers."""
    made: dict[str, object] = {}
    for _, table, _, _, without_rowid, strict in db.execute("PRAGMA main.table_list").fetchall():
        if table.startswith("sqlite_") or table == "alembic_version":
            continue
        [(sql,)] = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchall()
        indexes = {}
        for _, name, unique, origin, partial in db.execute(f"PRAGMA index_list({table})").fetchall():
            text = "".join(sql or "" for (sql,) in db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (name,)))
            where = re.sub(r"\s+", " ", text.partition("WHERE")[2]).strip()
            columns = db.execute(f"PRAGMA index_xinfo({name})").fetchall()
            indexes[name] = (unique, origin, partial, where, columns)
        made[table] = {
            "columns": db.execute(f"PRAGMA table_xinfo({table})").fetchall(),
            "kind": (without_rowid, strict, "AUTOINCREMENT" in sql),
            "references": db.execute(f"PRAGMA foreign_key_list({table})").fetchall(),
            "checks": checks(sql),
            "indexes": indexes,
        }
    return made


def head() -> str | None:
    settings = Config()
    settings.set_main_option("script_location", config.migrations_folder())
    return ScriptDirectory.from_config(settings).get_current_head()


NEWEST = connection.REVISIONS[-1]


def test_the_migrated_database_is_the_one_that_the_schema_describes(tmp_path: Path) -> None:
    migrated = sqlite3.connect(tmp_path / "migrated.db", isolation_level=None)
    migrate(migrated)
    described = sqlite3.connect(tmp_path / "described.db", isolation_level=None)
    made = create_engine("sqlite://", creator=lambda: described)
    schema.metadata.create_all(made)
    try:
        ours, theirs = shape(migrated), shape(described)
        assert set(ours) == set(schema.metadata.tables)
        for table in ours:
            assert ours[table] == theirs[table], table
        triggers = {name for (name,) in migrated.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'")}
        assert triggers == set(schema.TRIGGERS)
    finally:
        migrated.close()
        described.close()
        made.dispose()


def test_every_table_is_strict_and_every_id_given_once(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "queue"))
    submitted(paths)
    with writing(paths) as db:
        for table, facts in shape(db).items():
            assert facts["kind"][1] == 1, table  # type: ignore[index]
        for table in ("jobs", "workers", "leases", "events", "schedulers"):
            assert shape(db)[table]["kind"][2], table  # type: ignore[index]


def test_the_newest_revision_is_the_one_that_the_fast_paths_look_for() -> None:
    assert connection.REVISIONS[-1] == head()


def test_the_words_of_the_schema_are_those_of_the_model() -> None:
    assert set(schema.JOB_STATES) == states.JOB.keys() - {"(insert)"} > set(states.JOB_ENDED)
    assert set(schema.WORKER_STATES) == set(states.WORKER)
    assert set(schema.LEASE_STATES) == set(states.LEASE)
    assert set(schema.BLOCKS) <= set(outcome.RULINGS)


def test_the_migrations_ship_inside_the_package() -> None:
    assert (
        f'migrations = "scheduler/{os.path.basename(config.migrations_folder())}"'
        in (ROOT / "pyproject.toml").read_text()
    )


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Migrations with one revision more than ours, as a later schedq would have them."""
    folder = tmp_path / "later 100% migrations"
    shutil.copytree(config.migrations_folder(), folder)
    newest = head()
    (folder / "versions" / "9999_more.py").write_text(
        f'"""More."""\nfrom alembic import op\nrevision = "9999"\ndown_revision = "{newest}"\n\n\n'
        'def upgrade():\n    op.get_bind().exec_driver_sql("ALTER TABLE queue ADD COLUMN motto TEXT")\n'
        "    op.get_bind().exec_driver_sql(\"UPDATE queue SET motto = 'more'\")\n"
    )
    monkeypatch.setattr(config, "migrations_folder", lambda: str(folder))
    monkeypatch.setattr(connection, "REVISIONS", (*connection.REVISIONS, "9999"))
    monkeypatch.setattr(engine, "REVISIONS", connection.REVISIONS)
    return str(folder)


def test_an_upgrade_backs_up_migrates_and_keeps_every_job(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    paths = Paths(str(tmp_path / "queue"))
    submitted(paths, 3)
    request.getfixturevalue("later")
    kept = engine.upgrade(paths)
    assert kept is not None and os.path.dirname(kept) == paths.backups
    old = sqlite3.connect(kept)
    assert old.execute("SELECT count(*), (SELECT version_num FROM alembic_version) FROM jobs").fetchone() == (3, NEWEST)
    old.close()
    assert asked(paths, "SELECT count(*), (SELECT motto FROM queue) FROM jobs") == [(3, "more")]
    assert engine.upgrade(paths) is None
    assert submitted(paths) == [4]


def test_an_upgrade_that_fails_leaves_the_old_database(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    paths = Paths(str(tmp_path / "queue"))
    submitted(paths)
    before = asked(paths, "SELECT name, sql FROM sqlite_schema ORDER BY name")
    folder = Path(request.getfixturevalue("later"))
    script = folder / "versions" / "9999_more.py"
    script.write_text(script.read_text() + "    raise RuntimeError('half way')\n")
    with pytest.raises(RuntimeError, match="half way"):
        engine.upgrade(paths)
    assert asked(paths, "SELECT name, sql FROM sqlite_schema ORDER BY name") == before
    assert asked(paths, "SELECT version_num FROM alembic_version") == [(NEWEST,)]


def test_going_back_to_an_earlier_schedq_is_refused(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "queue"))
    submitted(paths)
    with writing(paths) as db:
        db.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(NewerSchema, match="schema 9999"):
        engine.upgrade(paths)
    assert os.listdir(paths.backups) == []


@pytest.mark.parametrize("older", connection.REVISIONS[:-1])
def test_a_queue_of_each_earlier_revision_is_brought_up_with_its_jobs(tmp_path: Path, older: str) -> None:
    paths = Paths(str(tmp_path / "queue"))
    submitted(paths)
    newest = asked(paths, "SELECT name, sql FROM sqlite_schema ORDER BY name")
    os.remove(paths.database)
    db = sqlite3.connect(paths.database, isolation_level=None)
    migrate(db, older)
    db.execute(
        "INSERT INTO jobs (slug, user, host_id, submitted_at, state, input)"
        " VALUES ('boltz', 'ann', 'here', '2026-01-01T00:00:00.000000Z', 'queued', x'7b7d')"
    )
    db.close()
    with pytest.raises(OlderSchema, match="schedq db upgrade"):
        submitted(paths)
    assert engine.upgrade(paths) is not None
    assert asked(paths, "SELECT name, sql FROM sqlite_schema ORDER BY name") == newest
    assert asked(paths, "SELECT slug, state FROM jobs") == [("boltz", "queued")]
    assert asked(paths, "SELECT version_num FROM alembic_version") == [(connection.REVISIONS[-1],)]


def test_what_was_recorded_before_evidence_was_kept_stays_and_has_none(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "queue"))
    submitted(paths)
    os.remove(paths.database)
    db = sqlite3.connect(paths.database, isolation_level=None)
    migrate(db, "0003")
    db.execute(
        "INSERT INTO jobs (slug, user, host_id, submitted_at, state)"
        " VALUES ('boltz', 'ann', 'here', '2026-01-01T00:00:00.000000Z', 'queued')"
    )
    for event in ("pool_full", "admit"):
        db.execute(
            "INSERT INTO events (at, job_id, event, text) VALUES ('2026-01-01T00:00:01.000000Z', 1, ?, ?)",
            (event, "28 of 12 GiB" if event == "pool_full" else ""),
        )
    db.execute("INSERT INTO reasons VALUES ('boltz', '', 1, 'no_room_now', 'soon', '2026-01-01T00:00:02.000000Z')")
    db.close()
    assert engine.upgrade(paths) is not None
    with scheduler(paths):
        made = peek.decisions(paths, 1)["decisions"]
    assert [(each["ruling"], each["evidence"]) for each in made] == [
        ("no_room_now", None),
        ("admit", None),
        ("pool_full", None),
    ]
    assert made[2]["text"] == "28 of 12 GiB"
    assert asked(paths, "SELECT count(*), count(evidence) FROM events") == [(2, 0)]


def test_of_the_batches_that_are_there_only_those_that_end_after_the_upgrade_are_told(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "queue"))
    submitted(paths)
    os.remove(paths.database)
    db = sqlite3.connect(paths.database, isolation_level=None)
    migrate(db, "0011")
    for batch, state in (("over", "succeeded"), ("open", "succeeded"), ("open", "queued")):
        ended = "2026-01-02T00:00:00.000000Z" if state == "succeeded" else None
        db.execute(
            "INSERT INTO jobs (slug, user, host_id, submitted_at, state, ended_at, batch)"
            " VALUES ('boltz', 'ann', 'here', '2026-01-01T00:00:00.000000Z', ?, ?, ?)",
            (state, ended, batch),
        )
    db.close()
    assert engine.upgrade(paths) is not None
    untold = "SELECT batch FROM batches WHERE open = 0 AND told_at IS NULL"
    assert asked(paths, untold) == []
    with writing(paths) as raw:
        raw.execute("UPDATE jobs SET state = 'succeeded', ended_at = '2026-01-03T00:00:00.000000Z' WHERE id = 3")
    assert asked(paths, untold) == [("open",)]


def test_an_upgrade_makes_a_queue_where_there_is_none(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "queue"))
    assert engine.upgrade(paths) is None
    assert engine.upgrade(paths) is None
    assert submitted(paths) == [1]


def test_alembics_own_command_line_is_refused(tmp_path: Path) -> None:
    from alembic import command

    settings = Config()
    settings.set_main_option("script_location", config.migrations_folder())
    with pytest.raises(SystemExit, match="schedq db upgrade"):
        command.upgrade(settings, "head")


def test_the_readme_says_what_is_there() -> None:
    text = (ROOT / "migrations" / "README.md").read_text()
    for word in ("schedq db upgrade", "scheduler/store/schema.py", "REVISIONS", "SCHEDQ_HOME/backups/"):
        assert word in text
