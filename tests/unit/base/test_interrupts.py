"""Ctrl-C ends a coroutine, wherever the program is when it comes."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from kingdom.base import interrupts
from kingdom.bus.worker import on_stop_signal


@pytest.fixture(autouse=True)
def plain_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_a_coroutine_returns_comes_back_and_the_handler_is_restored() -> None:
    async def main() -> int:
        assert isinstance(signal.getsignal(signal.SIGINT), interrupts.InterruptHandler)
        return 3

    assert interrupts.run(main()) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interruption_before_a_result_is_set_is_quiet() -> None:
    problems: list[dict[str, Any]] = []
    cleaned = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, problem: problems.append(problem))
        waited: asyncio.Future[int] = loop.create_future()

        def set_result() -> None:
            if not waited.cancelled():
                signal.raise_signal(signal.SIGINT)
                waited.set_result(1)

        loop.call_soon(set_result)
        try:
            await waited
            await asyncio.Event().wait()
        finally:
            cleaned.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupts.run(main())
    assert (problems, cleaned) == ([], [True])


def test_a_second_interruption_does_not_wait() -> None:
    async def main() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        pytest.fail("it went on")

    with pytest.raises(KeyboardInterrupt):
        interrupts.run(main())


def test_what_cancels_itself_is_no_interruption() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        interrupts.run(main())


def test_a_handler_of_the_application_stays() -> None:
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: heard.append(number))

    async def main() -> None:
        signal.raise_signal(signal.SIGINT)

    interrupts.run(main())
    assert heard == [signal.SIGINT]


def test_a_worker_is_drained_all_the_same() -> None:
    async def main() -> None:
        stopped = asyncio.Event()
        undo = on_stop_signal(stopped.set)
        signal.raise_signal(signal.SIGINT)
        await stopped.wait()
        undo()

    interrupts.run(main())
