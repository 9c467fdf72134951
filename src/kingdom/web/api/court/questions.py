"""``/api/questions``: what people are asked, and answering it."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import ConfigDict

from kingdom.court.commands import answer_question
from kingdom.web.api.court.parameters import SOURCE, Passed, TaskId, Text, User
from kingdom.web.context import Context
from kingdom.web.envelope import ApiModel, Ok, Page, ok, page
from kingdom.web.views.court import OpenQuestion, list_questions

router = APIRouter(prefix="/api/questions", tags=["court"])


class Answer(ApiModel):
    """What a person answers."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "The second one.", "user": "ann"}]})

    text: Text
    user: User = SOURCE


@router.get("", operation_id="listQuestions", summary="Questions that wait for an answer")
async def list_all(context: Context) -> Ok[Page[OpenQuestion]]:
    """Each belongs to a task, which waits."""
    return page(await list_questions(context))


@router.post(
    "/{taskId}/answer", operation_id="answerQuestion", summary="Answer the question of a task", status_code=202
)
async def answer(context: Context, task_id: TaskId, given: Answer) -> Ok[Passed]:
    """The first answer counts, and the work goes on with it. 409 when the task asks nothing, or not any more."""
    event_id = await answer_question(context.court, task_id, given.text, given.user, SOURCE)
    return ok(Passed(event_id=event_id, task_id=task_id))
