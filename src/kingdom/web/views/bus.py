"""The buses: depth and throughput of streams, dead letters, single events."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from kingdom.bus.delivery import dead_document, depth_document, record_document
from kingdom.bus.envelope import check_event_id, check_stream
from kingdom.bus.errors import InvalidName
from kingdom.court.queues import invalid_files
from kingdom.web.envelope import ApiError, ApiModel, cursor_of, cursor_position, invalid_cursor, not_found
from kingdom.web.views.court_state import StreamSample, sampler_of
from kingdom.web.views.redaction import json_safe

if TYPE_CHECKING:
    from kingdom.bus import DeadLetter, EventBus
    from kingdom.web.context import WebContext

COURT_BUS: Final = "court"
_MAX_PAYLOAD_CHARS: Final = 16 * 1024
_MAX_DEAD_LETTERS: Final = 10_000  # per stream that can be listed


class StreamInfo(ApiModel):
    """Depth of a stream, and its throughput in the last minute."""

    stream: str = Field(examples=["tasks"])
    pending: int
    processing: int
    dead: int
    oldest_pending_seconds: float
    arrived_per_minute: float
    finished_per_minute: float


class PayloadPreview(ApiModel):
    """The payload of an event; cut if it is too long."""

    value: dict[str, Any] | None = Field(description="The payload; null if it is too long.")
    text: str | None = Field(description="The beginning of its JSON text, if it is too long.")
    size: int = Field(description="Length of its JSON text in characters.")


class DeadLetterState(ApiModel):
    """A dead letter: an event that failed permanently, and its error."""

    event_id: str
    type: str
    aggregate_type: str | None = None
    aggregate_id: str | None = None
    attempts: int
    error_code: str | None
    error_message: str | None
    dead_at: str | None
    payload: PayloadPreview | None
    requeueable: bool = Field(
        description="False for a file that could not be parsed: correct it and move it to pending/ by hand."
    )


class Requeued(ApiModel):
    """Result of requeueing dead letters."""

    requeued: int
    skipped: list[str] = Field(description="Ids that are unknown or not dead.")


class EventState(ApiModel):
    """State of one event on a bus."""

    event_id: str
    stream: str
    type: str
    status: str = Field(examples=["PENDING"])
    attempts: int
    aggregate_type: str | None
    aggregate_id: str | None
    priority: str
    not_before: str | None
    created_at: str | None
    next_retry_at: str | None
    locked_by: str | None
    locked_until: str | None
    finished_at: str | None
    error_code: str | None
    error_message: str | None
    outcome: str | None
    payload: PayloadPreview


def bus_of(context: WebContext, bus: str) -> EventBus:
    """Return the bus of a name. Raises :class:`ApiError` if there is none."""
    found = context.buses().get(bus)
    if found is None:
        known = ", ".join(context.buses())
        raise ApiError(404, "SYS_NOT_FOUND", f"no bus {bus!r:.60}: use one of {known}")
    return found


async def list_streams(context: WebContext, bus: str) -> list[StreamInfo]:
    """Return the streams of a bus, by name."""
    depths = await bus_of(context, bus).depth()
    sampler = sampler_of(context)
    found = []
    for stream in sorted(depths):
        arrived, finished = sampler.per_minute(bus, stream)
        rates = {"arrivedPerMinute": round(arrived, 1), "finishedPerMinute": round(finished, 1)}
        found.append(StreamInfo.model_validate({**depth_document(stream, depths[stream]), **rates}))
    return found


async def throughput(context: WebContext, bus: str, stream: str) -> list[StreamSample]:
    """Return the samples of a stream over the last half hour, oldest first."""
    bus_of(context, bus)
    return sampler_of(context).samples(bus, _checked_stream(stream))


async def list_dead(
    context: WebContext,
    bus: str,
    stream: str,
    limit: int = 50,
    cursor: str | None = None,
    *,
    event_type: str | None = None,
    code: str | None = None,
) -> tuple[list[DeadLetterState], str | None]:
    """Return dead letters of a stream, newest first, and the cursor of the next page.

    The first page of a court queue also has the files that could not be parsed.
    """
    found = bus_of(context, bus)
    position = cursor_position(cursor)
    if position is not None and not (isinstance(position, str) and position):
        raise invalid_cursor()
    letters, more = await _page_of_dead(found, _checked_stream(stream), limit, position, event_type, code)
    states = [_dead_letter_state(letter) for letter in letters]
    if bus == COURT_BUS and cursor is None and not (event_type or code):
        known = {letter.event_id for letter in letters}
        aside = await asyncio.to_thread(_invalid_files, context, stream)
        states += [
            one for one in aside if one.event_id not in known and not await _is_dead(found, one.event_id, stream)
        ]
    return states, cursor_of(letters[-1].event_id) if more and letters else None


async def requeue_dead(context: WebContext, bus: str, stream: str, ids: list[str]) -> Requeued:
    """Requeue dead events. Events that are not dead are skipped: a finished one must not run again."""
    found, name = bus_of(context, bus), _checked_stream(stream)
    wanted = list(dict.fromkeys(_checked_event_id(one) for one in ids))
    dead = [one for one in wanted if await _is_dead(found, one, name)]
    moved = await found.requeue(name, dead) if dead else 0
    return Requeued(requeued=moved, skipped=[one for one in wanted if one not in dead])


async def read_bus_event(context: WebContext, bus: str, event_id: str) -> EventState:
    """State of one event on a bus."""
    record = await bus_of(context, bus).find(_checked_event_id(event_id))
    if record is None:
        raise not_found("SYS", "event", event_id)
    document = record_document(record)
    payload = _payload_preview(document.pop("envelope")["payload"])
    return EventState.model_validate({**json_safe(document), "payload": payload})


async def _page_of_dead(
    bus: EventBus, stream: str, limit: int, after: str | None, event_type: str | None, code: str | None
) -> tuple[list[DeadLetter], bool]:
    """Return up to ``limit`` dead letters after one, and whether there are more."""
    ask = limit + 1
    while True:
        letters = await bus.dead(stream, ask)
        begin = 0
        if after is not None:
            begin = next((place + 1 for place, one in enumerate(letters) if one.event_id == after), len(letters))
        found = [
            one for one in letters[begin:] if event_type in (None, one.envelope.type) and code in (None, one.error_code)
        ]
        if len(found) > limit or len(letters) < ask or ask >= _MAX_DEAD_LETTERS:
            return found[:limit], len(found) > limit
        ask = min(ask * 4, _MAX_DEAD_LETTERS)


async def _is_dead(bus: EventBus, event_id: str, stream: str) -> bool:
    try:
        record = await bus.find(check_event_id(event_id))
    except InvalidName:  # a file whose name is not an event id
        return False
    return record is not None and record.status == "DEAD" and record.stream == stream


def _dead_letter_state(letter: DeadLetter) -> DeadLetterState:
    document = dead_document(letter)
    payload = _payload_preview(document.pop("envelope")["payload"])
    return DeadLetterState.model_validate({**json_safe(document), "payload": payload, "requeueable": True})


def _invalid_files(context: WebContext, stream: str) -> list[DeadLetterState]:
    folder = f"queue/{stream}/invalid/"
    return [
        DeadLetterState(
            event_id=json_safe(path.removeprefix(folder).removesuffix(".json")),
            type="unreadable",
            attempts=0,
            error_code="SET_ASIDE",
            error_message=json_safe(why),
            dead_at=None,
            payload=None,
            requeueable=False,
        )
        for path, why in invalid_files(context.court.home)
        if path.startswith(folder)
    ]


def _payload_preview(payload: Any) -> PayloadPreview:
    shown = json_safe(payload)
    text = json.dumps(shown, ensure_ascii=False)
    if len(text) <= _MAX_PAYLOAD_CHARS and isinstance(shown, dict):
        return PayloadPreview(value=shown, text=None, size=len(text))
    return PayloadPreview(value=None, text=text[:_MAX_PAYLOAD_CHARS], size=len(text))


def _checked_stream(name: str) -> str:
    try:
        return check_stream(name)
    except InvalidName as error:
        raise ApiError(422, "SYS_INVALID_ID", str(error)) from None


def _checked_event_id(name: str) -> str:
    try:
        return check_event_id(name)
    except InvalidName as error:
        raise ApiError(422, "SYS_INVALID_ID", str(error)) from None
