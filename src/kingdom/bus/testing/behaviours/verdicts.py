"""Verdicts: settle as DONE, PENDING or DEAD, and the outcomes of DONE."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kingdom.bus.delivery import DeadVerdict, DocumentForm, DoneVerdict, RetryVerdict
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import InvalidOption
from kingdom.bus.eventbus import EventBus
from kingdom.bus.testing.behaviours.base import Behaviours, counts, event, events, ids, known, take, take_one
from kingdom.bus.testing.harness import Harness


class SettleBehaviours(Behaviours):
    """``settle``."""

    async def test_settling_nothing_loses_nothing(self, bus: EventBus) -> None:
        assert await bus.settle() == []
        assert await bus.settle(done=[], retry=[], dead=[]) == []

    async def test_a_done_event_is_done_for_good(self, harness: Harness, stream: str) -> None:
        [event_id] = await harness.bus.publish(stream, event())
        assert await harness.bus.settle(done=await take(harness.bus, stream, lease=10)) == []
        assert await counts(harness.bus, stream) == (0, 0, 0)
        await harness.advance(100)
        assert await take(harness.bus, stream) == []
        assert (await known(harness.bus, event_id)).status == "DONE"

    async def test_a_retry_without_delay_is_claimable_at_once(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        assert await bus.settle(retry=[await take_one(bus, stream)]) == []
        assert (await take_one(bus, stream)).attempt == 2

    async def test_a_retry_waits_as_long_as_it_was_told(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event())
        await harness.bus.settle(retry=[(await take_one(harness.bus, stream), 60)])
        await harness.advance(55)
        assert await take(harness.bus, stream) == []
        await harness.advance(5)
        assert (await take_one(harness.bus, stream)).attempt == 2

    async def test_a_delay_may_be_a_timedelta_or_a_fraction(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.publish(stream, event(event_id="minutes"), event(event_id="fraction"))
        minutes, fraction = await take(bus, stream)
        await bus.settle(retry=[(minutes, timedelta(minutes=2)), (fraction, 59.5)])
        await harness.advance(60)
        assert ids(await take(bus, stream)) == ["fraction"]
        await harness.advance(60)
        assert ids(await take(bus, stream)) == ["minutes"]

    async def test_each_delivery_counts_one_attempt(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, event())
        for attempt in range(1, 6):
            delivery = await take_one(bus, stream)
            assert delivery.attempt == attempt
            await bus.settle(retry=[delivery])

    async def test_a_retry_keeps_the_reason(self, harness: Harness, stream: str) -> None:
        [event_id] = await harness.bus.publish(stream, event())
        await harness.bus.settle(retry=[(await take_one(harness.bus, stream), 60, "HTTP_503", "거래소 점검 중")])
        record = await known(harness.bus, event_id)
        assert (record.status, record.attempts) == ("PENDING", 1)
        assert (record.error_code, record.error_message) == ("HTTP_503", "거래소 점검 중")
        assert record.next_retry_at is not None
        assert timedelta(seconds=50) < record.next_retry_at - harness.now() <= timedelta(seconds=60)
        assert record.locked_by is None
        assert record.locked_until is None

    async def test_a_dead_event_is_never_claimed_and_keeps_the_reason(self, harness: Harness, stream: str) -> None:
        [event_id] = await harness.bus.publish(stream, event())
        await harness.bus.settle(dead=[(await take_one(harness.bus, stream, lease=10), "INVALID", "no such market")])
        await harness.advance(100)
        assert await take(harness.bus, stream) == []
        record = await known(harness.bus, event_id)
        assert (record.status, record.attempts) == ("DEAD", 1)
        assert (record.error_code, record.error_message) == ("INVALID", "no such market")

    async def test_done_retry_and_dead_go_in_one_call(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, events(6))
        held = await take(bus, stream)
        assert await bus.settle(done=held[:2], retry=held[2:4], dead=held[4:]) == []
        assert [(await known(bus, event_id)).status for event_id in ids(held)] == [
            "DONE",
            "DONE",
            "PENDING",
            "PENDING",
            "DEAD",
            "DEAD",
        ]

    async def test_many_verdicts_go_in_one_call(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, events(600))
        held = await take(bus, stream, limit=600)
        assert await bus.settle(done=held[:400], retry=held[400:500], dead=held[500:]) == []
        assert await counts(bus, stream) == (100, 0, 100)

    async def test_verdicts_may_leave_out_trailing_parts(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, events(7))
        held = await take(bus, stream)
        lost = await bus.settle(
            retry=[held[0], (held[1],), (held[2], 0, "AGAIN"), RetryVerdict(held[3], code="AGAIN", message="soon")],
            dead=[held[4], (held[5], "NEVER"), DeadVerdict(held[6], "NEVER", "at all")],
        )
        assert lost == []
        reasons = [(item.error_code, item.error_message) for item in [await known(bus, name) for name in ids(held)]]
        assert reasons == [
            (None, None),
            (None, None),
            ("AGAIN", None),
            ("AGAIN", "soon"),
            ("REJECTED", None),
            ("NEVER", None),
            ("NEVER", "at all"),
        ]

    async def test_a_negative_delay_is_refused_and_nothing_written(self, bus: EventBus, stream: str) -> None:
        await bus.publish(stream, events(2))
        first, second = await take(bus, stream)
        with pytest.raises(InvalidOption, match="zero or more seconds"):
            await bus.settle(done=[first], retry=[(second, -1)])
        assert await counts(bus, stream) == (0, 2, 0)

    @pytest.mark.parametrize("verdict", ["done", "retry", "dead"])
    async def test_who_lost_the_lease_cannot_settle(self, harness: Harness, stream: str, verdict: str) -> None:
        other = await harness.open()
        [event_id] = await harness.bus.publish(stream, event())
        late = await take_one(harness.bus, stream, lease=10)
        await harness.advance(11)
        holder = await take_one(other, stream, worker="other", lease=60)
        verdicts: dict[str, Any] = {verdict: [late]}
        assert await harness.bus.settle(**verdicts) == [late]
        record = await known(harness.bus, event_id)
        assert (record.status, record.attempts, record.error_code) == ("PROCESSING", 2, None)
        assert await other.settle(done=[holder]) == []
        assert (await known(harness.bus, event_id)).status == "DONE"

    async def test_a_late_verdict_does_not_undo_the_one_that_counted(self, harness: Harness, stream: str) -> None:
        [event_id] = await harness.bus.publish(stream, event())
        late = await take_one(harness.bus, stream, lease=10)
        await harness.advance(11)
        await harness.bus.settle(dead=[(await take_one(harness.bus, stream, worker="other"), "INVALID", "really")])
        assert await harness.bus.settle(done=[late]) == [late]
        assert (await known(harness.bus, event_id)).status == "DEAD"

    async def test_the_same_worker_name_does_not_open_the_fence(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event())
        late = await take_one(harness.bus, stream, worker="same", lease=10)
        await harness.advance(11)
        holder = await take_one(harness.bus, stream, worker="same")
        assert await harness.bus.settle(done=[late]) == [late]
        assert await harness.bus.settle(done=[holder]) == []

    async def test_in_a_mixed_call_only_the_lost_are_refused(self, harness: Harness, stream: str) -> None:
        bus = harness.bus
        await bus.publish(stream, events(6))
        short = await take(bus, stream, limit=3, lease=10)
        long = await take(bus, stream, lease=100)
        await harness.advance(11)
        await take(bus, stream, worker="other")
        lost = await bus.settle(
            done=[short[0], long[0]], retry=[(short[1], 60), (long[1], 60)], dead=[short[2], long[2]]
        )
        assert sorted(ids(lost)) == sorted(ids(short))
        assert [(await known(bus, event_id)).status for event_id in ids(long)] == ["DONE", "PENDING", "DEAD"]
        assert await counts(bus, stream) == (1, 3, 1)

    async def test_of_two_deliveries_of_one_event_in_a_call_only_the_one_that_holds_it_counts(
        self, harness: Harness, stream: str
    ) -> None:
        bus = harness.bus
        [event_id] = await bus.publish(stream, event())
        late = await take_one(bus, stream, lease=10)
        await harness.advance(11)
        holder = await take_one(bus, stream)
        assert await bus.extend([late, holder], 60) == [late]
        assert await bus.settle(done=[late, holder]) == [late]
        assert (await known(bus, event_id)).status == "DONE"

    @pytest.mark.parametrize("verdict", ["done", "retry", "dead"])
    async def test_an_event_is_settled_once(self, bus: EventBus, stream: str, verdict: str) -> None:
        [event_id] = await bus.publish(stream, event())
        delivery = await take_one(bus, stream)
        first: dict[str, Any] = {verdict: [delivery]}
        assert await bus.settle(**first) == []
        status = (await known(bus, event_id)).status
        for again in ("done", "retry", "dead"):
            second: dict[str, Any] = {again: [delivery]}
            assert await bus.settle(**second) == [delivery]
        assert (await known(bus, event_id)).status == status

    async def test_a_lease_that_ended_can_be_settled_while_nobody_else_took_the_event(
        self, harness: Harness, stream: str
    ) -> None:
        [event_id] = await harness.bus.publish(stream, event())
        slow = await take_one(harness.bus, stream, lease=10)
        await harness.advance(100)
        assert await harness.bus.settle(done=[slow]) == []
        assert (await known(harness.bus, event_id)).status == "DONE"

    async def test_a_requeue_fences_the_delivery_from_before(self, bus: EventBus, stream: str) -> None:
        [event_id] = await bus.publish(stream, event())
        old = await take_one(bus, stream)
        await bus.settle(dead=[old])
        await bus.requeue(stream, [event_id])
        assert await bus.settle(done=[old]) == [old]
        new = await take_one(bus, stream)
        assert await bus.settle(done=[old]) == [old]
        assert await bus.settle(done=[new]) == []

    async def test_what_was_purged_cannot_be_settled(self, harness: Harness, stream: str) -> None:
        await harness.bus.publish(stream, event())
        old = await take_one(harness.bus, stream)
        await harness.bus.settle(done=[old])
        await harness.advance(10)
        await harness.bus.purge(5, stream=stream)
        assert await harness.bus.settle(dead=[old]) == [old]
        assert await counts(harness.bus, stream) == (0, 0, 0)


FORM = DocumentForm(time=None, priority=None, outcomes=("failed", "needs_human"))


def document(name: str, **fields: Any) -> Envelope:
    return FORM.envelope({"id": name, "type": "Task", "status": "pending", **fields})


class OutcomeBehaviours(Behaviours):
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
        assert await take(other, stream) == []  # it has cached the options of the stream
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
