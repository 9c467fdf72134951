"""A worker of the campaign: ``python -m tests.chaos.worker --url …``. Ends when killed, or drains on SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import signal

from kingdom.bus import Envelope, Retry, RetryPolicy, Worker, connect, current_delivery
from kingdom.bus.eventbus import EventBus
from tests.chaos.effects import Leave, effect_of
from tests.chaos.processes import READY, die_with_parent, say

# Kills and outages count as attempts; the campaign asks that nothing is lost, not how often it was tried.
POLICY = RetryPolicy(base=0.05, factor=1.5, cap=0.5, max_attempts=100_000)


def main() -> None:
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--lease", type=float, required=True)
    parser.add_argument("--hold", type=float, default=0.0, help="say 'holding', then hold each event so many seconds")
    parser.add_argument("--streams", nargs="+", required=True)
    options = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    asyncio.run(work(options))


async def work(options: argparse.Namespace) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell_tasks)
    async with connect(options.url) as bus:
        leave = effect_of(options.url, options.name)
        workers = [make_worker(bus, stream, options, leave) for stream in options.streams]
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        await asyncio.sleep(0)  # until each has begun: from then on SIGTERM drains, and does not kill
        say(READY)
        await asyncio.gather(*running)
        say("drained")


def tell_tasks() -> None:
    """Print where each task waits, for whoever asks why this process does not end."""
    for task in asyncio.all_tasks():
        task.print_stack()


def make_worker(bus: EventBus, stream: str, options: argparse.Namespace, leave: Leave) -> Worker:
    worker = Worker(
        bus, stream, name=options.name, concurrency=4, batch=20, lease=options.lease, poll=0.2, grace=20, retry=POLICY
    )
    rng = random.Random()

    @worker.on("Plain", "Stumbling")
    async def handle(event: Envelope) -> None:
        if event.type == "Stumbling" and current_delivery().attempt == 1:
            raise Retry("the first attempt of this type always fails", after=0.02)
        if options.hold:
            say("holding", event.event_id)
            await asyncio.sleep(options.hold)
        await asyncio.sleep(rng.uniform(0, 0.008))  # so that kills find handlers half way
        await leave(event)
        await asyncio.sleep(rng.uniform(0, 0.004))  # and between the effect and the verdict

    return worker


if __name__ == "__main__":
    main()
