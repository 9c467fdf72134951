"""Which shards of a stream a process takes part in: those that a consumer group assigns to it.

The group is used for membership only. Nothing is read through it and no offset is committed. The ledger of a shard
decides who holds an event, so two processes that take part in one shard for a while do no harm, and nobody has to
wait until a shard is handed over.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from kingdom.bus.transports.kafka._clients import CLIENT_LOG, log
from kingdom.bus.transports.kafka._settings import Settings

_SESSION_SECONDS: Final = 6.0  # after which others take over from a process that died; the least that brokers accept
_HEARTBEAT_SECONDS: Final = 1.0  # also how soon a member learns that another has joined
_POLL_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 10.0  # a process that has not claimed for so long leaves
_ANSWER_SECONDS: Final = 1.0  # that a claim waits for the group; then it looks at all shards
_HELP_SECONDS: Final = 2.0  # a process whose own shards had nothing for so long looks at the others
_WORKERS: Final = "-workers"
_FORBIDDEN: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED)


def group_name(topic: str, types: Sequence[str] | None) -> str:
    """Return the group of the processes that claim the same types of events.

    Processes that claim other types are no substitute for each other: each such group covers all shards.
    """
    if types is None:
        return topic + _WORKERS
    named = "\0".join(sorted(types))
    return f"{topic}{_WORKERS}-{hashlib.sha256(named.encode()).hexdigest()[:8]}"


def is_group_of(group: str, topic: str) -> bool:
    return group == topic + _WORKERS or group.startswith(f"{topic}{_WORKERS}-")


class ShardMember:
    """This process as a member of such a group. The consumer is used in a thread of its own."""

    def __init__(self, settings: Settings, topic: str, group: str, worker: str, changed: Callable[[], None]) -> None:
        self._config = {
            **settings.client(),
            "client.id": worker,
            "group.id": group,
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": round(_SESSION_SECONDS * 1000),
            "heartbeat.interval.ms": round(_HEARTBEAT_SECONDS * 1000),
        }
        self._topic = topic
        self._changed = changed
        self._assigned: frozenset[int] | None = None
        self._current: frozenset[int] | None = None  # as the thread knows it
        self._answered = asyncio.Event()
        self._asked = self._fed = time.monotonic()
        self._helping = False
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kingdom-kafka-member", daemon=True)
        self._thread.start()

    @property
    def assigned(self) -> frozenset[int] | None:
        """The shards that the group assigned to this process; None while it has not, or cannot."""
        return self._assigned

    async def ask(self) -> frozenset[int] | None:
        """Return the shards of this process, and stay in the group."""
        self._asked = time.monotonic()
        if self._assigned is None and not self._answered.is_set():
            try:
                async with asyncio.timeout(_ANSWER_SECONDS):
                    await self._answered.wait()
            except TimeoutError:
                log.debug("the group of %s has not answered yet: taking part in all shards", self._topic)
        return self._assigned

    def claimed_own(self) -> None:
        """Record that the own shards had something."""
        self._fed, self._helping = time.monotonic(), False

    def may_help(self) -> bool:
        """Return whether the own shards had nothing for so long that the others may need help."""
        return self._helping or time.monotonic() - self._fed >= _HELP_SECONDS

    def helped(self, found: bool) -> None:
        """Record whether the other shards had something: if so, look there again at once."""
        self._fed, self._helping = time.monotonic(), found

    async def close(self) -> None:
        """Leave the group: others take over at once."""
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        consumer = Consumer(self._config, logger=CLIENT_LOG)
        joined = False
        try:
            while not self._stopping.is_set():
                wanted = time.monotonic() - self._asked < _PATIENCE_SECONDS
                if wanted and not joined:
                    consumer.subscribe(
                        [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
                    )
                elif joined and not wanted:
                    consumer.unsubscribe()
                joined = wanted
                message = consumer.poll(_POLL_SECONDS)
                if message is not None and (error := message.error()) is not None:
                    self._on_error(error)
                if not joined and self._current is not None:
                    self._hand_over(None)
        except KafkaException as error:
            self._give_up(error.args[0])
        except RuntimeError as closed:  # the event loop
            log.debug("a member of a group ends: %s", closed)
        finally:
            consumer.close()

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        # From its end and paused: the consumer must have the partitions to keep them, and must not read them.
        theirs = [TopicPartition(place.topic, place.partition, OFFSET_END) for place in partitions]
        consumer.incremental_assign(theirs)
        if theirs:
            consumer.pause(theirs)
        self._hand_over(self._known() | {place.partition for place in partitions})

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        self._hand_over(self._known() - {place.partition for place in partitions})

    def _known(self) -> frozenset[int]:
        return self._current if self._current is not None else frozenset()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() not in _FORBIDDEN:
            log.debug("in the group of %s: %s", self._topic, error.str())
        elif not self._answered.is_set():
            self._give_up(error)

    def _give_up(self, error: KafkaError) -> None:
        log.warning("this process takes part in all shards of %s, as its group cannot be used: %s", self._topic, error)
        self._hand_over(None)
        self._loop.call_soon_threadsafe(self._answered.set)

    def _hand_over(self, assigned: frozenset[int] | None) -> None:
        self._current = assigned
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._set, assigned)

    # ── in the event loop ─────────────────────────────────────────────────────────────────────────────────────────

    def _set(self, assigned: frozenset[int] | None) -> None:
        self._assigned = assigned
        if assigned is None:
            self._answered.clear()
        else:
            self._answered.set()
        self._changed()
