"""`/api/events`, `/api/tasks`, `/api/messages`, `/api/questions`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, Field, StringConstraints

from kingdom.court.commands import answer_question, cancel_task, retry_task
from kingdom.court.models import EventId, EventType, Priority
from kingdom.court.overview import OpenQuestion
from kingdom.court.queues import MESSAGES
from kingdom.web.acting import signature
from kingdom.web.api.court_models import (
    CancelRequested,
    CommandAccepted,
    CountedPage,
    CourtEventDocument,
    EventIdPath,
    EventSortQuery,
    EventStatusQuery,
    MessageDocument,
    MessageIdPath,
    MessageSortQuery,
    MessageStatusQuery,
    RequestedBy,
    SearchQuery,
    SignedBy,
    SinceQuery,
    TaskIdPath,
    TaskSortQuery,
    TaskStatusQuery,
    TextField,
    TypeQuery,
    UntilQuery,
    UserField,
    WordQuery,
    counted_page,
)
from kingdom.web.context import Context
from kingdom.web.envelope import ApiError, ApiModel, Cursor, Limit, Ok, Page, ok, page
from kingdom.web.views.bus import COURT_BUS, requeue_dead
from kingdom.web.views.court import list_questions
from kingdom.web.views.documents import (
    DocumentFilter,
    EventSummary,
    MessageSummary,
    TaskState,
    TaskSummary,
    TraceLine,
    list_tasks,
    read_task,
    trace,
)
from kingdom.web.views.events import (
    WEB_SOURCE,
    CourtEventState,
    MessageState,
    emit_event,
    list_events,
    list_messages,
    read_event,
    read_event_state,
    read_message,
    read_message_state,
)
from kingdom.web.views.transcripts import TranscriptPart, read_transcript

# ── /api/events ──


events_router = APIRouter(prefix="/api/events", tags=["court"])


class NewEvent(ApiModel):
    """An event to inject."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "github.pr.review_requested",
                    "repo": "acme/shop",
                    "payload": {"pr_number": 7, "title": "Discounts"},
                    "priority": "normal",
                }
            ]
        }
    )

    type: EventType
    payload: dict[str, Any] = Field(default_factory=dict)
    source: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=100)] = WEB_SOURCE
    repo: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    priority: Priority = "normal"
    id: EventId | None = Field(default=None, description="An id that is already known changes nothing.")


class InjectedEvent(ApiModel):
    """Result of injecting an event. The event is stored durably."""

    id: str = Field(examples=["evt-web-0199a7c2"])
    accepted: bool = Field(description="False: an event with this id existed already; nothing changed.")


@events_router.get("", operation_id="listEvents", summary="List events, newest first")
async def get_events(
    context: Context,
    status: EventStatusQuery = None,
    kind: TypeQuery = None,
    source: WordQuery = None,
    since: SinceQuery = None,
    until: UntilQuery = None,
    q: SearchQuery = None,
    sort: EventSortQuery = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[CountedPage[EventSummary]]:
    """External events, filtered and searched.

    `type` may end with `*`. `status=discarded` lists events without a task, `status=invalid` files that could not be
    read; both have a reason.
    """
    wanted = DocumentFilter(status=status, type=kind, source=source, since=since, until=until, text=q, sort=sort)
    return counted_page(await list_events(context, wanted, limit, cursor))


@events_router.post(
    "",
    operation_id="injectEvent",
    summary="Inject an event",
    status_code=201,
    responses={200: {"model": Ok[InjectedEvent], "description": "The id was already known: nothing changed."}},
)
async def post_event(context: Context, event: NewEvent, response: Response) -> Ok[InjectedEvent]:
    """Store an event durably; a running court processes it at once. 201: stored. 200: the id was already known."""
    event_id, accepted = await emit_event(context, event.model_dump(exclude={"id"}), event.id)
    if not accepted:
        response.status_code = 200
    return ok(InjectedEvent(id=event_id, accepted=accepted))


@events_router.get("/{eventId}", operation_id="getEvent", summary="Get an event")
async def get_event(context: Context, event_id: EventIdPath) -> Ok[CourtEventDocument]:
    """The document as stored, in any state."""
    return ok(CourtEventDocument(await read_event(context, event_id)))


@events_router.get("/{eventId}/state", operation_id="getEventState", summary="Get an event with what belongs to it")
async def get_event_state(context: Context, event_id: EventIdPath) -> Ok[CourtEventState]:
    """The event, why it was discarded or is invalid, its tasks and messages."""
    return ok(await read_event_state(context, event_id))


@events_router.get("/{eventId}/trace", operation_id="traceEvent", summary="Trace an event")
async def get_event_trace(context: Context, event_id: EventIdPath) -> Ok[Page[TraceLine]]:
    """History of an event from all files, in time order: event, tasks, soldiers, results, messages."""
    return page(await trace(context, event_id))


# ── /api/tasks ──


tasks_router = APIRouter(prefix="/api/tasks", tags=["court"])
_REQUESTED_BY_WEB = RequestedBy()
_CANCEL_REQUESTED = CancelRequested()


@tasks_router.get("", operation_id="listTasks", summary="List tasks, newest first")
async def get_tasks(
    context: Context,
    general: WordQuery = None,
    status: TaskStatusQuery = None,
    kind: TypeQuery = None,
    priority: WordQuery = None,
    since: SinceQuery = None,
    until: UntilQuery = None,
    q: SearchQuery = None,
    sort: TaskSortQuery = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[CountedPage[TaskSummary]]:
    """Tasks, filtered and searched. `type` may end with `*`. `status=invalid` lists files that could not be read."""
    wanted = DocumentFilter(
        general=general, status=status, type=kind, priority=priority, since=since, until=until, text=q, sort=sort
    )
    return counted_page(await list_tasks(context, wanted, limit, cursor))


@tasks_router.get("/{taskId}", operation_id="getTask", summary="Get a task")
async def get_task(context: Context, task_id: TaskIdPath) -> Ok[TaskState]:
    """The task and its result as stored, its soldiers, its cost, and the actions that are possible now."""
    return ok(await read_task(context, task_id))


@tasks_router.get("/{taskId}/trace", operation_id="traceTask", summary="Trace a task")
async def get_task_trace(context: Context, task_id: TaskIdPath) -> Ok[Page[TraceLine]]:
    """History of a task from all files, in time order: event, task, soldiers, result, messages."""
    return page(await trace(context, task_id))


@tasks_router.get("/{taskId}/transcript", operation_id="getTranscript", summary="Get a transcript")
async def get_transcript(
    context: Context,
    task_id: TaskIdPath,
    offset: Annotated[
        int, Query(ge=-(2**40), le=2**40, description="First byte to read; a negative value counts from the end.")
    ] = 0,
    soldier: Annotated[
        str | None, Query(max_length=200, description="Soldier id; default: the last soldier of the task.")
    ] = None,
    raw: Annotated[bool, Query(description="Return every line as the agent wrote it.")] = False,
) -> Ok[TranscriptPart]:
    """What a soldier said and did, about 64 KiB at a time.

    Call again with `nextOffset` to read on, also while the run continues.
    """
    return ok(await read_transcript(context, task_id, offset, soldier=soldier, raw=raw))


@tasks_router.post("/{taskId}/cancel", operation_id="cancelTask", summary="Cancel a task", status_code=202)
async def post_task_cancel(
    context: Context, task_id: TaskIdPath, asked: CancelRequested = _CANCEL_REQUESTED
) -> Ok[CommandAccepted]:
    """Remove a task from the queue, or stop its soldier. 409: it has already ended."""
    event_id = await cancel_task(context.court, task_id, signature(asked.user), WEB_SOURCE, asked.reason)
    return ok(CommandAccepted(event_id=event_id, task_id=task_id))


@tasks_router.post("/{taskId}/retry", operation_id="retryTask", summary="Retry a task", status_code=202)
async def post_task_retry(
    context: Context, task_id: TaskIdPath, asked: RequestedBy = _REQUESTED_BY_WEB
) -> Ok[CommandAccepted]:
    """Run a task again, as a new task. 409: it has not ended."""
    event_id = await retry_task(context.court, task_id, signature(asked.user), WEB_SOURCE)
    return ok(CommandAccepted(event_id=event_id, task_id=task_id))


# ── /api/messages ──


messages_router = APIRouter(prefix="/api/messages", tags=["court"])


class ResentMessage(ApiModel):
    """A message that was queued again."""

    id: str = Field(examples=["msg-20260207-001"])


@messages_router.get("", operation_id="listMessages", summary="List messages, newest first")
async def get_messages(
    context: Context,
    status: MessageStatusQuery = None,
    kind: TypeQuery = None,
    since: SinceQuery = None,
    until: UntilQuery = None,
    q: SearchQuery = None,
    sort: MessageSortQuery = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[CountedPage[MessageSummary]]:
    """Messages to people, filtered and searched.

    `status` is pending, sent, failed, or invalid for files that could not be read.
    """
    wanted = DocumentFilter(status=status, type=kind, since=since, until=until, text=q, sort=sort)
    return counted_page(await list_messages(context, wanted, limit, cursor))


@messages_router.get("/{messageId}", operation_id="getMessage", summary="Get a message")
async def get_message(context: Context, message_id: MessageIdPath) -> Ok[MessageDocument]:
    """The document as stored, in any state."""
    return ok(MessageDocument(await read_message(context, message_id)))


@messages_router.get(
    "/{messageId}/state", operation_id="getMessageState", summary="Get a message with what belongs to it"
)
async def get_message_state(context: Context, message_id: MessageIdPath) -> Ok[MessageState]:
    """The message, why it could not be sent, its task and event."""
    return ok(await read_message_state(context, message_id))


@messages_router.post(
    "/{messageId}/resend", operation_id="resendMessage", summary="Resend a failed message", status_code=202
)
async def post_message_resend(context: Context, message_id: MessageIdPath) -> Ok[ResentMessage]:
    """Queue a failed message again. 409: the message has not failed."""
    document = await read_message(context, message_id)
    if not (await requeue_dead(context, COURT_BUS, MESSAGES, [message_id])).requeued:
        raise ApiError(
            409, "SYS_NOT_FAILED", f"{message_id} is {document.get('status')}: only failed messages can be resent"
        )
    return ok(ResentMessage(id=message_id))


# ── /api/questions ──


questions_router = APIRouter(prefix="/api/questions", tags=["court"])


class AnswerBody(ApiModel):
    """A person's answer to a question."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "The second one.", "user": "ann"}]})

    text: TextField
    user: UserField | None = SignedBy


@questions_router.get("", operation_id="listQuestions", summary="List open questions")
async def get_questions(context: Context) -> Ok[Page[OpenQuestion]]:
    """Questions to people. Each belongs to a waiting task."""
    return page(await list_questions(context))


@questions_router.post("/{taskId}/answer", operation_id="answerQuestion", summary="Answer a question", status_code=202)
async def post_answer(context: Context, task_id: TaskIdPath, given: AnswerBody) -> Ok[CommandAccepted]:
    """Answer the question of a task, which then continues. The first answer counts. 409: there is no open question."""
    event_id = await answer_question(context.court, task_id, given.text, signature(given.user), WEB_SOURCE)
    return ok(CommandAccepted(event_id=event_id, task_id=task_id))
