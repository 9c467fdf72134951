"""The state of a shard: what its data and its ledger add up to. No input or output.

Every process that reads the same records comes to the same state. So nothing here asks a clock: the time is that at
which the broker appended the operation, and it never goes back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.bus.delivery import Record, StreamOptions
from kingdom.bus.stream_entry import EventEntry, utc_datetime
from kingdom.bus.stream_state import StreamStateMachine

if TYPE_CHECKING:
    from kingdom.bus.envelope import Envelope
    from kingdom.bus.transports.kafka._records import DataRecord, EventText

_KEPT_TEXTS: Final = 2000  # contents of finished events
_MAX_KEPT_BYTES: Final = 4096  # of one of them
BATCH_PATIENCE_SECONDS: Final = 3600.0  # after which a batch of a publisher that died is dropped


class DoneEvent(NamedTuple):
    """An event that is DONE: what is needed to show it, and to start it over."""

    offset: int
    type: str
    aggregate: str
    priority: int
    created_at: float
    attempts: int
    ended_at: float
    outcome: str | None
    error_code: str | None
    error_message: str | None

    def entry(self, event_id: str) -> EventEntry:
        """Return an entry with which the event can start over."""
        return EventEntry(
            event_id,
            self.type,
            seq=self.offset,
            created_at=self.created_at,
            ready_at=self.created_at,
            aggregate=self.aggregate,
            priority=self.priority,
        )

    def record(self, stream: str, envelope: Envelope) -> Record:
        return Record(
            stream=stream,
            envelope=envelope,
            status="DONE",
            attempts=self.attempts,
            created_at=utc_datetime(self.created_at),
            error_code=self.error_code,
            error_message=self.error_message,
            finished_at=utc_datetime(self.ended_at),
            outcome=self.outcome,
        )


# Of a DoneEvent. There may be many, and the garbage collector passes over plain tuples.
DoneFields = tuple[int, str, str, int, float, int, float, str | None, str | None, str | None]


class EventTexts:
    """Contents of unfinished events, up to a number of bytes; what is not here is read from the topic again.

    Those of the events that finished last are kept too: they are asked for most.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._texts: dict[int, EventText] = {}
        self._bytes = 0
        self._finished: OrderedDict[int, EventText] = OrderedDict()

    def add(self, offset: int, text: EventText) -> None:
        if self._bytes < self._max_bytes and offset not in self._texts:
            self._texts[offset] = text
            self._bytes += len(text.value)

    def get(self, offset: int) -> EventText | None:
        return self._texts.get(offset) or self._finished.get(offset)

    def finish(self, offset: int) -> None:
        text = self._texts.pop(offset, None)
        if text is not None:
            size = len(text.value)
            self._bytes -= size
            if size <= _MAX_KEPT_BYTES:
                self._finished[offset] = text
                if len(self._finished) > _KEPT_TEXTS:
                    self._finished.popitem(last=False)

    def drop(self, offset: int) -> None:
        if text := self._texts.pop(offset, None):
            self._bytes -= len(text.value)


class Snapshot(NamedTuple):
    """A snapshot that was written: what may be deleted once there is a later one."""

    ledger: int  # the first operation after it
    first: int  # its first record, or one before
    data: int  # the first data record that it needs


class PublishOutcome(NamedTuple):
    """What became of a batch of events when the last of them was read."""

    batch: str
    accepted: list[str]


class ShardState:
    """The events of one shard, and how far data and ledger were read."""

    def __init__(self, texts: EventTexts) -> None:
        self.texts = texts
        self.machine = StreamStateMachine()
        self.options: StreamOptions | None = None  # None: not declared
        self.done: OrderedDict[str, DoneFields] = OrderedDict()  # in the order they ended
        self.batches: dict[str, list[EventEntry]] = {}  # of which some events have not arrived
        self.data_position = 0  # the first data record that was not added
        self.ledger_position = 0  # the first ledger record that was not applied
        self.time = 0.0
        self.purged_to = 0  # no event needs a data record before this one
        self.snapshots: list[Snapshot] = []  # the last two

    def add(self, record: DataRecord) -> PublishOutcome | None:
        """Add the event of a data record, unless its id is known. Returns what became of its batch when it is whole."""
        self.data_position = record.offset + 1
        entry = record.entry()
        self.texts.add(record.offset, record.text)
        if record.batch is None:
            self._enter(entry)
            return None
        batch = self.batches.setdefault(record.batch, [])
        batch.append(entry)
        if len(batch) < record.batch_size:
            return None
        del self.batches[record.batch]
        return PublishOutcome(record.batch, [item.event_id for item in batch if self._enter(item)])

    def _enter(self, entry: EventEntry) -> bool:
        if entry.event_id in self.machine or entry.event_id in self.done:
            self.texts.drop(entry.seq)
            return False
        self.machine.add(entry)
        return True

    def advance(self, at: float) -> float:
        """Set the time to that of the operation that is applied next, and return it."""
        self.time = max(self.time, at)
        self.machine.advance(self.time)
        if self.batches:
            for name, entries in list(self.batches.items()):
                if entries[0].created_at < self.time - BATCH_PATIENCE_SECONDS:
                    del self.batches[name]
                    for entry in entries:
                        self.texts.drop(entry.seq)
        return self.time

    def finish(self, entry: EventEntry, now: float, outcome: str | None) -> None:
        """Move an event to DONE."""
        self.machine.remove(entry)
        self.texts.finish(entry.seq)
        self.done[entry.event_id] = (
            entry.seq,
            entry.type,
            entry.aggregate,
            entry.priority,
            entry.created_at,
            entry.attempts,
            now,
            outcome,
            entry.error_code,
            entry.error_message,
        )

    def done_event(self, event_id: str) -> DoneEvent | None:
        """Return an event that is DONE, if it is remembered."""
        fields = self.done.get(event_id)
        return None if fields is None else DoneEvent(*fields)

    def forget_finished(self, remember: int) -> None:
        """Forget the oldest finished events beyond a number of them."""
        while len(self.done) > remember:
            self.done.popitem(last=False)

    def requeue(self, ids: list[str] | None, event_type: str | None, error_code: str | None, now: float) -> int:
        """Return DEAD events, and DONE ones that are named, to PENDING; return how many."""
        if ids is None:
            found = {entry.event_id: entry for entry in self.machine.dead()}
        else:
            named = ((event_id, self._finished(event_id)) for event_id in ids)
            found = {event_id: entry for event_id, entry in named if entry is not None}
        moved = 0
        for event_id, entry in found.items():
            done = self.done_event(event_id)
            code = entry.error_code if done is None else done.error_code
            if event_type in (None, entry.type) and error_code in (None, code):
                self.done.pop(event_id, None)
                self.machine.requeue(entry, now)
                moved += 1
        return moved

    def _finished(self, event_id: str) -> EventEntry | None:
        if done := self.done_event(event_id):
            return done.entry(event_id)
        entry = self.machine.get(event_id)
        return entry if entry is not None and entry.status == "DEAD" else None

    def purge(self, before: float, dead: bool, keep: set[str], only: set[str] | None = None) -> int:
        """Forget events that ended before a time; return how many."""

        def goes(event_id: str) -> bool:
            return event_id not in keep and (only is None or event_id in only)

        old = [
            event_id
            for event_id, fields in self.done.items()
            if DoneEvent(*fields).ended_at < before and goes(event_id)
        ]
        for event_id in old:
            del self.done[event_id]
        letters = [
            entry
            for entry in (self.machine.dead() if dead else ())
            if (entry.ended_at or 0) < before and goes(entry.event_id)
        ]
        for entry in letters:
            self.machine.remove(entry)
            self.texts.drop(entry.seq)
        self.purged_to = self.first_needed_offset()
        return len(old) + len(letters)

    def first_needed_offset(self) -> int:
        """Return the first data record that is still needed."""
        return min(self._offsets(), default=self.data_position)

    def _offsets(self) -> Iterator[int]:
        yield from (entry.seq for entry in self.machine)
        yield from (DoneEvent(*fields).offset for fields in self.done.values())
        yield from (entry.seq for entries in self.batches.values() for entry in entries)


Operation = dict[str, Any]
