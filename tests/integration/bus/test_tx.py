"""Publishing inside the caller's own transaction: commit, rollback and savepoint, on every driver."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from kingdom.bus import Envelope, EventBus, Inbox, InvalidEnvelope, NotSetUp, TransactionMismatch, connect, publish_sync
from kingdom.bus.transports.postgresql._connections import split_url

STREAM = "orders"


class Held:
    """An open transaction under test."""

    def __init__(self, tx: Any, run: Callable[[str], Awaitable[Any]]) -> None:
        self.tx = tx
        self.run = run


def _dsn(url: str) -> tuple[str, str]:
    dsn, options = split_url(url)
    return dsn, options["schema"]


@asynccontextmanager
async def psycopg_sync(url: str) -> AsyncIterator[Held]:
    dsn, schema = _dsn(url)
    with psycopg.connect(dsn, options=f"-c search_path={schema}") as connection:

        async def run(sql: str) -> Any:
            connection.execute(sql)

        yield Held(connection, run)
        connection.rollback()


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Held]:
    dsn, schema = _dsn(url)
    async with await psycopg.AsyncConnection.connect(dsn, options=f"-c search_path={schema}") as connection:

        async def run(sql: str) -> Any:
            await connection.execute(sql)

        yield Held(connection, run)
        await connection.rollback()


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Held]:
    dsn, schema = _dsn(url)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": schema})
    try:
        await connection.execute("BEGIN")
        yield Held(connection, connection.execute)
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Held]:
    dsn, schema = _dsn(url)
    async with (
        asyncpg.create_pool(dsn, min_size=1, max_size=1, server_settings={"search_path": schema}) as pool,
        pool.acquire() as connection,
    ):
        await connection.execute("BEGIN")
        yield Held(connection, connection.execute)


def _alchemy(url: str) -> tuple[str, str, str]:
    dsn, schema = _dsn(url)
    return dsn.replace("postgresql://", "postgresql+psycopg://"), schema, f"-c search_path={schema}"


@asynccontextmanager
async def sqlalchemy_session(url: str) -> AsyncIterator[Held]:
    address, _, options = _alchemy(url)
    engine = sqlalchemy.create_engine(address, connect_args={"options": options})
    with Session(engine) as session:

        async def run(sql: str) -> Any:
            session.execute(sqlalchemy.text(sql))

        yield Held(session, run)
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_connection(url: str) -> AsyncIterator[Held]:
    address, _, options = _alchemy(url)
    engine = sqlalchemy.create_engine(address, connect_args={"options": options})
    with engine.connect() as connection:

        async def run(sql: str) -> Any:
            connection.execute(sqlalchemy.text(sql))

        yield Held(connection, run)
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_session(url: str) -> AsyncIterator[Held]:
    address, _, options = _alchemy(url)
    engine = create_async_engine(address, connect_args={"options": options})
    async with AsyncSession(engine) as session:

        async def run(sql: str) -> Any:
            await session.execute(sqlalchemy.text(sql))

        yield Held(session, run)
    await engine.dispose()


@asynccontextmanager
async def sqlalchemy_async_connection(url: str) -> AsyncIterator[Held]:
    address, _, options = _alchemy(url)
    engine = create_async_engine(address, connect_args={"options": options})
    async with engine.connect() as connection:

        async def run(sql: str) -> Any:
            await connection.execute(sqlalchemy.text(sql))

        yield Held(connection, run)
    await engine.dispose()


@asynccontextmanager
async def sqlite3_connection(url: str) -> AsyncIterator[Held]:
    connection = sqlite3.connect(url.removeprefix("sqlite://"), isolation_level=None)
    connection.execute("BEGIN")

    async def run(sql: str) -> Any:
        connection.execute(sql)

    yield Held(connection, run)
    connection.close()


@asynccontextmanager
async def sqlite_session(url: str) -> AsyncIterator[Held]:
    engine = sqlalchemy.create_engine(url.replace("sqlite://", "sqlite:///"))
    with Session(engine) as session:
        session.execute(sqlalchemy.text("BEGIN"))

        async def run(sql: str) -> Any:
            session.execute(sqlalchemy.text(sql))

        yield Held(session, run)
    engine.dispose()


POSTGRES = [
    psycopg_sync,
    psycopg_async,
    asyncpg_connection,
    asyncpg_pool,
    sqlalchemy_session,
    sqlalchemy_connection,
    sqlalchemy_async_session,
    sqlalchemy_async_connection,
]
SQLITE = [sqlite3_connection, sqlite_session]
SYNCHRONOUS = [psycopg_sync, sqlalchemy_session, sqlalchemy_connection, *SQLITE]


@pytest.fixture
def url(request: pytest.FixtureRequest, driver: Any, tmp_path: Any) -> str:
    if driver in SQLITE:
        return f"sqlite://{tmp_path}/bus.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def bus(url: str) -> AsyncIterator[EventBus]:
    async with connect(url) as bus:
        await bus.setup()
        yield bus


def order(number: int = 1) -> Envelope:
    return Envelope(type="OrderPlaced", payload={"n": number}, aggregate_type="Order", aggregate_id=str(number))


async def pending(bus: EventBus) -> int:
    depths = await bus.depth()
    return depths[STREAM].pending if STREAM in depths else 0


@pytest.mark.parametrize("driver", POSTGRES + SQLITE, ids=lambda item: item.__name__)
class TestEveryDriver:
    async def test_a_committed_transaction_publishes(self, bus: EventBus, url: str, driver: Any) -> None:
        event = order()
        async with driver(url) as held:
            assert await bus.publish(STREAM, event, tx=held.tx) == [event.event_id]
            assert await pending(bus) == 0
            await held.run("COMMIT")
        claimed = await bus.claim(STREAM, worker="w", limit=10)
        assert [delivery.envelope for delivery in claimed] == [event]

    async def test_a_rolled_back_transaction_leaves_no_trace(self, bus: EventBus, url: str, driver: Any) -> None:
        event = order()
        async with driver(url) as held:
            await bus.publish(STREAM, event, order(2), tx=held.tx)
            await held.run("ROLLBACK")
        assert await pending(bus) == 0
        assert await bus.find(event.event_id) is None
        assert await bus.publish(STREAM, event) == [event.event_id]

    async def test_a_savepoint_takes_back_only_what_came_after_it(self, bus: EventBus, url: str, driver: Any) -> None:
        before, after = order(1), order(2)
        async with driver(url) as held:
            await bus.publish(STREAM, before, tx=held.tx)
            await held.run("SAVEPOINT here")
            await bus.publish(STREAM, after, tx=held.tx)
            await held.run("ROLLBACK TO SAVEPOINT here")
            await held.run("COMMIT")
        assert await bus.find(before.event_id) is not None
        assert await bus.find(after.event_id) is None

    async def test_an_id_published_before_is_left_out(self, bus: EventBus, url: str, driver: Any) -> None:
        known, new = order(1), order(2)
        await bus.publish(STREAM, known)
        async with driver(url) as held:
            assert await bus.publish(STREAM, known, new, tx=held.tx) == [new.event_id]
            await held.run("COMMIT")
        assert await pending(bus) == 2

    @pytest.mark.parametrize("together", [False, True])
    async def test_events_are_stored_alike_alone_and_together(
        self, bus: EventBus, url: str, driver: Any, together: bool
    ) -> None:
        """Order, priority, time and words, each on the way that one event goes and on that of several."""
        await bus.declare("in-order", ordered=True)
        later = datetime.now(UTC) + timedelta(hours=1)
        words = {"say": "한국어 'quoted' \"twice\" 100 % \\ :stream $1 ?"}
        plain = [
            Envelope(type="Last", payload=words, priority="low"),
            Envelope(type="Later", payload=words, not_before=later),
            Envelope(type="First", payload=words, priority="high", attributes={"market": "KRW-BTC"}),
        ]
        in_order = [order(number) for number in (7, 7, 8)]
        async with driver(url) as held:
            for stream, events in ((STREAM, plain), ("in-order", in_order)):
                for batch in [events] if together else [[event] for event in events]:
                    assert await bus.publish(stream, batch, tx=held.tx) == [event.event_id for event in batch]
            await held.run("COMMIT")
        claimed = await bus.claim(STREAM, worker="w", limit=10)
        assert [delivery.envelope for delivery in claimed] == [plain[2], plain[0]]
        heads = await bus.claim("in-order", worker="w", limit=10)
        assert [delivery.envelope for delivery in heads] == [in_order[0], in_order[2]]
        held_back = await bus.find(plain[1].event_id)
        assert held_back is not None
        assert held_back.next_retry_at is not None
        assert abs(held_back.next_retry_at - later) < timedelta(milliseconds=1)

    async def test_many_events_keep_their_order(self, bus: EventBus, url: str, driver: Any) -> None:
        events = [order(number) for number in range(50)]
        async with driver(url) as held:
            await bus.publish(STREAM, events, tx=held.tx)
            await held.run("COMMIT")
        claimed = await bus.claim(STREAM, worker="w", limit=100)
        assert [delivery.event_id for delivery in claimed] == [event.event_id for event in events]

    async def test_the_inbox_sees_an_event_once(self, bus: EventBus, url: str, driver: Any) -> None:
        inbox, event = Inbox("notifier"), order()
        async with driver(url) as held:
            assert await inbox.first(event, tx=held.tx) is True
            assert await inbox.first(event, tx=held.tx) is False
            await held.run("COMMIT")
        async with driver(url) as held:
            assert await inbox.first(event, tx=held.tx) is False
            assert await Inbox("another").first(event, tx=held.tx) is True
            await held.run("ROLLBACK")

    async def test_a_bad_envelope_leaves_the_transaction_usable(self, bus: EventBus, url: str, driver: Any) -> None:
        good = order()
        async with driver(url) as held:
            with pytest.raises(InvalidEnvelope, match=r"payload\.what"):
                await bus.publish(STREAM, Envelope(type="Bad", payload={"what": object()}), tx=held.tx)
            await bus.publish(STREAM, good, tx=held.tx)
            await held.run("COMMIT")
        assert await bus.find(good.event_id) is not None


@pytest.mark.parametrize("driver", SYNCHRONOUS, ids=lambda item: item.__name__)
class TestSynchronousCallers:
    async def test_publish_sync_joins_the_transaction(self, bus: EventBus, url: str, driver: Any) -> None:
        kept, dropped = order(1), order(2)
        async with driver(url) as held:
            assert publish_sync(STREAM, kept, tx=held.tx) == [kept.event_id]
            await held.run("COMMIT")
        async with driver(url) as held:
            publish_sync(STREAM, dropped, tx=held.tx)
            await held.run("ROLLBACK")
        assert await bus.find(kept.event_id) is not None
        assert await bus.find(dropped.event_id) is None

    async def test_first_sync_marks_in_the_transaction(self, bus: EventBus, url: str, driver: Any) -> None:
        async with driver(url) as held:
            assert Inbox("sync").first_sync("evt-1", tx=held.tx) is True
            assert Inbox("sync").first_sync("evt-1", tx=held.tx) is False
            await held.run("ROLLBACK")


async def test_a_schema_that_is_not_on_the_search_path_is_named(postgres_url: str) -> None:
    dsn, schema = _dsn(postgres_url)
    async with connect(postgres_url) as bus:
        await bus.setup()
        event = order()
        with psycopg.connect(dsn) as connection:
            assert publish_sync(STREAM, event, tx=connection, schema=schema) == [event.event_id]
            assert Inbox("elsewhere", schema=schema).first_sync(event, tx=connection) is True
        assert await bus.find(event.event_id) is not None


async def test_a_scoped_session_is_the_session_of_its_scope(tmp_path: Any) -> None:
    async with connect(f"sqlite://{tmp_path}/bus.db") as bus:
        await bus.setup()
        engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/bus.db")
        session = scoped_session(sessionmaker(engine))
        event = order()
        await bus.publish(STREAM, event, tx=session)
        session.commit()
        session.remove()
        engine.dispose()
        assert await bus.find(event.event_id) is not None


class TestMismatches:
    async def test_an_object_that_is_no_transaction_is_named(self, postgres_url: str) -> None:
        async with connect(postgres_url) as bus:
            await bus.setup()
            with pytest.raises(TransactionMismatch, match=r"builtins\.dict; it takes psycopg"):
                await bus.publish(STREAM, order(), tx={})

    async def test_an_engine_is_no_transaction(self, postgres_url: str) -> None:
        async with connect(postgres_url) as bus:
            await bus.setup()
            with pytest.raises(TransactionMismatch, match="SQLAlchemy Engine; pass the Session or the Connection"):
                await bus.publish(STREAM, order(), tx=sqlalchemy.create_engine("postgresql+psycopg:///x"))

    async def test_a_transaction_of_another_database_is_refused(self, postgres_url: str, tmp_path: Any) -> None:
        async with connect(postgres_url) as bus:
            await bus.setup()
            with pytest.raises(TransactionMismatch, match="on sqlite, but this bus is on postgresql"):
                await bus.publish(STREAM, order(), tx=sqlite3.connect(tmp_path / "other.db"))

    async def test_publish_sync_refuses_an_async_transaction(self, postgres_url: str) -> None:
        async with psycopg_async(postgres_url) as held:
            with pytest.raises(TransactionMismatch, match="needs a synchronous transaction"):
                publish_sync(STREAM, order(), tx=held.tx)

    def test_publish_sync_by_url(self, postgres_url: str) -> None:
        import asyncio

        async def prepare() -> None:
            async with connect(postgres_url) as bus:
                await bus.setup()

        asyncio.run(prepare())
        event = order()
        assert publish_sync(STREAM, event, url=postgres_url) == [event.event_id]
        assert publish_sync(STREAM, event, url=postgres_url) == []

    def test_publish_sync_wants_exactly_one_place(self) -> None:
        with pytest.raises(ValueError, match="either tx="):
            publish_sync(STREAM, order())


async def test_a_pipeline_of_psycopg_is_asked_for_its_answer(postgres_url: str) -> None:
    dsn, schema = _dsn(postgres_url)
    options, event, other = f"-c search_path={schema}", order(1), order(2)
    inbox = Inbox("packer")
    async with connect(postgres_url) as bus:
        await bus.setup()
        async with (
            await psycopg.AsyncConnection.connect(dsn, options=options, autocommit=True) as connection,
            connection.pipeline(),
            connection.transaction(),
        ):
            assert await bus.publish(STREAM, event, tx=connection) == [event.event_id]
            assert [await inbox.first(event, tx=connection) for _ in range(2)] == [True, False]
        with psycopg.connect(dsn, options=options) as connection, connection.pipeline():
            assert publish_sync(STREAM, event, other, tx=connection) == [other.event_id]
            assert inbox.first_sync(other, tx=connection)
        assert await pending(bus) == 2


class TestOutsideATransaction:
    """A connection that commits each statement by itself would part the event, or the mark, from the effect."""

    @staticmethod
    async def refused(url: str, tx: Any, how: str) -> None:
        event = order()
        async with connect(url) as bus:
            await bus.setup()
            for call in (bus.publish(STREAM, event, tx=tx), Inbox("packer").first(event, tx=tx)):
                with pytest.raises(TransactionMismatch, match="outside a transaction: begin one first") as refused:
                    await call
                assert how in str(refused.value)
            assert await pending(bus) == 0

    async def test_asyncpg(self, postgres_url: str) -> None:
        dsn, schema = _dsn(postgres_url)
        connection = await asyncpg.connect(dsn, server_settings={"search_path": schema})
        await self.refused(postgres_url, connection, "async with conn.transaction()")
        async with connection.transaction():
            assert await Inbox("packer").first(order(), tx=connection)
        await connection.close()

    async def test_psycopg_in_autocommit_mode(self, postgres_url: str) -> None:
        dsn, schema = _dsn(postgres_url)
        options = f"-c search_path={schema}"
        with psycopg.connect(dsn, options=options, autocommit=True) as connection:
            await self.refused(postgres_url, connection, "with conn.transaction()")
            with connection.transaction():
                assert Inbox("packer").first_sync(order(), tx=connection)
        async with await psycopg.AsyncConnection.connect(dsn, options=options, autocommit=True) as async_connection:
            await self.refused(postgres_url, async_connection, "with conn.transaction()")
            async with async_connection.transaction():
                assert await Inbox("packer").first(order(2), tx=async_connection)

    async def test_sqlite3_in_autocommit_mode(self, tmp_path: Any) -> None:
        with sqlite3.connect(tmp_path / "bus.db", isolation_level=None) as connection:
            await self.refused(f"sqlite://{tmp_path}/bus.db", connection, 'conn.execute("BEGIN IMMEDIATE")')
            connection.execute("BEGIN IMMEDIATE")
            assert Inbox("packer").first_sync(order(), tx=connection)
        connection.close()

    async def test_sqlalchemy_in_autocommit_mode(self, postgres_url: str) -> None:
        address, _, options = _alchemy(postgres_url)
        engine = sqlalchemy.create_engine(address, connect_args={"options": options}, isolation_level="AUTOCOMMIT")
        with Session(engine) as session:
            await self.refused(postgres_url, session, "without that level")
        with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
            assert Inbox("packer").first_sync(order(), tx=connection)
        engine.dispose()
        for driver in ("psycopg", "asyncpg"):
            async_engine = create_async_engine(address.replace("+psycopg", f"+{driver}"))
            async with async_engine.connect() as plain:
                await plain.execution_options(isolation_level="AUTOCOMMIT")
                await self.refused(postgres_url, plain, "without that level")
            await async_engine.dispose()

    async def test_sqlalchemy_on_sqlite_in_autocommit_mode(self, tmp_path: Any) -> None:
        engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/bus.db")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            await self.refused(f"sqlite://{tmp_path}/bus.db", connection, "without that level")
        engine.dispose()

    async def test_those_who_begin_on_sqlite_by_themselves_as_sqlalchemy_advises(self, tmp_path: Any) -> None:
        engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/bus.db")

        @sqlalchemy.event.listens_for(engine, "connect")
        def leave_it_to_us(connection: Any, _: Any) -> None:
            connection.isolation_level = None

        @sqlalchemy.event.listens_for(engine, "begin")
        def begin(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN")

        async with connect(f"sqlite://{tmp_path}/bus.db") as bus:
            await bus.setup()
            with engine.connect() as connection:
                assert len(await bus.publish(STREAM, order(), tx=connection)) == 1
                connection.rollback()
            assert await pending(bus) == 0
        engine.dispose()


async def test_a_database_without_tables_is_named_with_what_to_do(postgres_url: str, tmp_path: Any) -> None:
    expected = "there is no table (outbox|inbox)_event where tx= looks: run `await bus.setup"
    dsn, _ = _dsn(postgres_url)
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/none.db")
    with closing(sqlite3.connect(tmp_path / "none.db")) as plain, Session(engine) as session:
        for synchronous in (plain, session):
            with pytest.raises(NotSetUp, match=expected):
                publish_sync(STREAM, order(), tx=synchronous)
            with pytest.raises(NotSetUp, match=expected):
                Inbox("packer").first_sync(order(), tx=synchronous)
    engine.dispose()
    connection = await asyncpg.connect(dsn)
    async with connection.transaction():
        with pytest.raises(NotSetUp, match=expected):
            await Inbox("packer", schema="public").first(order(), tx=connection)
    await connection.close()
