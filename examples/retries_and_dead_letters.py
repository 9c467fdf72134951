"""Retries and dead letters: ``python -m examples.retries_and_dead_letters [URL]``.

A time-out is retried with a growing delay, a rejected event is dead at once, and an operator requeues it.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from kingdom.bus import Depth, Envelope, EventBus, Reject, RetryPolicy, Worker, connect, current_delivery

STREAM = "payments"


async def work(bus: EventBus, *, card_is_valid: bool) -> None:
    """Handle events until each one is done or dead."""
    policy = RetryPolicy(base=0.05, factor=2, max_attempts=3)
    worker = Worker(bus, STREAM, name="cashier", concurrency=1, poll=0.2, retry=policy)

    @worker.on("Charge")
    async def charge(event: Envelope) -> None:
        attempt, case = current_delivery().attempt, event.payload["case"]
        print(f"  {case}, attempt {attempt}")
        if case == "slow bank" and attempt < 3:
            raise TimeoutError("no answer from the bank")  # a network error: retried
        if case == "bad card" and not card_is_valid:
            raise Reject("CARD_REFUSED", "the card is not valid")  # can never succeed: DEAD at once

    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        while (await bus.depth()).get(STREAM, Depth())[:2] != (0, 0):  # noqa: ASYNC110 - pending and processing
            await asyncio.sleep(0.05)
        worker.stop()


async def main(url: str) -> None:
    """Let two payments fail in two ways, then requeue the dead one."""
    async with connect(url) as bus:
        await bus.setup()
        await bus.publish(
            STREAM, [Envelope(type="Charge", payload={"case": case}) for case in ("slow bank", "bad card")]
        )
        await work(bus, card_is_valid=False)
        for letter in await bus.dead(STREAM):
            print(f"dead: {letter.envelope.payload['case']} ({letter.error_code}: {letter.error_message})")
        print("requeued:", await bus.requeue(STREAM, error_code="CARD_REFUSED"))
        await work(bus, card_is_valid=True)
        print("dead now:", len(await bus.dead(STREAM)))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"sqlite://{folder}/bus.db"))
