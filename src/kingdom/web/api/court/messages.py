"""``/api/messages``: what people are told."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field

from kingdom.court.queues import MESSAGES
from kingdom.web.api.court.documents import MessageDocument
from kingdom.web.api.court.parameters import Counted, MessageIdPath, Search, Since, Type, Until, Word, counted
from kingdom.web.context import Context
from kingdom.web.envelope import ApiError, ApiModel, Ok, ok
from kingdom.web.paging import Cursor, Limit
from kingdom.web.views.bus import COURT, requeue_dead
from kingdom.web.views.documents import Filter, MessageSummary, list_messages
from kingdom.web.views.tasks import read_message

router = APIRouter(prefix="/api/messages", tags=["court"])


class Resent(ApiModel):
    """The message waits to be sent once more."""

    id: str = Field(examples=["msg-20260207-001"])


@router.get("", operation_id="listMessages", summary="Messages to people, the newest first")
async def list_all(
    context: Context,
    status: Word = None,
    kind: Type = None,
    since: Since = None,
    until: Until = None,
    q: Search = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Ok[Counted[MessageSummary]]:
    """Messages, filtered and searched. `status` is pending, sent, failed, or invalid for those put aside."""
    wanted = Filter(status=status, type=kind, since=since, until=until, text=q)
    return counted(await list_messages(context, wanted, limit, cursor))


@router.get("/{messageId}", operation_id="getMessage", summary="One message as it lies in its file")
async def get(context: Context, message_id: MessageIdPath) -> Ok[MessageDocument]:
    """The document, whatever state it is in."""
    return ok(MessageDocument(await read_message(context, message_id)))


@router.post(
    "/{messageId}/resend", operation_id="resendMessage", summary="Send a failed message again", status_code=202
)
async def resend(context: Context, message_id: MessageIdPath) -> Ok[Resent]:
    """It goes back into the queue. 409 when it has not failed."""
    document = await read_message(context, message_id)
    if not (await requeue_dead(context, COURT, MESSAGES, [message_id])).requeued:
        raise ApiError(
            409, "SYS_NOT_FAILED", f"{message_id} is {document.get('status')}: only failed ones are sent again"
        )
    return ok(Resent(id=message_id))
