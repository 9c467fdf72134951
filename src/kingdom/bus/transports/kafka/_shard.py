"""One shard as this process sees it: its state, kept up by reading, and the operations that this process writes.

The author of an operation says how far it had read the data, writes it to the ledger, and learns the outcome by
reading it back: the order of the ledger decides, not who wrote first.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import uuid4

from confluent_kafka import KafkaError

from kingdom.base.backoff import backoff
from kingdom.bus.errors import BusError, SchemaTooNew, TransportUnavailable
from kingdom.bus.transport import Clock
from kingdom.bus.transports.kafka import _operations as operations
from kingdom.bus.transports.kafka import _snapshots
from kingdom.bus.transports.kafka._clients import KafkaClients, ProducedRecord, log
from kingdom.bus.transports.kafka._reader import TopicReader
from kingdom.bus.transports.kafka._records import DataRecord, EventText, read_record
from kingdom.bus.transports.kafka._shard_state import EventTexts, Operation, ShardState, Snapshot
from kingdom.bus.transports.kafka._topics import StreamTopics

_TEXT_BYTES: Final = 64 << 20  # contents of unfinished events that are kept in memory
_GROWTH: Final = 4  # a snapshot is due after this many times the size of the last one, at least
_LOADS: Final = 40  # attempts to find a snapshot that the ledger continues
_RELOADS: Final = 5  # of the state, that a reader waits for
_MAX_RELOAD_PAUSE_SECONDS: Final = 5.0
_READ_AHEAD: Final = 2000  # records that are read at once when a content is not in memory
_DUE_MARGIN_SECONDS: Final = 0.1  # an event that is due so soon counts as due


class _Waiter(NamedTuple):
    """Somebody who waits until both topics were read to these offsets."""

    data: int
    ledger: int
    reached: asyncio.Future[None]


class _Shortened(TransportUnavailable):
    """Records were deleted before they were read; the last snapshot is loaded instead."""


class Shard:
    """A partition of a stream: its data and its ledger. ``ready`` is called when events may have become claimable."""

    def __init__(
        self,
        clients: KafkaClients,
        reader: TopicReader,
        topics: StreamTopics,
        partition: int,
        clock: Clock,
        own_clock: bool,
        ready: Callable[[int], None],
    ) -> None:
        self.state = ShardState(EventTexts(_TEXT_BYTES))
        self.partition = partition
        self.places = (topics.data, partition), (topics.ledger, partition)
        self._ready = ready
        self._clients = clients
        self._reader = reader
        self._topics = topics
        self._clock = clock
        self._own_clock = own_clock
        self._id = uuid4().hex[:16]  # of this author
        self._count = 0
        self._data: deque[DataRecord] = deque()  # read, and not added yet
        self._ledger: deque[tuple[int, float, Operation]] = deque()  # read, and not applied yet
        self._read_to = 0  # the first data record that was not read
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._publishes: dict[str, asyncio.Future[list[str]]] = {}
        self._waiters: list[_Waiter] = []
        self._skew: float | None = None  # how far the brokers' clock is ahead of ours, at most
        self._failure: BusError | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._reloading = False
        self._reloaded = asyncio.Event()  # or closed
        self._unsaved_bytes = 0  # that were read since the last snapshot
        self._snapshot_after = clients.settings.snapshot
        self._snapshotting = False

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Load the state, then follow both topics."""
        await self._load()
        self._read_to = self.state.data_position
        starts = [(self._topics.data, self._read_to), (self._topics.ledger, self.state.ledger_position)]
        self._reader.follow(starts, self._feed, self.partition)

    async def _load(self) -> None:
        """Load the last snapshot, or begin with the first records."""
        topics, clients, partition = self._topics, self._clients, self.partition
        for _ in range(_LOADS):
            [end] = await clients.end_offsets([(topics.snapshot, partition)])
            start, data, ledger = await clients.first_offsets([(topics.snapshot, partition), *self.places])
            messages = (
                await clients.read_range(topics.snapshot, start, end, end - start, partition) if end > start else []
            )
            snapshot = _snapshots.last_snapshot(messages)
            texts = EventTexts(_TEXT_BYTES)
            if snapshot is not None:
                self.state = await self._clients.in_thread(partial(_snapshots.load, snapshot, texts))
                self._snapshot_after = max(self._clients.settings.snapshot, _GROWTH * len(snapshot))
            else:
                self.state = ShardState(texts)
                self.state.data_position = data
            self._unsaved_bytes = 0
            if ledger <= self.state.ledger_position:
                return
            await asyncio.sleep(0.05)  # there is a later snapshot, and what came before it was deleted meanwhile
        raise TransportUnavailable(
            f"kafka: {topics.ledger} begins with record {ledger} and no snapshot covers what came before: "
            "another program has deleted records; restore them, or use another prefix"
        )

    async def _reload(self) -> None:
        """Begin again: the records that were to be read next were deleted, or the log was cut."""
        log.warning("%s was shortened before it was read: loading its last snapshot", self._topics.ledger)
        self._reader.leave([self._topics.data, self._topics.ledger], self.partition)
        self._fail(_Shortened(f"kafka: {self._topics.ledger} was shortened before it was read; try again"))
        self._data.clear()
        self._ledger.clear()
        for attempt in itertools.count():  # the brokers may be away at this moment
            try:
                await self.open()
                break
            except BusError as error:
                self._failure = error
                log.warning("the last snapshot of %s cannot be loaded, retrying: %s", self._topics.ledger, error)
                await asyncio.sleep(backoff(attempt, 0.1, _MAX_RELOAD_PAUSE_SECONDS))
        self._failure = None
        self._reloading = False
        self._reloaded.set()

    async def close(self) -> None:
        self._reader.leave([self._topics.data, self._topics.ledger], self.partition)
        self._fail(TransportUnavailable("kafka: the bus is closed"))
        self._reloaded.set()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _fail(self, error: BusError) -> None:
        self._failure = error
        waiting: Iterable[asyncio.Future[Any]] = [
            *self._pending.values(),
            *self._publishes.values(),
            *(waiter.reached for waiter in self._waiters),
        ]
        for future in waiting:
            if not future.done():
                future.set_exception(error)

    # ── read ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _feed(self, topic: str, messages: list[Any]) -> None:
        """Take in what was read of a topic."""
        is_data, first = topic == self._topics.data, self._read_to
        for message in messages:
            if error := message.error():
                self._on_error(message, error)
            elif is_data:
                record = read_record(message)
                self._data.append(record)
                self._unsaved_bytes += record.size
                self._read_to = record.offset + 1
            else:
                self._queue_operation(message)
        if self._apply_all() or self._read_to > first:
            self._ready(self.partition)
        self._tell_waiters()

    def _on_error(self, message: Any, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            if not self._reloading:
                self._reloading = True
                self._reloaded.clear()
                self._start(self._reload())
        elif error.code() != KafkaError._PARTITION_EOF:
            log.warning("while reading %s: %s", message.topic(), error.str())
        elif message.topic() == self._topics.data:  # the last offsets may have no record
            self._read_to = max(self._read_to, message.offset())
        elif not self._ledger:
            self.state.ledger_position = max(self.state.ledger_position, message.offset())

    def _queue_operation(self, message: Any) -> None:
        where = f"record {message.offset()} of {message.topic()}"
        try:
            operation = operations.decode_operation(message.value() or b"", where)
        except SchemaTooNew as error:
            self._fail(error)
            return
        except ValueError:
            log.warning("%s is no operation: skipped", where)
            operation = {"op": "look", "data": 0}
        self._ledger.append((message.offset(), message.timestamp()[1] / 1000, operation))
        self._unsaved_bytes += len(message.value() or b"")

    def _apply_all(self) -> bool:
        """Apply every operation whose data were read; return whether something may have become claimable."""
        wake, state = False, self.state
        while self._ledger and self._ledger[0][2]["data"] <= self._read_to and self._failure is None:
            offset, at, operation = self._ledger.popleft()
            position = operation["data"]
            while self._data and self._data[0].offset < position:
                outcome = state.add(self._data.popleft())
                if outcome is not None and (future := self._publishes.get(outcome.batch)) and not future.done():
                    future.set_result(outcome.accepted)
            state.data_position = max(state.data_position, position)
            result = operations.apply(state, operation, at)
            state.ledger_position = offset + 1
            wake = operations.makes_claimable(operation, state.machine.ordered) or wake
            if operation["op"] == "snapshot":
                self._unsaved_bytes = 0
            if operation.get("by") == self._id:
                self._answer(operation, at, result)
        return wake

    def _answer(self, operation: Operation, at: float, result: Any) -> None:
        if operation["op"] == "snapshot":  # before the next operation is applied
            self._start(self._write_snapshot(_snapshots.lines_of(self.state)))
        elif self._unsaved_bytes >= self._snapshot_after and not self._snapshotting:
            self._snapshotting = True
            self._start(self._begin_snapshot())
        self._skew = at - operation["sent"]
        future = self._pending.pop(operation["n"], None)
        if future is not None and not future.done():
            future.set_result(result)
        elif operation["op"] in ("claim", "recall") and result:
            # Nobody waits for the answer any more: others may have these events at once.
            held = {operation["token"]: [claimed.event_id for claimed in result]}
            self._start(self.submit({"op": "release", "held": held}))

    async def _begin_snapshot(self) -> None:
        # The process whose record comes first writes it. If it dies, the next one is due after as many bytes.
        try:
            await self.submit({"op": "snapshot"})
        except BusError:
            self._snapshotting = False
            raise

    async def _write_snapshot(self, lines: list[dict[str, Any]]) -> None:
        """Write a snapshot, then delete what nobody needs any more."""
        topics, head = self._topics, lines[0]
        try:
            records, size = await self._clients.in_thread(partial(_snapshots.records_of, lines))
            [first] = await self._clients.end_offsets([(topics.snapshot, self.partition)])
            await self._clients.produce(topics.snapshot, records, self.timestamp(self._clock()), self.partition)
            self._snapshot_after = max(self._clients.settings.snapshot, _GROWTH * size)
            written = Snapshot(head["ledger"], first, head["purgedTo"])
            await self.submit({"op": "snapshotted", "snapshot": list(written)})
            if len(self.state.snapshots) == 2:
                old, last = self.state.snapshots
                first = min(old.first, last.first)
                offsets = {topics.ledger: old.ledger, topics.snapshot: first, topics.data: old.data}
                old_records = {topic: offset for topic, offset in offsets.items() if offset}
                await self._clients.delete_before(old_records, self.partition)
        finally:
            self._snapshotting = False

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def ended(ended: asyncio.Task[Any]) -> None:
            self._tasks.discard(ended)
            if not ended.cancelled() and (error := ended.exception()):
                log.warning("%s", error)

        task.add_done_callback(ended)

    def _tell_waiters(self) -> None:
        for waiter in list(self._waiters):
            if self._read_to >= waiter.data and self.state.ledger_position >= waiter.ledger:
                self._waiters.remove(waiter)
                if not waiter.reached.done():
                    waiter.reached.set_result(None)

    async def catch_up(self) -> None:
        """Read what was written before this call, by any process."""
        await self.reach(*await self._clients.end_offsets(self.places))

    async def reach(self, data: int, ledger: int) -> None:
        """Read both topics up to these offsets. If the state has to be loaded again meanwhile, that is waited for."""
        for left in reversed(range(_RELOADS)):
            try:
                return await self._reach(data, ledger)
            except _Shortened:
                if not left:
                    raise
        return None

    async def _reach(self, data: int, ledger: int) -> None:
        if self._reloading:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._clients.settings.timeout):
                    await self._reloaded.wait()
        if self._failure is not None:
            raise self._failure
        if self._read_to >= data and self.state.ledger_position >= ledger:
            return
        waiter = _Waiter(data, ledger, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(self._clients.settings.timeout):
                await waiter.reached
        except TimeoutError:
            raise self._clients.timed_out(f"read {self._topics.ledger}") from None
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    # ── write ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def submit(self, operation: Operation) -> Any:
        """Write an operation and return its outcome."""
        if self._failure is not None:
            raise self._failure
        self._count += 1
        number, sent = self._count, self._clock()
        whole = {**operation, "by": self._id, "n": number, "sent": sent, "data": self._read_to}
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        record = ProducedRecord(None, operations.encode_operation(whole))
        produced = asyncio.ensure_future(
            self._clients.produce(self._topics.ledger, [record], self.timestamp(sent), self.partition)
        )
        produced.add_done_callback(lambda done: _pass_on_failure(done, future))
        self._tasks.add(produced)
        produced.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(self._clients.settings.timeout + 1):
                return await future
        except TimeoutError:
            raise self._clients.timed_out(f"learn what became of {operation['op']} in {self._topics.ledger}") from None
        finally:
            self._pending.pop(number, None)

    def timestamp(self, now: float) -> float | None:
        """Return the time that records carry; None if the broker sets it."""
        return now if self._own_clock else None

    async def lag(self) -> int:
        """Return how many operations of the ledger were not applied here yet."""
        [end] = await self._clients.end_offsets([self.places[1]])
        return max(0, end - self.state.ledger_position)

    async def observe(self) -> float:
        """Bring the state up to this moment, and return the time. Nothing is written if that would change nothing."""
        await self.catch_up()
        return await self.settle_time()

    async def settle_time(self) -> float:
        """Add the data that were read and let time pass to now, if that changes anything; return the time."""
        if self.may_change():
            await self.submit({"op": "look"})
            return self.state.time
        return max(self.state.time, self._estimate() or 0.0)

    def may_change(self) -> bool:
        """Return whether the state is another once time passes to now, or the data that were read are added."""
        now = self._estimate()
        if now is None or self._data or self.state.data_position < self._read_to:
            return True
        change = self.state.machine.next_change()
        return change is not None and change <= now + _DUE_MARGIN_SECONDS

    def _estimate(self) -> float | None:
        """Return the time of the brokers' clock, or somewhat later; None if it is not known."""
        return None if self._skew is None else self._clock() + self._skew

    def has_claimable(self) -> bool:
        """Return whether a claim might get something."""
        return self.state.machine.has_ready() or self.may_change()

    def most_claimable(self) -> int:
        """Return a number of events that a claim cannot exceed."""
        return len(self.state.machine) + len(self._data)

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits for anything here."""
        return not (self._pending or self._publishes or self._waiters or self._tasks or self._reloading)

    async def published(self, batch: str, produce: Callable[[], Any]) -> list[str]:
        """Produce a batch of events, and return the ids of those that the stream did not have."""
        if self._failure is not None:
            raise self._failure
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self._publishes[batch] = future
        try:
            await produce()
            if not future.done():
                await self.catch_up()
            if not future.done():
                await self.submit({"op": "look"})
            return await future
        finally:
            del self._publishes[batch]

    # ── contents ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def texts(self, offsets: Sequence[int]) -> dict[int, EventText]:
        """Return the contents of data records. Those that were deleted are missing."""
        known = self.state.texts
        found = {offset: text for offset in offsets if (text := known.get(offset))}
        missing = sorted(offset for offset in offsets if offset not in found)
        while missing:
            messages = await self._clients.read_range(
                self._topics.data, missing[0], self._read_to, _READ_AHEAD, self.partition
            )
            wanted = set(missing)
            for message in messages:
                record = read_record(message)
                entry = self.state.machine.get(record.text.event_id)
                if entry is not None and entry.seq == record.offset:
                    known.add(record.offset, record.text)
                if record.offset in wanted:
                    found[record.offset] = record.text
            last = messages[-1].offset() if messages else missing[0]
            missing = [offset for offset in missing if offset > last]
        return found


def _pass_on_failure(produced: asyncio.Future[None], waiting: asyncio.Future[Any]) -> None:
    if not produced.cancelled() and (error := produced.exception()) and not waiting.done():
        waiting.set_exception(error)
