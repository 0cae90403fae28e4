"""How Alembic reaches a queue's database: over the connection that schedq hands it, inside schedq's own transaction.

There is no other way in: a migration needs the turnstile and a backup first, and `schedq db upgrade` has both.
"""

from __future__ import annotations

from alembic import context

from scheduler.store.schema import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("a queue is migrated by `schedq db upgrade`, which backs it up first and keeps writers out")

context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
