"""A durable event bus as a library: publish in your own transaction, consume with workers, lose nothing.

::

    from kingdom.bus import connect, Envelope, Worker, RetryPolicy, Retry, Reject
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kingdom.bus.delivery import (
    Check,
    DeadLetter,
    DeadVerdict,
    Delivery,
    Depth,
    DocumentForm,
    DoneVerdict,
    Record,
    RetryVerdict,
    StreamOptions,
)
from kingdom.bus.envelope import Envelope
from kingdom.bus.errors import (
    BusError,
    InvalidEnvelope,
    InvalidName,
    InvalidOption,
    NotPermitted,
    NotSetUp,
    Reject,
    Retry,
    SchemaTooNew,
    StorageFull,
    TransactionMismatch,
    TransportUnavailable,
    UnknownTransport,
)
from kingdom.bus.eventbus import EventBus, connect
from kingdom.bus.handlers import Dispatcher, RetryPolicy, current_delivery
from kingdom.bus.outbox import Inbox
from kingdom.bus.sync import publish_sync
from kingdom.bus.worker import Worker

if TYPE_CHECKING:
    from kingdom.bus.mirror import Mirror
    from kingdom.bus.relay import Relay
    from kingdom.bus.relay_debezium import EventRouter
    from kingdom.bus.stream_move import Moved, move

__all__ = [
    "BusError",
    "Check",
    "DeadLetter",
    "DeadVerdict",
    "Delivery",
    "Depth",
    "Dispatcher",
    "DocumentForm",
    "DoneVerdict",
    "Envelope",
    "EventBus",
    "EventRouter",
    "Inbox",
    "InvalidEnvelope",
    "InvalidName",
    "InvalidOption",
    "Mirror",
    "Moved",
    "NotPermitted",
    "NotSetUp",
    "Record",
    "Reject",
    "Relay",
    "Retry",
    "RetryPolicy",
    "RetryVerdict",
    "SchemaTooNew",
    "StorageFull",
    "StreamOptions",
    "TransactionMismatch",
    "TransportUnavailable",
    "UnknownTransport",
    "Worker",
    "connect",
    "current_delivery",
    "move",
    "publish_sync",
]

_LOADED_WHEN_USED = {  # what carries events from one bus to another: few programs do
    "EventRouter": "kingdom.bus.relay_debezium",
    "Mirror": "kingdom.bus.mirror",
    "Moved": "kingdom.bus.stream_move",
    "Relay": "kingdom.bus.relay",
    "move": "kingdom.bus.stream_move",
}


def __getattr__(name: str) -> Any:
    if name in _LOADED_WHEN_USED:
        return getattr(import_module(_LOADED_WHEN_USED[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
