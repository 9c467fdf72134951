"""The streams, their event types, and the events about an order."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from examples.trading.store import Attempt
from kingdom.bus import Envelope

TRADE_COMMAND: Final = "everbit.trade.command"
TRADE_EVENT: Final = "everbit.trade.event"
BACKTEST_COMMAND: Final = "everbit.backtest.command"
BACKTEST_EVENT: Final = "everbit.backtest.event"
SYSTEM_EVENT: Final = "everbit.system.event"
STREAMS: Final = (TRADE_COMMAND, TRADE_EVENT, BACKTEST_COMMAND, BACKTEST_EVENT, SYSTEM_EVENT)

CREATE_ORDER_ATTEMPT: Final = "CreateOrderAttempt"  # trade.command, to the executor
RECONCILE_ORDER_ATTEMPT: Final = "ReconcileOrderAttempt"  # trade.command, to the reconciler
ORDER_ACCEPTED: Final = "OrderAccepted"  # trade.event
ORDER_REJECTED: Final = "OrderRejected"  # trade.event
RUN_BACKTEST: Final = "RunBacktest"  # backtest.command
BACKTEST_FINISHED: Final = "BacktestFinished"  # backtest.event
KILL_SWITCH: Final = "KillSwitch"  # system.event

OWNER: Final = "OWNER"


def about_attempt(event_type: str, attempt: Attempt, *, not_before: datetime | None = None, **payload: Any) -> Envelope:
    """Return an event about an order attempt, with the trace id of its signal."""
    return Envelope(
        type=event_type,
        payload={
            "orderAttemptId": attempt.id,
            "orderIntentId": attempt.order_intent_id,
            "attemptNo": attempt.attempt_no,
            **payload,
        },
        aggregate_type="OrderAttempt",
        aggregate_id=str(attempt.id),
        attributes={"ownerId": OWNER, "strategyKey": attempt.strategy_key, "market": attempt.market},
        trace_id=attempt.trace_id,
        not_before=not_before,
    )
