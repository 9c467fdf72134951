"""The Kafka transport: the same contract on a log.

A stream is a data topic with one record for each event, and a ledger topic with one record for each operation. All
processes read both and decide alike; docs/explanation/kafka.md says how.
"""

from __future__ import annotations

from kingdom.bus.transport import TransportOptions
from kingdom.bus.transports.kafka._settings import Settings
from kingdom.bus.transports.kafka._transport import KafkaTransport

__all__ = ["KafkaTransport", "open"]


def open(url: str, options: TransportOptions) -> KafkaTransport:  # noqa: A001
    """Return the transport of a ``kafka:`` URL."""
    return KafkaTransport(Settings.parse(url, options), options)
