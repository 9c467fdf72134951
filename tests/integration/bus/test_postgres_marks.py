"""What the indexes look at (``finished``, ``dead``, ``held_key``) fits the state of each row, whoever writes it."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from kingdom.bus import Envelope, EventBus, NotSetUp, connect
from kingdom.bus.delivery import DocumentForm
from kingdom.bus.outbox import migrations
from kingdom.bus.transports.postgresql._connections import split_url

STREAM = "orders"
STATES = ("PENDING", "PROCESSING", "DONE", "DEAD")
INSERT = "INSERT INTO outbox_event (event_id, stream, event_type, status, payload_json) VALUES ({})"
WRONG = """
SELECT event_id, status, finished, dead, held_key FROM outbox_event
WHERE finished <> (status IN ('DONE', 'DEAD')) OR dead <> (status = 'DEAD')
   OR held_key IS DISTINCT FROM CASE WHEN status = 'PROCESSING' THEN ordering_key END
"""


@pytest.fixture
def bus(postgres_bus: EventBus) -> EventBus:
    return postgres_bus


def order(number: int = 1, **fields: Any) -> Envelope:
    return Envelope(type="OrderPlaced", payload={"n": number}, **fields)


class TestOurOwnStatements:
    """They write the marks themselves: with the triggers off, nothing else would."""

    @pytest.fixture(autouse=True)
    async def no_triggers(self, bus: EventBus, sql: Any) -> None:
        await sql.execute("ALTER TABLE outbox_event DISABLE TRIGGER USER")

    @pytest.mark.parametrize("ordered", [True, False])
    async def test_every_verdict(self, bus: EventBus, sql: Any, ordered: bool) -> None:
        await bus.declare(STREAM, ordered=ordered, document=DocumentForm(outcomes=("good",)))
        await bus.publish(STREAM, [order(number, aggregate_id=str(number)) for number in range(8)])
        held = await bus.claim(STREAM, worker="w", limit=8)
        assert len(held) == 8
        assert await sql.fetch(WRONG) == []
        done, named, again, dead, back, *_ = held
        await bus.settle(done=[done, (named, "good")], retry=[(again, 0.0)], dead=[(dead, "BROKEN")])
        await bus.release([back])
        assert await sql.fetch(WRONG) == []
        assert await bus.requeue(STREAM, [dead.event_id, done.event_id]) == 2
        assert await sql.fetch(WRONG) == []
        assert (await bus.depth())[STREAM].pending == 4
        assert len(await bus.claim(STREAM, worker="w", ids=[back.event_id, again.event_id])) == 2
        assert await sql.fetch(WRONG) == []
        async with sql.transaction():
            assert await bus.consume(STREAM, done.event_id, tx=sql)
        assert await sql.fetch(WRONG) == []
        assert len(await bus.recall(STREAM, worker="w")) == 5
        assert await sql.fetch(WRONG) == []

    @pytest.mark.parametrize("ordered", [True, False])
    @pytest.mark.parametrize("named", [True, False])
    async def test_what_dies_with_its_worker(self, bus: EventBus, sql: Any, ordered: bool, named: bool) -> None:
        await bus.declare(STREAM, ordered=ordered)
        event = order(aggregate_id="1")
        await bus.publish(STREAM, event)
        await bus.claim(STREAM, worker="w")
        await sql.execute("UPDATE outbox_event SET locked_until = now() - interval '1 second'")
        ids = [event.event_id] if named else None
        assert await bus.claim(STREAM, worker="w", ids=ids, max_attempts=1) == []
        assert [letter.error_code for letter in await bus.dead(STREAM)] == ["LEASE_EXPIRED"]
        assert await sql.fetch(WRONG) == []

    async def test_a_stream_that_becomes_ordered_while_its_events_are_handled(self, bus: EventBus, sql: Any) -> None:
        await bus.publish(STREAM, [order(number, aggregate_id="1") for number in range(3)])
        [held] = await bus.claim(STREAM, worker="w")
        for ordered in (True, False, True):
            await bus.declare(STREAM, ordered=ordered)
            assert await sql.fetch(WRONG) == []
        assert await bus.claim(STREAM, worker="v", limit=3) == []  # the first of the aggregate is being handled
        await bus.settle(done=[held])
        assert await sql.fetch(WRONG) == []
        assert len(await bus.claim(STREAM, worker="v", limit=3)) == 1


class TestByHand:
    @pytest.mark.parametrize("before", STATES)
    @pytest.mark.parametrize("after", STATES)
    async def test_a_row_whose_status_is_changed(
        self, bus: EventBus, postgres_url: str, before: str, after: str
    ) -> None:
        dsn, options = split_url(postgres_url)
        table = f'"{options["schema"]}".outbox_event'
        await bus.declare(STREAM, ordered=True)
        await bus.publish(STREAM, order(aggregate_id="1"))
        connection = await asyncpg.connect(dsn)  # which finds the tables only by their names in full
        try:
            for status in (before, after):
                await connection.execute(f"UPDATE {table} SET status = $1", status)
                assert await connection.fetch(WRONG.replace("outbox_event", table)) == []
        finally:
            await connection.close()

    async def test_a_row_that_starts_over_in_what_its_stream_has_become(self, bus: EventBus, sql: Any) -> None:
        await bus.publish(STREAM, [order(number, aggregate_id="1") for number in range(2)])
        await bus.settle(done=await bus.claim(STREAM, worker="w", limit=2))
        for ordered, free in ((True, 1), (False, 2)):
            await bus.declare(STREAM, ordered=ordered)
            await sql.execute("UPDATE outbox_event SET status = 'PENDING', attempt_count = 0, next_retry_at = now()")
            assert await sql.fetch(WRONG) == []
            found = []
            while claimed := await bus.claim(STREAM, worker="w", limit=2):
                found.append(len(claimed))
                await bus.settle(done=claimed)
            assert found == [free] * (2 // free)

    async def test_a_row_that_is_inserted_in_any_state(self, bus: EventBus, sql: Any) -> None:
        for status in STATES:
            await sql.execute(
                INSERT.format("$1, $2, 'T', $1, '{}'"),
                status,
                STREAM,
            )
        assert await sql.fetch(WRONG) == []
        depth = (await bus.depth())[STREAM]
        assert (depth.pending, depth.dead) == (1, 1)

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE outbox_event SET status = 'FINISHED'",
            INSERT.format("'e', 'orders', 'T', 'FINISHED', '{}'"),
        ],
    )
    async def test_a_state_that_does_not_exist_is_refused(self, bus: EventBus, sql: Any, statement: str) -> None:
        await bus.publish(STREAM, order())
        with pytest.raises(asyncpg.CheckViolationError, match="status cannot be 'FINISHED'") as refused:
            await sql.execute(statement)
        assert refused.value.hint == "It is PENDING, PROCESSING, DONE or DEAD."
        assert [row["status"] for row in await sql.fetch("SELECT status FROM outbox_event")] == ["PENDING"]


async def migrate_to(sql: Any, version: int) -> None:
    await sql.execute("CREATE TABLE kingdom_migration (number integer PRIMARY KEY, name text NOT NULL)")
    for number, name, script in migrations("postgresql")[:version]:
        await sql.execute(script)
        await sql.execute("INSERT INTO kingdom_migration VALUES ($1, $2)", number, name)


async def test_rows_set_back_by_hand_find_their_place_after_the_next_migration(postgres_url: str, sql: Any) -> None:
    await migrate_to(sql, 4)
    async with connect(postgres_url) as bus:
        assert (await bus.setup())[0] == "005_place"
        await bus.publish(STREAM, order(aggregate_id="1"))
        await bus.settle(done=await bus.claim(STREAM, worker="w"))
        await bus.declare(STREAM, ordered=True)
        await sql.execute("UPDATE outbox_event SET status = 'PENDING', attempt_count = 0, next_retry_at = now()")
        assert len(await bus.claim(STREAM, worker="w")) == 1


async def test_a_table_whose_columns_are_still_generated_is_migrated_as_it_is(postgres_url: str, sql: Any) -> None:
    await migrate_to(sql, 2)
    for status in STATES:
        await sql.execute(
            INSERT.format("$1, $2, 'T', $1, $3"),
            status,
            STREAM,
            order(event_id=status).to_json(),
        )
    async with connect(postgres_url) as bus:
        with pytest.raises(NotSetUp, match="kingdom bus migrate"):
            await bus.claim(STREAM, worker="w")
        assert await bus.setup() == [name for _, name, _ in migrations("postgresql")[2:]]
        [delivery] = await bus.claim(STREAM, worker="w", ids=["PENDING"])
        assert await bus.settle(done=[delivery]) == []
        assert await sql.fetch(WRONG) == []
        assert [letter.event_id for letter in await bus.dead(STREAM)] == ["DEAD"]
        assert await bus.requeue(STREAM, ["DEAD"]) == 1
        assert await sql.fetch(WRONG) == []
