"""The messages of a live connection: those of clients, validated, and those of the server, described."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from kingdom.base.forms import problem_text
from kingdom.web.envelope import ApiError, ApiModel, ErrorBody
from kingdom.web.live.event import encode_json
from kingdom.web.live.subscription import LiveSubscription, SubscriptionReset

MAX_CLIENT_MESSAGE_BYTES: Final = 16 * 1024
"""Maximum size of a client's message."""
WorkflowIdField: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, examples=["wf-0198c2"])]
EventTypeField: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]


class Subscribe(ApiModel):
    """Subscribe to events. Replaces the connection's previous subscription."""

    action: Literal["subscribe"]
    workflow_id: WorkflowIdField | None = Field(None, description="Only events of this workflow; absent: all events.")
    last_sequence_number: int | None = Field(
        None, ge=0, le=2**53, description="The last number received; 0: all stored events; absent: only new events."
    )
    types: list[EventTypeField] = Field(
        default_factory=list,
        max_length=100,
        description="Event types; `task.*` matches a prefix; empty: all.",
        examples=[["task.*", "WorkflowCompleted"]],
    )
    batch: bool = Field(False, description="Whether several events may be sent in one `events` message.")


class Unsubscribe(ApiModel):
    """End the subscription."""

    action: Literal["unsubscribe"]


class Ping(ApiModel):
    """Keepalive; the server answers `pong`."""

    action: Literal["ping"]


class Pong(ApiModel):
    """Answer to the server's `ping`; any other message works as well."""

    action: Literal["pong"]


ClientMessage: TypeAlias = Annotated[Subscribe | Unsubscribe | Ping | Pong, Field(discriminator="action")]


class EventBody(ApiModel):
    """A live event."""

    source: Literal["journal", "workflow"]
    type: str = Field(examples=["TaskCompleted"])
    occurred_at: str
    actor: str | None = Field(None, description="Who wrote the journal line.")
    workflow_id: str | None = None
    workflow_sequence: int | None = None
    data: dict[str, Any]
    truncated: bool = Field(False, description="The data was too long and is omitted: read it through the API.")


class EventMessage(ApiModel):
    """One event. Its number is the previous number plus one: within the workflow, or in the whole feed."""

    type: Literal["event"]
    sequence_number: int
    workflow_id: str | None
    event: EventBody


class EventsMessage(ApiModel):
    """Several events, in order; only for subscriptions with `batch`."""

    type: Literal["events"]
    items: list[EventMessage]


class Subscribed(ApiModel):
    """Answer to `subscribe`: events after this number follow."""

    type: Literal["subscribed"]
    workflow_id: str | None
    sequence_number: int


class ResetMessage(ApiModel):
    """The client's number is too old or not of this feed: reload the state through the API.

    Events continue after `sequenceNumber`. The oldest stored event is `oldestSequenceNumber`.
    """

    type: Literal["reset"]
    workflow_id: str | None
    oldest_sequence_number: int
    sequence_number: int


class Unsubscribed(ApiModel):
    """Answer to `unsubscribe`."""

    type: Literal["unsubscribed"]


class ServerPing(ApiModel):
    """Keepalive after a while without events. All subscribed events up to this number were sent."""

    type: Literal["ping"]
    sequence_number: int | None


class ServerPong(ApiModel):
    """Answer to `ping`."""

    type: Literal["pong"]


class ErrorMessage(ApiModel):
    """A client message is invalid or cannot be executed. The connection stays open."""

    type: Literal["error"]
    error: ErrorBody


ServerMessage: TypeAlias = Annotated[
    EventMessage | EventsMessage | Subscribed | Unsubscribed | ResetMessage | ServerPing | ServerPong | ErrorMessage,
    Field(discriminator="type"),
]

CLOSE_CODES: Final = {
    1009: "a client message was longer than 16 KiB",
    1012: "the server is stopping: reconnect with the last number",
    1013: "too many live connections",
    4408: "the client sent nothing for too long",
    4429: "the client reads too slowly: reconnect with the last number; nothing is lost",
}
_client_adapter: Final = TypeAdapter[Subscribe | Unsubscribe | Ping | Pong](ClientMessage)
_server_adapter: Final = TypeAdapter[Any](ServerMessage)


def parse_client_message(text: str) -> Subscribe | Unsubscribe | Ping | Pong:
    """Parse a client's message. Raises :class:`ApiError`."""
    try:
        return _client_adapter.validate_json(text)
    except ValidationError as error:
        wrong = [
            {"where": ".".join(str(part) for part in one["loc"]), "what": problem_text(one)}
            for one in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise ApiError(422, "SYS_INVALID", "invalid message: see GET /api/stream/protocol", wrong) from None


def subscribed_message(subscription: LiveSubscription) -> str:
    return encode_json(
        {"type": "subscribed", "workflowId": subscription.workflow_id, "sequenceNumber": subscription.number}
    )


def reset_message(found: SubscriptionReset) -> str:
    return encode_json(
        {
            "type": "reset",
            "workflowId": found.workflow_id,
            "oldestSequenceNumber": found.oldest,
            "sequenceNumber": found.number,
        }
    )


def error_message(error: ApiError) -> str:
    return encode_json({"type": "error", "error": error.body()["error"]})


def ping_message(number: int | None) -> str:
    return encode_json({"type": "ping", "sequenceNumber": number})


@cache
def protocol_description() -> dict[str, Any]:
    """Return JSON Schemas of all messages, and the close codes."""
    return {
        "url": "/ws/events",
        "client": _client_adapter.json_schema(by_alias=True),
        "server": _server_adapter.json_schema(by_alias=True),
        "closeCodes": {str(code): why for code, why in CLOSE_CODES.items()},
    }
