"""What is said over a live connection: the messages of clients, checked, and those of the server, described."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError

from kingdom.web.envelope import ApiError, ApiModel, ErrorBody
from kingdom.web.live.event import encode_json
from kingdom.web.live.subscription import LiveSubscription, SubscriptionReset

MAX_CLIENT_MESSAGE_BYTES: Final = 16 * 1024
"""Of one message of a client."""
WorkflowIdField: TypeAlias = Annotated[str, Field(min_length=1, max_length=200, examples=["wf-0198c2"])]
EventTypeField: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]


class Subscribe(ApiModel):
    """Have events sent. It takes the place of a subscription this connection had."""

    action: Literal["subscribe"]
    workflow_id: WorkflowIdField | None = Field(None, description="Of this workflow only; absent: everything.")
    last_sequence_number: int | None = Field(
        None, ge=0, le=2**53, description="The last number that was received; 0: all there is; absent: from now on."
    )
    types: list[EventTypeField] = Field(
        default_factory=list,
        max_length=100,
        description="Types of events, `task.*` for all that begin so; none: all.",
        examples=[["task.*", "WorkflowCompleted"]],
    )
    batch: bool = Field(False, description="Whether several events may come in one message of the type `events`.")


class Unsubscribe(ApiModel):
    """Send no more events."""

    action: Literal["unsubscribe"]


class Ping(ApiModel):
    """A sign of life; `pong` is the answer."""

    action: Literal["ping"]


class Pong(ApiModel):
    """The answer to the server's `ping`; any other message does as well."""

    action: Literal["pong"]


ClientMessage: TypeAlias = Annotated[Subscribe | Unsubscribe | Ping | Pong, Field(discriminator="action")]


class EventBody(ApiModel):
    """What happened."""

    source: Literal["journal", "workflow"]
    type: str = Field(examples=["TaskCompleted"])
    occurred_at: str
    actor: str | None = Field(None, description="Who told the journal.")
    workflow_id: str | None = None
    workflow_sequence: int | None = None
    data: dict[str, Any]
    truncated: bool = Field(False, description="The data was too long to be sent: read it through the API.")


class EventMessage(ApiModel):
    """One event. The number counts by one from each to the next: over the workflow, or over everything."""

    type: Literal["event"]
    sequence_number: int
    workflow_id: str | None
    event: EventBody


class EventsMessage(ApiModel):
    """Several events, in order; only for who subscribed with `batch`."""

    type: Literal["events"]
    items: list[EventMessage]


class Subscribed(ApiModel):
    """The answer to `subscribe`: events follow behind this number."""

    type: Literal["subscribed"]
    workflow_id: str | None
    sequence_number: int


class ResetMessage(ApiModel):
    """The number the client came with is too old, or not of this feed: read the state anew through the API.

    Events go on behind `sequenceNumber`. Those that are kept begin with `oldestSequenceNumber`.
    """

    type: Literal["reset"]
    workflow_id: str | None
    oldest_sequence_number: int
    sequence_number: int


class Unsubscribed(ApiModel):
    """The answer to `unsubscribe`."""

    type: Literal["unsubscribed"]


class ServerPing(ApiModel):
    """A sign of life after a while without events. Everything up to this number was sent (or not asked for)."""

    type: Literal["ping"]
    sequence_number: int | None


class ServerPong(ApiModel):
    """The answer to `ping`."""

    type: Literal["pong"]


class ErrorMessage(ApiModel):
    """A message of the client was not understood, or cannot be followed. The connection stays."""

    type: Literal["error"]
    error: ErrorBody


ServerMessage: TypeAlias = Annotated[
    EventMessage | EventsMessage | Subscribed | Unsubscribed | ResetMessage | ServerPing | ServerPong | ErrorMessage,
    Field(discriminator="type"),
]

CLOSE_CODES: Final = {
    1009: "a message of the client was longer than 16 KiB",
    1012: "the server stops: connect again, with the last number",
    1013: "there are too many live connections",
    4408: "the client said nothing for too long",
    4429: "the client did not read what it was sent: connect again, with the last number; nothing is lost",
}
_client_adapter: Final = TypeAdapter[Subscribe | Unsubscribe | Ping | Pong](ClientMessage)
_server_adapter: Final = TypeAdapter[Any](ServerMessage)


def parse_client_message(text: str) -> Subscribe | Unsubscribe | Ping | Pong:
    """A message of a client. Raises :class:`ApiError`."""
    try:
        return _client_adapter.validate_json(text)
    except ValidationError as error:
        wrong = [
            {"where": ".".join(str(part) for part in one["loc"]), "what": one["msg"]}
            for one in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise ApiError(
            422, "SYS_INVALID", "this message is not understood: GET /api/stream/protocol describes them", wrong
        ) from None


def subscribed_message(subscription: LiveSubscription) -> str:
    """The answer to ``subscribe``."""
    return encode_json(
        {"type": "subscribed", "workflowId": subscription.workflow_id, "sequenceNumber": subscription.number}
    )


def reset_message(found: SubscriptionReset) -> str:
    """That something was missed."""
    return encode_json(
        {
            "type": "reset",
            "workflowId": found.workflow_id,
            "oldestSequenceNumber": found.oldest,
            "sequenceNumber": found.number,
        }
    )


def error_message(error: ApiError) -> str:
    """That a message cannot be followed."""
    return encode_json({"type": "error", "error": error.body()["error"]})


def ping_message(number: int | None) -> str:
    """A sign of life."""
    return encode_json({"type": "ping", "sequenceNumber": number})


def protocol_description() -> dict[str, Any]:
    """JSON Schemas of every message, and the codes with which connections are closed."""
    return {
        "url": "/ws/events",
        "client": _client_adapter.json_schema(by_alias=True),
        "server": _server_adapter.json_schema(by_alias=True),
        "closeCodes": {str(code): why for code, why in CLOSE_CODES.items()},
    }
