"""Changes of an order. Each function makes one change and publishes its event in the caller's transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from uuid import uuid4

from examples.trading import events
from examples.trading.exchange_client import Accepted, Answer, NoAnswer, Refused, Throttled
from examples.trading.states import Status
from examples.trading.store import Attempt, Connection, add_attempt, lock_attempt, move
from kingdom.bus import EventBus, Reject

MAX_ATTEMPTS: Final = 20  # per intent; after that a person should look at the exchange


@dataclass(frozen=True, slots=True)
class Signal:
    """An order that a strategy wants."""

    strategy_key: str
    market: str
    side: str
    price: Decimal
    volume: Decimal


async def record_signal(conn: Connection, bus: EventBus, signal: Signal) -> int:
    """Store a signal, its order intent and first attempt, and the command to execute it; return the intent's id."""
    trace_id = str(uuid4())
    cursor = await conn.execute(
        """
        WITH stored AS (
            INSERT INTO signal (strategy_key, market, side, price) VALUES (%s, %s, %s, %s) RETURNING id
        )
        INSERT INTO order_intent (signal_id, volume, trace_id) SELECT id, %s, %s FROM stored RETURNING id
        """,
        (signal.strategy_key, signal.market, signal.side, signal.price, signal.volume, trace_id),
    )
    row = await cursor.fetchone()
    assert row is not None
    intent_id: int = row[0]
    await _next_attempt(conn, bus, intent_id, 1, "signal")
    return intent_id


async def begin_sending(conn: Connection, bus: EventBus, attempt_id: int, reconcile_after: float) -> Attempt | None:
    """Decide, under the attempt's lock, whether the caller sends the order now.

    Only the transaction that moves an attempt from PREPARED to SENT returns it. Therefore each identifier is sent once.
    """
    # The switch is locked before the attempt, as in the switch's own handler; the other order could deadlock. With
    # the lock held, an order is sent before the switch is engaged or not at all.
    cursor = await conn.execute("SELECT engaged FROM kill_switch FOR SHARE")
    (engaged,) = await cursor.fetchone() or (False,)
    attempt = await _existing(conn, attempt_id)
    match attempt.status:
        case Status.PREPARED if engaged:
            await move(conn, attempt, Status.SUSPENDED, "kill switch")
        case Status.PREPARED:
            await move(conn, attempt, Status.SENT, "executor")
            return attempt
        case Status.SENT:
            # The command was redelivered: the process that moved the attempt to SENT has died or is too slow.
            await _unknown(conn, bus, attempt, "the executor did not finish", reconcile_after)
        case _:
            pass  # settled, waiting for the reconciler, or suspended
    return None


async def record_answer(
    conn: Connection, bus: EventBus, attempt_id: int, answer: Answer, reconcile_after: float
) -> None:
    """Record the answer of the exchange about an attempt that was SENT.

    The answer may come late: a second executor may have declared the attempt UNKNOWN meanwhile, and the reconciler
    may have settled it. A late answer with a result still counts while the attempt is UNKNOWN.
    """
    attempt = await _existing(conn, attempt_id)
    match answer:
        case Accepted(order_id):
            await accept(conn, bus, attempt, order_id, "the exchange answered")
        case Refused(reason) if attempt.status in (Status.SENT, Status.UNKNOWN):
            await _reject(conn, bus, attempt, reason)
        case Throttled(seconds) if attempt.status in (Status.SENT, Status.UNKNOWN):
            if attempt.attempt_no >= MAX_ATTEMPTS:
                await _reject(conn, bus, attempt, f"throttled {MAX_ATTEMPTS} times")
            else:
                await move(conn, attempt, Status.THROTTLED, f"again in {seconds:g} s")
                await _next_attempt(conn, bus, attempt.order_intent_id, attempt.attempt_no + 1, "throttled", seconds)
        case NoAnswer(reason) if attempt.status is Status.SENT:
            await _unknown(conn, bus, attempt, reason, reconcile_after)
        case _:
            pass  # the reconciler has settled it with the same result


async def accept(conn: Connection, bus: EventBus, attempt: Attempt, order_id: str, reason: str) -> None:
    """Record that the exchange has the order."""
    if attempt.status is Status.ACKED:
        return
    # Raises in any other state that does not lead to ACKED: then an order exists that should be impossible.
    await move(conn, attempt, Status.ACKED, reason, order_id)
    accepted = events.about_attempt(events.ORDER_ACCEPTED, attempt, exchangeOrderId=order_id)
    await bus.publish(events.TRADE_EVENT, accepted, tx=conn)


async def never_arrived(conn: Connection, bus: EventBus, attempt: Attempt) -> None:
    """Record that the exchange does not have the order, and start a new attempt: the old identifier is void."""
    if attempt.attempt_no >= MAX_ATTEMPTS:
        await _reject(conn, bus, attempt, f"did not arrive in {MAX_ATTEMPTS} attempts")
        return
    await move(conn, attempt, Status.REJECTED, "never arrived, identifier void")
    await _next_attempt(conn, bus, attempt.order_intent_id, attempt.attempt_no + 1, "the one before never arrived")


async def publish_command(conn: Connection, bus: EventBus, attempt: Attempt, after: float = 0.0) -> None:
    """Publish the command that executes an attempt, now or ``after`` some seconds."""
    command = events.about_attempt(events.CREATE_ORDER_ATTEMPT, attempt, not_before=_in(after))
    await bus.publish(events.TRADE_COMMAND, command, tx=conn)


async def _next_attempt(
    conn: Connection, bus: EventBus, intent_id: int, attempt_no: int, reason: str, after: float = 0.0
) -> None:
    await publish_command(conn, bus, await add_attempt(conn, intent_id, attempt_no, reason), after)


async def _reject(conn: Connection, bus: EventBus, attempt: Attempt, reason: str) -> None:
    await move(conn, attempt, Status.REJECTED, reason)
    await bus.publish(events.TRADE_EVENT, events.about_attempt(events.ORDER_REJECTED, attempt, reason=reason), tx=conn)


async def _unknown(conn: Connection, bus: EventBus, attempt: Attempt, reason: str, reconcile_after: float) -> None:
    await move(conn, attempt, Status.UNKNOWN, reason)
    command = events.about_attempt(events.RECONCILE_ORDER_ATTEMPT, attempt, not_before=_in(reconcile_after))
    await bus.publish(events.TRADE_COMMAND, command, tx=conn)


async def _existing(conn: Connection, attempt_id: int) -> Attempt:
    attempt = await lock_attempt(conn, attempt_id)
    if attempt is None:
        raise Reject("NO_SUCH_ATTEMPT", f"there is no order attempt {attempt_id} in this database")
    return attempt


def _in(seconds: float) -> datetime | None:
    return datetime.now(UTC) + timedelta(seconds=seconds) if seconds > 0 else None
