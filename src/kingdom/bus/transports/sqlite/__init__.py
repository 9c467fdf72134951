"""SQLite: the outbox in one file, for everything that runs on one machine.

Publishing is durable on return (WAL, ``synchronous=FULL``). Several processes may share the file. One thread writes,
and commits everything that is queued in one transaction.
"""

from __future__ import annotations

from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.sqlite._transport import SqliteTransport

__all__ = ["open"]


def open(url: str, options: TransportOptions) -> SqliteTransport:  # noqa: A001 - the name that the port requires
    """Return the transport for ``sqlite:///absolute/file.db`` or ``sqlite:relative/file.db``."""
    return SqliteTransport(url, options)
