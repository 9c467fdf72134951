"""Workers as real processes, stopped by real signals."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from kingdom.bus import Envelope, connect

PROGRAM = """
import asyncio, sys
from pathlib import Path
from kingdom.bus import Worker, connect

url, folder, how = sys.argv[1], Path(sys.argv[2]), sys.argv[3]

async def main():
    async with connect(url) as bus:
        workers = [
            Worker(bus, "work", name=f"w{n}", concurrency=1, batch=1, lease=30, grace=0.2 if how == "stuck" else 30)
            for n in range(2)
        ]
        for worker in workers:
            @worker.on("Step")
            async def step(event):
                (folder / f"started-{event.payload['n']}").touch()
                while not (folder / "go").exists():
                    await asyncio.sleep(0.01)
                (folder / f"finished-{event.payload['n']}").touch()
        await asyncio.gather(*(worker.run() for worker in workers))
    print("clean end", flush=True)

asyncio.run(main())
"""


async def until(condition: object, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_running_handlers_finish_and_releases_the_rest(
    bus_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    async with connect(bus_url) as bus:
        await bus.setup()
        await bus.publish("work", [Envelope(type="Step", payload={"n": n}) for n in range(10)])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, bus_url, str(tmp_path), "polite", stdout=asyncio.subprocess.PIPE
        )
        await until(lambda: len(list(tmp_path.glob("started-*"))) == 2)  # both workers hold one
        process.send_signal(number)
        (tmp_path / "go").touch()
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        assert (process.returncode, output) == (0, b"clean end\n")
        finished = len(list(tmp_path.glob("finished-*")))
        assert finished == len(list(tmp_path.glob("started-*")))
        depth = (await bus.depth())["work"]
        assert (depth.pending, depth.processing) == (10 - finished, 0)
        left = await bus.claim("work", worker="next", limit=10)
        assert [delivery.attempt for delivery in left] == [1] * len(left), "a release does not count as an attempt"


async def test_what_outlives_the_grace_is_released_unharmed(bus_url: str, tmp_path: Path) -> None:
    async with connect(bus_url) as bus:
        await bus.setup()
        await bus.publish("work", [Envelope(type="Step", payload={"n": n}) for n in range(4)])
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, bus_url, str(tmp_path), "stuck", stdout=asyncio.subprocess.PIPE
        )
        await until(lambda: len(list(tmp_path.glob("started-*"))) == 2)
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.wait_for(process.communicate(), 30)
        assert (process.returncode, output) == (0, b"clean end\n")
        claimed = await bus.claim("work", worker="next", limit=10)
        assert sorted(delivery.envelope.payload["n"] for delivery in claimed) == [0, 1, 2, 3]
        assert {delivery.attempt for delivery in claimed} == {1}


POISON = """
import asyncio, os, signal, sys
from kingdom.bus import RetryPolicy, Worker, connect

async def main():
    async with connect(sys.argv[1]) as bus:
        worker = Worker(bus, "work", lease=float(sys.argv[2]), poll=0.05, retry=RetryPolicy(max_attempts=3))

        @worker.on("Poison")
        async def die(event):
            os.kill(os.getpid(), signal.SIGKILL)

        @worker.on("Harmless")
        async def live(event):
            await asyncio.sleep(0)

        await worker.run()

asyncio.run(main())
"""


async def test_an_event_that_kills_its_worker_each_time_ends_dead_and_takes_nobody_with_it(bus_url: str) -> None:
    poison = Envelope(type="Poison")
    others = [Envelope(type="Harmless", payload={"n": n}) for n in range(20)]
    async with connect(bus_url) as bus:
        await bus.setup()
        await bus.publish("work", poison, others)
        for _ in range(3):
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", POISON, bus_url, "0.3")
            assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
            # The next one must meet it first: one that has begun with others would take those along.
            async with asyncio.timeout(60):
                while (await bus.depth())["work"].processing:
                    await asyncio.sleep(0.02)
        # It lives, and a busy machine must not cost it the lease of what it does.
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", POISON, bus_url, "30")

        async def settled() -> bool:
            depth = (await bus.depth())["work"]
            return (depth.pending, depth.processing, depth.dead) == (0, 0, 1)

        async with asyncio.timeout(60):
            while not await settled():
                await asyncio.sleep(0.02)
        process.terminate()
        await asyncio.wait_for(process.wait(), 30)
        [letter] = await bus.dead("work")
        assert (letter.event_id, letter.error_code, letter.attempts) == (poison.event_id, "LEASE_EXPIRED", 3)
        for other in others:
            record = await bus.find(other.event_id)
            assert record is not None
            assert (record.status, record.attempts) == ("DONE", 1)
