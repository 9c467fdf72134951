"""Offsets of partitions: asks brokers for them, and deletes the records before them.

Two calls of the client for administration can end the process: ``list_offsets`` and ``delete_records``. librdkafka
(seen in 2.16) looks for the leaders of the partitions in the thread of the caller, and goes on using the request
after its own thread may have freed it: when metadata arrive at that moment, the process ends with a segmentation
fault. So offsets are asked for with a consumer that reads nothing: its calls wait for the leaders and share nothing
between threads. Records are deleted with a client that does nothing else and knows the leaders already.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

Place = tuple[str, int]  # a topic and a partition
_CALL_SECONDS: Final = 5.0
_EACH_SECONDS: Final = 1.0  # of a call for one, after a call for several has failed
_RENEW_SECONDS: Final = 1.0  # that a consumer is used at least
_CLOSE_SECONDS: Final = 1.0  # that closing waits for a call under way


class _Question(NamedTuple):
    """Somebody waits for offsets."""

    which: int  # OFFSET_BEGINNING or OFFSET_END
    places: Sequence[Place]
    answer: asyncio.Future[list[int]]


class OffsetReader:
    """Asks for the first or the next offsets of partitions. What is asked at the same time goes in one request."""

    def __init__(self, new_consumer: Callable[[], Any], timeout: float) -> None:
        self._new_consumer = new_consumer  # called in the thread
        self._timeout = min(_CALL_SECONDS, timeout)
        self._questions: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stale = threading.Event()

    async def first(self, places: Sequence[Place]) -> list[int]:
        """Return the first offset of each partition that was not deleted, or raise ``KafkaException``."""
        return await self._ask(OFFSET_BEGINNING, places)

    async def end(self, places: Sequence[Place]) -> list[int]:
        """Return the offset that the next record of each partition will have, or raise ``KafkaException``."""
        return await self._ask(OFFSET_END, places)

    def renew(self) -> None:
        """Use another consumer: one may go on asking with a leader epoch from before a broker's restart."""
        self._stale.set()

    async def close(self) -> None:
        """Let the thread close its consumer when it has answered what was asked before. Nothing may be asked after."""
        self._questions.put(None)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, _CLOSE_SECONDS)

    async def _ask(self, which: int, places: Sequence[Place]) -> list[int]:
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._run, name="kingdom-kafka-offsets", daemon=True)
            self._thread.start()
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._questions.put(_Question(which, places, answer))
        return await answer

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        consumer: Any = None
        made, is_open = 0.0, True
        while is_open:
            questions, is_open = self._taken()
            try:
                if consumer is not None and self._stale.is_set() and time.monotonic() - made > _RENEW_SECONDS:
                    stale, consumer = consumer, None
                    stale.close()
                if consumer is None:
                    self._stale.clear()
                    consumer, made = self._new_consumer(), time.monotonic()
            except KafkaException as error:
                for question in questions:
                    self._tell(question, error)
                continue
            for which in (OFFSET_BEGINNING, OFFSET_END):
                theirs = [question for question in questions if question.which == which]
                self._answer(consumer, which, theirs, self._timeout)
        if consumer is not None:
            consumer.close()

    def _taken(self) -> tuple[list[_Question], bool]:
        """Wait for a question; return all that were asked, and whether more may follow."""
        asked = [self._questions.get()]
        with contextlib.suppress(queue.Empty):
            while asked[-1] is not None:
                asked.append(self._questions.get_nowait())
        return [question for question in asked if question is not None], asked[-1] is not None

    def _answer(self, consumer: Any, which: int, questions: list[_Question], timeout: float) -> None:
        if not questions:
            return
        # As times these two stand for the first and the next offset, in the protocol as in librdkafka.
        places = {place for question in questions for place in question.places}
        wanted = [TopicPartition(topic, partition, which) for topic, partition in places]
        try:
            found = consumer.offsets_for_times(wanted, timeout=timeout)
        except KafkaException as error:
            if len(questions) == 1:
                self._tell(questions[0], error)
                return
            for question in questions:  # the partitions of one do not keep the others from an answer
                self._answer(consumer, which, [question], min(_EACH_SECONDS, timeout))
            return
        known = {(place.topic, place.partition): _outcome(place) for place in found}
        for question in questions:
            outcomes = [known[place] for place in question.places]
            errors = [outcome for outcome in outcomes if isinstance(outcome, KafkaException)]
            self._tell(question, errors[0] if errors else outcomes)

    def _tell(self, question: _Question, outcome: Any) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(_resolve, question.answer, outcome)


def _outcome(place: TopicPartition) -> int | KafkaException:
    if place.error is not None:
        return KafkaException(place.error)
    if place.offset < 0:  # the leader does not know yet
        return KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    return place.offset


def _resolve(answer: asyncio.Future[list[int]], outcome: Any) -> None:
    if answer.done():
        return
    if isinstance(outcome, KafkaException):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)


def delete_before(admin: Any, offsets: Mapping[str, int], partition: int, timeout: float) -> None:
    """Delete the records in a partition of topics before an offset each, or raise ``KafkaException``.

    ``admin`` must be new and used by nobody else: no metadata may arrive that were not waited for here.
    """
    wanted: list[TopicPartition] = []
    for topic, offset in offsets.items():
        known = admin.list_topics(topic, timeout=timeout)
        described = known.topics[topic].partitions.get(partition)
        if described is None or described.leader not in known.brokers:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
        wanted.append(TopicPartition(topic, partition, offset))
    futures = admin.delete_records(wanted, request_timeout=timeout).values() if wanted else ()
    for error in [future.exception() for future in futures]:  # of all: until then the client is needed
        if error is not None:
            raise error
