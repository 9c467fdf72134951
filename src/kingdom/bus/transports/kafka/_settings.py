"""What a ``kafka:`` URL says: brokers, prefix of the topics, options, and properties of the client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from kingdom.bus.errors import InvalidOption
from kingdom.bus.transport import TransportOptions

_OWN_OPTIONS: Final = ("prefix", "properties", "remember", "replication", "shards", "snapshot")
# Properties of librdkafka that a URL or a properties file may set. Others would break what the transport relies on.
_CLIENT_PROPERTIES: Final = ("client.", "sasl.", "security.", "socket.", "ssl.", "enable.ssl.", "broker.address.")
_DEFAULT_PORT: Final = 9092
_DEFAULT_PREFIX: Final = "kingdom."
_DEFAULT_REMEMBER: Final = 100_000  # finished events of a shard that are remembered
_DEFAULT_SNAPSHOT: Final = 16 << 20  # bytes of data and ledger after which a snapshot is due
_MAX_PREFIX_CHARS: Final = 40
_HOW_TO_WRITE: Final = "write kafka://host:9092,host:9092/?prefix=kingdom."


@dataclass(frozen=True)
class Settings:
    """The settings of one bus on Kafka."""

    servers: str
    prefix: str = _DEFAULT_PREFIX
    replication: int = -1  # -1: the default of the brokers
    shards: int = 1  # of streams that are created
    remember: int = _DEFAULT_REMEMBER
    snapshot: int = _DEFAULT_SNAPSHOT
    timeout: float = 15.0
    max_bytes: int = 0
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)  # passwords among them

    @classmethod
    def parse(cls, url: str, options: TransportOptions) -> Self:
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        if not hosts or parts.path not in ("", "/"):
            raise InvalidOption(f"kafka: the URL names {'a path' if hosts else 'no broker'}; {_HOW_TO_WRITE}")
        properties: dict[str, str] = {}
        own: dict[str, str] = {}
        for name, value in options.query.items():
            if name in _OWN_OPTIONS:
                own[name] = value
            else:
                properties[_known(name, "the URL")] = value
        if "properties" in own:
            properties = {**read_properties(Path(own["properties"])), **properties}
        if user:
            name, _, password = user.partition(":")
            properties = {"sasl.username": unquote(name), "sasl.password": unquote(password), **properties}
            properties.setdefault("security.protocol", "SASL_SSL")
            properties.setdefault("sasl.mechanism", "SCRAM-SHA-512")
        return cls(
            servers=",".join(_with_port(host) for host in hosts.split(",") if host),
            prefix=_prefix(own.get("prefix", _DEFAULT_PREFIX)),
            replication=_number(own, "replication", -1, least=1),
            shards=_number(own, "shards", 1, least=1),
            remember=_number(own, "remember", _DEFAULT_REMEMBER, least=0),
            snapshot=_number(own, "snapshot", _DEFAULT_SNAPSHOT, least=1000),
            timeout=options.connect_timeout,
            max_bytes=options.max_bytes,
            properties=properties,
        )

    def client(self) -> dict[str, Any]:
        """Return the properties of every client."""
        return {
            "client.id": "kingdom",
            "socket.keepalive.enable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            **self.properties,
            "bootstrap.servers": self.servers,
        }


def read_properties(path: Path) -> dict[str, str]:
    """Read a properties file: ``name=value`` lines, ``#`` for comments."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"kafka: the properties file {path} cannot be read: {error}") from None
    found = {}
    for number, line in enumerate(lines, 1):
        if not (text := line.strip()) or text[0] in "#!":
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidOption(f"kafka: {path}, line {number}: expected name=value")
        found[_known(name.strip(), f"{path}, line {number}")] = value.strip()
    return found


def _known(name: str, where: str) -> str:
    if name == "sasl.jaas.config":
        raise InvalidOption(f"kafka: {where}: sasl.jaas.config is for Java; use sasl.username and sasl.password")
    if not name.startswith(_CLIENT_PROPERTIES):
        raise InvalidOption(
            f"kafka: {where}: unknown option {name!r}; known are {', '.join(_OWN_OPTIONS)}, and the properties of "
            "librdkafka that begin with ssl., sasl., security., socket. or client."
        )
    return name


def _with_port(host: str) -> str:
    return host if re.search(r":\d+\Z", host) else f"{host}:{_DEFAULT_PORT}"


def _prefix(text: str) -> str:
    if not re.fullmatch(rf"[A-Za-z0-9._\-]{{0,{_MAX_PREFIX_CHARS}}}", text):
        raise InvalidOption(
            f"kafka: prefix={text!r}: at most {_MAX_PREFIX_CHARS} of the characters A-Z a-z 0-9 . _ - are allowed"
        )
    return text


def _number(own: dict[str, str], name: str, default: int, *, least: int) -> int:
    text = own.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < least:
        raise InvalidOption(f"kafka: {name}={text}: must be a number, {least} or more")
    return int(text)
