"""What becomes of an event whose handler fails, in every way a handler can."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kingdom.bus import DeadLetter, Envelope, EventBus, Record, Reject, Retry, RetryPolicy, current_delivery
from kingdom.bus.testing import ManualClock
from kingdom.bus.testing.behaviours.base import WatchedBus, running, worker_on
from tests.support.buses import memory_bus


@pytest.fixture
async def bus() -> AsyncIterator[EventBus]:
    async with memory_bus() as inner:
        yield inner


async def handled(
    bus: EventBus, handler: Callable[[Envelope], Any], event_id: str | None = None, **options: Any
) -> Record:
    """Let a worker meet one event once, and return what the store knows of it then."""
    [event_id] = await bus.publish("s", Envelope("A", event_id=event_id) if event_id else Envelope("A"))
    watched = WatchedBus(bus)
    worker = worker_on(watched, "s", **{"retry": RetryPolicy(base=1000, cap=1000), **options})
    worker.on("A")(handler)
    async with running(worker):
        await watched.returns("settle")
    record = await bus.find(event_id)
    assert record is not None
    return record


def raising(error: BaseException) -> Callable[[Envelope], Any]:
    async def handle(event: Envelope) -> None:
        raise error

    return handle


async def only_letter(bus: EventBus) -> DeadLetter:
    [letter] = await bus.dead("s")
    return letter


async def test_an_unknown_error_is_retried_with_its_name_and_message(bus: EventBus) -> None:
    record = await handled(bus, raising(KeyError("price")))
    assert (record.status, record.error_code, record.error_message) == ("PENDING", "KeyError", "'price'")


async def test_a_handler_that_cancels_itself_has_failed_like_any_other(bus: EventBus) -> None:
    record = await handled(bus, raising(asyncio.CancelledError()))
    assert (record.status, record.error_code) == ("PENDING", "CancelledError")
    assert record.error_message == "the handler cancelled itself"


async def test_a_handler_that_times_out_inside_is_retried(bus: EventBus) -> None:
    async def slow(event: Envelope) -> None:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    record = await handled(bus, slow)
    assert (record.status, record.error_code) == ("PENDING", "TimeoutError")


async def test_a_long_message_is_cut_and_nul_characters_are_left_out(bus: EventBus) -> None:
    record = await handled(bus, raising(RuntimeError("a\0b" + "x" * 10_000)))
    assert record.error_message is not None
    assert record.error_message.startswith("abx")
    assert len(record.error_message) <= 4000


async def test_the_classify_hook_decides_first(bus: EventBus) -> None:
    record = await handled(bus, raising(RuntimeError("hopeless")), classify=lambda error: "dead")
    assert (record.status, record.error_code) == ("DEAD", "RuntimeError")


def _broken(error: BaseException) -> Any:
    raise KeyError("status")


@pytest.mark.parametrize("hook", [_broken, lambda error: "Dead"])
async def test_a_mistake_in_the_classify_hook_leaves_the_default(
    bus: EventBus, hook: Any, caplog: pytest.LogCaptureFixture
) -> None:
    record = await handled(bus, raising(RuntimeError("not now")), classify=hook)
    assert (record.status, record.error_code) == ("PENDING", "RuntimeError")
    assert "the function classify=" in caplog.text


async def test_the_last_attempt_decides(bus: EventBus) -> None:
    await handled(bus, raising(RuntimeError("once is enough")), retry=RetryPolicy(max_attempts=1))
    assert (await only_letter(bus)).error_message == "once is enough"


async def test_the_delay_is_that_of_the_policy_with_the_jitter_of_the_generator_given() -> None:
    policy = RetryPolicy(base=10, jitter=0.2)
    async with memory_bus(ManualClock()) as bus:
        record = await handled(bus, raising(RuntimeError("again")), retry=policy, rng=random.Random(7))
    assert record.next_retry_at is not None
    wait = (record.next_retry_at - record.created_at).total_seconds()
    assert wait == pytest.approx(policy.delay(1, random.Random(7)), abs=0.001)


@pytest.mark.parametrize("level", ["ERROR", "WARNING"])
async def test_every_line_about_an_event_says_which_it_is(
    bus: EventBus, caplog: pytest.LogCaptureFixture, level: str
) -> None:
    caplog.set_level("INFO", logger="kingdom.bus.worker")
    attempts = 1 if level == "ERROR" else 5
    record = await handled(bus, raising(RuntimeError("boom")), retry=RetryPolicy(base=1000, max_attempts=attempts))
    [line] = [item for item in caplog.records if item.levelname == level]
    assert f"event {record.envelope.event_id} of s" in line.getMessage()
    fields = line.__dict__
    assert {name: fields[name] for name in ("traceId", "eventId", "stream", "eventType", "attempt", "errorCode")} == {
        "traceId": record.envelope.trace_id,
        "eventId": record.envelope.event_id,
        "stream": "s",
        "eventType": "A",
        "attempt": 1,
        "errorCode": "RuntimeError",
    }
    assert {"aggregateType", "aggregateId"} <= set(fields)


async def test_the_log_shows_where_an_error_arose_at_the_first_attempt_and_the_last(
    bus: EventBus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="kingdom.bus.worker")
    await bus.publish("s", Envelope("A", event_id="e-1"))
    worker = worker_on(bus, "s", retry=RetryPolicy(base=0, max_attempts=3), signals=False)

    @worker.on("A")
    async def price(event: Envelope) -> None:
        if current_delivery().attempt == 3:
            worker.stop()
        event.payload["price"]

    await worker.run()
    lines = [(item.levelname, item.getMessage(), item.exc_info is not None) for item in caplog.records]
    assert lines == [
        ("WARNING", "event e-1 of s: attempt 1 failed, again in 0.00 s: KeyError: 'price'", True),
        ("INFO", "event e-1 of s: attempt 2 failed, again in 0.00 s: KeyError: 'price'", False),
        ("ERROR", "event e-1 of s is dead after attempt 3: KeyError: 'price'", True),
    ]
    assert 'event.payload["price"]' in caplog.text


@pytest.mark.parametrize(
    ("raised", "level", "message"),
    [
        (Retry("not yet"), "INFO", "event e-1 of s: attempt 1 failed, again in 1000.00 s: not yet"),
        (Reject("NOT_SOLD", "no dragons"), "ERROR", "event e-1 of s is dead after attempt 1: no dragons"),
    ],
)
async def test_what_a_handler_raises_on_purpose_is_logged_without_a_traceback(
    bus: EventBus, caplog: pytest.LogCaptureFixture, raised: Exception, level: str, message: str
) -> None:
    caplog.set_level("INFO", logger="kingdom.bus.worker")
    await handled(bus, raising(raised), event_id="e-1", retry=RetryPolicy(base=1000, cap=1000, jitter=0))
    assert [(item.levelname, item.getMessage(), item.exc_info) for item in caplog.records] == [(level, message, None)]


async def test_durations_are_counted_by_event_type(bus: EventBus) -> None:
    watched = WatchedBus(bus)
    worker = worker_on(watched, "s")
    worker.on("A")(raising(PermissionError("no")))
    await bus.publish("s", Envelope("A"))
    async with running(worker):
        await watched.returns("settle")
    assert worker.stats.processed == {"done": 0, "retry": 0, "dead": 1, "released": 0}
    assert sum(worker.stats.durations["A"].counts) == 1
