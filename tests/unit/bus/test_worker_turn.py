from __future__ import annotations

import asyncio

from kingdom.bus import Envelope, Worker, connect
from kingdom.bus.worker_loops import LoopTurn


async def test_handlers_that_never_wait_let_the_loop_run() -> None:
    longest = 0
    async with connect("memory:") as bus:
        await bus.setup()
        await bus.publish("s", [Envelope(type="T") for _ in range(1000)])
        worker = Worker(bus, "s", batch=500, concurrency=4, signals=False)
        ended = since = 0

        @worker.on("T")
        async def handle(event: Envelope) -> None:
            nonlocal ended, since
            ended, since = ended + 1, since + 1
            if ended == 1000:
                worker.stop()

        running = asyncio.create_task(worker.run())
        while not running.done():
            await asyncio.sleep(0)
            longest, since = max(longest, since), 0
        await running
    assert ended == 1000
    assert 0 < longest <= 32 + 4  # the turn, and what the other handlers had begun


async def test_a_burst_of_the_next_turn_is_counted_anew() -> None:
    turn = LoopTurn()
    assert [turn.is_over() for _ in range(33)] == [False] * 31 + [True, True]
    await asyncio.sleep(0)
    assert not turn.is_over()
