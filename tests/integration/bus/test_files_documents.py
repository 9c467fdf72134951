"""A stream of documents of the application's own: the status in each agrees with the directory it lies in."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import DocumentForm, Envelope, EventBus, InvalidEnvelope, InvalidOption, connect
from kingdom.bus.testing import ManualClock
from tests.support.queue_files import STREAM, QueueFiles

FORM = DocumentForm(outcomes=("failed",))
STATES: Any = {"PENDING": "pending", "PROCESSING": "dispatched", "DONE": "completed", "DEAD": "invalid"}


@pytest.fixture
def files(tmp_path: Path) -> QueueFiles:
    return QueueFiles(tmp_path / "queue")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def bus(files: QueueFiles, clock: ManualClock) -> AsyncIterator[EventBus]:
    async with connect(files.url, clock=clock) as opened:
        await opened.setup()
        await opened.declare(STREAM, states=STATES, document=FORM)
        yield opened


def fields(event_id: str, **more: Any) -> dict[str, Any]:
    return {"id": event_id, "type": "T", "created_at": "2026-02-07T10:00:00Z", "status": "pending", **more}


def envelope(event_id: str, **more: Any) -> Envelope:
    return FORM.envelope(fields(event_id, **more))


def agree(files: QueueFiles) -> dict[str, str]:
    """Where each document lies; its status says the same, or it failed and lies among the completed."""
    found = {}
    for path in files.home.glob("*/*.json"):
        assert path.stem not in found, f"{path.stem} lies in two places"
        status, folder = json.loads(path.read_text()).get("status"), path.parent.name
        assert folder == "invalid" or status == folder or (status, folder) == ("failed", "completed"), path
        found[path.stem] = folder
    return found


async def test_a_published_document_is_stored_as_it_is(bus: EventBus, files: QueueFiles) -> None:
    await bus.publish(STREAM, envelope("a", unknown={"kept": [1, "값"]}))
    assert files.document("pending", "a") == fields("a", unknown={"kept": [1, "값"]})


async def test_every_change_of_state_changes_the_status_in_the_document(bus: EventBus, files: QueueFiles) -> None:
    await bus.publish(STREAM, [envelope(name) for name in "abcd"])
    assert agree(files) == dict.fromkeys("abcd", "pending")
    a, b, c, d = await bus.claim(STREAM, worker="w", limit=10)
    assert agree(files) == dict.fromkeys("abcd", "dispatched")
    await bus.settle(done=[a, (b, "failed")], retry=[(c, 5)])
    await bus.release([d])
    assert agree(files) == {"a": "completed", "b": "completed", "c": "pending", "d": "pending"}
    assert files.document("completed", "b")["status"] == "failed"


async def test_a_rejected_document_lies_among_the_invalid_with_its_reason_until_it_is_requeued(
    bus: EventBus, files: QueueFiles
) -> None:
    await bus.publish(STREAM, envelope("a"))
    await bus.settle(dead=[(item, "INVALID", "no such type") for item in await bus.claim(STREAM, worker="w")])
    assert files.path("invalid", "a").with_name("a.json.reason").read_text() == "no such type\n"
    assert [letter.event_id for letter in await bus.dead(STREAM)] == ["a"]
    assert await bus.requeue(STREAM, ["a"]) == 1
    assert agree(files) == {"a": "pending"}
    assert files("invalid") == []


async def test_a_requeued_document_that_was_done_says_pending_again(bus: EventBus, files: QueueFiles) -> None:
    await bus.publish(STREAM, envelope("a"))
    await bus.settle(done=[(item, "failed") for item in await bus.claim(STREAM, worker="w")])
    assert await bus.requeue(STREAM, ["a"]) == 1
    assert agree(files) == {"a": "pending"}


async def test_a_document_dropped_by_hand_is_taken_in_whatever_status_it_says(bus: EventBus, files: QueueFiles) -> None:
    files.drop("pending", "a", json.dumps(fields("a", status="completed", priority="high", more=[None, 1.5])))
    files.drop("pending", "b", json.dumps({"id": "b", "type": "T"}))
    assert [item.event_id for item in await bus.claim(STREAM, worker="w", limit=10)] == ["a", "b"]
    assert agree(files) == {"a": "dispatched", "b": "dispatched"}
    assert files.document("dispatched", "a")["more"] == [None, 1.5]


async def test_a_document_of_the_future_does_not_wait_for_it(bus: EventBus, files: QueueFiles) -> None:
    files.drop("pending", "a", json.dumps(fields("a", created_at="2999-01-01T00:00:00Z")))
    assert [item.event_id for item in await bus.claim(STREAM, worker="w")] == ["a"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{nope", "not JSON"),
        ("[]", "a JSON object"),
        ('{"id": "other", "type": "T"}', "its file must be other.json"),
        ('{"id": "a"}', "it has no 'type'"),
        ('{"id": "a", "type": 5}', "must be text"),
        ('{"id": "a", "type": "T", "created_at": "yesterday"}', "created_at 'yesterday'"),
        ('{"id": "a", "type": "T", "priority": "urgent"}', "priority"),
        ('{"id": "a", "type": "T", "n": NaN}', "NaN"),
    ],
)
async def test_what_is_no_document_is_set_aside_with_its_reason_and_stays_there(
    bus: EventBus, files: QueueFiles, text: str, reason: str
) -> None:
    files.drop("pending", "a", text, age=60)
    await bus.publish(STREAM, envelope("good"))
    assert [item.event_id for item in await bus.claim(STREAM, worker="w", limit=10)] == ["good"]
    assert reason in files.path("invalid", "a").with_name("a.json.reason").read_text()
    async with connect(files.url) as another:  # which reads all directories anew
        assert (await another.depth())[STREAM].dead == 0
    assert files.path("invalid", "a").read_text() == text


async def test_what_is_set_aside_does_not_say_that_it_waits(bus: EventBus, files: QueueFiles) -> None:
    files.drop("pending", "a", json.dumps(fields("a", created_at="yesterday", note="kept")), age=60)
    assert await bus.claim(STREAM, worker="w") == []
    aside = json.loads(files.path("invalid", "a").read_text())
    assert (aside["status"], aside["note"], aside["created_at"]) == ("invalid", "kept", "yesterday")
    reason = files.path("invalid", "a").with_name("a.json.reason").read_text().strip()
    assert aside["invalid_reason"] == reason
    assert "created_at 'yesterday'" in reason
    mended = {**aside, "created_at": "2026-02-07T12:00:00Z"}
    files.path("invalid", "a").unlink()
    files.drop("pending", "a", json.dumps(mended))
    (held,) = await bus.claim(STREAM, worker="w")
    assert "invalid_reason" not in json.loads(files.path("dispatched", "a").read_text())
    assert held.envelope.payload["note"] == "kept"


async def test_an_outcome_the_form_does_not_name_is_refused(bus: EventBus, files: QueueFiles) -> None:
    await bus.publish(STREAM, envelope("a"))
    (held,) = await bus.claim(STREAM, worker="w")
    with pytest.raises(InvalidOption, match="no outcome 'lost'; its outcomes are failed"):
        await bus.settle(done=[(held, "lost")])
    assert await bus.settle(done=[held]) == []
    assert agree(files) == {"a": "completed"}


async def test_a_process_that_never_declared_the_stream_knows_its_form(bus: EventBus, files: QueueFiles) -> None:
    async with connect(files.url) as another:
        await another.publish(STREAM, envelope("a", status="whatever"))
        assert agree(files) == {"a": "pending"}
        (held,) = await another.claim(STREAM, worker="w")
        assert held.envelope.payload["status"] == "dispatched"


async def test_a_restarted_worker_takes_back_what_it_held_and_its_former_self_can_settle_nothing(
    bus: EventBus, files: QueueFiles
) -> None:
    await bus.publish(STREAM, [envelope("a"), envelope("b")])
    former = await bus.claim(STREAM, worker="king", ids=["b"], limit=5, lease=3600)
    async with connect(files.url) as another:
        (again,) = await another.recall(STREAM, worker="king", lease=60)
        assert (again.event_id, again.attempt) == ("b", 1)
        assert await bus.settle(done=former) == former
        assert await another.settle(done=[again]) == []
    assert agree(files) == {"a": "pending", "b": "completed"}


async def test_half_a_surrogate_pair_survives(bus: EventBus, files: QueueFiles) -> None:
    files.drop("pending", "a", '{"id": "a", "type": "T", "title": "x\\ud800y"}')
    (held,) = await bus.claim(STREAM, worker="w")
    assert held.envelope.payload["title"] == "x\ud800y"
    await bus.settle(done=[held])
    assert files.document("completed", "a")["title"] == "x\ud800y"


async def test_a_document_without_an_id_cannot_be_published() -> None:
    with pytest.raises(InvalidEnvelope, match="it has no 'id'"):
        FORM.envelope({"type": "T"})


async def test_a_copy_that_an_interrupted_change_left_is_removed(files: QueueFiles, clock: ManualClock) -> None:
    async with connect(files.url, clock=clock) as bus:
        await bus.setup()
        await bus.declare(STREAM, states=STATES, document=FORM)
        await bus.publish(STREAM, envelope("a"))
    files.drop("dispatched", "a", json.dumps(fields("a", status="dispatched")))
    async with connect(files.url, clock=clock) as bus:
        assert (await bus.depth())[STREAM].pending == 1
    assert agree(files) == {"a": "pending"}


async def test_a_process_that_published_before_the_form_was_declared_learns_of_it(files: QueueFiles) -> None:
    async with connect(files.url) as early, connect(files.url) as declaring:
        await early.setup()
        await early.publish(STREAM, Envelope(type="T", event_id="plain"))
        await early.settle(done=await early.claim(STREAM, worker="w"))
        await declaring.declare(STREAM, states=STATES, document=FORM)
        await early.publish(STREAM, envelope("a"))
        assert files.document("pending", "a") == fields("a")


async def test_a_form_cannot_be_declared_over_events_that_have_another(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, Envelope(type="T", event_id="plain"))
        with pytest.raises(InvalidOption, match="holds 1 events, whose documents have another form"):
            await bus.declare(STREAM, states=STATES, document=FORM)
        assert [item.event_id for item in await bus.claim(STREAM, worker="w")] == ["plain"]


async def test_a_stream_gets_another_outcome_while_it_holds_events(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.declare(STREAM, states=STATES, document=FORM)
        await bus.publish(STREAM, envelope("a"))
        await bus.declare(STREAM, states=STATES, document=replace(FORM, outcomes=(*FORM.outcomes, "cancelled")))
        (delivery,) = await bus.claim(STREAM, worker="w")
        assert await bus.settle(done=[(delivery, "cancelled")]) == []
    assert files.document(STATES["DONE"], "a")["status"] == "cancelled"
