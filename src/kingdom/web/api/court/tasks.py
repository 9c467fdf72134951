"""``/api/tasks``: look at tasks, and have them ended or done again."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kingdom.court.commands import cancel_task, retry_task
from kingdom.web.api.court.parameters import (
    SOURCE,
    Asked,
    Counted,
    Passed,
    Search,
    Since,
    TaskId,
    Type,
    Until,
    Word,
    counted,
)
from kingdom.web.context import Context
from kingdom.web.envelope import Ok, Page, ok, page
from kingdom.web.paging import Cursor, Limit
from kingdom.web.views.documents import Filter, TaskSummary, list_tasks
from kingdom.web.views.tasks import StoryLine, TaskState, TranscriptPart, read_task, read_transcript, trace

router = APIRouter(prefix="/api/tasks", tags=["court"])
_ANYBODY = Asked()


@router.get("", operation_id="listTasks", summary="Tasks, the newest first")
async def list_all(
    context: Context,
    general: Word = None,
    status: Word = None,
    kind: Type = None,
    priority: Word = None,
    since: Since = None,
    until: Until = None,
    q: Search = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[Counted[TaskSummary]]:
    """Tasks, filtered and searched. `type` may end with `*`; `status=invalid` are those put aside."""
    wanted = Filter(general=general, status=status, type=kind, priority=priority, since=since, until=until, text=q)
    return counted(await list_tasks(context, wanted, limit, cursor))


@router.get("/{taskId}", operation_id="getTask", summary="One task: what it is, what came of it, who was on it")
async def get(context: Context, task_id: TaskId) -> Ok[TaskState]:
    """The documents of the court as they lie in their files, the soldiers, the cost, and what can be asked of it."""
    return ok(await read_task(context, task_id))


@router.get("/{taskId}/trace", operation_id="traceTask", summary="The whole story of a task")
async def get_trace(context: Context, task_id: TaskId) -> Ok[Page[StoryLine]]:
    """Event, task, soldiers, result, messages: in time order, from every file that knows of it."""
    return page(await trace(context, task_id))


@router.get("/{taskId}/transcript", operation_id="getTranscript", summary="What a soldier of a task said and did")
async def get_transcript(
    context: Context,
    task_id: TaskId,
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


@router.post("/{taskId}/cancel", operation_id="cancelTask", summary="Have a task ended", status_code=202)
async def cancel(context: Context, task_id: TaskId, asked: Asked = _ANYBODY) -> Ok[Passed]:
    """It is taken out of the queue, or its soldier is stopped. 409 when it has ended already."""
    event_id = await cancel_task(context.court, task_id, asked.user, SOURCE)
    return ok(Passed(event_id=event_id, task_id=task_id))


@router.post("/{taskId}/retry", operation_id="retryTask", summary="Have a task done once more", status_code=202)
async def retry(context: Context, task_id: TaskId, asked: Asked = _ANYBODY) -> Ok[Passed]:
    """As a new task. 409 while it has not ended."""
    event_id = await retry_task(context.court, task_id, asked.user, SOURCE)
    return ok(Passed(event_id=event_id, task_id=task_id))
