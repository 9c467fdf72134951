"""What is PostgreSQL's own: migrations, the row as the truth, errors, the doctor, and plans that scale."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, InvalidOption, NotSetUp, SchemaTooNew, TransportUnavailable, Worker, connect
from kingdom.bus.outbox import migrations, statement
from kingdom.bus.transports.postgresql import _doctor
from kingdom.bus.transports.postgresql._connections import ConnectionPool

STREAM = "orders"


@pytest.fixture
def bus(postgres_bus: EventBus) -> EventBus:
    return postgres_bus


def order(number: int = 1, **fields: Any) -> Envelope:
    return Envelope(type="OrderPlaced", payload={"n": number}, **fields)


class TestMigrations:
    async def test_two_processes_may_set_up_at_once(self, postgres_url: str, sql: Any) -> None:
        code = (
            "import asyncio, json, sys; from kingdom.bus import connect\n"
            "async def main():\n"
            "    async with connect(sys.argv[1]) as bus: print(json.dumps(await bus.setup()))\n"
            "asyncio.run(main())"
        )
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, postgres_url, stdout=asyncio.subprocess.PIPE
            )
            for _ in range(3)
        ]
        applied = [json.loads((await process.communicate())[0]) for process in processes]
        assert sorted(applied, key=len) == [[], [], [name for _, name, _ in migrations("postgresql")]]
        assert await sql.fetchval("SELECT count(*) FROM kingdom_migration") == len(migrations("postgresql"))

    async def test_a_newer_schema_is_refused_and_not_touched(self, bus: EventBus, postgres_url: str, sql: Any) -> None:
        await sql.execute("INSERT INTO kingdom_migration (number, name) VALUES (999, 'from_the_future')")
        before = await sql.fetch("SELECT * FROM kingdom_migration ORDER BY number")
        with pytest.raises(SchemaTooNew, match=r"version 999, this code knows up to \d+: update kingdom"):
            await bus.setup()
        with pytest.raises(SchemaTooNew):
            async with connect(postgres_url):
                pass
        assert await sql.fetch("SELECT * FROM kingdom_migration ORDER BY number") == before

    async def test_using_a_bus_that_was_not_set_up_says_what_to_run(self, postgres_url: str) -> None:
        async with connect(postgres_url) as bus:
            with pytest.raises(NotSetUp, match="kingdom bus migrate"):
                await bus.publish(STREAM, order())

    async def test_an_older_schema_says_what_to_run_and_is_migrated_with_what_is_in_it(
        self, postgres_url: str, sql: Any
    ) -> None:
        number, name, script = migrations("postgresql")[0]
        await sql.execute("CREATE TABLE kingdom_migration (number integer PRIMARY KEY, name text NOT NULL)")
        await sql.execute(script)
        await sql.execute("INSERT INTO kingdom_migration VALUES ($1, $2)", number, name)
        async with connect(postgres_url) as bus:
            await bus.publish(STREAM, order())
            with pytest.raises(NotSetUp, match=r"or older ones .*kingdom bus migrate"):
                await bus.claim(STREAM, worker="w")
            assert await bus.setup() == [name for _, name, _ in migrations("postgresql")[1:]]
            assert await bus.setup() == []
            [delivery] = await bus.claim(STREAM, worker="w")
            assert delivery.envelope.payload == {"n": 1}
            assert await bus.settle(done=[delivery]) == []


class TestAway:
    async def test_a_server_that_is_not_there_is_tried_and_then_named_in_one_line(self) -> None:
        with pytest.raises(TransportUnavailable) as caught:
            async with connect("postgresql://nobody@127.0.0.1:1/none", connect_timeout=0.3):
                pass
        message = str(caught.value)
        assert "postgresql://127.0.0.1:1/none did not answer" in message
        assert "tries" in message
        assert "\n" not in message

    async def test_a_password_never_stands_in_an_error(self) -> None:
        with pytest.raises(TransportUnavailable) as caught:
            async with connect("postgresql://me:s3cret@127.0.0.1:1/none", connect_timeout=0.1):
                pass
        assert "s3cret" not in str(caught.value)

    async def test_a_database_that_does_not_exist_is_not_retried(self, postgres_server: str) -> None:
        url = postgres_server.replace("/postgres?", "/missing?")
        with pytest.raises(TransportUnavailable, match='database "missing" does not exist'):
            async with connect(url, connect_timeout=60):
                pass

    async def test_killed_backends_are_replaced_without_the_caller_noticing(self, bus: EventBus, sql: Any) -> None:
        await bus.publish(STREAM, order())
        await sql.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'kingdom' AND pid <> pg_backend_pid()"
        )
        assert len(await bus.claim(STREAM, worker="w")) == 1

    @pytest.mark.parametrize(("query", "message"), [("pool=0", "from 1 to 100"), ("listen=perhaps", "write on or off")])
    async def test_an_option_of_the_url_out_of_range_is_named(self, query: str, message: str) -> None:
        with pytest.raises(InvalidOption, match=message):
            connect(f"postgresql:///x?{query}")


class TestTheRowIsTheTruth:
    async def test_an_operator_may_requeue_by_hand_as_the_specification_says(self, bus: EventBus, sql: Any) -> None:
        event = order()
        await bus.publish(STREAM, event)
        [delivery] = await bus.claim(STREAM, worker="w")
        await bus.settle(dead=[(delivery, "BROKEN", "no such market")])
        await sql.execute(
            "UPDATE outbox_event SET status = 'PENDING', attempt_count = 0, next_retry_at = now() WHERE event_id = $1",
            event.event_id,
        )
        [again] = await bus.claim(STREAM, worker="w")
        assert (again.event_id, again.attempt) == (event.event_id, 1)

    async def test_an_event_inserted_by_other_code_is_delivered(self, bus: EventBus, sql: Any) -> None:
        document = json.dumps(
            {"schemaVersion": 1, "eventId": "e-1", "type": "T", "occurredAt": "2026-02-17T00:00:00.000Z", "payload": {}}
        )
        await sql.execute(
            "INSERT INTO outbox_event (event_id, stream, event_type, payload_json) VALUES ('e-1', $1, 'T', $2)",
            STREAM,
            document,
        )
        [delivery] = await bus.claim(STREAM, worker="w")
        assert delivery.envelope.event_id == "e-1"
        assert delivery.envelope.trace_id == "e-1"

    async def test_a_row_that_is_no_envelope_goes_dead_and_holds_up_nothing(self, bus: EventBus, sql: Any) -> None:
        await sql.execute(
            "INSERT INTO outbox_event (event_id, stream, event_type, payload_json) "
            "VALUES ('not an envelope', $1, 'T', '{\"a\": 1}')",
            STREAM,
        )
        good = order()
        await bus.publish(STREAM, good)
        assert [d.event_id for d in await bus.claim(STREAM, worker="w", limit=10)] == [good.event_id]
        [letter] = await bus.dead(STREAM)
        assert letter.error_code == "INVALID_ENVELOPE"
        assert "has no eventId" in (letter.error_message or "")
        assert letter.envelope.payload == {"stored": '{"a": 1}'}

    async def test_the_envelope_is_stored_whole_in_payload_json(self, bus: EventBus, sql: Any) -> None:
        event = order(7, attributes={"market": "KRW-BTC"}, aggregate_type="Order", aggregate_id="7")
        await bus.publish(STREAM, event)
        row = await sql.fetchrow("SELECT * FROM outbox_event")
        assert json.loads(row["payload_json"]) == event.to_dict()
        assert (row["event_type"], row["aggregate_type"], row["aggregate_id"]) == ("OrderPlaced", "Order", "7")
        assert (row["status"], row["attempt_count"]) == ("PENDING", 0)


class TestDeclaring:
    """A transaction that was open while a stream was declared has not seen it."""

    @pytest.mark.parametrize("isolation", ["read_committed", "repeatable_read"])
    @pytest.mark.parametrize("ordered", [True, False])
    async def test_what_it_brings_in_is_given_its_place_later(
        self, bus: EventBus, sql: Any, postgres_url: str, ordered: bool, isolation: Any
    ) -> None:
        await bus.declare(STREAM, ordered=not ordered)
        events = [order(number, aggregate_id="1") for number in range(2)]
        async with sql.transaction(isolation=isolation):
            await bus.publish(STREAM, events[0], tx=sql)
            await bus.declare(STREAM, ordered=ordered)
        await bus.publish(STREAM, events[1])
        async with connect(postgres_url) as consumer:
            first = await consumer.claim(STREAM, worker="w", limit=2)
            await consumer.settle(done=first)
            assert [delivery.event_id for delivery in first] == [e.event_id for e in events[: 2 - ordered]]
            assert len(await consumer.claim(STREAM, worker="w", limit=2)) == ordered

    async def test_only_a_change_has_something_to_settle(self, bus: EventBus, sql: Any) -> None:
        await bus.declare("plain")
        await bus.declare(STREAM, ordered=True)
        since = await sql.fetchval("SELECT changed_at FROM outbox_stream WHERE stream = $1", STREAM)
        await bus.declare(STREAM, ordered=True, dead_head="park")
        rows = await sql.fetch("SELECT stream, changed_at FROM outbox_stream")
        assert {row["stream"]: row["changed_at"] for row in rows} == {"plain": None, STREAM: since}


class TestDoctor:
    async def test_a_healthy_database_has_nothing_to_say(self, bus: EventBus) -> None:
        checks = await bus.doctor()
        assert [check for check in checks if check.level == "error"] == []
        assert {
            "schema",
            "durability",
            "clock",
            "oldest transaction",
            "autovacuum",
            "indexes",
            "triggers",
            "order",
            "connections",
            "listen",
        } <= {check.name for check in checks}

    async def test_a_server_that_has_few_connections_left_is_found(
        self, bus: EventBus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_doctor, "_CONNECTIONS_WARNING", 0.0)
        (found,) = [check for check in await bus.doctor() if check.name == "connections"]
        assert found.level == "warning"
        used, allowed = map(int, re.findall(r"\d+", found.message))
        assert 1 <= used <= allowed
        assert "max_connections" in found.hint

    async def test_what_is_wrong_is_found(self, bus: EventBus, sql: Any) -> None:
        await sql.execute("DROP INDEX outbox_event_ready")
        await sql.execute("ALTER TABLE outbox_event RESET (autovacuum_vacuum_scale_factor)")
        found = {check.name: check for check in await bus.doctor()}
        assert found["indexes"].level == "error"
        assert "outbox_event_ready" in found["indexes"].message
        assert found["autovacuum"].level == "warning"
        assert "ALTER TABLE" in found["autovacuum"].hint

    @pytest.mark.parametrize("how", ["DISABLE TRIGGER USER", "DISABLE TRIGGER outbox_event_changed"])
    async def test_what_was_edited_behind_triggers_that_are_off_is_found_and_mended_as_it_says(
        self, bus: EventBus, sql: Any, how: str
    ) -> None:
        await bus.publish(STREAM, order())
        await bus.settle(done=await bus.claim(STREAM, worker="w"))
        await sql.execute(f"ALTER TABLE outbox_event {how}")
        await sql.execute("UPDATE outbox_event SET status = 'PENDING'")
        assert await bus.claim(STREAM, worker="w") == []
        (found,) = [check for check in await bus.doctor() if check.name == "triggers"]
        assert found.level == "error"
        assert "outbox_event_changed" in found.message
        enable, _, mend = found.hint.partition("; then ")
        await sql.execute(enable.partition(",")[0])
        await sql.execute(mend)
        assert len(await bus.claim(STREAM, worker="w")) == 1
        (found,) = [check for check in await bus.doctor() if check.name == "triggers"]
        assert found.level == "ok"

    @pytest.mark.parametrize("ordered", [True, False])
    async def test_events_that_have_no_place_in_their_stream_are_found_and_mended_as_it_says(
        self, bus: EventBus, sql: Any, ordered: bool
    ) -> None:
        event = order(aggregate_id="1")
        await bus.declare(STREAM, ordered=not ordered)
        await bus.publish(STREAM, event)
        await sql.execute(
            "UPDATE outbox_stream SET ordered = $1, changed_at = now() - interval '10 minutes'", ordered
        )  # as a transaction leaves it that was open meanwhile
        assert "order" not in [
            check.name for check in await bus.doctor() if check.level == "error"
        ]  # consumers see to it
        await sql.execute("UPDATE outbox_stream SET changed_at = now() - interval '2 hours'")
        (found,) = [check for check in await bus.doctor() if check.name == "order"]
        assert (found.level, STREAM in found.message) == ("error", True)
        assert await bus.claim(STREAM, worker="w") == []
        await bus.declare(STREAM, ordered=ordered)
        assert [delivery.event_id for delivery in await bus.claim(STREAM, worker="w")] == [event.event_id]
        assert "order" not in [check.name for check in await bus.doctor() if check.level == "error"]

    async def test_a_missing_schema_is_an_error_with_the_next_step(self, postgres_url: str) -> None:
        async with connect(postgres_url) as bus:
            [schema] = [check for check in await bus.doctor() if check.name == "schema"]
        assert (schema.level, schema.hint) == ("error", "kingdom bus migrate")


class TestPlans:
    """Costs in pages touched, not in seconds: they must not grow with what is not being claimed."""

    async def _pages(self, sql: Any, name: str, *arguments: Any) -> int:
        transaction = sql.transaction()
        await transaction.start()
        text = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement('postgresql', name)}"
        [plan] = json.loads(await sql.fetchval(text, *arguments))
        await transaction.rollback()
        return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])

    async def _fill(self, sql: Any, count: int, columns: str, values: str) -> None:
        envelope = json.dumps(order().to_dict())
        await sql.execute(
            f"INSERT INTO outbox_event (event_id, stream, event_type, payload_json, {columns}) "
            f"SELECT 'f' || n, '{STREAM}', 'OrderPlaced', $1::jsonb, {values} FROM generate_series(1, {count}) AS n",
            envelope,
        )
        await sql.execute("SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off")

    async def test_history_and_waiting_retries_cost_a_claim_nothing(self, bus: EventBus, sql: Any) -> None:
        await bus.publish(STREAM, [order(number) for number in range(10)])
        few = await self._pages(sql, "claim_full", STREAM, 10, 30.0, "t", None, 10)
        await self._fill(sql, 20_000, "status, finished", "'DONE', true")
        await sql.execute("UPDATE outbox_event SET event_id = 'done-' || event_id WHERE status = 'DONE'")
        await self._fill(sql, 20_000, "next_retry_at", "now() + interval '1 hour'")
        many = await self._pages(sql, "claim_full", STREAM, 10, 30.0, "t", None, 10)
        assert many <= few * 2 + 50, f"{few} pages became {many}"

    async def test_one_crowded_aggregate_costs_one_step(self, bus: EventBus, sql: Any) -> None:
        await bus.declare(STREAM, ordered=True)
        await self._fill(sql, 20_000, "ordering_key", "'Order' || chr(31) || '1'")
        pages = await self._pages(sql, "claim_ordered", STREAM, 10, 30.0, "t", None, 10, "", False, 1000)
        assert pages < 200

    @pytest.mark.parametrize("analysed", [True, False])
    async def test_what_is_claimed_by_id_is_found_by_id(self, bus: EventBus, sql: Any, analysed: bool) -> None:
        await self._fill(sql, 20_000, "priority", "1")
        if analysed:
            await sql.execute("ANALYZE outbox_event")
        named = [f"f{number}" for number in range(15_000, 15_010)]
        pages = await self._pages(sql, "claim_named", STREAM, 10, 30.0, "t", named, None, 10)
        assert pages < 300

    @pytest.mark.parametrize("analysed", [True, False])
    async def test_a_peek_reads_no_more_than_it_shows(self, bus: EventBus, sql: Any, analysed: bool) -> None:
        await self._fill(sql, 20_000, "priority", "1")
        await sql.execute(
            "UPDATE outbox_event SET next_retry_at = now() + interval '1 hour', priority = 0 WHERE id % 2 = 0"
        )
        if analysed:
            await sql.execute("ANALYZE outbox_event")
        pages = await self._pages(sql, "peek", STREAM, None, 10, 0, datetime(1970, 1, 1, tzinfo=UTC), 0)
        assert pages < 300

    async def test_statistics_from_before_the_first_claim_mislead_no_settle(self, bus: EventBus, sql: Any) -> None:
        await self._fill(sql, 5_000, "priority", "1")
        await sql.execute("ANALYZE outbox_event")  # now the planner believes that hardly anything is ever PROCESSING
        claimed = await bus.claim(STREAM, worker="w", limit=500)
        ids, token = [delivery.handle for delivery in claimed], claimed[0].token
        # A page or two per row and index, not the table once for each row.
        assert await self._pages(sql, "settle_done", ids, token) < 500 * 40

    async def test_counting_does_not_read_finished_events(self, bus: EventBus, sql: Any) -> None:
        await self._fill(sql, 20_000, "status, finished, processed_at", "'DONE', true, now()")
        await bus.publish(STREAM, order())
        assert await self._pages(sql, "depth") < 100


class TestWakeUps:
    @pytest.mark.parametrize("query", ["", "&listen=off", "&pgbouncer=on"])
    async def test_a_worker_hears_of_another_process_s_event(
        self, bus: EventBus, postgres_url: str, query: str
    ) -> None:
        handled = asyncio.Event()
        async with connect(postgres_url + query) as other:
            # With notifications the poll would come far too late; without them it must be enough.
            worker = Worker(other, STREAM, name="listener", poll=0.05 if query else 3600, signals=False)

            @worker.on("OrderPlaced")
            async def note(event: Envelope) -> None:
                handled.set()

            running = asyncio.create_task(worker.run())
            if not query:
                await _until_listening(other)
            await bus.publish(STREAM, order())
            async with asyncio.timeout(20):
                await handled.wait()
            worker.stop()
            await running


async def test_a_server_that_is_away_is_told_of_once_not_with_every_try(
    bus: EventBus, sql: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    listening = asyncio.Event()
    bus.transport.subscribe(STREAM, listening.set)  # called when it listens, too
    await asyncio.wait_for(listening.wait(), 30)
    tries, enough = 0, asyncio.Event()

    async def away(connections: ConnectionPool) -> None:
        nonlocal tries
        tries += 1
        if tries == 4:
            enough.set()
        raise ConnectionRefusedError("nobody is there")

    with monkeypatch.context() as patched:
        patched.setattr(ConnectionPool, "connect", away)
        await sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        async with asyncio.timeout(30):
            await enough.wait()
    told = [record.getMessage() for record in caplog.records if "not listening" in record.getMessage()]
    assert told == ["not listening for notifications, polling until the server is back: nobody is there"]


async def _until_listening(bus: EventBus) -> None:
    """Wait until a backend has run LISTEN: what is published before that is found by the first claim anyway."""
    connections = bus.transport._connections  # type: ignore[attr-defined]
    async with asyncio.timeout(10):
        while not await connections.run(
            lambda c: c.fetchval("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'")
        ):
            await asyncio.sleep(0.01)


async def test_the_last_subscriber_closes_the_connection_that_listens(bus: EventBus, sql: Any) -> None:
    async def until_listening(count: int) -> None:
        async with asyncio.timeout(30):
            while await sql.fetchval("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'") != count:
                await asyncio.sleep(0.01)

    for _ in range(2):  # it may be opened again
        first, second = bus.subscribe("orders", lambda: None), bus.subscribe("orders", lambda: None)
        await until_listening(1)
        first()
        await sql.fetchval("SELECT 1")
        await until_listening(1)
        second()
        await until_listening(0)
