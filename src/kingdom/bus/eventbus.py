"""The event bus: one contract over every transport, and ``connect``.

It validates what callers pass, so that a transport gets only valid names, envelopes and numbers.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import AsyncIterator, Callable, Collection, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qsl

from kingdom.bus.delivery import (
    Check,
    DeadHead,
    DeadLetter,
    DeadVerdict,
    Delivery,
    Depths,
    DoneVerdict,
    Record,
    RetryVerdict,
    Status,
    StreamOptions,
)
from kingdom.bus.envelope import DEFAULT_MAX_BYTES, Envelope, check_event_id, check_stream, check_worker
from kingdom.bus.errors import InvalidEnvelope, InvalidOption, TransactionMismatch, UnknownTransport
from kingdom.bus.options import Seconds, check_count, positive_seconds, seconds, texts
from kingdom.bus.transport import (
    CONNECT_SECONDS,
    BatchFindingTransport,
    Clock,
    ListingTransport,
    TransactionalTransport,
    Transport,
    TransportOptions,
)
from kingdom.bus.urls import redact_url, url_parts

if TYPE_CHECKING:
    from types import TracebackType

    from kingdom.bus.delivery import DocumentForm


DEFAULT_MAX_ATTEMPTS = 10
_PAGE_RECORDS = 500  # fetched at once by records()


class EventBus:
    """A durable event bus, returned by :func:`kingdom.bus.connect`; use it as ``async with connect(url) as bus``."""

    def __init__(self, transport: Transport, url: str) -> None:
        self.transport = transport
        self.url = url

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect. ``async with`` calls it."""
        try:
            await self.transport.open()
        except BaseException:
            await self.transport.close()  # what was opened before the failure
            raise

    async def close(self) -> None:
        """Disconnect. ``async with`` calls it."""
        await self.transport.close()

    # ── publish ───────────────────────────────────────────────────────────────────────────────────────────────

    async def setup(self) -> list[str]:
        """Create tables, directories or topics, or migrate old ones. Safe to repeat and to run concurrently.

        Returns the names of the migrations that were applied now.
        """
        return await self.transport.setup()

    async def declare(
        self,
        stream: str,
        *,
        ordered: bool = False,
        dead_head: DeadHead = "go-on",
        states: dict[Status, str] | None = None,
        document: DocumentForm | None = None,
    ) -> None:
        """Set the options of a stream (:class:`StreamOptions`). They are kept in the store."""
        options = StreamOptions(ordered=ordered, dead_head=dead_head, states=dict(states or {}), document=document)
        await self.transport.declare(check_stream(stream), options)

    async def publish(self, stream: str, *envelopes: Envelope | Iterable[Envelope], tx: Any | None = None) -> list[str]:
        """Publish one envelope or many, all or none; return the ids accepted now.

        An ``event_id`` that was published before is left out, and nothing is written for it. With ``tx`` (an open
        transaction of psycopg, asyncpg, sqlite3 or SQLAlchemy on the same database) the events become visible when
        the caller commits, and leave no trace when it rolls back. Without it they are durable on return.
        """
        check_stream(stream)
        single = len(envelopes) == 1 and type(envelopes[0]) is Envelope
        unique: Sequence[Envelope] = envelopes if single else unique_envelopes(envelopes)  # type: ignore[assignment]
        return await self.transport.publish(stream, unique, tx) if unique else []

    # ── consume ───────────────────────────────────────────────────────────────────────────────────────────────

    async def claim(
        self,
        stream: str,
        *,
        worker: str,
        limit: int | None = None,
        lease: Seconds = 30,
        types: Iterable[str] | None = None,
        ids: Iterable[str] | None = None,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> list[Delivery]:
        """Claim up to ``limit`` events for ``lease`` seconds; ``types`` and ``ids`` select among them.

        ``limit`` is 1 unless given, or as many as there are ``ids``.

        An event whose lease ended on attempt ``max_attempts`` goes DEAD instead of being delivered once more.
        """
        if limit is not None:
            check_count("claim", "limit", limit)
        check_count("claim", "max_attempts", max_attempts)
        wanted = None if types is None else list(texts("claim", "types", types))
        named = None if ids is None else [check_event_id(event_id) for event_id in texts("claim", "ids", ids)]
        if (wanted is not None and not wanted) or (named is not None and not named):
            return []
        return await self.transport.claim(
            check_stream(stream),
            worker=check_worker(worker),
            limit=limit if limit is not None else len(named) if named else 1,
            lease=positive_seconds("claim(lease)", lease),
            types=wanted,
            ids=named,
            max_attempts=max_attempts,
        )

    async def recall(self, stream: str, *, worker: str, lease: Seconds = 30) -> list[Delivery]:
        """Take over everything that ``worker`` holds, whether its leases have ended or not; attempts stay as they are.

        For a worker that was restarted and knows that no other process has its name: it need not wait for the leases
        of its former process, which can no longer settle them.
        """
        return await self.transport.recall(
            check_stream(stream), worker=check_worker(worker), lease=positive_seconds("recall(lease)", lease)
        )

    async def peek(
        self, stream: str, *, limit: int = 100, types: Iterable[str] | None = None, skip: Container[str] = ()
    ) -> list[Record]:
        """Return what could be claimed now, in claim order, without claiming it and without the ids in ``skip``.

        Another worker may claim it first.
        """
        check_count("peek", "limit", limit)
        wanted = None if types is None else list(texts("peek", "types", types))
        return await self.transport.peek(check_stream(stream), limit, wanted, skip)

    async def settle(
        self,
        *,
        done: Iterable[Delivery | DoneVerdict | tuple[Any, ...]] = (),
        retry: Iterable[Delivery | RetryVerdict | tuple[Any, ...]] = (),
        dead: Iterable[Delivery | DeadVerdict | tuple[Any, ...]] = (),
    ) -> list[Delivery]:
        """Write verdicts; return the deliveries whose lease was lost, for which nothing was written.

        ``done`` takes deliveries, or tuples ``(delivery, outcome)`` if the stream's :class:`DocumentForm` has
        outcomes; ``retry`` takes deliveries, or tuples ``(delivery, after, code, message)`` with ``after`` in seconds;
        ``dead`` takes deliveries, or tuples ``(delivery, code, message)``. Trailing items may be omitted.
        """
        verdicts = [_done(item) for item in done], [_retry(item) for item in retry], [_dead(item) for item in dead]
        return await self.transport.settle(*verdicts) if any(verdicts) else []

    async def consume(self, stream: str, event_id: str, *, tx: Any) -> bool:
        """Settle an event as DONE in the caller's own transaction, together with what handling it wrote there.

        A claim and its verdict in one, without a lease. Returns False, and writes nothing, if the event cannot be
        claimed now: it is held, it is finished, or an earlier one of its aggregate is not. If the caller rolls back,
        the event is unchanged. For transports that have transactions.
        """
        if not isinstance(self.transport, TransactionalTransport):
            raise TransactionMismatch(f"consume(tx=…) needs a bus on sqlite: or postgresql:, not on {self.url}")
        return await self.transport.consume(check_stream(stream), check_event_id(event_id), tx)

    async def extend(self, deliveries: Iterable[Delivery], lease: Seconds) -> list[Delivery]:
        """Set the leases to end ``lease`` seconds from now; return the deliveries whose lease was lost."""
        held = list(deliveries)
        return await self.transport.extend(held, positive_seconds("extend(lease)", lease)) if held else []

    async def release(self, deliveries: Iterable[Delivery]) -> list[Delivery]:
        """Return events unharmed: claimable at once, the attempt not counted. Returns those whose lease was lost."""
        held = list(deliveries)
        return await self.transport.release(held) if held else []

    def subscribe(
        self, stream: str, wake: Callable[[], None], *, types: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Call ``wake`` when events, with ``types`` such of these types, may have become claimable; return the undo.

        It is a hint: it may come without an event, and for an event of another type.
        """
        return self.transport.subscribe(check_stream(stream), wake, texts("subscribe", "types", types))

    # ── operate ───────────────────────────────────────────────────────────────────────────────────────────────

    async def depth(self) -> Depths:
        """Count the events of each stream; ``depths[name]`` is all zeros for a stream with nothing to count."""
        return Depths(await self.transport.depth())

    async def pending_types(self, stream: str) -> dict[str, int]:
        """Count the waiting events of a stream by type; a type without a worker shows here."""
        return await self.transport.pending_types(check_stream(stream))

    async def dead(self, stream: str, limit: int = 100) -> list[DeadLetter]:
        """Return the latest dead letters of a stream, newest first."""
        check_count("dead", "limit", limit)
        return await self.transport.dead(check_stream(stream), limit)

    async def find(self, event_id: str) -> Record | None:
        """Return everything the store knows about one event, or None."""
        return await self.transport.find(check_event_id(event_id))

    async def find_many(self, event_ids: Iterable[str]) -> dict[str, Record]:
        """Return what the store knows about some events, by id, without those that it does not know.

        On PostgreSQL one statement finds all of them.
        """
        wanted = list(dict.fromkeys(map(check_event_id, texts("find_many", "event_ids", event_ids))))
        if isinstance(self.transport, BatchFindingTransport):
            return await self.transport.find_many(wanted) if wanted else {}
        found = [(event_id, await self.transport.find(event_id)) for event_id in wanted]
        return {event_id: record for event_id, record in found if record is not None}

    async def records(self, stream: str, *, ids: str = "*", within: Seconds | None = None) -> AsyncIterator[Record]:
        """Yield the events of a stream in publish order, finished ones too; for a bus in a database.

        ``ids`` is a pattern in which ``*`` matches anything. ``within``: only events that were published or changed
        their state in the last so many seconds. Fetched page by page: concurrent changes may be seen or not.
        """
        if not isinstance(self.transport, ListingTransport):
            raise InvalidOption(f"records() needs a bus on sqlite: or postgresql:, not on {self.url}")
        age = None if within is None else positive_seconds("records(within)", within)
        check_stream(stream)
        after: Any = None
        while True:
            page, after = await self.transport.records(stream, ids=ids, within=age, after=after, limit=_PAGE_RECORDS)
            for record in page:
                yield record
            if after is None:
                return

    async def requeue(
        self,
        stream: str,
        ids: Iterable[str] | None = None,
        *,
        event_type: str | None = None,
        error_code: str | None = None,
        everything: bool = False,
    ) -> int:
        """Move DEAD events back to PENDING with a fresh count of attempts; return how many moved.

        Select by ``ids`` (DONE events too), by type, by error code, or all DEAD events with ``everything=True``.
        """
        if ids is None and event_type is None and error_code is None and not everything:
            raise InvalidOption("requeue needs ids, event_type, error_code or everything=True")
        wanted = None if ids is None else [check_event_id(event_id) for event_id in texts("requeue", "ids", ids)]
        if wanted is not None and not wanted:
            return 0
        return await self.transport.requeue(check_stream(stream), wanted, event_type=event_type, error_code=error_code)

    async def purge(
        self,
        older_than: Seconds,
        *,
        stream: str | None = None,
        dead: bool = False,
        keep: Collection[str] = (),
        only: Collection[str] | None = None,
    ) -> int:
        """Delete DONE events that ended more than ``older_than`` seconds ago (with ``dead=True`` DEAD ones too).

        Events whose ids are in ``keep`` stay; with ``only``, all but those in it. A deleted ``event_id`` may be
        published again. Returns how many were deleted.
        """
        age = seconds("purge(older_than)", older_than)
        if age < 0:
            raise InvalidOption(f"purge(older_than={older_than!r}): zero or more seconds")
        if stream is not None:
            check_stream(stream)
        kept = frozenset(texts("purge", "keep", keep))
        wanted = None if only is None else frozenset(texts("purge", "only", only))
        return await self.transport.purge(age, stream=stream, dead=dead, keep=kept, only=wanted)

    async def doctor(self) -> list[Check]:
        """Check the store for common problems."""
        return await self.transport.doctor()


def unique_envelopes(items: Sequence[Envelope | Iterable[Envelope]]) -> list[Envelope]:
    """Flatten envelopes and collections of envelopes; drop repeated event ids."""
    flat: list[Envelope] = []
    for item in items:
        if isinstance(item, Envelope):
            flat.append(item)
        elif isinstance(item, Iterable) and not isinstance(item, (str, bytes, dict)):
            flat.extend(item)
        else:
            raise InvalidEnvelope(f"publish takes Envelope objects, not {type(item).__name__}")
    for envelope in flat:
        if not isinstance(envelope, Envelope):
            raise InvalidEnvelope(f"publish takes Envelope objects, not {type(envelope).__name__}")
    first: dict[str, Envelope] = {}
    for envelope in flat:
        first.setdefault(envelope.event_id, envelope)
    return list(first.values())


def _done(item: Delivery | DoneVerdict | tuple[Any, ...]) -> DoneVerdict:
    return DoneVerdict(item) if isinstance(item, Delivery) else DoneVerdict(*_tuple("done", item))


def _retry(item: Delivery | RetryVerdict | tuple[Any, ...]) -> RetryVerdict:
    verdict = RetryVerdict(item) if isinstance(item, Delivery) else RetryVerdict(*_tuple("retry", item))
    after = seconds("settle(retry): after", verdict.after or 0)
    if not 0 <= after < float("inf"):
        raise InvalidOption(f"settle(retry): after={verdict.after!r} must be zero or more seconds")
    return verdict._replace(after=after)


def _dead(item: Delivery | DeadVerdict | tuple[Any, ...]) -> DeadVerdict:
    return DeadVerdict(item) if isinstance(item, Delivery) else DeadVerdict(*_tuple("dead", item))


def _tuple(fate: str, item: tuple[Any, ...]) -> tuple[Any, ...]:
    if isinstance(item, tuple) and item and isinstance(item[0], Delivery):
        return item
    raise InvalidOption(f"settle({fate}) takes deliveries of claim(), or tuples that begin with one, not {item!r:.80}")


ALIASES: Final = {"postgres": "postgresql", "file": "files"}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_GROUP: Final = "kingdom.bus.transports"
_EXTRAS: Final = {"postgresql": "postgres", "kafka": "kafka"}  # the extra that installs the driver of a transport


def connect(
    url: str,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    clock: Clock | None = None,
    connect_timeout: float = CONNECT_SECONDS,
) -> EventBus:
    """Return the bus at ``url``; use it as ``async with connect(url) as bus``.

    ========================== ====================================================================================
    ``files:///var/bus``       a directory; ``files:queue`` for one relative to the working directory
    ``sqlite:///var/bus.db``   an SQLite file; ``sqlite:bus.db`` for a relative one
    ``postgresql://…``         a PostgreSQL database, in the form libpq takes
    ``kafka://host:9092``      Kafka, one broker or more: ``kafka://host:9092,host:9092/?prefix=shop.``
    ``memory:``                this process's memory only, for tests and demos: nothing is durable
    ========================== ====================================================================================

    ``max_bytes`` limits one envelope's JSON form. ``connect_timeout``: seconds to retry, with
    back-off, before ``TransportUnavailable`` is raised. ``clock`` replaces ``time.time`` if the store has no clock.
    """
    if max_bytes < 1024:
        raise InvalidOption(f"connect(max_bytes={max_bytes}): must be 1024 or more")
    match = _SCHEME.match(url) if isinstance(url, str) else None
    if not match:
        shown = redact_url(url) if isinstance(url, str) else url
        raise UnknownTransport(f"{shown!r} is not a URL; {_known()}")
    scheme = match.group(1).lower()
    options = TransportOptions(
        max_bytes=max_bytes,
        clock=clock,
        connect_timeout=connect_timeout,
        query=dict(parse_qsl(url_parts(url).query, keep_blank_values=True)),
    )
    return EventBus(_opener(ALIASES.get(scheme, scheme), url)(url, options), url)


def _opener(scheme: str, url: str) -> Callable[[str, TransportOptions], Transport]:
    """Return ``open`` of the module ``kingdom.bus.transports.<scheme>``, or of an entry point of that name."""
    module: Any
    if re.fullmatch(r"[a-z][a-z0-9]*", scheme):
        try:
            module = importlib.import_module(f"{_GROUP}.{scheme}")
        except ModuleNotFoundError as error:
            if error.name != f"{_GROUP}.{scheme}":
                from kingdom.base.installation import install_command

                how = install_command(_EXTRAS[scheme]) if scheme in _EXTRAS else f"install {error.name}"
                raise UnknownTransport(f"{scheme}: needs the package {error.name}, which is missing: {how}") from error
        else:
            return module.open  # type: ignore[no-any-return]
    from importlib.metadata import entry_points

    for entry in entry_points(group=_GROUP, name=scheme):
        return entry.load()  # type: ignore[no-any-return]
    raise UnknownTransport(f"{scheme}: unknown transport (in {redact_url(url)!r}); {_known()}")


def _known() -> str:
    return "use files:///dir, sqlite:///file.db, postgresql://…, kafka://… or memory:"
