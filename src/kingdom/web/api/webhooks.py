"""``/hooks``: where webhooks arrive. They prove themselves by their own secrets, not by the token of the API."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Request
from pydantic import Field

from kingdom.court.sentinel.config import HOOK_NAME_PATTERN
from kingdom.court.sentinel.webhooks import MAX_BODY_BYTES, WebhookRefused
from kingdom.web.context import Context, WebContext
from kingdom.web.envelope import ApiError, ApiModel, Ok, ok
from kingdom.web.views.court_state import court_state

router = APIRouter(prefix="/hooks", tags=["webhooks"])
_MAX_OTHER_BODY_BYTES: Final = 1024 * 1024
_OPENAPI_BODY: Final[dict[str, Any]] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}
HookName = Annotated[str, Path(pattern=f"^{HOOK_NAME_PATTERN}$", max_length=60, examples=["ci"])]


class WebhookAccepted(ApiModel):
    """What became of a webhook. It is durable."""

    delivery: str = Field(description="The same when it is delivered again.")
    outcome: Literal["hint", "events", "ignored"] = Field(
        description="The source is looked at now, or events were made, or it told nothing."
    )
    events: list[str] = Field(description="The ids of events that were not there before.")


@router.post(
    "/github", operation_id="receiveGithub", summary="From GitHub", status_code=202, openapi_extra=_OPENAPI_BODY
)
async def github(context: Context, request: Request) -> Ok[WebhookAccepted]:
    """Signed with the secret in `X-Hub-Signature-256`. 401 for a wrong signature, 404 when it is not set up."""
    return await _accept(context, request, "github", MAX_BODY_BYTES)


@router.post("/jira", operation_id="receiveJira", summary="From Jira", status_code=202, openapi_extra=_OPENAPI_BODY)
async def jira(context: Context, request: Request) -> Ok[WebhookAccepted]:
    """Signed with the secret in `X-Hub-Signature`, or with the secret in `X-Kingdom-Token`."""
    return await _accept(context, request, "jira", _MAX_OTHER_BODY_BYTES)


@router.post(
    "/generic/{name}",
    operation_id="receiveGeneric",
    summary="From any other program",
    status_code=202,
    openapi_extra=_OPENAPI_BODY,
)
async def generic(context: Context, request: Request, name: HookName) -> Ok[WebhookAccepted]:
    """With the token in `Authorization: Bearer` or `X-Kingdom-Token`; one `Idempotency-Key` is one event."""
    if name in ("github", "jira"):
        raise ApiError(404, "SYS_NOT_FOUND", f"webhooks of {name} arrive at /hooks/{name}")
    return await _accept(context, request, name, _MAX_OTHER_BODY_BYTES)


async def _accept(context: WebContext, request: Request, source: str, most: int) -> Ok[WebhookAccepted]:
    reception = court_state(context).reception
    body = await _read_body(request, most)
    try:
        received = await reception.receive(source, request.headers, body)
    except WebhookRefused as error:
        raise ApiError(error.status, f"SYS_{error.code}", str(error)) from None
    return ok(WebhookAccepted(delivery=received.delivery, outcome=received.outcome, events=received.events))


async def _read_body(request: Request, most: int) -> bytes:
    """The bytes as they were sent: the signature is over them. No more than ``most`` are ever kept."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise ApiError(413, "SYS_TOO_LARGE", f"the body is larger than {most:,} bytes")
    return bytes(body)
