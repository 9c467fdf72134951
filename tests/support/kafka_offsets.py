"""Asks for offsets of topics that a client does not know yet, or deletes records in them.

``python -m tests.support.kafka_offsets URL ask|delete``
"""

from __future__ import annotations

import asyncio
import sys

from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.kafka._clients import KafkaClients, ProducedRecord
from kingdom.bus.transports.kafka._settings import Settings

_ROUNDS = 5
_SHARDS = 4


async def main(url: str, what: str) -> None:
    url, _, query = url.partition("?")
    settings = Settings.parse(url, TransportOptions(query=dict([query.split("=")])))
    writer = KafkaClients(settings)
    await writer.open()
    for number in range(_ROUNDS):
        clients = KafkaClients(settings)
        await clients.open()
        places = await _written(writer, [f"{settings.prefix}{number}.{letter}" for letter in "abcd"])
        if what == "ask":
            ends = await asyncio.gather(*(clients.end_offsets([place]) for place in places))
            assert ends == [[2]] * len(places)
        else:
            await asyncio.gather(*(clients.delete_before({topic: 1}, shard) for topic, shard in places))
            assert await writer.first_offsets(places) == [1] * len(places)
        await clients.close()
    await writer.close()
    print("done")


async def _written(writer: KafkaClients, topics: list[str]) -> list[tuple[str, int]]:
    await writer.create_topics({topic: {} for topic in topics}, _SHARDS)
    await writer.until_known(topics)
    places = [(topic, shard) for topic in topics for shard in range(_SHARDS)]
    records = [ProducedRecord(None, b"one"), ProducedRecord(None, b"two")]
    await asyncio.gather(*(writer.produce(topic, records, None, shard) for topic, shard in places))
    return places


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
