"""The trading example's handlers on a real PostgreSQL and a real exchange, one delivery at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from examples.trading import events, killswitch
from examples.trading.backtest import Backtester, request_backtest
from examples.trading.exchange import Exchange
from examples.trading.exchange_client import Accepted, ExchangeClient, ExchangeError, Refused, Throttled
from examples.trading.executor import Executor
from examples.trading.faults import Fault, scripted
from examples.trading.killswitch import KillSwitch
from examples.trading.notifier import Notifier
from examples.trading.orders import MAX_ATTEMPTS, begin_sending, record_answer, record_signal
from examples.trading.reconciler import Reconciler
from examples.trading.states import IllegalTransition
from kingdom.bus import Envelope, Reject
from tests.support.trading import SIGNAL, Trading, trading_database

pytestmark = pytest.mark.postgres


@pytest.fixture
async def trading(postgres_server: str) -> AsyncIterator[Trading]:
    async with trading_database(postgres_server) as found:
        yield found


class Desk:
    """The handlers, and the events they are to handle, taken from the bus."""

    def __init__(self, trading: Trading, exchange: Exchange) -> None:
        client = ExchangeClient(exchange.url, timeout=0.5)
        self.trading = trading
        self.exchange = exchange
        self.executor = Executor(trading.bus, trading.database, client, reconcile_after=0)
        self.reconciler = Reconciler(trading.bus, trading.database, client)
        self.switch = KillSwitch(trading.bus, trading.database)
        self.notifier = Notifier(trading.database, exchange.url)

    async def take(self, stream: str, *types: str) -> list[Envelope]:
        """Events of these types that are due, marked DONE."""
        taken = await self.trading.bus.claim(stream, worker="test", limit=100, types=types or None)
        await self.trading.bus.settle(done=taken)
        return [delivery.envelope for delivery in taken]

    async def command(self) -> Envelope:
        (event,) = await self.take(events.TRADE_COMMAND, events.CREATE_ORDER_ATTEMPT)
        return event

    async def execute(self) -> Envelope:
        event = await self.command()
        await self.executor.execute(event)
        return event

    async def reconcile(self) -> Envelope:
        (event,) = await self.take(events.TRADE_COMMAND, events.RECONCILE_ORDER_ATTEMPT)
        await self.reconciler.reconcile(event)
        return event

    async def told(self) -> list[str]:
        """The types of the events told to the world since the last call."""
        return [event.type for event in await self.take(events.TRADE_EVENT)]


@asynccontextmanager
async def desk(trading: Trading, *faults: Fault) -> AsyncIterator[Desk]:
    async with Exchange(scripted({"1": faults}), late=1.5) as exchange:
        yield Desk(trading, exchange)


async def test_a_signal_that_is_rolled_back_leaves_no_command(trading: Trading) -> None:
    async def change_of_mind() -> None:
        async with trading.database.transaction() as conn:
            await record_signal(conn, trading.bus, SIGNAL)
            raise RuntimeError("changed my mind")

    with pytest.raises(RuntimeError, match="changed my mind"):
        await change_of_mind()
    assert await trading.query("SELECT 1 FROM order_intent") == []
    assert await trading.idle()


@pytest.mark.parametrize(
    ("fault", "attempts", "told"),
    [
        (Fault.NONE, ["ACKED"], ["OrderAccepted"]),
        (Fault.REJECT, ["REJECTED"], ["OrderRejected"]),
        (Fault.THROTTLE, ["THROTTLED", "PREPARED"], []),
        (Fault.ERROR_BEFORE, ["UNKNOWN"], []),
        (Fault.ERROR_AFTER, ["UNKNOWN"], []),
        (Fault.SILENT_AFTER, ["UNKNOWN"], []),
        (Fault.LOST_AFTER, ["UNKNOWN"], []),
    ],
)
async def test_what_the_exchange_answers_decides_the_attempt(
    trading: Trading, fault: Fault, attempts: list[str], told: list[str]
) -> None:
    async with desk(trading, fault) as the:
        intent = await trading.signal()
        command = await the.execute()
        assert await trading.attempts(intent) == attempts
        assert await the.told() == told
        # A second delivery of the same command changes nothing and sends nothing.
        await the.executor.execute(command)
        assert await trading.attempts(intent) == attempts
        assert await the.told() == []
        assert the.exchange.faults.total() == 1


async def test_a_throttled_order_waits_as_long_as_the_exchange_asks(trading: Trading) -> None:
    async with desk(trading, Fault.THROTTLE) as the:
        intent = await trading.signal()
        first = await the.execute()
        assert await the.take(events.TRADE_COMMAND, events.CREATE_ORDER_ATTEMPT) == []  # not yet
        ((waits, identifier, trace),) = await trading.query(
            "SELECT next_retry_at - created_at > '0.5 s' AND next_retry_at - created_at <= '1.1 s', "
            "(SELECT identifier FROM order_attempt WHERE attempt_no = 2), payload_json->>'traceId' "
            "FROM outbox_event WHERE status = 'PENDING' AND stream = %s",
            events.TRADE_COMMAND,
        )
        assert (waits, identifier, trace) == (True, f"everbit-{intent}-2", first.trace_id)


@pytest.mark.parametrize("fault", [Fault.ERROR_AFTER, Fault.SILENT_AFTER, Fault.LOST_AFTER])
async def test_the_reconciler_finds_an_order_whose_answer_was_lost(trading: Trading, fault: Fault) -> None:
    async with desk(trading, fault) as the:
        intent = await trading.signal()
        await the.execute()
        again = await the.reconcile()
        assert await trading.attempts(intent) == ["ACKED"]
        assert await the.told() == ["OrderAccepted"]
        await the.reconciler.reconcile(again)  # delivered twice
        assert await the.told() == []
        assert len(the.exchange.orders) == 1


async def test_an_order_that_never_arrived_is_sent_anew_under_another_identifier(trading: Trading) -> None:
    async with desk(trading, Fault.LATE) as the:
        intent = await trading.signal()
        await the.execute()
        await the.reconcile()
        assert await trading.attempts(intent) == ["REJECTED", "PREPARED"]
        assert await the.told() == []  # the intent goes on: nothing to tell
        await the.execute()
        assert await trading.attempts(intent) == ["REJECTED", "ACKED"]
        # The first request is still under way; whenever it arrives, it is refused.
        assert the.exchange.voided == {f"everbit-{intent}-1"}
        assert list(the.exchange.orders) == [f"everbit-{intent}-2"]


async def test_a_command_that_finds_its_attempt_sent_does_not_send_it_again(trading: Trading) -> None:
    async with desk(trading) as the:
        intent = await trading.signal()
        command = await the.command()
        async with trading.database.transaction() as conn:  # an executor that dies right after its first commit
            assert await begin_sending(conn, trading.bus, command.payload["orderAttemptId"], 0)
        await the.executor.execute(command)
        assert await trading.attempts(intent) == ["UNKNOWN"]
        assert the.exchange.faults.total() == 0
        await the.reconcile()
        assert await trading.attempts(intent) == ["REJECTED", "PREPARED"]


async def test_late_answers_of_an_executor_that_was_given_up(trading: Trading) -> None:
    async with desk(trading) as the:
        intent = await trading.signal()
        command = await the.command()
        attempt_id = command.payload["orderAttemptId"]

        async def answered(answer: Accepted | Refused | Throttled) -> None:
            async with trading.database.transaction() as conn:
                await record_answer(conn, trading.bus, attempt_id, answer, 0)

        async with trading.database.transaction() as conn:
            await begin_sending(conn, trading.bus, attempt_id, 0)
        await the.executor.execute(command)  # another executor: UNKNOWN
        await answered(Accepted("EX-1"))  # and then the first one's answer comes
        assert await trading.attempts(intent) == ["ACKED"]
        await answered(Accepted("EX-1"))
        await answered(Refused("422"))
        await answered(Throttled(1))
        assert await trading.attempts(intent) == ["ACKED"]
        assert await the.told() == ["OrderAccepted"]
        await the.reconcile()
        assert await trading.attempts(intent) == ["ACKED"]


async def test_an_order_that_cannot_exist_is_not_passed_over(trading: Trading) -> None:
    async with desk(trading, Fault.REJECT) as the:
        await trading.signal()
        command = await the.execute()
        with pytest.raises(IllegalTransition, match="REJECTED and cannot become ACKED"):
            async with trading.database.transaction() as conn:
                await record_answer(conn, trading.bus, command.payload["orderAttemptId"], Accepted("EX-9"), 0)


async def test_an_intent_is_given_up_after_its_last_attempt(trading: Trading) -> None:
    async with desk(trading, Fault.SILENT_BEFORE) as the:
        intent = await trading.signal()
        await trading.query("UPDATE order_attempt SET attempt_no = %s RETURNING id", MAX_ATTEMPTS)
        await the.execute()
        await the.reconcile()
        assert await trading.attempts(intent) == ["REJECTED"]
        assert await the.told() == ["OrderRejected"]


async def test_a_command_for_an_attempt_that_does_not_exist_is_dead_at_once(trading: Trading) -> None:
    async with desk(trading) as the:
        with pytest.raises(Reject, match="no order attempt 99"):
            await the.executor.execute(Envelope(type="CreateOrderAttempt", payload={"orderAttemptId": 99}))


async def test_the_reconciler_asks_again_while_the_exchange_is_away(trading: Trading) -> None:
    async with desk(trading, Fault.ERROR_AFTER) as the:
        intent = await trading.signal()
        await the.execute()
        (event,) = await the.take(events.TRADE_COMMAND, events.RECONCILE_ORDER_ATTEMPT)
    with pytest.raises(ExchangeError):
        await the.reconciler.reconcile(event)
    assert await trading.attempts(intent) == ["UNKNOWN"]


async def test_the_database_refuses_a_second_live_attempt(trading: Trading) -> None:
    intent = await trading.signal()
    with pytest.raises(psycopg.errors.UniqueViolation, match="order_attempt_live"):
        await trading.query(
            "INSERT INTO order_attempt (order_intent_id, attempt_no, identifier) VALUES (%s, 2, 'x') RETURNING id",
            intent,
        )


async def test_the_kill_switch_holds_back_what_was_not_sent(trading: Trading) -> None:
    async with desk(trading) as the:

        async def turn(*wishes: bool) -> list[Envelope]:
            async with trading.database.transaction() as conn:
                for engaged in wishes:
                    await killswitch.request(conn, trading.bus, engaged=engaged)
            return await the.take(events.SYSTEM_EVENT)

        before = await trading.signal()
        (engage,) = await turn(True)
        await the.switch.apply(engage)
        assert await trading.attempts(before) == ["SUSPENDED"]
        during = await trading.signal()
        for command in await the.take(events.TRADE_COMMAND):
            await the.executor.execute(command)
        assert await trading.attempts(before) == await trading.attempts(during) == ["SUSPENDED"]
        assert the.exchange.faults.total() == 0

        release, *_ = await turn(False)
        await the.switch.apply(release)
        await the.switch.apply(engage)  # delivered again, late: the newer wish stands
        commands = await the.take(events.TRADE_COMMAND)
        assert len(commands) == 2
        for command in commands * 2:  # each delivered twice
            await the.executor.execute(command)
        assert await trading.attempts(before) == await trading.attempts(during) == ["ACKED"]
        assert len(the.exchange.orders) == 2


async def test_a_push_is_sent_once_however_often_its_event_is_delivered(trading: Trading) -> None:
    async with desk(trading) as the:
        await trading.signal()
        await the.execute()
        (event,) = await the.take(events.TRADE_EVENT)
        await the.notifier.notify(event)
        assert list(the.exchange.delivered) == [event.event_id]
        the.exchange.delivered.clear()  # a push server that has forgotten: the log still knows
        await the.notifier.notify(event)
        assert the.exchange.delivered == {}
        assert await trading.query("SELECT event_id FROM notification_log") == [(event.event_id,)]
        assert await trading.query("SELECT consumer FROM inbox_event") == [("notifier",)]


async def test_a_backtest_is_stored_and_told_once(trading: Trading) -> None:
    async with trading.database.transaction() as conn:
        await request_backtest(conn, trading.bus, "KRW-ETH", seed=11, candles=500)
    (claimed,) = await trading.bus.claim(events.BACKTEST_COMMAND, worker="test")
    for _ in range(2):
        Backtester(trading.url).run(claimed.envelope)
    (told,) = await trading.bus.claim(events.BACKTEST_EVENT, worker="test", limit=10)
    ((trades, profit),) = await trading.query("SELECT trades, profit FROM backtest")
    assert (told.envelope.type, told.envelope.trace_id) == ("BacktestFinished", claimed.envelope.trace_id)
    assert (told.envelope.payload["trades"], told.envelope.payload["profit"]) == (trades, profit)
    assert trades > 0
