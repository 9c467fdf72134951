from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from kingdom.bus import Delivery, Dispatcher, Envelope, InvalidOption, Reject, current_delivery
from kingdom.bus.handlers import current_delivery_var


async def test_an_event_goes_to_the_handler_of_its_type() -> None:
    dispatcher, seen = Dispatcher(), []

    @dispatcher.on("A", "B")
    async def first(event: Envelope) -> None:
        seen.append(("first", event.type))

    @dispatcher.on("C")
    async def second(event: Envelope) -> None:
        seen.append(("second", event.type))

    for event_type in ("C", "A", "B"):
        await dispatcher.dispatch(Envelope(event_type))
    assert seen == [("second", "C"), ("first", "A"), ("first", "B")]


async def test_a_star_takes_what_nobody_else_does() -> None:
    dispatcher, seen = Dispatcher(), []
    dispatcher.on("A")(lambda event: seen.append("its own"))
    dispatcher.on("*")(lambda event: seen.append("the star"))
    await dispatcher.dispatch(Envelope("A"))
    await dispatcher.dispatch(Envelope("B"))
    assert seen == ["its own", "the star"]


async def test_an_event_without_a_handler_is_rejected() -> None:
    with pytest.raises(Reject, match="no handler is registered for 'A'") as rejected:
        await Dispatcher().dispatch(Envelope("A"))
    assert rejected.value.code == "NO_HANDLER"


def test_the_types_asked_for_are_those_with_handlers() -> None:
    dispatcher = Dispatcher()
    assert dispatcher.types == []
    dispatcher.on("B", "A")(print)
    assert dispatcher.types == ["B", "A"]
    dispatcher.on("*")(print)
    assert dispatcher.types is None


def no_argument() -> None: ...


async def two_arguments(self: object, event: Envelope) -> None: ...


def generator(event: Envelope) -> Iterator[None]:
    yield


async def async_generator(event: Envelope) -> AsyncIterator[None]:
    yield


class GeneratingObject:
    async def __call__(self, event: Envelope) -> AsyncIterator[None]:
        yield


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ("accept", "a handler is a function that takes the event, not 'accept'"),
        (no_argument, r"handler no_argument\(\).* must take one argument, the event"),
        (two_arguments, r"handler two_arguments\(self: .*, event: .*must take one argument, the event"),
        (generator, "handler generator is a generator, so calling it runs nothing of it"),
        (async_generator, "handler async_generator is a generator, so calling it runs nothing of it"),
        (partial(async_generator), "is a generator, so calling it runs nothing of it"),
        (GeneratingObject(), "is a generator, so calling it runs nothing of it"),
    ],
)
def test_a_handler_that_could_not_work_is_refused_where_it_is_registered(handler: Any, message: str) -> None:
    dispatcher = Dispatcher()
    with pytest.raises(InvalidOption, match=message):
        dispatcher.on("A")(handler)
    assert dispatcher.types == []


@pytest.mark.parametrize(
    "handler",
    [print, max, partial(two_arguments, None), lambda event, deep=False: None, lambda *args: None, AsyncMock(), Mock()],
)
def test_whatever_can_be_called_with_an_event_is_a_handler(handler: Any) -> None:
    assert Dispatcher().on("A")(handler) is handler


def test_a_handler_stays_the_function_it_was() -> None:
    def handle(event: Envelope) -> None: ...

    assert Dispatcher().on("A")(handle) is handle


def test_a_second_handler_for_a_type_is_refused() -> None:
    dispatcher = Dispatcher()
    dispatcher.on("A")(print)
    with pytest.raises(InvalidOption, match="event type 'A' already has a handler here"):
        dispatcher.on("A")(print)


@pytest.mark.parametrize("types", [(), ("",), (7,), (print,)])
def test_a_handler_without_types_is_refused_and_shown_how(types: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidOption, match=r"@worker\.on\('OrderAccepted'\)"):
        Dispatcher().on(*types)


class AsyncCallable:
    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    async def __call__(self, event: Envelope) -> None:
        self.threads.append(threading.current_thread())


async def test_coroutines_run_in_the_loop_and_functions_in_threads() -> None:
    dispatcher, places, instance = Dispatcher(), {}, AsyncCallable()

    @dispatcher.on("async")
    async def in_loop(event: Envelope) -> None:
        places["async"] = threading.current_thread()

    @dispatcher.on("sync")
    def in_thread(event: Envelope) -> None:
        places["sync"] = threading.current_thread()

    async def with_argument(wanted: str, event: Envelope) -> None:
        places[wanted] = threading.current_thread()

    dispatcher.on("partial")(partial(with_argument, "partial"))
    dispatcher.on("instance")(instance)
    with ThreadPoolExecutor(1, thread_name_prefix="handlers") as executor:
        for event_type in ("async", "sync", "partial", "instance"):
            await dispatcher.dispatch(Envelope(event_type), executor)
    main = threading.current_thread()
    assert (places["async"], places["partial"], instance.threads) == (main, main, [main])
    assert places["sync"].name.startswith("handlers")


async def test_a_plain_function_that_returns_a_coroutine_has_it_awaited() -> None:
    dispatcher, seen = Dispatcher(), []

    async def later(event: Envelope) -> None:
        await asyncio.sleep(0)
        seen.append(event.type)

    dispatcher.on("A")(lambda event: later(event))
    await dispatcher.dispatch(Envelope("A"))
    assert seen == ["A"]


async def test_what_a_handler_raises_comes_out() -> None:
    dispatcher = Dispatcher()

    @dispatcher.on("A")
    def fail(event: Envelope) -> None:
        raise ZeroDivisionError(event.event_id)

    with pytest.raises(ZeroDivisionError, match="e-1"):
        await dispatcher.dispatch(Envelope("A", event_id="e-1"))


async def test_the_current_delivery_is_known_in_threads_too() -> None:
    dispatcher, seen = Dispatcher(), []
    dispatcher.on("A")(lambda event: seen.append(current_delivery()))
    delivery = Delivery("s", Envelope("A"), 3, "token", "worker")
    mark = current_delivery_var.set(delivery)
    try:
        await dispatcher.dispatch(delivery.envelope)
    finally:
        current_delivery_var.reset(mark)
    assert seen == [delivery]


def test_outside_a_handler_there_is_no_current_delivery() -> None:
    with pytest.raises(LookupError, match="for use inside a handler"):
        current_delivery()
