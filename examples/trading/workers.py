"""The roles of the example: which role handles which stream, with which retry policy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal

from examples.trading import events
from examples.trading.backtest import Backtester
from examples.trading.exchange_client import ExchangeClient
from examples.trading.executor import Executor
from examples.trading.killswitch import KillSwitch
from examples.trading.notifier import Notifier
from examples.trading.reconciler import Reconciler
from examples.trading.states import IllegalTransition
from examples.trading.store import Database
from kingdom.bus import EventBus, Relay, RetryPolicy, Worker, connect


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of every process. All durations are in seconds."""

    database: str
    exchange: str
    handled: str = ""  # where events are handled, if not in the database: kafka://…, with a relay that carries them
    timeout: float = 5.0  # of one request to the exchange or the push server
    reconcile_after: float = 5.0  # from UNKNOWN to the first query
    lease: float = 30.0  # until the events of a dead process go to another one
    poll: float = 1.0  # between two reads of a stream without a notification (a delayed event sends none)


class WorkerFactory:
    """Creates the workers of a role. Events are published in the database and handled from ``handled``."""

    def __init__(self, settings: Settings, bus: EventBus, handled: EventBus, database: Database) -> None:
        self._settings = settings
        self._bus = bus
        self._handled = handled
        self._database = database
        self._exchange = ExchangeClient(settings.exchange, timeout=settings.timeout)

    def executor(self) -> list[Worker]:
        """Return the worker that sends orders."""
        executor = Executor(self._bus, self._database, self._exchange, reconcile_after=self._settings.reconcile_after)
        # When a process dies, every command it held has used an attempt, although the command is not at fault.
        worker = self._worker(events.TRADE_COMMAND, "order-executor", RetryPolicy(base=0.5, max_attempts=100))
        worker.on(events.CREATE_ORDER_ATTEMPT)(executor.execute)
        return [worker]

    def reconciler(self) -> list[Worker]:
        """Return the worker that settles orders without an answer: the executor's stream, another type of command."""
        reconciler = Reconciler(self._bus, self._database, self._exchange)
        # It does not give up: an attempt left UNKNOWN is an order that may or may not exist.
        patient = RetryPolicy(base=0.5, cap=30, max_attempts=10_000)
        worker = self._worker(events.TRADE_COMMAND, "order-reconciler", patient)
        worker.on(events.RECONCILE_ORDER_ATTEMPT)(reconciler.reconcile)
        return [worker]

    def notifier(self) -> list[Worker]:
        """Return the workers that push notifications, from two streams."""
        notifier = Notifier(self._database, self._settings.exchange, timeout=self._settings.timeout)
        orders = self._worker(events.TRADE_EVENT, "notifier", RetryPolicy(base=0.5, max_attempts=20))
        orders.on(events.ORDER_ACCEPTED, events.ORDER_REJECTED)(notifier.notify)
        backtests = self._worker(events.BACKTEST_EVENT, "notifier", RetryPolicy(base=0.5, max_attempts=20))
        backtests.on(events.BACKTEST_FINISHED)(notifier.notify)
        return [orders, backtests]

    def backtest(self) -> list[Worker]:
        """Return the worker that runs backtests in threads, two at a time."""
        worker = self._worker(events.BACKTEST_COMMAND, "backtester", RetryPolicy(), concurrency=2)
        worker.on(events.RUN_BACKTEST)(Backtester(self._settings.database).run)
        return [worker]

    def system(self) -> list[Worker]:
        """Return the worker that executes the kill switch."""
        worker = self._worker(events.SYSTEM_EVENT, "system", RetryPolicy(base=0.1), concurrency=1)
        worker.on(events.KILL_SWITCH)(KillSwitch(self._bus, self._database).apply)
        return [worker]

    def relay(self) -> list[Relay]:
        """Return the relay that carries events to where they are handled; none if that is the database."""
        if self._handled is self._bus:
            return []
        return [Relay(self._bus, self._handled, events.STREAMS, lease=self._settings.lease, poll=self._settings.poll)]

    def _worker(self, stream: str, name: str, retry: RetryPolicy, *, concurrency: int = 8) -> Worker:
        settings = self._settings
        return Worker(
            self._handled,
            stream,
            name=name,
            concurrency=concurrency,
            lease=settings.lease,
            poll=settings.poll,
            retry=retry,
            classify=_classify,
        )


Role = Literal["executor", "reconciler", "notifier", "backtest", "system", "relay"]
ROLES: Final[dict[Role, Callable[[WorkerFactory], list[Worker] | list[Relay]]]] = {
    "executor": WorkerFactory.executor,
    "reconciler": WorkerFactory.reconciler,
    "notifier": WorkerFactory.notifier,
    "backtest": WorkerFactory.backtest,
    "system": WorkerFactory.system,
    "relay": WorkerFactory.relay,
}
OFFICE: Final[tuple[Role, ...]] = ("reconciler", "notifier", "backtest", "system", "relay")
"""All roles but the one that sends orders."""


async def run_workers(settings: Settings, roles: Iterable[Role]) -> None:
    """Run the workers of these roles in this process until SIGTERM."""
    async with connect_all(settings) as (bus, handled), Database(settings.database) as database:
        factory = WorkerFactory(settings, bus, handled, database)
        async with asyncio.TaskGroup() as group:
            for role in roles:
                for worker in ROLES[role](factory):
                    group.create_task(worker.run())


@asynccontextmanager
async def connect_all(settings: Settings) -> AsyncIterator[tuple[EventBus, EventBus]]:
    """Connect to the bus in the database, and to the one from which events are handled: often the same."""
    async with connect(settings.database) as bus:
        if not settings.handled:
            yield bus, bus
            return
        async with connect(settings.handled) as handled:
            yield bus, handled


def _classify(error: BaseException) -> Literal["dead"] | None:
    # After a retry it would look settled and vanish; as a dead letter it is visible.
    return "dead" if isinstance(error, IllegalTransition) else None
