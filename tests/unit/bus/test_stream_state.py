"""The state machine of one stream, first by example, then against a model that is slow and obvious."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from kingdom.bus import Envelope
from kingdom.bus.stream_entry import LEASE_EXPIRED, EventEntry, aggregate_key, new_entry
from kingdom.bus.stream_state import StreamStateMachine
from tests.support.searching import examples


def add(state: StreamStateMachine, *ids: str, now: float = 0.0, **routing: object) -> None:
    for event_id in ids:
        envelope = Envelope(**{"type": "T", "event_id": event_id, **routing})  # type: ignore[arg-type]
        state.add(new_entry(envelope, seq=len(state) + 1, now=now))


def claim(state: StreamStateMachine, now: float, limit: int = 10, lease: float = 30, **more: object) -> list[str]:
    taken = state.take(now, limit, **more)  # type: ignore[arg-type]
    for entry in taken:
        state.hold(entry, f"{entry.event_id}-{entry.attempts}", "w", now + lease)
    return [entry.event_id for entry in taken]


def entry(state: StreamStateMachine, event_id: str) -> EventEntry:
    found = state.get(event_id)
    assert found is not None
    return found


def test_what_was_to_be_claimed_at_once_does_not_wait_for_a_clock_that_was_set_back() -> None:
    state = StreamStateMachine()
    add(state, "a", "b", now=4000)
    add(state, "delayed", now=4000, not_before=datetime.fromtimestamp(5000, UTC))
    assert claim(state, 400) == ["a", "b"]
    held = entry(state, "a")
    state.retry(held, 420, None, None)
    assert claim(state, 410) == []
    assert claim(state, 425) == ["a"]


def test_claims_by_priority_then_ready_time_then_publish_order() -> None:
    state = StreamStateMachine()
    add(state, "low", priority="low")
    add(state, "late", not_before=datetime.fromtimestamp(5, UTC))
    add(state, "a", "b")
    add(state, "high", now=8, priority="high")
    assert claim(state, 10) == ["high", "a", "b", "late", "low"]


def test_a_retry_becomes_ready_when_it_is_due() -> None:
    state = StreamStateMachine()
    add(state, "a", "b")
    assert claim(state, 0) == ["a", "b"]
    state.retry(entry(state, "a"), 7, "E", "why")
    assert claim(state, 6.9) == []
    assert claim(state, 7) == ["a"]
    assert (entry(state, "a").attempts, entry(state, "a").error_code) == (2, "E")


def test_types_narrow_a_claim_and_others_wait() -> None:
    state = StreamStateMachine()
    add(state, "a1", type="A")
    add(state, "b1", type="B")
    add(state, "a2", type="A")
    assert claim(state, 0, types=["B", "unknown"]) == ["b1"]
    assert state.pending_types(0) == {"A": 2}
    assert claim(state, 0, limit=1, types=["A", "B"]) == ["a1"]


def test_the_line_is_what_would_be_taken_and_takes_nothing() -> None:
    state = StreamStateMachine()
    add(state, "late", not_before=datetime.fromtimestamp(5, UTC))
    add(state, "a1", "a2", "a3", type="A")
    add(state, "b1", "b2", type="B")
    add(state, "low", priority="low")
    add(state, "future", not_before=datetime.fromtimestamp(50, UTC))
    state.retry(taken := state.take_named(1, ["a2", "a2", "future", "nobody"], 5)[0], 3, "E", "why")
    assert taken.event_id == "a2"
    shown = ["a1", "a3", "b1", "b2", "a2", "late", "low"]
    assert [entry.event_id for entry in state.line(10)] == shown
    assert [entry.event_id for entry in state.line(10, ["A"])] == ["a1", "a3", "a2"]
    assert claim(state, 10) == shown


def test_a_recalled_event_is_held_under_another_token_and_the_same_attempt() -> None:
    state = StreamStateMachine(ordered=True)
    add(state, "a", "b")
    claim(state, 0, lease=10)
    assert state.depth(10)[:3] == (2, 0, 0)
    [held] = state.held_by("w")
    state.recall(held, "again", 30)
    assert (state.held("a", "a-0"), state.held("a", "again"), held.attempts) == (None, held, 1)
    assert state.depth(29)[:3] == (1, 1, 0)
    assert claim(state, 29) == [], "the first of its aggregate is held"
    assert state.held_by("other") == []


def test_an_ended_lease_makes_an_event_claimable_and_counts_as_pending() -> None:
    state = StreamStateMachine()
    add(state, "a")
    claim(state, 0, lease=10)
    assert state.depth(9.9)[:3] == (0, 1, 0)
    assert state.depth(12) == (1, 0, 0, 12.0)
    assert state.held("a", "a-0") is not None, "nobody took it over yet"
    assert claim(state, 12) == ["a"]
    assert state.held("a", "a-0") is None
    assert state.held("a", "a-1") is not None


def test_a_renewed_lease_ends_later_even_when_it_had_ended() -> None:
    state = StreamStateMachine()
    add(state, "a")
    claim(state, 0, lease=10)
    assert state.depth(10).pending == 1
    state.extend(entry(state, "a"), 20)
    assert state.depth(10)[:2] == (0, 1)
    assert claim(state, 19) == []
    assert claim(state, 20) == ["a"]


def test_spent_only_when_the_lease_of_the_last_attempt_ended() -> None:
    state = StreamStateMachine()
    add(state, "a")
    claim(state, 0, lease=10)
    held = entry(state, "a")
    assert not held.spent(1)
    state.depth(10)
    assert held.spent(1)
    assert not held.spent(2)
    assert "attempt 1" in held.expiry_message


def test_an_event_whose_lease_ended_keeps_its_place() -> None:
    state = StreamStateMachine()
    add(state, "a", "b")
    add(state, "c", now=5)
    claim(state, 0, limit=1, lease=10)
    assert claim(state, 10) == ["a", "b", "c"]


def test_release_restores_place_and_attempts() -> None:
    state = StreamStateMachine()
    add(state, "a")
    add(state, "b", now=1)
    claim(state, 2, limit=1)
    state.release(entry(state, "a"))
    assert entry(state, "a").attempts == 0
    assert claim(state, 2) == ["a", "b"]


def test_put_back_undoes_take() -> None:
    for ordered in (False, True):
        state = StreamStateMachine(ordered=ordered)
        add(state, "a", "b", aggregate_id="1")
        before = state.depth(0)
        for taken in state.take(0, 5):
            state.put_back(taken)
        assert state.depth(0) == before
        assert claim(state, 0, limit=1) == ["a"]


def test_dead_letters_are_listed_newest_first_and_come_back_fresh() -> None:
    state = StreamStateMachine()
    add(state, "a", "b", "c")
    claim(state, 0)
    for now, event_id in enumerate("bca"):
        state.bury(entry(state, event_id), "E", "why", now)
    assert [item.event_id for item in state.dead()] == ["a", "c", "b"]
    assert [item.event_id for item in state.dead(1)] == ["a"]
    state.requeue(entry(state, "c"), 9)
    assert (entry(state, "c").attempts, entry(state, "c").error_code) == (0, None)
    assert state.depth(9)[:3] == (1, 0, 2)


def test_ordered_streams_hand_out_one_event_of_an_aggregate_at_a_time() -> None:
    state = StreamStateMachine(ordered=True)
    add(state, "a1", "a2", aggregate_id="A")
    add(state, "b1", "b2", aggregate_id="B")
    add(state, "x1", "x2")
    assert claim(state, 0) == ["a1", "b1", "x1"]
    assert claim(state, 0) == []
    state.retry(entry(state, "a1"), 5, None, None)
    state.remove(entry(state, "b1"))
    assert claim(state, 1) == ["b2"], "a1 waits for its retry and holds back a2"
    assert claim(state, 5) == ["a1"]


def test_a_dead_head_lets_its_aggregate_go_on_or_parks_it() -> None:
    going, parked = StreamStateMachine(ordered=True), StreamStateMachine(ordered=True, dead_head="park")
    for state in (going, parked):
        add(state, "a1", "a2")
        claim(state, 0)
        state.bury(entry(state, "a1"), "E", None, 0)
    assert claim(going, 0) == ["a2"]
    assert claim(parked, 0) == []
    assert parked.depth(3) == (1, 0, 1, 0.0), "a parked event cannot be claimed, so it is not the oldest"
    parked.remove(entry(parked, "a1"))
    assert claim(parked, 0) == ["a2"]


def test_a_requeued_head_waits_for_the_follower_that_is_held() -> None:
    state = StreamStateMachine(ordered=True)
    add(state, "a1", "a2", "a3")
    claim(state, 0)
    state.bury(entry(state, "a1"), "E", None, 0)
    claim(state, 0)
    state.requeue(entry(state, "a1"), 1)
    assert claim(state, 1) == []
    state.remove(entry(state, "a2"))
    assert claim(state, 1) == ["a1"]


def test_a_done_event_can_be_requeued_though_it_is_not_known_any_more() -> None:
    state = StreamStateMachine(ordered=True)
    add(state, "a1", "a2")
    claim(state, 0)
    done = entry(state, "a1")
    state.remove(done)
    state.requeue(done, 1)
    assert claim(state, 1) == ["a1"]


def test_configure_changes_the_order_of_what_is_there() -> None:
    state = StreamStateMachine()
    add(state, "a1", "a2", "a3")
    assert claim(state, 0, limit=1) == ["a1"]
    state.configure(ordered=True, dead_head="go-on")
    assert claim(state, 0) == []
    state.configure(ordered=False, dead_head="go-on")
    assert claim(state, 0) == ["a2", "a3"]
    assert state.depth(0)[:3] == (0, 3, 0)


def test_stale_items_do_not_pile_up() -> None:
    state = StreamStateMachine()
    add(state, "a")
    for now in range(1000):  # each round leaves an emptied item in the heap of leases
        claim(state, now, lease=10_000)
        state.release(entry(state, "a"))
    assert len(state._leases) < 200


def test_aggregate_keys_differ_by_type_and_id() -> None:
    keys = {
        aggregate_key(Envelope(type="T", aggregate_type=kind, aggregate_id=name))
        for kind in (None, "a", "b")
        for name in (None, "a", "b")
    }
    assert len(keys) == 9


def _place(event: dict[str, Any]) -> Any:
    return event["priority"], event["ready"], event["seq"]


class Model(RuleBasedStateMachine):
    """Every operation on the real state and on plain dictionaries that are searched in full."""

    tokens = Bundle("tokens")

    @initialize(ordered=st.booleans(), park=st.booleans())
    def start(self, ordered: bool, park: bool) -> None:
        self.now = 0.0
        self.ordered, self.park = ordered, park
        self.state = StreamStateMachine(ordered=ordered, dead_head="park" if park else "go-on")
        self.model: dict[str, dict[str, object]] = {}
        self.claims = 0

    @rule(
        kind=st.sampled_from("AB"),
        aggregate=st.sampled_from(["1", "2", None]),
        priority=st.sampled_from(["high", "normal", "low"]),
        delay=st.sampled_from([None, 0, 5]),
    )
    def publish(self, kind: str, aggregate: str | None, priority: str, delay: float | None) -> None:
        seq = len(self.model) + 1
        before = None if delay is None else datetime.fromtimestamp(self.now + delay, UTC)
        envelope = Envelope(
            type=kind,
            event_id=f"e{seq}",
            aggregate_id=aggregate,
            priority=priority,
            not_before=before,  # type: ignore[arg-type]
        )
        self.state.add(new_entry(envelope, seq=seq, now=self.now))
        self.model[f"e{seq}"] = {
            "id": f"e{seq}", "seq": seq, "type": kind, "lane": aggregate, "status": "PENDING", "attempts": 0,
            "priority": ["high", "normal", "low"].index(priority), "ready": self.now + (delay or 0), "token": None,
            "until": 0.0,
        }  # fmt: skip

    @rule(seconds=st.sampled_from([0.5, 5, 10]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        target=tokens,
        limit=st.integers(1, 4),
        types=st.sampled_from([None, ["A"], ["A", "B"]]),
        lease=st.sampled_from([5.0, 10.0]),
        most=st.integers(1, 3),
    )
    def claim(self, limit: int, types: list[str] | None, lease: float, most: int) -> object:
        self.claims += 1
        token, got = f"t{self.claims}", []
        chosen: list[EventEntry] = []
        wanted: list[dict[str, object]] = []
        while len(chosen) < limit and (taken := self.state.take(self.now, limit - len(chosen), types)):
            for item in taken:
                if item.spent(most):
                    self.state.bury(item, LEASE_EXPIRED, item.expiry_message, self.now)
                else:
                    chosen.append(item)
        for item in sorted(chosen, key=lambda item: item.place):
            self.state.hold(item, token, "w", self.now + lease)
            got.append((item.event_id, item.attempts))
        while len(wanted) < limit and (found := self._claimables(types)):
            event = min(found, key=_place)
            if event["status"] == "PROCESSING" and event["attempts"] >= most:  # type: ignore[operator]
                event.update(status="DEAD", token=None)
                continue
            event.update(
                status="PROCESSING",
                attempts=event["attempts"] + 1,  # type: ignore[operator]
                token=token,
                until=self.now + lease,
            )
            wanted.append(event)
        # In line order, also when one that died made room for one that stands before those chosen already.
        assert got == [(event["id"], event["attempts"]) for event in sorted(wanted, key=_place)]
        return multiple(*((event_id, token) for event_id, _ in got))

    @rule(held=consumes(tokens), verdict=st.sampled_from(["done", "retry", "dead", "release"]))
    def settle(self, held: tuple[str, str], verdict: str) -> None:
        found, event = self.state.held(*held), self.model[held[0]]
        assert (found is not None) == (event["token"] == held[1])
        if found is None:
            return
        if verdict == "done":
            self.state.remove(found)
            event.update(status="DONE", token=None)
        elif verdict == "retry":
            self.state.retry(found, self.now + 3, "E", None)
            event.update(status="PENDING", token=None, ready=self.now + 3)
        elif verdict == "dead":
            self.state.bury(found, "E", None, self.now)
            event.update(status="DEAD", token=None)
        else:
            self.state.release(found)
            event.update(status="PENDING", token=None, attempts=event["attempts"] - 1)  # type: ignore[operator]

    @rule(held=tokens)
    def extend(self, held: tuple[str, str]) -> None:
        if found := self.state.held(*held):
            self.state.extend(found, self.now + 10)
            self.model[held[0]]["until"] = self.now + 10

    @rule()
    def requeue_all(self) -> None:
        for found in self.state.dead():
            self.state.requeue(found, self.now)
            self.model[found.event_id].update(status="PENDING", attempts=0, ready=self.now)

    @rule(ordered=st.booleans())
    def reconfigure(self, ordered: bool) -> None:
        self.ordered = ordered
        self.state.configure(ordered=ordered, dead_head="park" if self.park else "go-on")

    @invariant()
    def depths_agree(self) -> None:
        events = list(self.model.values())
        due = [float(event["ready"]) for event in events if self._claimable(event)]  # type: ignore[arg-type]
        assert self.state.depth(self.now) == (
            sum(map(self._waits, events)),
            sum(self._held(event) for event in events),
            sum(event["status"] == "DEAD" for event in events),
            self.now - min(due) if due else 0,
        )
        waiting = [str(event["type"]) for event in events if self._waits(event)]
        assert self.state.pending_types(self.now) == {kind: waiting.count(kind) for kind in set(waiting)}

    def _held(self, event: dict[str, object]) -> bool:
        return event["status"] == "PROCESSING" and event["until"] > self.now  # type: ignore[operator]

    def _waits(self, event: dict[str, object]) -> bool:
        return event["status"] in ("PENDING", "PROCESSING") and not self._held(event)

    def _claimable(self, event: dict[str, object]) -> bool:
        if not self._waits(event) or event["ready"] > self.now:  # type: ignore[operator]
            return False
        others = [one for one in self.model.values() if one["lane"] == event["lane"] and one is not event]
        unfinished = ("PENDING", "PROCESSING", "DEAD") if self.park else ("PENDING", "PROCESSING")
        return not self.ordered or not any(
            self._held(one) or (one["status"] in unfinished and one["seq"] < event["seq"])  # type: ignore[operator]
            for one in others
        )

    def _claimables(self, types: list[str] | None) -> list[dict[str, object]]:
        return [
            event for event in self.model.values() if self._claimable(event) and (not types or event["type"] in types)
        ]


TestAgainstTheModel = pytest.mark.search(Model.TestCase)
TestAgainstTheModel.settings = settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
