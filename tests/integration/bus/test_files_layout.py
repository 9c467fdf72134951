"""What lies on disk: directories, documents, names, versions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kingdom.bus import connect
from kingdom.bus.errors import BusError, InvalidOption, NotSetUp, SchemaTooNew, TransactionMismatch
from kingdom.bus.testing import ManualClock
from tests.support.queue_files import STREAM, QueueFiles, event


@pytest.fixture
def files(tmp_path: Path) -> QueueFiles:
    return QueueFiles(tmp_path / "queue")


async def test_the_directory_an_event_lies_in_is_its_state(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, event("a"), event("b"), event("c"), event("d"))
        assert files("pending") == ["a", "b", "c", "d"]
        claimed = await bus.claim(STREAM, worker="w", limit=3)
        assert (files("pending"), files("processing")) == (["d"], ["a", "b", "c"])
        await bus.settle(done=claimed[:1], retry=claimed[1:2], dead=claimed[2:])
        assert (files("pending"), files("processing")) == (["b", "d"], [])
        assert (files("done"), files("dead")) == (["a"], ["c"])
        await bus.requeue(STREAM, ["a", "c"])
        assert files("pending") == ["a", "b", "c", "d"]
    assert files.temporary() == []


async def test_a_document_is_the_envelope_on_one_line_with_its_routing_under_one_key(files: QueueFiles) -> None:
    later = datetime(2031, 1, 1, tzinfo=UTC)
    sent = event(
        "a",
        payload={"text": "밥 먹자"},
        attributes={"market": "KRW-BTC"},
        aggregate_type="Order",
        aggregate_id="7",
        priority="high",
        not_before=later,
    )
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, sent, event("plain"))
        record = await bus.find("a")
    assert record is not None
    assert record.envelope == sent
    text = files.path("pending", "a").read_text()
    assert text.count("\n") == 1
    assert "밥 먹자" in text
    found = json.loads(text)
    routing = found.pop("bus")
    assert found == sent.to_dict()
    assert datetime.fromisoformat(routing.pop("createdAt")) == record.created_at
    assert routing == {
        "aggregateType": "Order",
        "aggregateId": "7",
        "priority": "high",
        "notBefore": "2031-01-01T00:00:00+00:00",
    }
    assert set(files.document("pending", "plain")["bus"]) == {"createdAt", "index"}


async def test_an_attribute_named_like_our_key_survives(files: QueueFiles) -> None:
    sent = event("a", attributes={"bus": {"line": 42}, "other": 1})
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, sent)
        (claimed,) = await bus.claim(STREAM, worker="w")
    assert claimed.envelope == sent


async def test_a_stream_may_name_its_own_states(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.declare(STREAM, states={"PROCESSING": "dispatched", "DONE": "completed"})
        await bus.publish(STREAM, event("a"), event("b"))
        held = await bus.claim(STREAM, worker="w")
        assert files("dispatched") == ["a"]
        await bus.settle(done=held)
        assert files("completed") == ["a"]
    async with connect(files.url) as bus:
        record = await bus.find("a")
        assert record is not None
        assert record.status == "DONE"
        undo = bus.subscribe(STREAM, lambda: None)
        undo()
    assert not (files.home / "processing").exists()


async def test_a_new_process_knows_the_names_before_it_does_anything_else(files: QueueFiles) -> None:
    clock = ManualClock()
    async with connect(files.url, clock=clock) as bus:
        await bus.setup()
        await bus.declare(STREAM, states={"PENDING": "inbox", "DONE": "completed"})
        await bus.publish(STREAM, event("a"))
        await bus.settle(done=await bus.claim(STREAM, worker="w"))
    clock.advance(10)
    async with connect(files.url, clock=clock) as bus:
        bus.subscribe(STREAM, lambda: None)
        assert await bus.purge(5) == 1
    assert files("completed") == []
    assert not {"pending", "done"} & {path.name for path in files.home.iterdir()}


async def test_options_that_make_no_sense_are_an_error_until_somebody_mends_them(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.declare(STREAM, ordered=True)
        await bus.publish(STREAM, event("a"))
    (files.home / ".stream.json").write_text('{"ordered": true')
    async with connect(files.url) as bus:
        with pytest.raises(BusError, match=r"\.stream\.json cannot be read"):
            await bus.claim(STREAM, worker="w")
        (files.home / ".stream.json").unlink()
        await bus.declare(STREAM, ordered=True)
        assert [item.event_id for item in await bus.claim(STREAM, worker="w")] == ["a"]


async def test_declaring_the_same_again_writes_nothing(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.declare(STREAM, ordered=True, dead_head="park")
        before = {path: path.stat().st_mtime_ns for path in files.home.iterdir()}
        await bus.declare(STREAM, ordered=True, dead_head="park")
        assert {path: path.stat().st_mtime_ns for path in files.home.iterdir()} == before


async def test_naming_a_state_anew_takes_its_events_along(files: QueueFiles) -> None:
    async with connect(files.url) as first, connect(files.url) as second:
        await first.setup()
        await first.publish(STREAM, event("a"), event("b"))
        held = await second.claim(STREAM, worker="w")
        await first.declare(STREAM, states={"PENDING": "inbox", "PROCESSING": "dispatched"})
        assert (files("inbox"), files("dispatched")) == (["b"], ["a"])
        assert await second.settle(done=held) == []
        assert [item.event_id for item in await second.claim(STREAM, worker="w")] == ["b"]
        await first.declare(STREAM)
        assert (files("processing"), files("done")) == (["b"], ["a"])
        assert not (files.home / "dispatched").exists()


async def test_held_events_may_stay_where_they_waited(files: QueueFiles) -> None:
    clock = ManualClock()
    async with connect(files.url, clock=clock) as bus:
        await bus.setup()
        await bus.declare(STREAM, states={"PROCESSING": "pending", "DONE": "sent", "DEAD": "failed"})
        await bus.publish(STREAM, event("a"), event("b"))
        (held,) = await bus.claim(STREAM, worker="w", lease=10)
        assert files("pending") == ["a", "b"]
        async with connect(files.url, clock=clock) as other:
            assert (await other.depth())[STREAM][:3] == (1, 1, 0)
            (taken,) = await other.claim(STREAM, worker="w", limit=5)
        await bus.settle(dead=[held])
        assert (files("pending"), files("failed")) == (["b"], ["a"])
        clock.advance(31)
        assert (await bus.depth())[STREAM][:3] == (1, 0, 1)
        assert taken.event_id == "b"


@pytest.mark.parametrize(
    "states",
    [
        {"DONE": "pending"},
        {"DEAD": "done"},
        {"DONE": "invalid"},
        {"PROCESSING": "dead"},
        {"DONE": "../done"},
        {"DONE": ".done"},
        {"DONE": ""},
    ],
)
async def test_states_that_cannot_be_directories_are_refused(files: QueueFiles, states: dict[str, str]) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        with pytest.raises(InvalidOption, match="states"):
            await bus.declare(STREAM, states=states)  # type: ignore[arg-type]
        await bus.publish(STREAM, event("a"))
        assert files("pending") == ["a"]


async def test_nothing_works_before_setup_and_the_error_says_so(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        for call in (bus.publish(STREAM, event("a")), bus.claim(STREAM, worker="w"), bus.depth(), bus.find("a")):
            with pytest.raises(NotSetUp, match="setup"):
                await call
        assert not files.root.exists()
        assert (await bus.doctor())[0].level == "error"
        assert await bus.setup() == ["001_directories"]
        assert await bus.setup() == []
        await bus.publish(STREAM, event("a"))


async def test_a_newer_layout_is_refused_and_not_touched(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, event("a"))
    marker = files.root / ".kingdom-bus.json"
    marker.write_text('{"version": 99}')
    before = {path: path.stat().st_mtime_ns for path in files.root.rglob("*")}
    async with connect(files.url) as bus:
        for call in (bus.setup(), bus.publish(STREAM, event("b")), bus.claim(STREAM, worker="w"), bus.depth()):
            with pytest.raises(SchemaTooNew, match="99"):
                await call
        undo = bus.subscribe(STREAM, lambda: None)
        undo()
        assert (await bus.doctor())[0].level == "error"
    assert {path: path.stat().st_mtime_ns for path in files.root.rglob("*")} == before


async def test_a_marker_that_makes_no_sense_is_an_error_of_its_own(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        (files.root / ".kingdom-bus.json").write_text("?")
        with pytest.raises(BusError, match=r"kingdom-bus\.json cannot be read"):
            await bus.depth()


async def test_a_directory_has_no_transactions(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        with pytest.raises(TransactionMismatch, match="directory"):
            await bus.publish(STREAM, event("a"), tx=object())
        assert await bus.depth() == {}


async def test_an_unknown_way_to_sync_is_refused(files: QueueFiles) -> None:
    with pytest.raises(InvalidOption, match="sync=never"):
        connect(files.url + "?sync=never")


async def test_looking_at_a_stream_nobody_used_makes_no_directories(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        assert await bus.dead(STREAM) == []
        assert await bus.pending_types(STREAM) == {}
        assert await bus.requeue(STREAM, ["a"]) == 0
        assert await bus.purge(0, stream=STREAM) == 0
        assert not files.home.exists()


async def test_a_bus_that_is_not_open_says_so(files: QueueFiles) -> None:
    bus = connect(files.url)
    with pytest.raises(BusError, match="not open"):
        await bus.setup()
    async with bus:
        await bus.setup()
    with pytest.raises(BusError, match="not open"):
        await bus.depth()


async def test_what_became_of_a_done_event_is_written_on_its_file(files: QueueFiles) -> None:
    clock = ManualClock()
    async with connect(files.url, clock=clock) as bus:
        await bus.setup()
        await bus.publish(STREAM, event("a"))
        await bus.settle(retry=[(item, 0, "E", "why") for item in await bus.claim(STREAM, worker="w")])
        await bus.settle(done=await bus.claim(STREAM, worker="w"))
        before = files.path("done", "a").read_bytes()
    async with connect(files.url, clock=clock) as bus:
        record = await bus.find("a")
        assert record is not None
        assert (record.attempts, record.error_code, record.error_message) == (2, "E", "why")
        assert record.finished_at == datetime.fromtimestamp(clock(), UTC)
        assert await bus.requeue(STREAM, ["a"], error_code="other") == 0
        assert await bus.requeue(STREAM, ["a"], error_code="E") == 1
        await bus.settle(done=await bus.claim(STREAM, worker="w"))
        again = await bus.find("a")
        assert again is not None
        assert (again.attempts, again.error_code) == (1, None)
    assert files.path("done", "a").read_bytes() == before
