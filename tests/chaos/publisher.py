"""The publisher of the campaign: ``python -m tests.chaos.publisher --url …``.

Event ids and the cut into calls follow from the round's number and seed, so that a restarted publisher says the same
again. What it promised (``publish`` returned) it writes down, one line per call; on a restart it goes back a few calls
and publishes them once more, which must change nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

from kingdom.bus import Envelope, StorageFull, TransportUnavailable, connect
from kingdom.bus.eventbus import EventBus
from tests.chaos.processes import READY, die_with_parent, say

PLAIN, ORDERED = "chaos.plain", "chaos.ordered"
AGGREGATES = 4
_OVERLAP = 3  # calls said again after a restart
_MOST_CALLS = 20_000  # a round that nobody ends, ends


def main() -> None:
    die_with_parent()
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--round", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--acks", type=Path, required=True)
    options = parser.parse_args()
    asyncio.run(publish_until_told(options))


async def publish_until_told(options: argparse.Namespace) -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    promised = read_promises(options.acks)
    done = {event_id for ids in promised for event_id in ids}
    handle = os.open(options.acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    pause = random.Random()
    async with connect(options.url) as bus:
        say(READY)
        for number, (stream, envelopes) in enumerate(calls(options.round, options.seed)):
            if told.is_set() or number == _MOST_CALLS:
                break
            if number < len(promised) - _OVERLAP:
                continue
            accepted = await publish(bus, stream, envelopes)
            if again := done.intersection(accepted):
                raise SystemExit(f"accepted a second time, though published before: {sorted(again)}")
            if number >= len(promised):
                os.write(handle, (" ".join(item.event_id for item in envelopes) + "\n").encode())
            await asyncio.sleep(pause.uniform(0, 0.02))


async def publish(bus: EventBus, stream: str, envelopes: list[Envelope]) -> list[str]:
    """Publish, and when the store is away, say the same again until it is back."""
    for _ in range(100):
        try:
            return await bus.publish(stream, envelopes)
        except (TransportUnavailable, StorageFull) as error:
            say("trouble", repr(error))
            await asyncio.sleep(0.1)
    raise SystemExit("the store stayed away for a hundred tries")


def calls(round_number: int, seed: int) -> Iterator[tuple[str, list[Envelope]]]:
    """The calls of one round, without end: the same for the same round and seed."""
    rng = random.Random(f"{seed}/{round_number}")
    counts = {PLAIN: 0, ORDERED: 0}
    while True:
        stream = rng.choice((PLAIN, PLAIN, ORDERED))
        envelopes = []
        for _ in range(rng.choice((1, 1, 2, 5, 12))):
            counts[stream] += 1
            envelopes.append(envelope(round_number, stream, counts[stream], stumbling=rng.random() < 0.1))
        yield stream, envelopes


def envelope(round_number: int, stream: str, number: int, *, stumbling: bool) -> Envelope:
    aggregate = f"r{round_number}-{number % AGGREGATES}" if stream == ORDERED else None
    return Envelope(
        type="Stumbling" if stumbling else "Plain",
        payload={"number": number, "filling": "x" * 200},
        aggregate_type="Chaos" if aggregate else None,
        aggregate_id=aggregate,
        event_id=f"r{round_number:03d}-{stream.partition('.')[2]}-{number:06d}",
    )


def read_promises(path: Path) -> list[list[str]]:
    """The ids of each call that returned; a line cut short by a kill promised nothing."""
    text = path.read_text() if path.exists() else ""
    whole, _, _ = text.rpartition("\n")
    return [line.split() for line in whole.splitlines()]


if __name__ == "__main__":
    main()
