"""Outcomes: events that are done in one of several ways."""
# ruff: noqa: D102 - the names of the tests are the documentation

from __future__ import annotations

from typing import Any

import pytest

from kingdom.bus.delivery import DoneVerdict
from kingdom.bus.document_form import DocumentForm
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, counts, event, known, take, take_one
from kingdom.bus.testing.harness import Harness

FORM = DocumentForm(time=None, priority=None, outcomes=("failed", "needs_human"))


def document(name: str, **fields: Any) -> Envelope:
    """The envelope of a document."""
    return FORM.envelope({"id": name, "type": "Task", "status": "pending", **fields})


class Ending(Behaviours):
    """``settle(done=[(delivery, outcome)])``."""

    @pytest.fixture
    async def tasks(self, bus: EventBus, stream: str) -> str:
        """A stream of documents."""
        await bus.declare(stream, document=FORM)
        return stream

    async def test_a_done_event_keeps_its_outcome(self, bus: EventBus, tasks: str) -> None:
        await bus.publish(tasks, [document(name) for name in ("a", "b", "c", "d")])
        a, b, c, d = await take(bus, tasks)
        assert await bus.settle(done=[a, (b, "failed"), (c, None), DoneVerdict(d, "needs_human")]) == []
        records = [await known(bus, name) for name in ("a", "b", "c", "d")]
        assert [record.status for record in records] == ["DONE"] * 4
        assert [record.outcome for record in records] == [None, "failed", None, "needs_human"]
        assert await counts(bus, tasks) == (0, 0, 0)

    async def test_outcomes_go_together_with_other_verdicts(self, bus: EventBus, tasks: str) -> None:
        await bus.publish(tasks, [document(name) for name in ("a", "b", "c", "d")])
        a, b, c, d = await take(bus, tasks)
        lost = await bus.settle(done=[(a, "failed"), b], retry=[(c, 60)], dead=[(d, "INVALID", "no such repository")])
        assert lost == []
        records = [await known(bus, name) for name in ("a", "b", "c", "d")]
        assert [record.status for record in records] == ["DONE", "DONE", "PENDING", "DEAD"]
        assert [record.outcome for record in records] == ["failed", None, None, None]

    async def test_of_two_outcomes_the_first_counts(self, bus: EventBus, tasks: str) -> None:
        await bus.publish(tasks, document("a"))
        delivery = await take_one(bus, tasks)
        assert await bus.settle(done=[(delivery, "failed")]) == []
        assert await bus.settle(done=[(delivery, "needs_human")]) == [delivery]
        assert (await known(bus, "a")).outcome == "failed"

    async def test_who_lost_the_lease_settles_no_outcome(self, harness: Harness, tasks: str) -> None:
        bus = harness.bus
        await bus.publish(tasks, document("a"))
        late = await take_one(bus, tasks, lease=10)
        await harness.advance(11)
        holder = await take_one(bus, tasks, worker="other")
        assert await bus.settle(done=[(late, "failed"), (holder, "needs_human")]) == [late]
        assert (await known(bus, "a")).outcome == "needs_human"

    async def test_a_requeue_forgets_the_outcome(self, bus: EventBus, tasks: str) -> None:
        await bus.publish(tasks, document("a"))
        await bus.settle(done=[(await take_one(bus, tasks), "failed")])
        assert await bus.requeue(tasks, ["a"]) == 1
        record = await known(bus, "a")
        assert (record.status, record.outcome) == ("PENDING", None)
        await bus.settle(done=[await take_one(bus, tasks)])
        assert (await known(bus, "a")).outcome is None

    async def test_an_outcome_the_stream_does_not_have_is_refused_and_nothing_is_written(
        self, bus: EventBus, tasks: str
    ) -> None:
        await bus.publish(tasks, [document("a"), document("b")])
        a, b = await take(bus, tasks)
        with pytest.raises(InvalidOption, match=r"settle\(done\): .* no outcome 'exploded'.*failed, needs_human"):
            await bus.settle(done=[a, (b, "exploded")])
        assert await counts(bus, tasks) == (0, 2, 0)
        assert await bus.settle(done=[a, (b, "failed")]) == []

    async def test_a_stream_that_declared_none_has_no_outcomes(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        delivery = await take_one(bus, stream)
        with pytest.raises(InvalidOption, match="no outcome 'failed'"):
            await bus.settle(done=[(delivery, "failed")])
        assert await bus.settle(done=[delivery]) == []

    async def test_every_bus_knows_the_outcomes_one_has_declared(self, harness: Harness, stream: str) -> None:
        other = await harness.open()
        assert await take(other, stream) == []  # whatever it knows of the stream, it knows by now
        await harness.bus.declare(stream, document=FORM)
        await harness.bus.publish(stream, document("a"))
        assert await other.settle(done=[(await take_one(other, stream), "failed")]) == []
        assert (await known(harness.bus, "a")).outcome == "failed"

    async def test_a_document_is_delivered_as_it_was_published(self, bus: EventBus, tasks: str) -> None:
        sent = document("a", payload={"한글": [1, None, {"x": True}]}, status="pending")
        await bus.publish(tasks, sent)
        delivery = await take_one(bus, tasks)
        assert (delivery.event_id, delivery.envelope.type) == ("a", "Task")
        body = dict(delivery.envelope.payload)
        assert body.pop("status") in ("pending", "processing")
        assert body == {"id": "a", "type": "Task", "payload": {"한글": [1, None, {"x": True}]}}
