"""Events of one account in order, several accounts in parallel. ``python -m examples.ordered_stream [URL]``.

The second event of account A fails once. The next event of A waits for the retry; account B does not.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile

from kingdom.bus import Envelope, Retry, Worker, connect, current_delivery

STREAM = "accounts"
STEPS = [("A", "open"), ("A", "deposit"), ("A", "close"), ("B", "open"), ("B", "deposit"), ("B", "close")]


async def main(url: str) -> None:
    """Publish the steps of two accounts, handle them, print the order of each."""
    async with connect(url) as bus:
        await bus.setup()
        await bus.declare(STREAM, ordered=True, dead_head="park")
        await bus.publish(
            STREAM,
            [
                Envelope(type="AccountStep", payload={"step": step}, aggregate_type="Account", aggregate_id=account)
                for account, step in STEPS
            ],
        )
        done: list[tuple[str | None, str]] = []
        worker = Worker(bus, STREAM, name="ledger")

        @worker.on("AccountStep")
        async def apply(event: Envelope) -> None:
            account, step = event.aggregate_id, event.payload["step"]
            if (account, step) == ("A", "deposit") and current_delivery().attempt == 1:
                print("account A: the deposit fails once and is retried")
                raise Retry("the ledger was busy", after=0.2)
            done.append((account, step))
            if len(done) == len(STEPS):
                worker.stop()

        await worker.run()
        for account in ("A", "B"):
            print(f"account {account}:", [step for owner, step in done if owner == account])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"sqlite://{folder}/bus.db"))
