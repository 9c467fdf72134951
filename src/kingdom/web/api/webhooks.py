"""``/hooks``: webhook endpoints. Senders authenticate with their own secrets, not with the API token."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Request
from pydantic import Field

from kingdom.court.sentinel.config import HOOK_NAME_PATTERN
from kingdom.court.sentinel.webhook_requests import WebhookRefused
from kingdom.court.sentinel.webhooks import MAX_BODY_BYTES
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
    """A webhook that was accepted and stored durably."""

    delivery: str = Field(description="Delivery id; a repeated delivery has the same id.")
    outcome: Literal["hint", "events", "ignored"] = Field(
        description="`hint`: the source is polled now. `events`: events were created. `ignored`: nothing to do."
    )
    events: list[str] = Field(description="Ids of the events that are new.")


@router.post(
    "/github",
    operation_id="receiveGithub",
    summary="Receive a GitHub webhook",
    status_code=202,
    openapi_extra=_OPENAPI_BODY,
)
async def github(context: Context, request: Request) -> Ok[WebhookAccepted]:
    """Signed in `X-Hub-Signature-256`. 401: wrong signature. 404: not configured."""
    return await _accept(context, request, "github", MAX_BODY_BYTES)


@router.post(
    "/jira", operation_id="receiveJira", summary="Receive a Jira webhook", status_code=202, openapi_extra=_OPENAPI_BODY
)
async def jira(context: Context, request: Request) -> Ok[WebhookAccepted]:
    """Signed in `X-Hub-Signature`, or with the secret itself in `X-Kingdom-Token`."""
    return await _accept(context, request, "jira", _MAX_OTHER_BODY_BYTES)


@router.post(
    "/generic/{name}",
    operation_id="receiveGeneric",
    summary="Receive a webhook from another program",
    status_code=202,
    openapi_extra=_OPENAPI_BODY,
)
async def generic(context: Context, request: Request, name: HookName) -> Ok[WebhookAccepted]:
    """Authenticated by the token in `Authorization: Bearer` or `X-Kingdom-Token`.

    Requests with the same `Idempotency-Key` create one event. 422: the key was used for another event.
    """
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
    """Read the raw body, which the signature covers. Stops reading after ``most`` bytes."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise ApiError(413, "SYS_TOO_LARGE", f"the body is larger than {most:,} bytes")
    return bytes(body)
