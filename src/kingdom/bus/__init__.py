"""A durable event bus as a library: publish in your own transaction, consume with workers, lose nothing.

::

    from kingdom.bus import connect, Envelope, Worker, RetryPolicy, Retry, Reject
"""

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
from kingdom.bus.mirror import Mirror
from kingdom.bus.move import Moved, move
from kingdom.bus.outbox import Inbox
from kingdom.bus.relay import Relay
from kingdom.bus.relay_debezium import EventRouter
from kingdom.bus.sync import publish_sync
from kingdom.bus.worker import Worker

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
