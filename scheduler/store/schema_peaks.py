"""The tables of what attempts were seen to use of memory: part of `schema`, and held to the migrations with it.

A row of `peaks` is one measured attempt, or, with no bucket, what a worker holds after its load. `learned` sums the
last runs of each bucket up, so that a plan reads one row where fifty were measured. Memory is GiB; NULL = not seen.
"""

from __future__ import annotations

from sqlalchemy import INTEGER as INT
from sqlalchemy import REAL, Column, Index
from sqlalchemy import TEXT as STR

from scheduler.store.columns import given_id, must, table

peaks = table(
    "peaks",
    given_id(),
    must("slug", STR),
    must("variant", STR),
    must("host_id", STR),
    Column("bucket", INT),
    Column("device_gib", REAL),
    Column("host_gib", REAL),
    must("at", STR),
    Column("device", STR),
    Column("job_id", INT),
    Column("attempt", INT),
    Column("worker_id", INT),
    must("outcome", STR, "''"),
    sqlite_autoincrement=True,
)
_c = peaks.c
Index("peaks_bucket", _c.slug, _c.variant, _c.host_id, _c.bucket, _c.id)

learned = table(
    "learned",
    Column("slug", STR, primary_key=True, nullable=False),
    Column("variant", STR, primary_key=True, nullable=False),
    Column("host_id", STR, primary_key=True, nullable=False),
    Column("bucket", INT, primary_key=True, nullable=False),
    Column("device_gib", REAL),
    Column("host_gib", REAL),
    must("runs", INT),
    must("at", STR),
    sqlite_with_rowid=False,
)
