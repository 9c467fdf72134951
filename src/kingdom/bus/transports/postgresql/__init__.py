"""PostgreSQL: the outbox of the specification, claimed with SKIP LOCKED, in batches."""

from kingdom.bus.transports.postgresql._connections import away_hint, split_url
from kingdom.bus.transports.postgresql._transport import PostgresTransport as open  # noqa: A004, N813 - the name that the port requires

__all__ = ["away_hint", "open", "split_url"]
