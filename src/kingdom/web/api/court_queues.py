"""`/api/events`, `/api/tasks`, `/api/messages`, `/api/questions`."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, Field, StringConstraints

from kingdom.bus.envelope import new_event_id
from kingdom.court.commands import answer_question, cancel_task, inject_event, retry_task
from kingdom.court.models import EventId, EventType, Priority
from kingdom.court.queues import MESSAGES
from kingdom.web.api.court_models import (
    WEB_SOURCE,
    CommandAccepted,
    CountedPage,
    CourtEventDocument,
    EventIdPath,
    MessageDocument,
    MessageIdPath,
    RequestedBy,
    SearchQuery,
    SinceQuery,
    TaskIdPath,
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
from kingdom.web.views.court import OpenQuestion, list_questions
from kingdom.web.views.documents import (
    DocumentFilter,
    EventSummary,
    MessageSummary,
    TaskState,
    TaskSummary,
    TraceLine,
    TranscriptPart,
    list_events,
    list_messages,
    list_tasks,
    read_event,
    read_message,
    read_task,
    read_transcript,
    trace,
)
from kingdom.web.views.redaction import check_payload

# ``/api/events``: what happened outside, and making something happen.


events_router = APIRouter(prefix="/api/events", tags=["court"])


class NewEvent(ApiModel):
    """Something that happened, told by whoever calls."""

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
    id: EventId | None = Field(default=None, description="One that was seen before changes nothing.")


class InjectedEvent(ApiModel):
    """The event is durable."""

    id: str = Field(examples=["evt-web-0199a7c2"])
    accepted: bool = Field(description="False: one with this id was there before, and nothing changed.")


@events_router.get("", operation_id="listEvents", summary="Events, the newest first")
async def get_events(
    context: Context,
    status: WordQuery = None,
    kind: TypeQuery = None,
    source: WordQuery = None,
    since: SinceQuery = None,
    until: UntilQuery = None,
    q: SearchQuery = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[CountedPage[EventSummary]]:
    """Events from outside, filtered and searched. `type` may end with `*`; `status=invalid` are those put aside."""
    wanted = DocumentFilter(status=status, type=kind, source=source, since=since, until=until, text=q)
    return counted_page(await list_events(context, wanted, limit, cursor))


@events_router.post("", operation_id="injectEvent", summary="Put an event into the court", status_code=201)
async def post_event(context: Context, event: NewEvent, response: Response) -> Ok[InjectedEvent]:
    """It is durable when this answers, and taken up at once when the court is up. 200: its id was known before."""
    check_payload(event.payload)
    event_id = event.id or f"evt-{WEB_SOURCE}-{new_event_id()}"
    accepted = await inject_event(context.court, {**event.model_dump(exclude={"id"}), "id": event_id})
    if not accepted:
        response.status_code = 200
    return ok(InjectedEvent(id=event_id, accepted=accepted))


@events_router.get("/{eventId}", operation_id="getEvent", summary="One event as it lies in its file")
async def get_event(context: Context, event_id: EventIdPath) -> Ok[CourtEventDocument]:
    """The document, whatever state it is in."""
    return ok(CourtEventDocument(await read_event(context, event_id)))


@events_router.get("/{eventId}/trace", operation_id="traceEvent", summary="The whole story of an event")
async def get_event_trace(context: Context, event_id: EventIdPath) -> Ok[Page[TraceLine]]:
    """Event, tasks, soldiers, results, messages: in time order, from every file that knows of it."""
    return page(await trace(context, event_id))


# ``/api/tasks``: look at tasks, and have them ended or done again.


tasks_router = APIRouter(prefix="/api/tasks", tags=["court"])
_REQUESTED_BY_WEB = RequestedBy()


@tasks_router.get("", operation_id="listTasks", summary="Tasks, the newest first")
async def get_tasks(
    context: Context,
    general: WordQuery = None,
    status: WordQuery = None,
    kind: TypeQuery = None,
    priority: WordQuery = None,
    since: SinceQuery = None,
    until: UntilQuery = None,
    q: SearchQuery = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[CountedPage[TaskSummary]]:
    """Tasks, filtered and searched. `type` may end with `*`; `status=invalid` are those put aside."""
    wanted = DocumentFilter(
        general=general, status=status, type=kind, priority=priority, since=since, until=until, text=q
    )
    return counted_page(await list_tasks(context, wanted, limit, cursor))


@tasks_router.get("/{taskId}", operation_id="getTask", summary="One task: what it is, what came of it, who was on it")
async def get_task(context: Context, task_id: TaskIdPath) -> Ok[TaskState]:
    """The documents of the court as they lie in their files, the soldiers, the cost, and what can be asked of it."""
    return ok(await read_task(context, task_id))


@tasks_router.get("/{taskId}/trace", operation_id="traceTask", summary="The whole story of a task")
async def get_task_trace(context: Context, task_id: TaskIdPath) -> Ok[Page[TraceLine]]:
    """Event, task, soldiers, result, messages: in time order, from every file that knows of it."""
    return page(await trace(context, task_id))


@tasks_router.get("/{taskId}/transcript", operation_id="getTranscript", summary="What a soldier of a task said and did")
async def get_transcript(
    context: Context,
    task_id: TaskIdPath,
    offset: Annotated[
        int, Query(ge=-(2**40), le=2**40, description="The byte to begin at; negative: so many from the end.")
    ] = 0,
    soldier: Annotated[
        str | None, Query(max_length=200, description="Of this one; else of the last one on the task.")
    ] = None,
    raw: Annotated[bool, Query(description="Every line as the agent wrote it.")] = False,
) -> Ok[TranscriptPart]:
    """About 64 KiB of it. Ask again with `nextOffset` for what follows: so a run is read while it goes on."""
    return ok(await read_transcript(context, task_id, offset, soldier=soldier, raw=raw))


@tasks_router.post("/{taskId}/cancel", operation_id="cancelTask", summary="Have a task ended", status_code=202)
async def post_task_cancel(
    context: Context, task_id: TaskIdPath, asked: RequestedBy = _REQUESTED_BY_WEB
) -> Ok[CommandAccepted]:
    """It is taken out of the queue, or its soldier is stopped. 409 when it has ended already."""
    event_id = await cancel_task(context.court, task_id, asked.user, WEB_SOURCE)
    return ok(CommandAccepted(event_id=event_id, task_id=task_id))


@tasks_router.post("/{taskId}/retry", operation_id="retryTask", summary="Have a task done once more", status_code=202)
async def post_task_retry(
    context: Context, task_id: TaskIdPath, asked: RequestedBy = _REQUESTED_BY_WEB
) -> Ok[CommandAccepted]:
    """As a new task. 409 while it has not ended."""
    event_id = await retry_task(context.court, task_id, asked.user, WEB_SOURCE)
    return ok(CommandAccepted(event_id=event_id, task_id=task_id))


# ``/api/messages``: what people are told.


messages_router = APIRouter(prefix="/api/messages", tags=["court"])


class ResentMessage(ApiModel):
    """The message waits to be sent once more."""

    id: str = Field(examples=["msg-20260207-001"])


@messages_router.get("", operation_id="listMessages", summary="Messages to people, the newest first")
async def get_messages(
    context: Context,
    status: WordQuery = None,
    kind: TypeQuery = None,
    since: SinceQuery = None,
    until: UntilQuery = None,
    q: SearchQuery = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[CountedPage[MessageSummary]]:
    """Messages, filtered and searched. `status` is pending, sent, failed, or invalid for those put aside."""
    wanted = DocumentFilter(status=status, type=kind, since=since, until=until, text=q)
    return counted_page(await list_messages(context, wanted, limit, cursor))


@messages_router.get("/{messageId}", operation_id="getMessage", summary="One message as it lies in its file")
async def get_message(context: Context, message_id: MessageIdPath) -> Ok[MessageDocument]:
    """The document, whatever state it is in."""
    return ok(MessageDocument(await read_message(context, message_id)))


@messages_router.post(
    "/{messageId}/resend", operation_id="resendMessage", summary="Send a failed message again", status_code=202
)
async def post_message_resend(context: Context, message_id: MessageIdPath) -> Ok[ResentMessage]:
    """It goes back into the queue. 409 when it has not failed."""
    document = await read_message(context, message_id)
    if not (await requeue_dead(context, COURT_BUS, MESSAGES, [message_id])).requeued:
        raise ApiError(
            409, "SYS_NOT_FAILED", f"{message_id} is {document.get('status')}: only failed ones are sent again"
        )
    return ok(ResentMessage(id=message_id))


# ``/api/questions``: what people are asked, and answering it.


questions_router = APIRouter(prefix="/api/questions", tags=["court"])


class AnswerBody(ApiModel):
    """What a person answers."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "The second one.", "user": "ann"}]})

    text: TextField
    user: UserField = WEB_SOURCE


@questions_router.get("", operation_id="listQuestions", summary="Questions that wait for an answer")
async def get_questions(context: Context) -> Ok[Page[OpenQuestion]]:
    """Each belongs to a task, which waits."""
    return page(await list_questions(context))


@questions_router.post(
    "/{taskId}/answer", operation_id="answerQuestion", summary="Answer the question of a task", status_code=202
)
async def post_answer(context: Context, task_id: TaskIdPath, given: AnswerBody) -> Ok[CommandAccepted]:
    """The first answer counts, and the work goes on with it. 409 when the task asks nothing, or not any more."""
    event_id = await answer_question(context.court, task_id, given.text, given.user, WEB_SOURCE)
    return ok(CommandAccepted(event_id=event_id, task_id=task_id))
