"""Backtests: a moving-average crossover on generated candles.

The handler is a plain function with a plain psycopg connection, as in a Django or Flask code base: the worker runs
it in a thread, and ``publish_sync`` joins its transaction.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import psycopg

from examples.trading import events
from examples.trading.store import Connection
from kingdom.bus import Envelope, EventBus, Reject, publish_sync


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a strategy: ``profit`` and the largest ``drawdown`` as fractions of the start."""

    trades: int
    profit: float
    drawdown: float


def generate_candles(count: int, seed: int) -> list[float]:
    """Return the closing prices of a random walk, the same for the same seed."""
    rng = random.Random(seed)
    return list(accumulate((rng.gauss(0.0002, 0.01) for _ in range(count - 1)), _grow, initial=100.0))


def _grow(price: float, change: float) -> float:
    return price * (1 + change)


def moving_average(prices: Sequence[float], length: int) -> list[float]:
    """Return the mean of the last ``length`` prices, from the first full window on."""
    sums = list(accumulate(prices, initial=0.0))
    return [(sums[end] - sums[end - length]) / length for end in range(length, len(sums))]


def crossover(prices: Sequence[float], fast: int, slow: int) -> Outcome:
    """Hold while the fast average is above the slow one, from the candle after the one that shows it."""
    if not 0 < fast < slow < len(prices):
        raise ValueError(f"need 0 < fast < slow < candles, got fast={fast}, slow={slow}, candles={len(prices)}")
    above = [
        quick > calm
        for quick, calm in zip(moving_average(prices, fast)[slow - fast :], moving_average(prices, slow), strict=True)
    ]
    value = peak = 1.0
    drawdown = 0.0
    trades = 0
    for day, holding in enumerate(above[:-1]):
        trades += holding and (day == 0 or not above[day - 1])
        if holding:
            value *= prices[slow + day] / prices[slow + day - 1]
        peak = max(peak, value)
        drawdown = max(drawdown, 1 - value / peak)
    return Outcome(trades, value - 1, drawdown)


async def request_backtest(
    conn: Connection, bus: EventBus, market: str, *, seed: int, candles: int = 5000, fast: int = 10, slow: int = 40
) -> int:
    """Store a backtest and publish the command that runs it; return its id."""
    cursor = await conn.execute(
        "INSERT INTO backtest (market, seed, candles, fast, slow) VALUES (%s, %s, %s, %s, %s) RETURNING id",
        (market, seed, candles, fast, slow),
    )
    (backtest_id,) = await cursor.fetchone() or (0,)
    command = Envelope(
        type=events.RUN_BACKTEST,
        payload={"backtestId": backtest_id},
        aggregate_type="Backtest",
        aggregate_id=str(backtest_id),
        attributes={"ownerId": events.OWNER, "market": market},
        priority="low",
    )
    await bus.publish(events.BACKTEST_COMMAND, command, tx=conn)
    return int(backtest_id)


class Backtester:
    """Handles ``RunBacktest``."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url

    def run(self, event: Envelope) -> None:
        """Compute, then store and publish the outcome in one transaction. A second delivery finds it stored."""
        backtest_id: int = event.payload["backtestId"]
        with psycopg.connect(self._url, autocommit=True) as conn:
            row = conn.execute(
                "SELECT market, seed, candles, fast, slow FROM backtest WHERE id = %s", (backtest_id,)
            ).fetchone()
            if row is None:
                raise Reject("NO_SUCH_BACKTEST", f"there is no backtest {backtest_id} in this database")
            market, seed, candles, fast, slow = row
            outcome = crossover(generate_candles(candles, seed), fast, slow)
            with conn.transaction():
                stored = conn.execute(
                    "UPDATE backtest SET trades = %s, profit = %s, drawdown = %s, finished_at = now() "
                    "WHERE id = %s AND finished_at IS NULL",
                    (outcome.trades, outcome.profit, outcome.drawdown, backtest_id),
                ).rowcount
                if stored:
                    publish_sync(events.BACKTEST_EVENT, _finished(event, backtest_id, market, outcome), tx=conn)


def _finished(command: Envelope, backtest_id: int, market: str, outcome: Outcome) -> Envelope:
    return Envelope(
        type=events.BACKTEST_FINISHED,
        payload={
            "backtestId": backtest_id,
            "trades": outcome.trades,
            "profit": outcome.profit,
            "drawdown": outcome.drawdown,
        },
        aggregate_type="Backtest",
        aggregate_id=str(backtest_id),
        attributes={"ownerId": events.OWNER, "market": market},
        trace_id=command.trace_id,
    )
