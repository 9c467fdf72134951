"""Numbered migrations, forward only."""

from __future__ import annotations

from typing import Any, Final

from kingdom.bus.errors import SchemaTooNew
from kingdom.bus.outbox import migrations

_LOCK: Final = 0x6B696E67646F6D  # "kingdom": two processes that migrate at once take turns


async def migrate(connection: Any, schema: str | None, shown: str) -> list[str]:
    """Apply what is missing, in one transaction; return the names of what was applied."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        if schema is not None:
            quoted = '"' + schema.replace('"', '""') + '"'
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted}")
            await connection.execute(f"SET LOCAL search_path TO {quoted}")
        applied = await _applied(connection, schema)
        _refuse_newer(applied, shown)
        if not applied:
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS kingdom_migration "
                "(number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
            )
        names = []
        for number, name, sql in migrations("postgresql"):
            if number not in applied:
                await connection.execute(sql)
                await connection.execute("INSERT INTO kingdom_migration (number, name) VALUES ($1, $2)", number, name)
                names.append(name)
        return names


async def check_version(connection: Any, schema: str | None, shown: str) -> None:
    """Raise :class:`SchemaTooNew` when a newer version of the code has migrated this database."""
    _refuse_newer(await _applied(connection, schema), shown)


async def _applied(connection: Any, schema: str | None) -> set[int]:
    table = "kingdom_migration" if schema is None else '"' + schema.replace('"', '""') + '".kingdom_migration'
    if await connection.fetchval("SELECT to_regclass($1)", table) is None:
        return set()
    return {row["number"] for row in await connection.fetch(f"SELECT number FROM {table}")}  # noqa: S608


def _refuse_newer(applied: set[int], shown: str) -> None:
    newest = max((number for number, _, _ in migrations("postgresql")), default=0)
    if applied and max(applied) > newest:
        raise SchemaTooNew(
            f"{shown} was migrated to version {max(applied)}, this code knows up to {newest}: "
            "update kingdom here; nothing was changed"
        )
