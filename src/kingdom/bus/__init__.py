"""A durable event bus as a library: publish inside your own transaction, consume with workers, lose nothing.

::

    from kingdom.bus import connect, Envelope, Worker, RetryPolicy, Retry, Reject
"""

from kingdom.bus.connecting import connect
from kingdom.bus.delivery import (
    Check,
    DeadLetter,
    DeadVerdict,
    Delivery,
    Depth,
    DoneVerdict,
    Record,
    RetryVerdict,
    StreamOptions,
)
from kingdom.bus.dispatcher import Dispatcher, current_delivery
from kingdom.bus.document_form import DocumentForm
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
from kingdom.bus.eventbus import EventBus
from kingdom.bus.inbox import Inbox
from kingdom.bus.retry import RetryPolicy
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
    "Inbox",
    "InvalidEnvelope",
    "InvalidName",
    "InvalidOption",
    "NotSetUp",
    "Record",
    "Reject",
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
    "publish_sync",
]
