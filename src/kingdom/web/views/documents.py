"""Lists of the court's documents: events, tasks and messages, the newest first, filtered and searched."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pydantic import BaseModel, Field

from kingdom.court.document_index import containing, valid
from kingdom.court.queues import EVENTS, MESSAGES, TASKS
from kingdom.web.paging import cursor_of, position_of, wrong_cursor
from kingdom.web.views.keeping import desk_of
from kingdom.web.views.plain import plain

if TYPE_CHECKING:
    from kingdom.court.document_index import Indexed, Narrow
    from kingdom.web.context import WebContext

_NEVER: Final = 1e15  # seconds, which no document is from: whoever comes with more made the cursor up


@dataclass(frozen=True, slots=True)
class Filter:
    """Which documents are wanted; None: it does not matter."""

    status: str | None = None
    """As in the documents; ``invalid`` for those that were put aside."""
    type: str | None = None
    """``github.pr.*`` means all that begin so."""
    general: str | None = None
    source: str | None = None
    priority: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None
    """Words that all occur somewhere, however they are written."""


class Summary(BaseModel):
    """What a list tells of a document. Its fields are those of the document itself."""

    id: str
    type: str
    status: str
    created_at: str
    subject: str | None = Field(description="What it is about, as a pull request.", examples=["acme/shop#7"])
    title: str | None = Field(description="What the payload calls it.", examples=["Discounts"])


class TaskSummary(Summary):
    """One task in a list."""

    event_id: str
    target_general: str
    priority: str


class EventSummary(Summary):
    """One event in a list."""

    source: str
    repo: str | None
    priority: str


class MessageSummary(Summary):
    """One message in a list."""

    channel: str
    urgency: str


S = TypeVar("S", bound=Summary)


@dataclass(frozen=True, slots=True)
class Listing(Generic[S]):
    """One page."""

    items: list[S]
    next_cursor: str | None
    total: int
    """How many match on all pages."""


async def list_tasks(
    context: WebContext, wanted: Filter | None = None, limit: int = 50, cursor: str | None = None
) -> Listing[TaskSummary]:
    """Tasks, the newest first."""
    return await _list(context, TASKS, TaskSummary, wanted, limit, cursor)


async def list_events(
    context: WebContext, wanted: Filter | None = None, limit: int = 50, cursor: str | None = None
) -> Listing[EventSummary]:
    """Events from outside, the newest first."""
    return await _list(context, EVENTS, EventSummary, wanted, limit, cursor)


async def list_messages(
    context: WebContext, wanted: Filter | None = None, limit: int = 50, cursor: str | None = None
) -> Listing[MessageSummary]:
    """Messages to people, the newest first."""
    return await _list(context, MESSAGES, MessageSummary, wanted, limit, cursor)


async def _list(
    context: WebContext, stream: str, model: type[S], wanted: Filter | None, limit: int, cursor: str | None
) -> Listing[S]:
    chosen = None if wanted is None or wanted == Filter() else _narrowing(wanted)
    found = await desk_of(context).indexes[stream].page(chosen, limit, _before(cursor))
    following = cursor_of(found.items[-1].key) if found.more else None
    return Listing([_summary(entry, model) for entry in found.items], following, found.total)


def _before(cursor: str | None) -> tuple[float, str] | None:
    position = position_of(cursor)
    if position is None:
        return None
    match position:
        case [int() | float() as at, str() as document_id] if abs(at) < _NEVER:
            return float(at), document_id
    raise wrong_cursor()


def _narrowing(wanted: Filter) -> list[Narrow]:
    """What leaves those that are asked for: what is cheap to find out comes first."""
    found: list[Narrow] = []
    if wanted.status is None:
        found.append(valid)
    else:
        found.append(lambda entries: [entry for entry in entries if entry.status == wanted.status])
    if wanted.general is not None:
        found.append(lambda entries: [entry for entry in entries if entry.general == wanted.general])
    if wanted.source is not None:
        found.append(lambda entries: [entry for entry in entries if entry.source == wanted.source])
    if wanted.priority is not None:
        found.append(lambda entries: [entry for entry in entries if entry.priority == wanted.priority])
    if wanted.type is not None:
        found.append(_with_type(wanted.type))
    if wanted.since is not None:
        since = _seconds(wanted.since)
        found.append(lambda entries: [entry for entry in entries if entry.at >= since])
    if wanted.until is not None:
        until = _seconds(wanted.until)
        found.append(lambda entries: [entry for entry in entries if entry.at < until])
    return found + containing(wanted.text or "")


def _with_type(pattern: str) -> Narrow:
    if not pattern.endswith("*"):
        return lambda entries: [entry for entry in entries if entry.type == pattern]
    beginning = pattern.rstrip("*")
    return lambda entries: [entry for entry in entries if entry.type.startswith(beginning)]


def _seconds(moment: datetime) -> float:
    """A time that names no zone is UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _summary(entry: Indexed, model: type[S]) -> S:
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        value = entry.fields.get(name)
        empty = None if field.annotation == (str | None) else ""
        found[name] = empty if value is None else plain(str(value))
    return model(**found)
