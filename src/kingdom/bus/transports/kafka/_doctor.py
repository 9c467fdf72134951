"""The checks of ``doctor`` for a bus on Kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kingdom.bus.delivery import Check
from kingdom.bus.errors import BusError
from kingdom.bus.transports.kafka._clients import KafkaClients
from kingdom.bus.transports.kafka._membership import is_group_of
from kingdom.bus.transports.kafka._shard import Shard
from kingdom.bus.transports.kafka._stream import KafkaStream
from kingdom.bus.transports.kafka._topics import SCHEMA, streams_in, topics_of, versions_in

_SHOWN: Final = 3  # topics that one message names
_SAFE_REPLICAS: Final = 3
_OLDEST_VERSION: Final = (3, 9)
_LAG_WARNING: Final = 10_000  # operations
_NEEDED: Final = {"READ", "WRITE", "DESCRIBE"}  # on topics
_WANTED: Final = {"DELETE"}  # on topics: old records are deleted


async def examine(clients: KafkaClients, own_clock: bool, opened: Mapping[str, KafkaStream]) -> list[Check]:
    """Run every check, in the order an operator would look. ``opened``: streams that this process uses."""
    prefix = clients.settings.prefix
    try:
        cluster = await clients.cluster()
        topics = set(cluster.topics)
        brokers = Check("brokers", "ok", f"{len(cluster.brokers)} at {clients.settings.servers}")
        version = _version(await clients.describe_broker(min(cluster.brokers)))
        if not versions_in(prefix, topics):
            missing = f"no topics with the prefix {prefix!r}"
            return [brokers, version, Check("topics", "error", missing, "kingdom bus migrate")]
        streams = streams_in(prefix, topics)
        names = [name for stream in streams for name in topics_of(prefix, stream)[:2]]
        rights = _rights(*await clients.rights(names))  # first: what follows needs some of them
        if rights.level == "error":
            return [brokers, version, rights]
        configs = await clients.describe(names) if names else {}
        lag = await _lag([shard for stream in opened.values() for shard in stream.opened().values()])
        shards = await _shards(clients, cluster, streams)
    except BusError as error:
        return [Check("brokers", "error", str(error))]
    return [
        brokers,
        version,
        rights,
        Check("topics", "ok", f"schema {SCHEMA}, {len(streams)} streams with the prefix {prefix!r}"),
        _clock(configs, own_clock),
        _retention(configs),
        _replicas(cluster, names),
        _in_sync(cluster, names, configs),
        *shards,
        lag,
    ]


def _version(config: dict[str, str] | None) -> Check:
    if config is None:
        return Check(
            "version", "warning", "the settings of the brokers may not be read", "allow DescribeConfigs on the cluster"
        )
    # Brokers do not tell their version. Kafka 4.0 has removed this setting, whose default is the version of the broker.
    named = re.match(r"(\d+)\.(\d+)", config.get("inter.broker.protocol.version", ""))
    if named is None:
        return Check("version", "ok", "Kafka 4.0 or newer")
    found = int(named[1]), int(named[2])
    if found < _OLDEST_VERSION:
        return Check("version", "error", f"Kafka {named[0]}: this bus needs 3.9 or newer", "upgrade the brokers")
    return Check("version", "ok", f"Kafka {named[0]}")


def _rights(cluster: set[str], topics: dict[str, set[str]]) -> Check:
    lacking = {name: _NEEDED - held for name, held in topics.items() if not held >= _NEEDED}
    if lacking:
        names = "/".join(sorted(set.union(*lacking.values())))
        return Check(
            "access rights",
            "error",
            f"{names} is not allowed on {_some(list(lacking))}",
            f"allow {names} on these topics",
        )
    kept = [name for name, held in topics.items() if not held >= _WANTED]
    if kept:
        return Check(
            "access rights",
            "warning",
            f"DELETE is not allowed on {_some(kept)}: ledgers grow for ever",
            "allow DELETE on these topics",
        )
    if "CREATE" not in cluster:
        return Check(
            "access rights",
            "warning",
            "CREATE is not allowed on the cluster: new streams need topics that somebody else creates",
            "allow CREATE on the cluster, or on topics with the prefix",
        )
    return Check("access rights", "ok", "topics can be read, written, cleaned and created")


async def _shards(clients: KafkaClients, cluster: Any, streams: list[str]) -> list[Check]:
    """Say which process takes part in which shards, for each stream that has several."""
    counts = {stream: _partitions(clients, cluster, stream) for stream in streams}
    several = {stream: count for stream, count in counts.items() if count > 1}
    if not several:
        return []
    topics = {stream: topics_of(clients.settings.prefix, stream).data for stream in several}
    try:
        groups = await clients.groups(lambda name: any(is_group_of(name, topic) for topic in topics.values()))
    except BusError as error:
        hint = f"allow DESCRIBE on groups with the prefix {clients.settings.prefix}"
        return [Check("shards", "warning", f"who has which shard is not known: {error}", hint)]
    checks = []
    for stream, count in several.items():
        theirs = [group for group in groups if is_group_of(group.group_id, topics[stream])]
        members = [member for group in theirs for member in group.members]
        shown = "; ".join(sorted(_assignment(member) for member in members)) or "no process claims its events now"
        wanted = clients.settings.shards
        more = f" (shards={wanted} in the URL counts for new streams only)" if wanted not in (1, count) else ""
        checks.append(Check(f"shards of {stream}", "ok", f"{count}{more}: {shown}"))
    return checks


def _partitions(clients: KafkaClients, cluster: Any, stream: str) -> int:
    return len(cluster.topics[topics_of(clients.settings.prefix, stream).data].partitions)


def _assignment(member: Any) -> str:
    own = sorted(place.partition for place in member.assignment.topic_partitions)
    return f"{', '.join(map(str, own)) or 'none'} at {member.client_id}"


async def _lag(shards: Sequence[Shard]) -> Check:
    behind = sum([await shard.lag() for shard in shards])
    if not shards:
        return Check("lag", "ok", "this process has no stream open")
    message = f"{behind:,} operations behind in {len(shards)} open shard(s)"
    if behind > _LAG_WARNING:
        return Check("lag", "warning", message, "look for a process that is short of processor time or blocks its loop")
    return Check("lag", "ok", message)


def _clock(configs: dict[str, dict[str, str]], own_clock: bool) -> Check:
    if own_clock:
        return Check("clock", "warning", "connect(clock=…) replaces that of the brokers", "leave it out, but for tests")
    wrong = [name for name, config in configs.items() if config.get("message.timestamp.type") != "LogAppendTime"]
    if wrong:
        return Check(
            "clock",
            "error",
            f"publishers set the time of records in {_some(wrong)}: leases follow their clocks",
            "set message.timestamp.type=LogAppendTime on these topics",
        )
    return Check("clock", "ok", "the brokers set the time of records")


def _retention(configs: dict[str, dict[str, str]]) -> Check:
    wrong = [
        name
        for name, config in configs.items()
        if config.get("retention.ms") != "-1"
        or config.get("retention.bytes") != "-1"
        or config.get("cleanup.policy") != "delete"
    ]
    if wrong:
        return Check(
            "retention",
            "error",
            f"Kafka deletes records of {_some(wrong)} by age, size or key: unfinished events are lost",
            "set cleanup.policy=delete, retention.ms=-1 and retention.bytes=-1 on these topics",
        )
    return Check("retention", "ok", "nothing is deleted by age or size")


def _replicas(cluster: Any, names: list[str]) -> Check:
    fewest = min((_replicas_of(cluster, name) for name in names), default=0)
    if not names:
        return Check("replicas", "ok", "no topics yet")
    if len(cluster.brokers) < _SAFE_REPLICAS:
        return Check(
            "replicas",
            "warning",
            f"{len(cluster.brokers)} broker(s): acks=all is not fsync, so a power cut may lose what was acknowledged",
            "run three brokers, or set flush.messages=1 on the topics, at 0.6 to 0.8 times the speed",
        )
    if fewest < _SAFE_REPLICAS:
        poor = [name for name in names if _replicas_of(cluster, name) < _SAFE_REPLICAS]
        return Check(
            "replicas",
            "error",
            f"fewer than {_SAFE_REPLICAS} replicas of {_some(poor)}",
            "add replicas to these topics",
        )
    return Check("replicas", "ok", f"{fewest} or more of each topic")


def _in_sync(cluster: Any, names: list[str], configs: dict[str, dict[str, str]]) -> Check:
    weak = [name for name in names if int(configs[name].get("min.insync.replicas", "1")) < 2]
    if weak and len(cluster.brokers) >= _SAFE_REPLICAS:
        return Check(
            "min.insync.replicas",
            "error",
            f"below 2 for {_some(weak)}: one broker alone may acknowledge an event and lose it",
            "set min.insync.replicas=2 on these topics",
        )
    return Check("min.insync.replicas", "ok", "as this cluster can have it")


def _replicas_of(cluster: Any, name: str) -> int:
    return min((len(partition.replicas) for partition in cluster.topics[name].partitions.values()), default=0)


def _some(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
