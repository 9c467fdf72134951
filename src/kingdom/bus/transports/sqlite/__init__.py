"""SQLite: the outbox in one file, for everything that runs on one machine.

Durable on return (WAL, ``synchronous=FULL``), shared by several processes, and by concurrent publishers who share
commits: one thread writes, and everything that waits for it goes into one transaction.
"""

from __future__ import annotations

from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.sqlite._transport import SqliteTransport

__all__ = ["open"]


def open(url: str, options: TransportOptions) -> SqliteTransport:  # noqa: A001 - the name the port asks for
    """The transport for ``sqlite:///absolute/file.db`` or ``sqlite:relative/file.db``."""
    return SqliteTransport(url, options)
