"""`/api/inbox`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field, StringConstraints

from kingdom.web.api.court_models import WEB_SOURCE, UserField
from kingdom.web.context import Context
from kingdom.web.envelope import ApiModel, Ok, Page, ok, page
from kingdom.web.views.inbox import Acknowledged, InboxItem, acknowledge, read_inbox

router = APIRouter(prefix="/api/inbox", tags=["inbox"])


class AcknowledgeBody(ApiModel):
    """The items to acknowledge."""

    ids: list[Annotated[str, StringConstraints(min_length=1, max_length=500)]] = Field(
        min_length=1, max_length=1000, examples=[["task:task-20260207-001"]]
    )
    user: UserField = Field(default=WEB_SOURCE, examples=["ann"])


@router.get("", operation_id="listInbox", summary="List what needs a person, newest first")
async def get_inbox(context: Context) -> Ok[Page[InboxItem]]:
    """Open questions, workflows that wait, failed tasks and workflows, dead letters, alerts and problems.

    `actions` says what can be done: `answer` and `retry` of a task, `answer` and `resume` of a workflow, `requeue` of a
    dead letter, or `acknowledge` here. Workflows: the newest 100 that wait; dead letters: the newest 50 of a stream.
    """
    return page(await read_inbox(context))


@router.post("/acknowledge", operation_id="acknowledgeInbox", summary="Acknowledge items of the inbox")
async def post_acknowledge(context: Context, body: AcknowledgeBody) -> Ok[Acknowledged]:
    """Take items out of the inbox until they change. Questions stay: they are answered."""
    return ok(await acknowledge(context, body.ids, body.user))
