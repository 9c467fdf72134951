"""Tools for the court."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal
from uuid import uuid4

from pydantic import Field

from kingdom.court.commands import answer_question, cancel_task, inject, retry_task
from kingdom.web.mcpserver.plain import Limit, plain
from kingdom.web.views import court as court_views
from kingdom.web.views import documents, generals, tasks
from kingdom.web.views.plain import check_payload

if TYPE_CHECKING:
    from kingdom.web.context import WebContext

SOURCE: Final = "mcp"
TaskId = Annotated[str, Field(description="The id of a task, task-YYYYMMDD-NNN.")]
_LAST: Final = 20_000  # bytes of a transcript: what an agent can use of it


class CourtTools:
    """What an agent can see of a court, and ask of it."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self.reading = (
            self.court_status,
            self.list_tasks,
            self.show_task,
            self.trace,
            self.read_transcript,
            self.list_questions,
            self.list_generals,
        )
        self.acting = (self.emit_event, self.answer_question, self.cancel_task, self.retry_task)

    async def court_status(self) -> dict[str, Any]:
        """Tell how the court is: roles, queues, what is held and why, soldiers at work, questions, health, cost."""
        return plain(await court_views.court_overview(self._context))

    async def list_tasks(
        self,
        status: Annotated[
            str | None, Field(description="Only those: pending, in_progress, completed, failed, needs_human…")
        ] = None,
        general: Annotated[str | None, Field(description="Only those of this general, as gen-pr.")] = None,
        search: Annotated[str | None, Field(description="Words of the task: title, repository, number…")] = None,
        limit: Limit = 20,
    ) -> dict[str, Any]:
        """List tasks, the newest first."""
        wanted = documents.Filter(status=status, general=general, text=search)
        found = await documents.list_tasks(self._context, wanted, limit=limit)
        return {"items": [plain(task) for task in found.items], "total": found.total}

    async def show_task(self, task_id: TaskId) -> dict[str, Any]:
        """Show one task: what it is about, its result, its question if it has one, its soldiers, its cost."""
        return plain(await tasks.read_task(self._context, task_id))

    async def trace(
        self, any_id: Annotated[str, Field(description="The id of an event, a task or a message.")]
    ) -> list[dict[str, Any]]:
        """Tell the whole story of an event, a task or a message in time order."""
        return [plain(line) for line in await tasks.trace(self._context, any_id)]

    async def read_transcript(self, task_id: TaskId) -> dict[str, Any]:
        """Read the end of what the agent of a task said and did."""
        return plain(await tasks.read_transcript(self._context, task_id, offset=-_LAST))

    async def list_questions(self) -> list[dict[str, Any]]:
        """List the questions that wait for a person's answer."""
        return [plain(question) for question in await court_views.list_questions(self._context)]

    async def list_generals(self) -> list[dict[str, Any]]:
        """List the generals: what each does, and which types of events it takes."""
        return [plain(general) for general in await generals.list_generals(self._context)]

    async def emit_event(
        self,
        type: Annotated[str, Field(description="What happened, as local.request; list_generals tells who takes what.")],  # noqa: A002
        payload: Annotated[dict[str, Any], Field(description="What is to be known about it.")],
        repo: Annotated[str | None, Field(description="The repository it is about, owner/name.")] = None,
        priority: Annotated[Literal["high", "normal", "low"], Field()] = "normal",
    ) -> dict[str, Any]:
        """Emit an event, so that a general has the work done. list_tasks and trace tell what becomes of it."""
        check_payload(payload)
        event_id = f"evt-{SOURCE}-{uuid4().hex}"
        document: dict[str, Any] = {
            "id": event_id, "type": type, "source": SOURCE, "payload": payload, "priority": priority,
        }  # fmt: skip
        if repo is not None:
            document["repo"] = repo
        await inject(self._context.court, document)
        return {"eventId": event_id}

    async def answer_question(
        self, task_id: TaskId, answer: Annotated[str, Field(min_length=1, max_length=10_000)]
    ) -> str:
        """Answer the question of a task for the person you work for. The first answer counts."""
        await answer_question(self._context.court, task_id, answer, SOURCE, source=SOURCE)
        return f"{task_id} goes on with the answer"

    async def cancel_task(self, task_id: TaskId) -> str:
        """Have a task that waits or runs ended."""
        await cancel_task(self._context.court, task_id, SOURCE, source=SOURCE)
        return f"{task_id} is going to be cancelled"

    async def retry_task(self, task_id: TaskId) -> str:
        """Have a task that ended done once more."""
        await retry_task(self._context.court, task_id, SOURCE, source=SOURCE)
        return f"{task_id} is going to be done again"
