"""The kill switch: while it is engaged, no order is sent.

A request and its execution are two steps, connected by an event: the process that requests it need not know which
process executes it. Events can arrive twice or out of order. Each request has a version, and a version older than the
last applied one is ignored.
"""

from __future__ import annotations

from examples.trading import events
from examples.trading.orders import publish_command
from examples.trading.states import Status
from examples.trading.store import Connection, Database, lock_attempts, move
from kingdom.bus import Envelope, EventBus


async def request(conn: Connection, bus: EventBus, *, engaged: bool) -> None:
    """Request that the switch is engaged or released, in the caller's transaction."""
    cursor = await conn.execute(
        "UPDATE kill_switch SET requested_version = requested_version + 1 RETURNING requested_version"
    )
    (version,) = await cursor.fetchone() or (0,)
    event = Envelope(
        type=events.KILL_SWITCH,
        payload={"engaged": engaged, "version": version},
        aggregate_type="KillSwitch",
        aggregate_id=events.OWNER,
        attributes={"ownerId": events.OWNER},
        priority="high",
    )
    await bus.publish(events.SYSTEM_EVENT, event, tx=conn)


async def is_applied(conn: Connection) -> bool:
    """Return whether the last request has been executed."""
    cursor = await conn.execute("SELECT applied_version = requested_version FROM kill_switch")
    (applied,) = await cursor.fetchone() or (False,)
    return bool(applied)


class KillSwitch:
    """Handles ``KillSwitch``."""

    def __init__(self, bus: EventBus, database: Database) -> None:
        self._bus = bus
        self._database = database

    async def apply(self, event: Envelope) -> None:
        """Suspend orders that have not been sent, or prepare them again and publish their commands."""
        engaged: bool = event.payload["engaged"]
        async with self._database.transaction() as conn:
            cursor = await conn.execute(
                "UPDATE kill_switch SET engaged = %s, applied_version = %s WHERE applied_version < %s",
                (engaged, event.payload["version"], event.payload["version"]),
            )
            if not cursor.rowcount:
                return
            before, after = (Status.PREPARED, Status.SUSPENDED) if engaged else (Status.SUSPENDED, Status.PREPARED)
            for attempt in await lock_attempts(conn, before):
                await move(conn, attempt, after, f"kill switch {'engaged' if engaged else 'released'}")
                if not engaged:
                    # Its old command may still be pending (that of a throttled attempt is): the state machine
                    # lets only one of the two send the order.
                    await publish_command(conn, self._bus, attempt)
