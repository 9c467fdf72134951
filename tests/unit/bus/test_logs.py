"""Structured logs: every line about an event carries the fields of the event."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, InvalidOption, Reject, Retry, Worker, connect, logs
from kingdom.bus.logs import EVENT_FIELDS, JsonFormatter, TextFormatter


class Lines(logging.Handler):
    """Collects lines as they would be written; ``until`` waits for one."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.texts: list[str] = []
        self._written = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(self.format(record))
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._written.set)

    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.texts]

    async def until(self, *parts: str) -> None:
        self._loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            while not any(all(part in text for part in parts) for text in self.texts):
                self._written.clear()
                await self._written.wait()


@pytest.fixture
def capture() -> Iterator[Callable[[logging.Formatter], Lines]]:
    """Attach handlers to the root logger for the length of a test."""
    root, attached = logging.getLogger(), []
    level = root.level
    root.setLevel(logging.INFO)

    def attach(formatter: logging.Formatter) -> Lines:
        lines = Lines(formatter)
        attached.append(lines)
        root.addHandler(lines)
        return lines

    yield attach
    root.setLevel(level)
    for lines in attached:
        root.removeHandler(lines)


def record(message: str, **extra: Any) -> logging.LogRecord:
    return logging.getLogger("shop").makeRecord("shop", logging.INFO, __file__, 1, message, (), None, extra=extra)


def test_a_line_is_one_json_object() -> None:
    line = JsonFormatter().format(record("two\nlines", color="red", stream="orders"))
    assert "\n" not in line
    document = json.loads(line)
    assert document.pop("ts").endswith("Z")
    assert document == {
        "level": "INFO",
        "logger": "shop",
        "message": "two\nlines",
        "color": "red",
        "stream": "orders",
    }


def test_what_is_no_json_becomes_text() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert json.loads(JsonFormatter().format(record("m", when={1, 2})))["when"] == "{1, 2}"
    assert json.loads(JsonFormatter().format(record("m", loop=endless)))["loop"] == "[[...]]"
    assert json.loads(JsonFormatter().format(record("m", keys={(1, 2): 3})))["keys"] == "{(1, 2): 3}"


def test_exceptions_and_stacks_are_text_in_the_same_line() -> None:
    one = record("failed")
    try:
        int("no number")
    except ValueError:
        one.exc_info = sys.exc_info()
    one.stack_info = "Stack (most recent call last):"
    line = JsonFormatter().format(one)
    assert "\n" not in line
    document = json.loads(line)
    assert document["exception"].endswith("base 10: 'no number'")
    assert document["stack"].startswith("Stack")
    assert TextFormatter().format(one).splitlines()[-2].endswith("base 10: 'no number'")


def test_an_extra_cannot_take_the_place_of_the_line_s_own_fields() -> None:
    document = json.loads(JsonFormatter().format(record("m", level="mine", logger="mine", ts="mine")))
    assert (document["level"], document["logger"]) == ("INFO", "shop")


async def test_every_line_a_worker_or_its_handlers_write_about_an_event_names_the_event(
    capture: Callable[[logging.Formatter], Lines],
) -> None:
    lines, texts = capture(JsonFormatter()), capture(TextFormatter())
    now = 1_000_000.0
    async with connect("memory:", clock=lambda: now) as bus:
        await bus.setup()
        worker = Worker(bus, "orders", lease=0.3, signals=False)
        events = {
            name: Envelope(type=name, aggregate_type="Order", aggregate_id=name, trace_id=f"trace-{name}")
            for name in ("Fine", "Plain", "Later", "Never", "LostAtTheEnd", "LostMeanwhile")
        }

        async def lose(bus: EventBus, event: Envelope) -> None:
            nonlocal now
            now += 60
            taken = await bus.claim("orders", worker="thief", limit=10, lease=3600)
            assert event.event_id in {delivery.event_id for delivery in taken}

        @worker.on("Fine")
        async def fine(event: Envelope) -> None:
            logging.getLogger("shop").info("a line of the handler's own")

        @worker.on("Plain")
        def plain(event: Envelope) -> None:
            logging.getLogger("shop").info("a line from a handler's thread")

        @worker.on("Later")
        async def later(event: Envelope) -> None:
            raise Retry("not yet", after=10_000)

        @worker.on("Never")
        async def never(event: Envelope) -> None:
            raise Reject("NEVER", "it cannot be")

        @worker.on("LostAtTheEnd")
        async def lost_at_the_end(event: Envelope) -> None:
            await lose(bus, event)

        @worker.on("LostMeanwhile")
        async def lost_meanwhile(event: Envelope) -> None:
            await lose(bus, event)
            await lines.until("lease lost while the event was held", event.event_id)

        said = {
            "Fine": "a line of the handler's own",
            "Plain": "a line from a handler's thread",
            "Later": "not yet",
            "Never": "it cannot be",
            "LostAtTheEnd": "lease lost before the verdict was written",
            "LostMeanwhile": "lease lost while the event was held",
        }
        running = asyncio.create_task(worker.run())
        for name, event in events.items():  # one after another: a stolen lease must not be another event's
            await bus.publish("orders", event)
            await lines.until(said[name], event.event_id)
        worker.stop()
        await running

    documents = [item for item in lines.documents() if item["logger"] in ("kingdom.bus.worker", "shop")]
    for name, event in events.items():
        (document,) = [item for item in documents if said[name] in item["message"] and item.get("eventType") == name]
        assert {field: document[field] for field in EVENT_FIELDS} == {
            "traceId": event.trace_id,
            "eventId": event.event_id,
            "stream": "orders",
            "eventType": name,
            "aggregateType": "Order",
            "aggregateId": name,
        }
        assert document["attempt"] == 1
        (text,) = [item for item in texts.texts if said[name] in item and f"eventType={name}" in item]
        assert f"eventId={event.event_id}" in text
        assert f"traceId={event.trace_id}" in text
    assert all(set(EVENT_FIELDS) <= set(document) for document in documents)


@pytest.fixture
def untouched_root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    # An example or a page that was run before may have configured logging in this process.
    root.handlers[:] = [handler for handler in handlers if type(handler).__module__ != logs.__name__]
    yield root
    root.handlers[:] = handlers
    root.setLevel(level)


def test_configure_may_be_called_again_and_leaves_others_alone(untouched_root: logging.Logger) -> None:
    others = list(untouched_root.handlers)
    first, second = io.StringIO(), io.StringIO()
    logs.configure(stream=first)
    logs.configure(stream=second, json=False, level="warning")
    assert len(untouched_root.handlers) == len(others) + 1
    logging.getLogger("shop").info("too quiet")
    logging.getLogger("shop").warning("heard", extra={"eventId": "e1"})
    assert first.getvalue() == ""
    assert second.getvalue().endswith("WARNING shop: heard  eventId=e1\n")
    logs.configure(stream=first)
    logging.getLogger("shop").info("again")
    assert json.loads(first.getvalue())["message"] == "again"


def test_configure_refuses_a_level_that_does_not_exist(untouched_root: logging.Logger) -> None:
    with pytest.raises(InvalidOption, match="LOUD"):
        logs.configure(level="LOUD")
