"""`/api/inbox`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import APIRouter
from pydantic import Field, StringConstraints

from kingdom.base.times import epoch_seconds
from kingdom.web.acting import signature
from kingdom.web.api.court_models import Moment, SignedBy, UserField
from kingdom.web.context import Context
from kingdom.web.envelope import ApiModel, Ok, Page, ok, page
from kingdom.web.views.inbox import (
    Acknowledged,
    InboxItem,
    Muted,
    MutedItem,
    acknowledge,
    list_muted,
    mute,
    read_inbox,
    unmute,
)

router = APIRouter(prefix="/api/inbox", tags=["inbox"])
ItemIds: TypeAlias = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=500)]],
    Field(min_length=1, max_length=1000, examples=[["task:task-20260207-001"]]),
]


class AcknowledgeBody(ApiModel):
    """The items to acknowledge."""

    ids: ItemIds
    user: UserField | None = SignedBy


class MuteBody(ApiModel):
    """The items to mute."""

    ids: ItemIds
    until: Moment | None = Field(
        default=None,
        description="When they are shown again; absent: never by themselves. Without a time zone: UTC.",
        examples=["2026-02-08T09:00:00Z"],
    )
    user: UserField | None = SignedBy


class UnmuteBody(ApiModel):
    """The items to show again."""

    ids: ItemIds


@router.get("", operation_id="listInbox", summary="List what needs a person, newest first")
async def get_inbox(context: Context) -> Ok[Page[InboxItem]]:
    """Open questions, workflows that wait, failed tasks and workflows, dead letters, alerts and problems.

    `actions` says what can be done: `answer` and `retry` of a task, `answer` and `resume` of a workflow, `requeue` of a
    dead letter, or `acknowledge` and `mute` here. `goBack` resumes a workflow with this `checkpointId`. Workflows: the
    newest 100 that wait; dead letters: the newest 50 of a stream.
    """
    return page(await read_inbox(context))


@router.post("/acknowledge", operation_id="acknowledgeInbox", summary="Acknowledge items of the inbox")
async def post_acknowledge(context: Context, body: AcknowledgeBody) -> Ok[Acknowledged]:
    """Take items out of the inbox until they change. Questions stay: they are answered."""
    return ok(await acknowledge(context, body.ids, signature(body.user)))


@router.get("/muted", operation_id="listMuted", summary="List muted items, the latest first")
async def get_muted(context: Context) -> Ok[Page[MutedItem]]:
    """Items that were muted, as they were then. All on one page."""
    return page(await list_muted(context))


@router.post("/mute", operation_id="muteInbox", summary="Mute items of the inbox")
async def post_mute(context: Context, body: MuteBody) -> Ok[Muted]:
    """Take items out of the inbox until a time, or for ever, also when they change. They go on existing."""
    return ok(await mute(context, body.ids, signature(body.user), epoch_seconds(body.until)))


@router.post("/unmute", operation_id="unmuteInbox", summary="End the muting of items")
async def post_unmute(context: Context, body: UnmuteBody) -> Ok[Muted]:
    """Show items again that were muted, if there is still a reason."""
    return ok(await unmute(context, body.ids))
