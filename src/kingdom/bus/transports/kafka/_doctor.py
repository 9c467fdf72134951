"""The checks of ``doctor`` for a bus on Kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from kingdom.bus.delivery import Check
from kingdom.bus.errors import BusError
from kingdom.bus.transports.kafka._clients import KafkaClients
from kingdom.bus.transports.kafka._shard import Shard
from kingdom.bus.transports.kafka._topics import SCHEMA, streams_in, topics_of, versions_in

_SHOWN: Final = 3  # topics that one message names
_SAFE_REPLICAS: Final = 3
_OLDEST_VERSION: Final = (3, 9)
_LAG_WARNING: Final = 10_000  # operations
_NEEDED: Final = {"READ", "WRITE", "DESCRIBE"}  # on topics
_WANTED: Final = {"DELETE"}  # on topics: old records are deleted


async def examine(clients: KafkaClients, own_clock: bool, shards: Mapping[str, Shard]) -> list[Check]:
    """Run every check, in the order an operator would look. ``shards``: those that this process has open."""
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
        lag = await _lag(shards)
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


async def _lag(shards: Mapping[str, Shard]) -> Check:
    behind = sum([await shard.lag() for shard in shards.values()])
    if not shards:
        return Check("lag", "ok", "this process has no stream open")
    message = f"{behind:,} operations behind in {len(shards)} open stream(s)"
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
