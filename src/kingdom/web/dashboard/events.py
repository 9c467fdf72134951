"""Events and messages: lists, and a page for each document."""

from __future__ import annotations

from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from fastapi import Query
from nicegui import ui

from kingdom.court.models import MessageType
from kingdom.court.queues import MESSAGES
from kingdom.web.dashboard.components import (
    CellPart,
    TableColumn,
    badge,
    button,
    card,
    empty,
    facts,
    folded_json,
    part,
    run_and_notify,
    tab,
    tag,
    text,
)
from kingdom.web.dashboard.document_list import PAGE_SIZE, DocumentList, ListQuery, as_order
from kingdom.web.dashboard.formats import court_timezone, format_clock, format_datetime, page_url
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import draw_emit_link, page, page_head
from kingdom.web.dashboard.timeline import draw_links, draw_trace
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.bus import COURT_BUS, requeue_dead
from kingdom.web.views.documents import DocumentFilter, DocumentPage, EventSummary, MessageSummary, trace
from kingdom.web.views.events import (
    list_event_types,
    list_events,
    list_messages,
    read_event_state,
    read_message_state,
)

if TYPE_CHECKING:
    from kingdom.web.live.event import LiveEvent
    from kingdom.web.views.events import CourtEventState, MessageState

_TRACE_SECONDS: Final = 60.0  # a trace reads many files; journal events refresh it earlier
_TYPE_QUERY: Final = Query(alias="type")
_SMALL: Final = "k-small k-muted k-block k-wrap"


def _tabs(visit: Visit, chosen: str) -> None:
    """Draw the tabs between events and messages."""
    with tag("nav", "k-tabs", aria_label=visit.words("events.tabs")):
        for name in ("events", "messages"):
            tab(visit.words(f"nav.{name}"), f"/{name}", chosen=name == chosen)


# ── Events ──


@page("/events", title="nav.events", nav="events", court=True)
async def event_list_page(
    visit: Visit,
    status: str | None = None,
    kind: Annotated[str | None, _TYPE_QUERY] = None,
    within: str | None = None,
    q: str = "",
    sort: str = "newest",
) -> None:
    """The event list page."""
    with page_head(visit.words("nav.events")):
        _tabs(visit, "events")
        if visit.may("injectEvent"):
            button(visit.words("emit.title"), lambda: ui.navigate.to("/events/new"), kind="primary", icon="bolt")
    wish = ListQuery("/events", status=status, type=kind or None, within=within, text=q, sort=as_order(sort))
    await EventList(visit, wish, await court_timezone(visit)).begin()


class EventList(DocumentList[EventSummary]):
    """The event list with its filters."""

    title = "nav.events"
    search = "events.search"
    statuses = ("pending", "dispatched", "completed", "failed", "cancelled", "discarded", "invalid")
    orders = ("newest", "oldest", "status", "type", "source", "priority")

    async def read(self, wanted: DocumentFilter, cursor: str | None) -> DocumentPage[EventSummary]:
        """Read one page."""
        return await list_events(self._visit.context, wanted, PAGE_SIZE, cursor)

    async def boxes(self) -> None:
        """Draw the choice of a type."""
        types = [one.type for one in await list_event_types(self._visit.context)]
        self.select("task.type", {"": self._visit.words("events.type.any"), **{one: one for one in types}}, "type")

    def nothing(self) -> None:
        """Say how the first event comes."""
        empty(self._visit.words("events.none"), self._visit.words("events.none.hint"))
        draw_emit_link(self._visit)

    def columns(self) -> list[TableColumn[EventSummary]]:
        """Return the columns of the table."""
        words = self._visit.words
        return [
            TableColumn(
                words("task.type"),
                lambda one: one.type or one.id,
                target=lambda one: page_url("events", one.id),
                width="240px",
            ),
            TableColumn(
                words("task.status"),
                lambda one: words.of("status", one.shown_status),
                status=lambda one: one.shown_status,
                width="120px",
            ),
            TableColumn(words("task.about"), _about_event, classes="k-clip", below=_event_links),
            TableColumn(words("events.source"), lambda one: one.source, classes="k-hide-narrow", width="110px"),
            TableColumn(words("task.created"), self._created, classes="k-num k-muted", width="140px"),
        ]

    def _created(self, event: EventSummary) -> str:
        return format_clock(event.created_at, self._zone, now=self._visit.context.clock())


def _about_event(event: EventSummary) -> str:
    return " ".join(filter(None, (event.subject, event.title))) or event.repo or event.id


def _event_links(event: EventSummary) -> list[CellPart]:
    """Return why an event was discarded or is invalid, and its tasks."""
    reason = [] if event.reason is None else [part(event.reason, _SMALL)]
    return reason + [part(one, "nicegui-link k-small k-above k-block", href=f"/tasks/{one}") for one in event.tasks]


@page("/events/{event_id}", title="nav.events", nav="events", court=True)
async def event_page(visit: Visit, event_id: str) -> None:
    """The page of one event: what became of it, its tasks and messages, trace, payload."""
    words, zone = visit.words, await court_timezone(visit)

    async def load() -> CourtEventState:
        return await visit.shared.read(("event", event_id), lambda: read_event_state(visit.context, event_id))

    def concerns(event: LiveEvent) -> bool:
        return event_id in str(event.data)

    first = await load()  # an unknown event raises here, and the error replaces the page
    refresher, story = PageRefresher(visit, concerns), PageRefresher(visit, concerns, every=_TRACE_SECONDS)
    kind = str(first.event.get("type") or event_id)
    title = " ".join(filter(None, (first.subject, first.title))) or kind
    actions = page_head(title, above=(words("nav.events"), "/events"))
    await refresher.panel(actions, load, lambda state: _draw_status(visit, state.shown_status))
    reason = tag("div")
    await refresher.panel(reason, load, lambda state: _draw_reason(visit, state.shown_status, state.reason))
    with tag("div", "k-grid k-below"):
        with tag("div", "k-column k-col-8"):
            with card(words("events.linked"), flush=True) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: draw_links(visit, state.linked, zone))
            with card(words("task.story")) as (body, _):
                pass
            await story.panel(body, partial(trace, visit.context, event_id), partial(draw_trace, visit, zone, event_id))
        with tag("div", "k-column k-col-4"):
            with card(words("task.facts")) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: _draw_event_facts(visit, zone, event_id, state.event))
            with card(words("task.payload")) as (body, _):
                pass
            await refresher.panel(
                body, load, lambda state: folded_json(words("task.raw"), state.event.get("payload") or {})
            )


def _draw_status(visit: Visit, status: str) -> None:
    badge(visit.words.of("status", status), status).props["data-status"] = status


def _draw_reason(visit: Visit, status: str, reason: str | None) -> None:
    if reason is not None:
        with tag("div", f"k-notice k-tone-{'warn' if status == 'discarded' else 'bad'}", role="status"):
            text(f"{visit.words.of('status', status)}: {reason}", "k-wrap")


def _draw_event_facts(visit: Visit, zone: tzinfo, event_id: str, event: dict[str, Any]) -> None:
    words = visit.words
    facts(
        [
            (words("task.event"), event_id),
            (words("task.type"), str(event.get("type") or "–")),
            (words("events.source"), str(event.get("source") or "–")),
            (words("task.repo"), str(event.get("repo") or "–")),
            (words("task.priority"), words.of("priority", str(event.get("priority") or "–"))),
            (words("task.created"), format_datetime(event.get("created_at"), zone)),
        ]
    )


# ── Messages ──


@page("/messages", title="nav.messages", nav="messages", court=True)
async def message_list_page(
    visit: Visit,
    status: str | None = None,
    kind: Annotated[str | None, _TYPE_QUERY] = None,
    within: str | None = None,
    q: str = "",
    sort: str = "newest",
) -> None:
    """The message list page."""
    with page_head(visit.words("nav.messages")):
        _tabs(visit, "messages")
    wish = ListQuery("/messages", status=status, type=kind or None, within=within, text=q, sort=as_order(sort))
    await MessageList(visit, wish, await court_timezone(visit)).begin()


class MessageList(DocumentList[MessageSummary]):
    """The message list with its filters."""

    title = "nav.messages"
    search = "messages.search"
    statuses = ("pending", "sent", "failed", "invalid")
    orders = ("newest", "oldest", "status", "type")

    async def read(self, wanted: DocumentFilter, cursor: str | None) -> DocumentPage[MessageSummary]:
        """Read one page."""
        return await list_messages(self._visit.context, wanted, PAGE_SIZE, cursor)

    async def boxes(self) -> None:
        """Draw the choice of a type."""
        words = self._visit.words
        types = {one: words(f"message.{one}") for one in get_args(MessageType)}
        self.select("task.type", {"": words("events.type.any"), **types}, "type")

    def nothing(self) -> None:
        """Say what messages are."""
        empty(self._visit.words("messages.none"), self._visit.words("messages.none.hint"))

    def columns(self) -> list[TableColumn[MessageSummary]]:
        """Return the columns of the table."""
        words = self._visit.words
        return [
            TableColumn(
                words("messages.one"),
                lambda one: one.id,
                target=lambda one: page_url("messages", one.id),
                classes="k-mono",
                width="170px",
            ),
            TableColumn(
                words("task.status"),
                lambda one: words.of("status", one.status),
                status=lambda one: one.status,
                width="110px",
            ),
            TableColumn(words("task.about"), lambda one: one.title or "–", classes="k-clip", below=_message_links),
            TableColumn(
                words("task.type"),
                lambda one: words.of("message", one.type),
                classes="k-muted k-hide-narrow",
                width="170px",
            ),
            TableColumn(words("task.created"), self._created, classes="k-num k-muted", width="140px"),
        ]

    def _created(self, message: MessageSummary) -> str:
        return format_clock(message.created_at, self._zone, now=self._visit.context.clock())


def _message_links(message: MessageSummary) -> list[CellPart]:
    """Return why a message was not sent, and its task."""
    found = [] if message.reason is None else [part(message.reason, _SMALL)]
    if message.task_id is not None:
        found.append(part(message.task_id, "nicegui-link k-small k-above k-block", href=f"/tasks/{message.task_id}"))
    return found


@page("/messages/{message_id}", title="nav.messages", nav="messages", court=True)
async def message_page(visit: Visit, message_id: str) -> None:
    """The page of one message: its text, its task and event."""
    words, zone = visit.words, await court_timezone(visit)

    async def load() -> MessageState:
        return await visit.shared.read(("message", message_id), lambda: read_message_state(visit.context, message_id))

    def concerns(event: LiveEvent) -> bool:
        return message_id in str(event.data)

    first = await load()  # an unknown message raises here, and the error replaces the page
    refresher = PageRefresher(visit, concerns)
    title = words.of("message", str(first.message.get("type") or message_id))
    actions = page_head(title, above=(words("nav.messages"), "/messages"))
    await refresher.panel(actions, load, lambda state: _draw_message_actions(visit, message_id, state, refresher))
    reason = tag("div")
    await refresher.panel(reason, load, lambda state: _draw_reason(visit, state.status, state.reason))
    with tag("div", "k-grid k-below"):
        with tag("div", "k-column k-col-8"):
            with card(words("messages.content")) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: _draw_content(state.message))
            with card(words("events.linked"), flush=True) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: draw_links(visit, state.linked, zone))
        with tag("div", "k-column k-col-4"):
            with card(words("task.facts")) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: _draw_message_facts(visit, zone, message_id, state.message))
            with card(words("messages.context")) as (body, _):
                pass
            await refresher.panel(
                body, load, lambda state: folded_json(words("task.raw"), state.message.get("context") or {})
            )


def _draw_message_actions(visit: Visit, message_id: str, state: MessageState, refresher: PageRefresher) -> None:
    _draw_status(visit, state.status)

    async def resend() -> None:
        async def act() -> None:
            await requeue_dead(visit.context, COURT_BUS, MESSAGES, [message_id])

        if await run_and_notify(visit, act, visit.words("messages.resent"), "resendMessage", message_id):
            refresher.wake()

    if state.status == "failed" and visit.may("resendMessage"):
        button(visit.words("messages.resend"), resend, kind="primary")


def _draw_content(message: dict[str, Any]) -> None:
    text(str(message.get("content") or "–"), "k-wrap k-pre", name="div")


def _draw_message_facts(visit: Visit, zone: tzinfo, message_id: str, message: dict[str, Any]) -> None:
    words = visit.words
    facts(
        [
            (words("messages.one"), message_id),
            (words("task.type"), words.of("message", str(message.get("type") or "–"))),
            (words("messages.channel"), str(message.get("channel") or "–")),
            (words("messages.urgency"), words.of("urgency", str(message.get("urgency") or "–"))),
            (words("task.created"), format_datetime(message.get("created_at"), zone)),
        ]
    )
