"""Asking for offsets: one thread, one consumer, one request for what is asked at the same time."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition

from kingdom.bus.transports.kafka import _offsets
from kingdom.bus.transports.kafka._offsets import OffsetReader, delete_before


class FakeConsumer:
    """Knows the topic ``good``; a call for ``bad`` fails as a whole, and ``gone`` has no leader."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.threads: set[int] = set()
        self.is_closed = False
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.asked = threading.Event()

    def offsets_for_times(self, wanted: list[TopicPartition], timeout: float) -> list[Any]:
        self.threads.add(threading.get_ident())
        self.asked.set()
        assert self.may_answer.wait(30)
        topics = sorted(place.topic for place in wanted)
        self.calls.append(topics)
        if "bad" in topics:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        for place in wanted:
            if place.topic != "gone":
                place.offset = 7 if place.offset == OFFSET_END else 3
        return wanted

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.is_closed = True


async def test_what_is_asked_while_a_call_is_under_way_goes_in_one_request() -> None:
    consumer = FakeConsumer()
    reader = OffsetReader(lambda: consumer, 15.0)
    consumer.may_answer.clear()
    first = asyncio.create_task(reader.end([("good", 0)]))
    await asyncio.to_thread(consumer.asked.wait, 30)
    others = [asyncio.create_task(reader.end([("good", 0), ("good", number)])) for number in range(1, 5)]
    await asyncio.sleep(0)
    consumer.may_answer.set()

    assert await first == [7]
    assert await asyncio.gather(*others) == [[7, 7]] * 4
    assert [len(topics) for topics in consumer.calls] == [1, 5]
    await reader.close()


async def test_first_and_next_offsets_are_asked_for_apart() -> None:
    consumer = FakeConsumer()
    reader = OffsetReader(lambda: consumer, 15.0)

    end, first = await asyncio.gather(reader.end([("good", 0)]), reader.first([("good", 0)]))
    assert (end, first) == ([7], [3])
    await reader.close()


async def test_a_failure_reaches_only_those_who_asked_for_what_failed() -> None:
    consumer = FakeConsumer()
    reader = OffsetReader(lambda: consumer, 15.0)
    consumer.may_answer.clear()
    tasks = [asyncio.create_task(reader.end([("good", 1)]))]
    await asyncio.to_thread(consumer.asked.wait, 30)
    tasks += [asyncio.create_task(reader.end([(topic, 0)])) for topic in ("bad", "good", "gone")]
    await asyncio.sleep(0)
    consumer.may_answer.set()
    one, bad, good, gone = await asyncio.gather(*tasks, return_exceptions=True)

    assert one == good == [7]
    assert isinstance(bad, KafkaException)
    assert bad.args[0].code() == KafkaError._TIMED_OUT
    assert isinstance(gone, KafkaException)
    assert gone.args[0].code() == KafkaError.LEADER_NOT_AVAILABLE
    await reader.close()


async def test_the_consumer_is_used_and_closed_by_one_thread() -> None:
    consumer = FakeConsumer()
    reader = OffsetReader(lambda: consumer, 15.0)
    await reader.end([("good", 0)])
    await reader.close()

    assert consumer.is_closed
    assert len(consumer.threads) == 1
    assert threading.get_ident() not in consumer.threads


async def test_a_renewed_reader_asks_with_another_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_offsets, "_RENEW_SECONDS", 0.0)
    made: list[FakeConsumer] = []

    def make() -> FakeConsumer:
        made.append(FakeConsumer())
        return made[-1]

    reader = OffsetReader(make, 15.0)
    await reader.end([("good", 0)])
    reader.renew()
    assert await reader.end([("good", 0)]) == [7]

    old, new = made
    assert old.is_closed
    assert (len(old.calls), len(new.calls)) == (1, 1)
    await reader.close()


async def test_a_consumer_that_cannot_be_made_is_a_failure_of_the_question() -> None:
    def make() -> FakeConsumer:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    reader = OffsetReader(make, 15.0)
    for _ in range(2):
        with pytest.raises(KafkaException):
            await reader.end([("good", 0)])
    await reader.close()


def test_records_are_not_deleted_while_a_partition_has_no_leader() -> None:
    class Admin:
        def list_topics(self, topic: str, timeout: float) -> Any:
            partition = type("Partition", (), {"leader": -1})
            described = type("Topic", (), {"partitions": {0: partition}})
            return type("Cluster", (), {"topics": {topic: described}, "brokers": {1: "broker"}})

    with pytest.raises(KafkaException) as raised:  # and delete_records, which this client does not have, is not called
        delete_before(Admin(), {"orders": 5}, 0, 1.0)
    assert raised.value.args[0].code() == KafkaError.LEADER_NOT_AVAILABLE
