"""Random lives of a stream, on a real transport and in the model at once: they must never differ.

A failure prints the steps that lead to it, and a ``@reproduce_failure`` line: put it on ``BusMachine`` to repeat it.
``make test`` runs some lives on each transport, ``make chaos`` many.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple, TypeVar
from uuid import uuid4

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kingdom.bus import Delivery, Depth, Envelope, EventBus
from kingdom.bus.delivery import DeadHead
from tests.conformance.harnesses import StoreHarness
from tests.conformance.model import RANKS, Event, Kind, Model
from tests.conformance.steps import CLAIM, CODES, EVENTS, FATES, KINDS, PICK, PICKS, TICK, TYPES, WAITS, Fate, NewEvent

T = TypeVar("T")


class Claimed(NamedTuple):
    """A delivery, and the claim of the model that is the same."""

    delivery: Delivery
    token: int
    bus: EventBus


class BusMachine(RuleBasedStateMachine):
    """Few and large rules: hypothesis leaves out rules at random, and a life without claims would show nothing."""

    harness: ClassVar[StoreHarness]
    runner: ClassVar[asyncio.Runner]

    def __init__(self) -> None:
        super().__init__()
        self.stream = f"machine.{uuid4().hex}"
        self.model = Model()
        self.buses: list[EventBus] = [self.harness.bus, self.run(self.harness.open())]
        self.filled = [False, False]  # whether the last claim of each bus got all it asked for
        self.published: list[Envelope] = []
        self.claims: list[Claimed] = []  # everything ever claimed, also what is long settled or lost

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def tick(self) -> None:
        self.model.now += TICK
        if self.harness.clock is not None:
            self.harness.clock.advance(TICK)

    def teardown(self) -> None:
        self.run(self.buses[1].close())
        self.run(self.harness.forget(self.stream))

    # ── what can happen ───────────────────────────────────────────────────────────────────────────────────────

    @initialize(kind=KINDS, events=st.lists(EVENTS, min_size=3, max_size=8))
    def begin(self, kind: Kind, events: list[NewEvent]) -> None:
        self.declare(kind)
        self.publish(events, [])

    def declare(self, kind: Kind) -> None:
        self.tick()
        dead_head: DeadHead = "park" if kind == "park" else "go-on"
        for bus in self.buses:  # as processes do when they start
            self.run(bus.declare(self.stream, ordered=kind != "plain", dead_head=dead_head))
        self.model.kind = kind

    @rule(events=st.lists(EVENTS, min_size=1, max_size=4), again=PICKS)
    def publish(self, events: list[NewEvent], again: list[int]) -> None:
        """Publish new events, and some that were published before."""
        self.tick()
        now = self.harness.now()  # once: a pause between two events must not change which of them comes first
        envelopes = [_pick(self.published, number) for number in again if self.published]
        for event_type, aggregate, priority, delay in events:
            envelope = Envelope(
                type=event_type,
                event_id=f"{self.stream}-{len(self.published)}",
                aggregate_id=aggregate,
                priority=priority,
                not_before=now + timedelta(seconds=delay) if delay else None,
            )
            envelopes.append(envelope)
            self.published.append(envelope)
        accepted = self.run(self.buses[0].publish(self.stream, envelopes))
        assert accepted == self.model.publish(self.row(envelope, now) for envelope in envelopes)

    def row(self, envelope: Envelope, now: datetime) -> Event:
        wait = 0.0 if envelope.not_before is None else (envelope.not_before - now).total_seconds()
        rank, ready = RANKS[envelope.priority], self.model.now + max(0.0, wait)
        lane, shard = self.harness.lane(envelope), self.harness.shard(envelope)
        return Event(envelope.event_id, envelope.type, lane, rank, ready, late=wait > 0, shard=shard)

    @rule(wait=WAITS, **CLAIM)
    def work_here(self, wait: int, fates: list[Fate], **options: Any) -> None:
        self.work(0, wait, fates, options)

    @rule(wait=WAITS, **CLAIM)
    def work_there(self, wait: int, fates: list[Fate], **options: Any) -> None:
        self.work(1, wait, fates, options)

    def work(self, number: int, wait: int, fates: list[Fate], options: dict[str, Any]) -> None:
        """Claim events, and let each meet its fate, or keep it for later."""
        self.time_passes(wait)
        self.tick()
        named = options.pop("named")
        options["ids"] = None if named is None else [_pick(self.published, pick).event_id for pick in named]
        options["worker"] = f"machine-{number}"
        bus, dead = self.buses[number], {event.event_id for event in self.model.events if event.status == "DEAD"}
        claimed = self.run(bus.claim(self.stream, **options))
        buried = {letter.event_id for letter in self.run(bus.dead(self.stream))} - dead
        hurried = self.harness.hurries and self.filled[number] and named is None
        expected = self.model.claim([item.event_id for item in claimed], buried, hurried=hurried, **options)
        if named is None:
            self.filled[number] = len(claimed) == options["limit"]
        new = self.hold(bus, claimed, expected)
        self.meet(list(zip(new, itertools.cycle(fates))))

    def hold(self, bus: EventBus, deliveries: list[Delivery], expected: list[Event]) -> list[Claimed]:
        assert [item.event_id for item in deliveries] == [item.event_id for item in expected]
        assert [item.attempt for item in deliveries] == [item.attempts for item in expected]
        new = [Claimed(item, event.token, bus) for item, event in zip(deliveries, expected, strict=True)]
        self.claims += new
        return new

    @precondition(lambda self: self.claims)
    @rule(picks=st.lists(st.tuples(PICK, FATES), min_size=1, max_size=4))
    def come_back(self, picks: list[tuple[int, Fate]]) -> None:
        """Somebody remembers old claims, whatever became of them since."""
        chosen = {
            id(item): (item, fate) for item, fate in ((_pick(self.claims, number), fate) for number, fate in picks)
        }
        self.meet(list(chosen.values()))

    def meet(self, fates: list[tuple[Claimed, Fate]]) -> None:
        self.tick()
        for bus in self.buses:
            mine = [(item, fate) for item, fate in fates if item.bus is bus]
            self.settle(bus, mine)
            for span in sorted({span for _, (what, span, _) in mine if what == "extend"}):
                held = [item for item, (what, how_long, _) in mine if what == "extend" and how_long == span]
                lost = [item.delivery for item in held if not self.model.extend(*_key(item), span or 100)]
                assert _same(self.run(bus.extend([item.delivery for item in held], span or 100)), lost)
            held = [item for item, (what, _, _) in mine if what == "release"]
            lost = [item.delivery for item in held if not self.model.release(*_key(item))]
            assert _same(self.run(bus.release([item.delivery for item in held])), lost)

    def settle(self, bus: EventBus, fates: list[tuple[Claimed, Fate]]) -> None:
        done, retry, dead, lost = [], [], [], []
        for item, (what, span, code) in fates:
            delivery, kept = item.delivery, True
            if what == "done":
                done.append(delivery)
                kept = self.model.done(*_key(item))
            elif what == "retry":
                retry.append((delivery, span, code, "again"))
                kept = self.model.retry(*_key(item), span, code)
            elif what == "dead":
                dead.append((delivery, code, "never"))
                kept = self.model.dead(*_key(item), code)
            if not kept:
                lost.append(delivery)
        assert _same(self.run(bus.settle(done=done, retry=retry, dead=dead)), lost)

    @rule(
        what=st.sampled_from(["crash", "recall", "declare", "purge"]), kind=KINDS, older_than=WAITS, dead=st.booleans()
    )
    def disturb(self, what: str, kind: Kind, older_than: int, dead: bool) -> None:
        if what == "crash":
            self.crash()
        elif what == "recall":
            self.recall(older_than or 100)
        elif what == "declare":
            self.declare(kind)
        else:
            self.purge(older_than, dead)

    def crash(self) -> None:
        """A process dies: what it held is never settled, what it knew is gone, and another takes its place."""
        gone = self.buses[1]
        self.run(gone.close())
        self.buses[1] = self.run(self.harness.open())
        self.claims = [item for item in self.claims if item.bus is not gone]

    def recall(self, lease: int) -> None:
        """A process dies, and another goes on with what it held; or one only believes that it was dead."""
        self.crash()
        for number, bus in enumerate(self.buses):
            self.tick()
            worker = f"machine-{number}"
            self.hold(
                bus, self.run(bus.recall(self.stream, worker=worker, lease=lease)), self.model.recall(worker, lease)
            )

    def time_passes(self, seconds: int) -> None:
        if seconds:
            self.model.now += seconds
            self.run(self.harness.advance(seconds))
            self.filled = [False, False]

    @rule(picks=st.none() | PICKS, event_type=st.none() | st.none() | TYPES, code=st.none() | st.none() | CODES)
    def requeue(self, picks: list[int] | None, event_type: str | None, code: str | None) -> None:
        self.tick()
        # Mostly of what has ended: the rest cannot be requeued.
        pool = [event.event_id for event in self.model.events if event.status in ("DONE", "DEAD")]
        pool += [envelope.event_id for envelope in self.published[:3]]
        wanted = None if picks is None else [_pick(pool, number) for number in picks]
        if wanted is None and event_type is None and code is None:
            event_type = "A"
        moved = self.run(self.buses[0].requeue(self.stream, wanted, event_type=event_type, error_code=code))
        assert moved == self.model.requeue(wanted, event_type, code)

    def purge(self, older_than: int, dead: bool) -> None:
        self.tick()
        removed = self.run(self.buses[0].purge(older_than, stream=self.stream, dead=dead))
        assert removed == self.model.purge(older_than, dead)

    # ── what must hold ────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def the_stream_is_as_full_as_the_model(self) -> None:
        self.tick()
        depth = self.run(self.buses[1].depth()).get(self.stream, Depth())
        assert (depth.pending, depth.processing, depth.dead) == self.model.counts()

    @rule(limit=st.integers(1, 5), types=CLAIM["types"], skipped=PICKS)
    def look_at_everything(self, limit: int, types: list[str] | None, skipped: list[int]) -> None:
        self.tick()
        skip = {_pick(self.published, number).event_id for number in skipped}
        seen = self.run(self.buses[1].peek(self.stream, limit=limit, types=types, skip=skip))
        expected = self.model.peek(limit, types, skip)
        assert [record.envelope.event_id for record in seen] == [event.event_id for event in expected]
        assert [(record.status, record.attempts) for record in seen] == [(e.status, e.attempts) for e in expected]
        assert self.run(self.buses[1].pending_types(self.stream)) == self.model.pending_types()
        for event in self.model.events:
            record = self.run(self.buses[0].find(event.event_id))
            assert record is not None
            assert (record.status, record.attempts) == (event.status, event.attempts)
            if event.status in ("DEAD", "PENDING"):
                assert record.error_code == event.code
        letters = self.run(self.buses[1].dead(self.stream))
        dead = {event.event_id: event for event in self.model.events if event.status == "DEAD"}
        assert {letter.event_id for letter in letters} == set(dead)
        ended = [dead[letter.event_id].ended for letter in letters]
        assert ended == sorted(ended, reverse=True)


def _pick(items: Sequence[T], number: int) -> T:
    return items[number % len(items)]


def _key(item: Claimed) -> tuple[str, int]:
    return item.delivery.event_id, item.token


def _same(lost: list[Delivery], expected: list[Delivery]) -> bool:
    return sorted(map(id, lost)) == sorted(map(id, expected))


def live(harness: StoreHarness, lives: int, chance: int | None = None) -> None:
    """Run so many lives on one store: each has a stream of its own, which is faster than a store of its own."""
    chosen = settings(
        max_examples=lives,
        stateful_step_count=30,
        deadline=None,
        print_blob=True,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with asyncio.Runner() as runner:
        runner.run(harness.__aenter__())
        try:
            machine = type("BusMachine", (BusMachine,), {"harness": harness, "runner": runner})
            run_state_machine_as_test(machine if chance is None else seed(chance)(machine), settings=chosen)
        finally:
            runner.run(harness.__aexit__(None, None, None))
