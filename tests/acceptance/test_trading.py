"""The trading example as real processes: executors killed at random points, and the books still right."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from examples.trading import events, killswitch, processes
from examples.trading.backtest import request_backtest
from examples.trading.books import is_settled, read_intents, until
from examples.trading.exchange import Exchange
from examples.trading.faults import Fault, seeded
from examples.trading.httpio import Request
from examples.trading.workers import OFFICE, Settings
from tests.support.trading import Trading, trading_database

pytestmark = pytest.mark.postgres

KILLS = 50
SIGNALS = 300
EXECUTORS = 2


class Killer:
    """Keeps the processes running and kills them, one after the other, at moments the seed chooses."""

    def __init__(self, settings: Settings, rng: random.Random) -> None:
        self.kills = 0
        self._settings = settings
        self._rng = rng
        self._executors: dict[int, asyncio.subprocess.Process] = {}
        self._office: asyncio.subprocess.Process | None = None  # all the other roles
        self._orders: asyncio.Queue[int] = asyncio.Queue()  # the process behind each order that reaches the exchange

    def saw(self, request: Request) -> None:
        """An order reached the exchange, which has not answered yet."""
        self._orders.put_nowait(int(request.headers["user-agent"].partition("/")[2]))

    async def fill_up(self) -> None:
        """Start executors until there are as many as there should be."""
        while len(self._executors) < EXECUTORS:
            process = await processes.start(self._settings, "executor")
            self._executors[process.pid] = process

    async def strike(self) -> None:
        """Kill an executor: in the middle of an order, a moment later, or whenever; and replace it."""
        victim = None
        if self._rng.random() < 0.8:
            skip = self._rng.randrange(4)
            with suppress(TimeoutError):  # no orders now (the kill switch, a pause): then it dies idle
                async with asyncio.timeout(2):
                    while victim not in self._executors or skip > 0:
                        victim = await self._orders.get()
                        skip -= 1
            await asyncio.sleep(self._rng.choice([0, 0, self._rng.uniform(0, 0.02), self._rng.uniform(0, 0.3)]))
        else:
            await asyncio.sleep(self._rng.uniform(0, 0.5))
        if victim not in self._executors:
            victim = self._rng.choice(sorted(self._executors))
        process = self._executors.pop(victim)
        assert process.returncode is None, f"an executor ended by itself with code {process.returncode}"
        await processes.kill(process)
        assert process.returncode == -signal.SIGKILL
        self.kills += 1
        await self.fill_up()

    async def replace_office(self) -> None:
        """Kill the process of the other roles, if it runs, and start it anew."""
        if self._office is not None:
            await processes.kill(self._office)
            assert self._office.returncode == -signal.SIGKILL
        self._office = await processes.start(self._settings, *OFFICE)

    async def stop(self) -> None:
        for process in (*self._executors.values(), self._office):
            if process is not None:
                await processes.kill(process)


@pytest.mark.walk
@pytest.mark.timeout(300)
async def test_executors_killed_at_random_place_no_order_twice_and_lose_none(postgres_server: str) -> None:
    await run_campaign(postgres_server)


@pytest.mark.kafka
@pytest.mark.walk
@pytest.mark.timeout(400)
async def test_the_same_holds_when_a_relay_carries_the_events_to_kafka(postgres_server: str, kafka_url: str) -> None:
    """The relay is one of the roles that are killed together every fifth time."""
    await run_campaign(postgres_server, kafka_url)


async def run_campaign(postgres_server: str, handled: str = "") -> None:
    """Send signals, kill processes all the while, and check the books."""
    seed = int(os.environ.get("TRADING_SEED") or secrets.randbelow(10**9))
    print(f"repeat with TRADING_SEED={seed}")
    rng = random.Random(seed)
    async with AsyncExitStack() as stack:
        trading = await stack.enter_async_context(trading_database(postgres_server, handled))
        exchange = Exchange(seeded(seed), late=0.9, flaky=0.1, rng=random.Random(seed))
        await stack.enter_async_context(exchange)
        after = rng.choice([0.1, 0.3])
        settings = Settings(trading.url, exchange.url, handled, timeout=0.4, reconcile_after=after, lease=1.5, poll=0.2)
        killer = Killer(settings, rng)
        stack.push_async_callback(killer.stop)
        exchange.on_order = killer.saw
        await killer.fill_up()
        await killer.replace_office()

        intents = []
        for number in range(KILLS):
            intents += [await trading.signal() for _ in range(SIGNALS // KILLS)]
            if number % 10 == 0:
                async with trading.database.transaction() as conn:
                    await request_backtest(conn, trading.bus, "KRW-ETH", seed=number, candles=1000)
            if number == 20:
                await engage(trading)
            if number == 23:
                await release(trading)
            await killer.strike()
            if number % 5 == 4:
                await killer.replace_office()

        with suppress(TimeoutError):  # what is not settled by then is told in detail below
            await until(lambda: is_settled((trading.bus, trading.handled), trading.database), within=90)

        assert killer.kills == KILLS
        assert len(intents) == SIGNALS
        await check_books(trading, exchange, intents)
        await check_pushes(trading, exchange)
        await check_that_it_was_a_test(trading, exchange)


async def engage(trading: Trading) -> None:
    """Engage the kill switch, and see it engaged."""
    async with trading.database.transaction() as conn:
        await killswitch.request(conn, trading.bus, engaged=True)
    await until(lambda: trading.any("SELECT 1 FROM kill_switch WHERE engaged"), within=60)


async def release(trading: Trading) -> None:
    """See that the kill switch has held something back, and release it."""
    await until(lambda: trading.any("SELECT 1 FROM order_attempt WHERE status = 'SUSPENDED'"), within=60)
    async with trading.database.transaction() as conn:
        await killswitch.request(conn, trading.bus, engaged=False)


async def check_books(trading: Trading, exchange: Exchange, intents: list[int]) -> None:
    """Each intent ended; those accepted are one order at the exchange, the others none."""
    for bus in (trading.bus, trading.handled):
        depth = await bus.depth()
        left = {stream: found for stream, found in depth.items() if found.pending or found.processing or found.dead}
        assert left == {}
        assert set(depth) <= set(events.STREAMS)

    orders = Counter(int(order["tag"]) for order in exchange.orders.values())
    assert {intent: count for intent, count in orders.items() if count > 1} == {}, "orders placed twice"
    async with trading.database.transaction() as conn:
        books = await read_intents(conn)
    assert [book.intent_id for book in books] == intents
    assert {book.status for book in books} == {"ACKED", "REJECTED"}
    accepted = {book.identifier: book.exchange_order_id for book in books if book.status == "ACKED"}
    assert accepted == {identifier: order["orderId"] for identifier, order in exchange.orders.items()}


async def check_pushes(trading: Trading, exchange: Exchange) -> None:
    """Each event that was told to the world reached the phone once; each intent had one such event."""
    told = await trading.query(
        "SELECT event_id, event_type, payload_json->'payload'->>'orderIntentId' FROM outbox_event "
        "WHERE stream IN (%s, %s)",
        events.TRADE_EVENT,
        events.BACKTEST_EVENT,
    )
    assert {row[0] for row in told} == set(exchange.delivered)
    logged = [row[0] for row in await trading.query("SELECT event_id FROM notification_log")]
    assert sorted(map(str, logged)) == sorted(exchange.delivered)
    of_intents = Counter(row[2] for row in told if row[1] in (events.ORDER_ACCEPTED, events.ORDER_REJECTED))
    assert len(of_intents) == SIGNALS
    assert set(of_intents.values()) == {1}
    assert Counter(row[1] for row in told)[events.BACKTEST_FINISHED] == KILLS // 10


async def check_that_it_was_a_test(trading: Trading, exchange: Exchange) -> None:
    """Every fault occurred, every state was visited, and executors died between SENT and the answer."""
    assert set(exchange.faults) == set(Fault)
    history = await trading.query("SELECT status, count(*) FROM order_attempt_history GROUP BY status")
    assert {row[0] for row in history} == {
        "PREPARED", "SUSPENDED", "SENT", "UNKNOWN", "ACKED", "REJECTED", "THROTTLED"
    }  # fmt: skip
    reasons = await trading.query("SELECT reason, count(*) FROM order_attempt_history GROUP BY reason")
    counts = {str(row[0]): int(str(row[1])) for row in reasons}
    print(dict(sorted(counts.items())))
    assert counts["the executor did not finish"] >= 5
    assert counts["found by the reconciler"] >= 5
    assert counts["never arrived, identifier void"] >= 5


def test_the_story_ends_by_itself_and_well() -> None:
    run_story()


@pytest.mark.walk
@pytest.mark.kafka
def test_the_story_is_the_same_on_kafka_with_another_url(kafka_url: str) -> None:
    run_story("--handled", kafka_url)


def run_story(*options: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "examples.trading", *options],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "every intent is one order or none" in told.stdout
