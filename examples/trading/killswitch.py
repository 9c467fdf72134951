"""The kill switch: while it is engaged, no order goes out.

Asking for it and carrying it out are two steps, joined by an event: the person who pulls it (one process) need not
know who acts on it. Events can arrive twice, or the older one last; each wish has a version, and an older one than
the last applied is ignored.
"""

from __future__ import annotations

from examples.trading import events
from examples.trading.orders import publish_command
from examples.trading.states import Status
from examples.trading.store import Connection, Database, lock_attempts, move
from kingdom.bus import Envelope, EventBus


async def ask(conn: Connection, bus: EventBus, *, engaged: bool) -> None:
    """Ask for the switch to be engaged or released, in the caller's transaction."""
    cursor = await conn.execute(
        "UPDATE kill_switch SET requested_version = requested_version + 1 RETURNING requested_version"
    )
    (version,) = await cursor.fetchone() or (0,)
    wish = Envelope(
        type=events.KILL_SWITCH,
        payload={"engaged": engaged, "version": version},
        aggregate_type="KillSwitch",
        aggregate_id=events.OWNER,
        attributes={"ownerId": events.OWNER},
        priority="high",
    )
    await bus.publish(events.SYSTEM_EVENT, wish, tx=conn)


class KillSwitch:
    """Handles ``KillSwitch``."""

    def __init__(self, bus: EventBus, database: Database) -> None:
        self._bus = bus
        self._database = database

    async def apply(self, event: Envelope) -> None:
        """Suspend what has not been sent, or prepare it again and have it executed."""
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
                    # Its old command may still be waiting (a throttled attempt's does): the state machine lets
                    # only one of the two send the order.
                    await publish_command(conn, self._bus, attempt)
