"""The checks of ``doctor`` for a bus in PostgreSQL."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any, Final

from kingdom.bus.delivery import Check
from kingdom.bus.outbox import migrations, with_schema
from kingdom.bus.transports.postgresql._connections import ConnectionPool, close_connection
from kingdom.bus.transports.postgresql._publisher import CHANNEL

_SKEW_WARNING: Final = 5.0
_OLD_WARNING: Final = 300.0
_OLD_ERROR: Final = 3600.0
_CONNECTIONS_WARNING: Final = 0.8  # of those that the server allows
_INDEXES: Final = ("outbox_event_ready", "outbox_event_dead", "outbox_event_order", "outbox_event_held")
_TRIGGERS: Final = ("outbox_event_changed", "outbox_event_added")


async def examine(connections: ConnectionPool) -> list[Check]:
    """Run every check, in the order an operator would look."""
    found: list[Check] = []

    async def work(connection: Any) -> None:
        found.clear()
        found.append(await _schema(connection, connections.schema))
        found.append(await _durability(connection))
        found.append(await _clock(connection))
        found.append(await _oldest_transaction(connection))
        found.extend(await _autovacuum(connection, connections.schema))
        found.append(await _indexes(connection, connections.schema))
        found.append(await _triggers(connection, connections.schema))
        if found[0].level == "ok":
            found.append(await _order(connection, connections.schema))
        found.append(await _slots(connection))
        found.append(await _connections(connection))

    await connections.run(work)
    found.append(await _listen(connections))
    return found


async def _schema(connection: Any, schema: str | None) -> Check:
    table = with_schema(" outbox_event", schema).strip()
    newest = migrations("postgresql")[-1]
    if await connection.fetchval("SELECT to_regclass($1)", table) is None:
        return Check("schema", "error", "the tables of the bus are missing", "kingdom bus migrate")
    applied = await connection.fetchval(f"SELECT max(number) FROM {table[: -len('outbox_event')]}kingdom_migration")  # noqa: S608
    if applied != newest[0]:
        return Check("schema", "error", f"at version {applied}, this code has {newest[0]}", "kingdom bus migrate")
    return Check("schema", "ok", f"version {applied} ({newest[1]})")


async def _durability(connection: Any) -> Check:
    names = ("fsync", "synchronous_commit", "full_page_writes")
    off = [name for name in names if await connection.fetchval("SELECT current_setting($1)", name) == "off"]
    if off:
        return Check(
            "durability", "error", f"{', '.join(off)} is off: a crash can lose published events", "turn it on again"
        )
    return Check("durability", "ok", "fsync, synchronous_commit and full_page_writes are on")


async def _clock(connection: Any) -> Check:
    before = time.time()
    server = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    after = time.time()
    skew = server - (before + after) / 2
    message = f"the server's clock is {skew:+.3f} s from this machine's (leases and retries follow the server's)"
    if abs(skew) > _SKEW_WARNING:
        return Check("clock", "warning", message, "run a time service (chrony, ntpd) on both machines")
    return Check("clock", "ok", message)


async def _oldest_transaction(connection: Any) -> Check:
    row = await connection.fetchrow(
        "SELECT pid, coalesce(application_name, '') AS who, extract(epoch FROM now() - xact_start)::float8 AS age "
        "FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() "
        "AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) ORDER BY xact_start LIMIT 1"
    )
    if row is None or row["age"] < _OLD_WARNING:
        age = 0.0 if row is None else max(0.0, row["age"])
        return Check("oldest transaction", "ok", f"{age:.0f} s")
    level: Any = "error" if row["age"] > _OLD_ERROR else "warning"
    return Check(
        "oldest transaction",
        level,
        f"open for {row['age']:.0f} s (pid {row['pid']} {row['who']}): dead rows cannot be removed meanwhile",
        f"end it: SELECT pg_terminate_backend({row['pid']})",
    )


async def _autovacuum(connection: Any, schema: str | None) -> list[Check]:
    checks = []
    if await connection.fetchval("SELECT current_setting('autovacuum')") == "off":
        checks.append(Check("autovacuum", "error", "autovacuum is off on this server", "set autovacuum = on"))
    table = with_schema(" outbox_event", schema).strip()
    options = await connection.fetchval("SELECT reloptions FROM pg_class WHERE oid = to_regclass($1)", table) or []
    if not any(option.startswith("autovacuum_vacuum_scale_factor") for option in options):
        hint = f"ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        checks.append(
            Check("autovacuum", "warning", "outbox_event has the server's defaults, which vacuum it too rarely", hint)
        )
    row = await connection.fetchrow(
        "SELECT n_live_tup AS live, n_dead_tup AS dead FROM pg_stat_all_tables WHERE relid = to_regclass($1)", table
    )
    if row is not None and row["dead"] > 100_000 and row["dead"] > 2 * row["live"]:
        message = f"{row['dead']:,} dead rows beside {row['live']:,} live ones"
        checks.append(Check("autovacuum", "warning", message, f"look for old transactions; VACUUM {table}"))
    return checks or [Check("autovacuum", "ok", "on, with the queue's own thresholds")]


async def _indexes(connection: Any, schema: str | None) -> Check:
    table = with_schema(" outbox_event", schema).strip()
    rows = await connection.fetch(
        "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "WHERE i.indrelid = to_regclass($1)",
        table,
    )
    valid = {row["relname"] for row in rows if row["indisvalid"]}
    missing = [name for name in _INDEXES if name not in valid]
    if missing:
        return Check("indexes", "error", f"missing or invalid: {', '.join(missing)}", "restore them from the migration")
    return Check("indexes", "ok", f"{len(valid)} valid")


async def _triggers(connection: Any, schema: str | None) -> Check:
    table = with_schema(" outbox_event", schema).strip()
    on = await connection.fetchval(
        "SELECT array_agg(tgname::text) FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgenabled IN ('O', 'A')",
        table,
    )
    off = [name for name in _TRIGGERS if name not in (on or ())]
    if off:
        return Check(
            "triggers",
            "error",
            f"missing or off: {', '.join(off)}; an event whose status is edited by hand may never be claimed",
            f"ALTER TABLE {table} ENABLE TRIGGER USER, or restore them from the migration; then UPDATE {table} "  # noqa: S608
            "SET status = status WHERE finished <> (status IN ('DONE', 'DEAD')) OR dead <> (status = 'DEAD') "
            "OR held_key IS DISTINCT FROM CASE WHEN status = 'PROCESSING' THEN ordering_key END",
        )
    return Check("triggers", "ok", f"{len(_TRIGGERS)} on")


async def _order(connection: Any, schema: str | None) -> Check:
    """Look for events without the ordering key of their stream. Claims set it for an hour after a declaration."""
    lost = with_schema(
        "SELECT s.stream FROM outbox_stream s WHERE coalesce(s.changed_at < now() - interval '1 hour', true) "
        "AND EXISTS (SELECT 1 FROM outbox_event e WHERE e.stream = s.stream AND NOT e.finished "
        "AND (e.ordering_key IS NULL) = s.ordered) ORDER BY s.stream",
        schema,
    )
    streams = [row["stream"] for row in await connection.fetch(lost)]
    if streams:
        return Check(
            "order",
            "error",
            f"events of {', '.join(streams)} were stored with the wrong ordering key; they are never claimed",
            "call bus.declare() once more for each of them, with the same options",
        )
    return Check("order", "ok", "each event has the ordering key that its stream needs")


async def _slots(connection: Any) -> Check:
    row = await connection.fetchrow(
        "SELECT slot_name, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint AS behind "
        "FROM pg_replication_slots WHERE restart_lsn IS NOT NULL AND NOT active ORDER BY 2 DESC LIMIT 1"
    )
    if row is not None and row["behind"] > 1 << 30:
        return Check(
            "replication slots",
            "warning",
            f"slot {row['slot_name']} is unused and holds back {row['behind'] >> 20:,} MiB of WAL",
            f"start its consumer, or SELECT pg_drop_replication_slot('{row['slot_name']}')",
        )
    return Check("replication slots", "ok", "none is left behind")


async def _connections(connection: Any) -> Check:
    row = await connection.fetchrow(
        "SELECT (SELECT sum(numbackends) FROM pg_stat_database)::int AS used, "
        "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS allowed"
    )
    message = f"{row['used']} of {row['allowed']} are in use"
    if row["used"] > row["allowed"] * _CONNECTIONS_WARNING:
        return Check("connections", "warning", message, "raise max_connections, or lower pool in the URLs (?pool=2)")
    return Check("connections", "ok", message)


async def _listen(connections: ConnectionPool) -> Check:
    if not connections.listens:
        return Check("listen", "ok", "switched off in the URL: workers poll")
    secret, heard = secrets.token_hex(8), asyncio.Event()
    listening = await connections.connect()
    try:
        await listening.add_listener(CHANNEL, lambda *args: heard.set() if args[3] == secret else None)
        await connections.run(lambda connection: connection.execute("SELECT pg_notify($1, $2)", CHANNEL, secret))
        async with asyncio.timeout(3):
            await heard.wait()
    except TimeoutError:
        return Check(
            "listen",
            "warning",
            "a notification did not arrive in 3 s: workers poll instead (a transaction-mode pooler does this)",
            "connect workers directly, or add pgbouncer=on to the URL",
        )
    finally:
        await close_connection(listening)
    return Check("listen", "ok", "a notification arrived")
