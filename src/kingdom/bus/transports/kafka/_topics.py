"""Names and settings of the topics of a bus."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from kingdom.bus.transports.kafka._settings import Settings

SCHEMA: Final = 1  # of the topics and their records
_LEDGER: Final = "-ledger"
_SNAPSHOT: Final = "-snapshot"
_VERSION: Final = "-v"
# A topic's name has fewer characters than a stream's, and Kafka takes "." and "_" for the same. None of these pairs
# begins as the endings above do.
_PAIRS: Final = {"-": "--", "_": "-u", ":": "-c", "@": "-a", "+": "-p"}
_CHARACTERS: Final = {pair: character for character, pair in _PAIRS.items()}
LEDGER_MAX_BYTES: Final = 8 << 20
_OVERHEAD_BYTES: Final = 64 << 10  # of a record beside the envelope: key, headers, frame


class StreamTopics(NamedTuple):
    """The topics of one stream."""

    data: str
    ledger: str
    snapshot: str


@lru_cache(maxsize=1024)
def topics_of(prefix: str, stream: str) -> StreamTopics:
    name = prefix + re.sub(r"[-_:@+]", lambda match: _PAIRS[match.group()], stream)
    return StreamTopics(name, name + _LEDGER, name + _SNAPSHOT)


def marker_topic(prefix: str, schema: int = SCHEMA) -> str:
    """Return the name of the topic that says which version has set up the bus. It has no records."""
    return f"{prefix}{_VERSION}{schema}"


def versions_in(prefix: str, topics: Iterable[str]) -> list[int]:
    """Return the versions that have set up the bus."""
    start = prefix + _VERSION
    return [int(name[len(start) :]) for name in topics if name.startswith(start) and name[len(start) :].isdecimal()]


def streams_in(prefix: str, topics: Iterable[str]) -> list[str]:
    """Return the streams whose data topic and ledger are among the topics."""
    known = set(topics)
    found = []
    for name in sorted(known):
        if name.startswith(prefix) and name + _LEDGER in known:
            stream = _decode(name[len(prefix) :])
            if stream is not None:
                found.append(stream)
    return found


def _decode(name: str) -> str | None:
    decoded = re.sub(r"-.", lambda match: _CHARACTERS.get(match.group(), "\0"), name)
    return None if not decoded or "\0" in decoded or decoded.endswith("-") != name.endswith("--") else decoded


def topic_settings(settings: Settings, *, ledger: bool, own_clock: bool) -> dict[str, str]:
    """Return the settings of a topic of ours. Nothing is deleted by age: what is unfinished must stay."""
    size = LEDGER_MAX_BYTES if ledger else max(settings.max_bytes + _OVERHEAD_BYTES, 1 << 20)
    clock = {"message.timestamp.type": "LogAppendTime"}
    if own_clock:
        clock = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1)}
    return {
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "max.message.bytes": str(size),
        **clock,
    }
