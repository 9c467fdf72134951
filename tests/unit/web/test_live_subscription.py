"""Subscriptions against everything that can happen around them, with a small memory and a small feed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kingdom.web.live import hub as hubs
from kingdom.web.live import subscription as subscriptions
from kingdom.web.live.event import FeedEvent
from kingdom.web.live.feeder import source_event
from kingdom.web.live.hub import Hub
from kingdom.web.live.subscription import LiveSubscription, SubscriptionReset, TypeFilter, subscribe
from kingdom.workflow.ports import StoredEvent
from tests.support.searching import examples

T = TypeVar("T")
_WORKFLOWS = ("wf-a", "wf-b")
_AT = datetime(2026, 2, 7, tzinfo=UTC)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nobody."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise AssertionError("it waits for something")


class World:
    """A store and a feed in memory. What happens is in the store at once, and in the feed when it is told."""

    def __init__(self) -> None:
        self.seen: list[StoredEvent] = []
        self.kept: list[FeedEvent] = []
        self.oldest, self.last = 1, 0
        self.fed = 0
        self.bus = SimpleNamespace(url="memory:")
        self.meanwhile: Callable[[], None] = lambda: None  # what happens while somebody reads, before it is told

    async def events(self, workflow_id: str | None, after: int, limit: int) -> list[StoredEvent]:
        found = [event for event in self.seen if workflow_id in (None, event.workflow_id)]
        key: Callable[[StoredEvent], int] = (lambda e: e.position) if workflow_id is None else (lambda e: e.sequence)
        answer = [event for event in found if key(event) > after][:limit]
        self.meanwhile()
        return answer

    async def last_event_number(self, workflow_id: str | None) -> int:
        found = [event for event in self.seen if workflow_id in (None, event.workflow_id)]
        self.meanwhile()
        return max((event.position if workflow_id is None else event.sequence for event in found), default=0)

    async def after(self, sequence: int, limit: int) -> list[FeedEvent]:
        answer = [frame for frame in self.kept if frame.sequence > sequence][:limit]
        self.meanwhile()
        return answer

    def happen(self, workflow_id: str) -> None:
        count = sum(event.workflow_id == workflow_id for event in self.seen)
        self.seen.append(StoredEvent(len(self.seen) + 1, workflow_id, count + 1, "TaskStarted", {}, _AT))

    def feed(self, count: int) -> list[FeedEvent]:
        frames = []
        for event in self.seen[self.fed : self.fed + count]:
            self.last += 1
            told = source_event(event)
            frames.append(FeedEvent(self.last, told.type, told.body(), told.workflow_id, told.workflow_sequence))
        self.fed += len(frames)
        self.kept += frames
        return frames

    def prune(self, count: int) -> None:
        del self.kept[: min(count, len(self.kept) - 1)]
        self.oldest = self.kept[0].sequence


class Client:
    """Counts what it hears: each number is one more than the one before, or it is told that it missed something."""

    def __init__(self, workflow_id: str | None) -> None:
        self.workflow_id = workflow_id
        self.number = 0
        self.began = False
        self.subscription: LiveSubscription | None = None

    def connect(self, hub: Hub) -> None:
        self.leave()
        number = self.number if self.began else None
        self.subscription, reset = run(subscribe(hub, self.workflow_id, number, (), lambda: None))
        if reset is not None:
            self.reset(hub, reset)
        self.number, self.began = self.subscription.number, True

    def leave(self) -> None:
        if self.subscription is not None:
            self.subscription.close()
            self.subscription = None

    def take(self, hub: Hub) -> bool:
        """Returns whether there may be more."""
        assert self.subscription is not None
        found = run(self.subscription.take())
        if isinstance(found, SubscriptionReset):
            self.reset(hub, found)
            return True
        for item in found or ():
            assert item.number == self.number + 1
            self.number = item.number
        return found is not None

    def reset(self, hub: Hub, reset: SubscriptionReset) -> None:
        assert self.workflow_id is None, "a store has everything"
        assert self.number < hub.feed.oldest - 1, "nothing was missed"
        self.number = reset.number


class Live(RuleBasedStateMachine):
    """One hub, some clients."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        for workflow_id in _WORKFLOWS:
            self.world.happen(workflow_id)
        self.hub = Hub(self.world, self.world)  # type: ignore[arg-type]
        self.clients = [Client(None), Client(None), *(Client(workflow_id) for workflow_id in _WORKFLOWS)]

    @rule(workflow_id=st.sampled_from(_WORKFLOWS), count=st.integers(1, 9))
    def happens(self, workflow_id: str, count: int) -> None:
        for _ in range(count):
            self.world.happen(workflow_id)

    @rule(count=st.integers(1, 12))
    def is_told(self, count: int) -> None:
        self.hub.publish(self.world.feed(count))

    @precondition(lambda self: len(self.world.kept) > 1)
    @rule(count=st.integers(1, 20))
    def is_forgotten(self, count: int) -> None:
        self.world.prune(count)

    @rule()
    def feed_breaks_off(self) -> None:
        self.world.kept.clear()
        self.world.fed = len(self.world.seen)
        self.world.last += 1
        self.world.oldest = self.world.last + 1
        self.hub.skip_to(self.world.last)

    @rule()
    def server_restarts(self) -> None:
        for client in self.clients:
            client.leave()
        self.hub = Hub(self.world, self.world)  # type: ignore[arg-type]

    @rule(which=st.integers(0, 3))
    def connects(self, which: int) -> None:
        self.clients[which].connect(self.hub)

    @rule(which=st.integers(0, 3), times=st.integers(1, 4))
    def takes(self, which: int, times: int) -> None:
        if self.clients[which].subscription is not None:
            for _ in range(times):
                self.clients[which].take(self.hub)

    @rule(which=st.integers(0, 3), connect=st.booleans(), told=st.integers(0, 4), forgotten=st.integers(0, 2))
    def reads_while_something_happens(self, which: int, connect: bool, told: int, forgotten: int) -> None:
        def meanwhile() -> None:
            self.world.meanwhile = lambda: None
            for workflow_id in _WORKFLOWS:
                self.world.happen(workflow_id)
            self.hub.publish(self.world.feed(told))
            if len(self.world.kept) > 1:
                self.world.prune(forgotten)

        self.world.meanwhile = meanwhile
        if connect:
            self.clients[which].connect(self.hub)
        if self.clients[which].subscription is not None:
            self.clients[which].take(self.hub)
        self.world.meanwhile = lambda: None

    @rule(which=st.integers(0, 3))
    def leaves(self, which: int) -> None:
        self.clients[which].leave()

    @invariant()
    def memory_is_small(self) -> None:
        assert len(getattr(self, "hub", SimpleNamespace(_recent=[]))._recent) <= 2 * hubs._MAX_RECENT_EVENTS + 12

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.hub.publish(self.world.feed(10_000))
        for client in self.clients:
            if client.began:
                if client.subscription is None:
                    client.connect(self.hub)
                while client.take(self.hub):
                    pass
                mine = sum(event.workflow_id == client.workflow_id for event in self.world.seen)
                assert client.number == (self.world.last if client.workflow_id is None else mine)
            client.leave()
        assert self.hub._waiting == {}


@pytest.mark.search
def test_whatever_happens_every_client_hears_everything_once_and_in_order(monkeypatch: Any) -> None:
    monkeypatch.setattr(hubs, "_MAX_RECENT_EVENTS", 6)
    monkeypatch.setattr(subscriptions, "_BATCH_EVENTS", 3)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Live, settings=settings(max_examples=examples(30), stateful_step_count=40, deadline=None)
    )


def test_types_are_names_or_beginnings() -> None:
    wanted = TypeFilter(["task.*", "TaskStarted"])
    assert [kind in wanted for kind in ("task.started", "TaskStarted", "TaskStartedLate", "work.task.")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert "anything" in TypeFilter()
    assert "anything" in TypeFilter(["*"])
