"""Follows topics: one consumer in a thread of its own, which hands messages to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from kingdom.bus.transports.kafka._clients import CLIENT_LOG, CONSUMER, log
from kingdom.bus.transports.kafka._settings import Settings

_POLL_SECONDS: Final = 0.02  # also how long a topic waits to be added
_BATCH: Final = 2000
_MAX_UNREAD: Final = 20_000  # messages that the event loop has not come to

OnMessages = Callable[[str, list[Any]], None]  # of a topic


class TopicReader:
    """Calls a function in the event loop with the messages of each topic that is followed, in order."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._listeners: dict[tuple[str, int], OnMessages] = {}
        self._commands: deque[Callable[[Any], None]] = deque()
        self._stopping = threading.Event()
        self._handed_over = 0  # counted by the thread
        self._seen = 0  # counted by the event loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="kingdom-kafka-reader", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            thread, self._thread = self._thread, None
            await asyncio.to_thread(thread.join)

    def follow(self, starts: Sequence[tuple[str, int]], listener: OnMessages, partition: int = 0) -> None:
        """Read a partition of topics from an offset on."""

        def command(consumer: Any) -> None:
            for topic, _ in starts:
                with contextlib.suppress(Exception):  # it would learn where the topic is by itself, later
                    consumer.list_topics(topic, timeout=1.0)
            consumer.incremental_assign([TopicPartition(topic, partition, offset) for topic, offset in starts])
            # After what was read before: a partition may have been left and followed again, from another offset.
            self._call(self._listeners.update, dict.fromkeys(((topic, partition) for topic, _ in starts), listener))

        self._commands.append(command)

    def leave(self, topics: Sequence[str], partition: int = 0) -> None:
        """Stop reading a partition of topics."""

        def forget() -> None:
            for topic in topics:
                self._listeners.pop((topic, partition), None)

        def command(consumer: Any) -> None:
            with contextlib.suppress(KafkaException):  # it was left before
                consumer.incremental_unassign([TopicPartition(topic, partition) for topic in topics])
            self._call(forget)

        forget()
        self._commands.append(command)

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        # librdkafka has no memory of its own for a consumer that two threads use: all calls are made here.
        consumer = Consumer({**self._settings.client(), **CONSUMER}, logger=CLIENT_LOG)
        try:
            while not self._stopping.is_set():
                while self._commands:
                    self._commands.popleft()(consumer)
                if self._handed_over - self._seen > _MAX_UNREAD:
                    time.sleep(0.001)
                    continue
                message = consumer.poll(_POLL_SECONDS)
                if message is not None:
                    self._hand_over([message, *consumer.consume(_BATCH, 0)])
        except RuntimeError as error:  # the event loop is closed
            log.debug("the reader ends: %s", error)
        finally:
            consumer.close()

    def _hand_over(self, messages: list[Any]) -> None:
        self._handed_over += len(messages)
        self._call(self._dispatch, messages)

    def _call(self, function: Callable[..., None], *values: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(function, *values)

    # ── in the event loop ─────────────────────────────────────────────────────────────────────────────────────────

    def _dispatch(self, messages: list[Any]) -> None:
        self._seen += len(messages)
        by_place: dict[tuple[str, int], list[Any]] = {}
        for message in messages:
            place = message.topic(), message.partition()
            if place in by_place:
                by_place[place].append(message)
            else:
                by_place[place] = [message]
        for place, theirs in by_place.items():
            if listener := self._listeners.get(place):
                listener(place[0], theirs)
                continue
            for error in filter(None, (message.error() for message in theirs)):
                if error.code() != KafkaError._PARTITION_EOF:
                    log.debug("while reading: %s", error.str())
