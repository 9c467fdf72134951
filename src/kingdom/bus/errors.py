"""The exceptions of the bus.

::

    BusError                     the base of all errors that the bus raises
    ├── InvalidEnvelope          the envelope cannot be stored as it is (a ValueError too)
    ├── InvalidName              a stream name, event id or worker name that is not allowed (a ValueError too)
    ├── InvalidOption            an option or a URL that is not valid (a ValueError too)
    ├── UnknownTransport         there is no transport for the URL's scheme (a ValueError too)
    ├── TransactionMismatch      ``tx=`` is not a transaction this bus can write into
    ├── NotSetUp                 tables, directories or topics are missing: run ``bus.setup()``
    ├── SchemaTooNew             a newer version has migrated the store; nothing was changed
    ├── TransportUnavailable     the store did not answer, after retries with back-off
    └── StorageFull              the disk is full or a quota is exhausted; nothing half-written is visible

    Retry, Reject                raised by handlers to decide what happens to their event
"""

from __future__ import annotations

from datetime import timedelta


class BusError(Exception):
    """The base of all errors that the bus raises."""


class InvalidEnvelope(BusError, ValueError):
    """The envelope cannot be stored: not JSON, too large, or a field of the wrong kind."""


class InvalidName(BusError, ValueError):
    """A stream name, an event id or a worker name has characters or a length that are not allowed."""


class InvalidOption(BusError, ValueError):
    """An option of ``connect``, ``Worker`` or a stream is out of range."""


class UnknownTransport(BusError, ValueError):
    """There is no transport for the scheme of the URL."""


class TransactionMismatch(BusError, TypeError):
    """``tx=`` is of a driver, or on a database, that this bus cannot write to."""


class NotSetUp(BusError):
    """The store has no tables, directories or topics yet: ``await bus.setup()`` creates them."""


class NotPermitted(BusError):
    """The role of the database, or the user of the broker, lacks a right."""


class SchemaTooNew(BusError):
    """A newer version of the code has migrated the store."""


class TransportUnavailable(BusError, ConnectionError):
    """The store could not be reached, or stopped answering, and retrying did not help."""


class StorageFull(BusError, OSError):
    """The disk is full, or a quota is exhausted."""


class Retry(Exception):
    """Raised by a handler: retry this event ``after`` seconds from now (default: the delay of the policy)."""

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None, code: str = "RETRY") -> None:
        wait = after.total_seconds() if isinstance(after, timedelta) else after
        if wait is not None and not (isinstance(wait, (int, float)) and 0 <= wait < float("inf")):
            raise InvalidOption(f"Retry(after={after!r}): seconds from now, zero or more")
        super().__init__(reason or "the handler asked for a retry")
        self.after = wait
        self.code = code


class Reject(Exception):
    """Raised by a handler: this event can never succeed. It goes to DEAD at once with the code and the reason."""

    def __init__(self, code: str, why: str = "") -> None:
        super().__init__(why or code)
        self.code = code
        self.why = why or code
