"""Every exception of the bus, in one place.

::

    BusError                     anything the bus itself raises
    ├── InvalidEnvelope          the envelope cannot be stored as it is (a ValueError too)
    ├── InvalidName              a stream name, event id or worker name that is not allowed (a ValueError too)
    ├── InvalidOption            an option or a URL that makes no sense (a ValueError too)
    ├── UnknownTransport         no transport answers to the URL's scheme (a ValueError too)
    ├── TransactionMismatch      ``tx=`` is not a transaction this bus can write into
    ├── NotSetUp                 tables, directories or topics are missing: run ``bus.setup()``
    ├── SchemaTooNew             what is stored was made by a newer version; nothing was touched
    ├── TransportUnavailable     the store did not answer, after retries with back-off
    └── StorageFull              the disk is full or a quota is spent; nothing half-written is visible

    Retry, Reject                raised by handlers to say what shall happen to their event
"""

from __future__ import annotations


class BusError(Exception):
    """Base of every error the bus raises by itself."""


class InvalidEnvelope(BusError, ValueError):
    """The envelope cannot be stored: not JSON, too large, or a field of the wrong kind."""


class InvalidName(BusError, ValueError):
    """A stream name, an event id or a worker name has characters or a length that are not allowed."""


class InvalidOption(BusError, ValueError):
    """An option of ``connect``, ``Worker`` or a stream is out of its range."""


class UnknownTransport(BusError, ValueError):
    """No transport is known for the scheme of the URL."""


class TransactionMismatch(BusError, TypeError):
    """``tx=`` is of a kind, or of a database, that this bus cannot write into."""


class NotSetUp(BusError):
    """The store has no tables, directories or topics yet: ``await bus.setup()`` makes them."""


class SchemaTooNew(BusError):
    """The store was migrated by a newer version of the code than this one."""


class TransportUnavailable(BusError, ConnectionError):
    """The store could not be reached, or stopped answering, and retrying did not help."""


class StorageFull(BusError, OSError):
    """There is no room left where events are stored."""


class Retry(Exception):
    """Raised by a handler: try this event again, ``after`` seconds from now (or when the policy says)."""

    def __init__(self, reason: str = "", *, after: float | None = None, code: str = "RETRY") -> None:
        if after is not None and not 0 <= after < float("inf"):
            raise InvalidOption(f"Retry(after={after!r}): seconds from now, zero or more")
        super().__init__(reason or "the handler asked for another try")
        self.after = after
        self.code = code


class Reject(Exception):
    """Raised by a handler: this event can never succeed. It goes to DEAD at once with the code and the reason."""

    def __init__(self, code: str, why: str = "") -> None:
        super().__init__(why or code)
        self.code = code
        self.why = why or code
