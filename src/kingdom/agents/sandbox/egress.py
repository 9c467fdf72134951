"""Which hosts a confined run may reach: rules, addresses, and the server name in a TLS handshake."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

_HOST: Final = re.compile(r"(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")
_DEFAULT_PORTS: Final = (443, 80)
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1")
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_HANDSHAKE: Final = 0x16
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0


class Refused(Exception):
    """A connection that the rules do not allow. The message names the host and the reason."""


@dataclass(frozen=True, slots=True)
class HostRule:
    """A host that may be reached: ``api.example.com``, ``*.example.com``, or either with ``:port``."""

    host: str
    port: int | None = None

    @classmethod
    def read(cls, text: str) -> HostRule:
        """Read a rule; raise ValueError with what is wrong."""
        host, colon, number = text.strip().lower().partition(":")
        if not _HOST.match(host) or "/" in number:
            raise ValueError(f"{text!r:.80} is not a host: write api.example.com, *.example.com or example.com:8443")
        if colon and not (number.isdecimal() and 0 < int(number) < 65536):
            raise ValueError(f"{text!r:.80}: the port must be a number from 1 to 65535")
        if host in _LOOPBACK_NAMES and not colon:
            raise ValueError(f"{text!r:.80} needs a port, such as 127.0.0.1:11434: never the whole machine")
        if _as_address(host) is not None and host not in _LOOPBACK_NAMES:
            raise ValueError(f"{text!r:.80} is an address: name the host instead")
        return cls(host, int(number) if colon else None)

    @property
    def is_local(self) -> bool:
        """Whether it names a port of this machine, which is then reached under the same number inside."""
        return self.host in _LOOPBACK_NAMES

    def admits(self, host: str, port: int) -> bool:
        """Tell whether a connection is allowed by this rule."""
        if port != self.port if self.port is not None else port not in _DEFAULT_PORTS:
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) > len(self.host) - 1
        return host == self.host


class HostRules:
    """The hosts that one run may reach."""

    def __init__(self, rules: Iterable[str]) -> None:
        self._rules = [HostRule.read(text) for text in dict.fromkeys(rules)]

    @property
    def local_ports(self) -> list[int]:
        """The ports of this machine that the run may reach."""
        return [rule.port for rule in self._rules if rule.is_local and rule.port is not None]

    def check(self, host: str, port: int) -> str:
        """Return the normalized host if it may be reached; raise :class:`Refused`."""
        name = host.strip().lower().rstrip(".").strip("[]")
        if any(rule.admits(name, port) for rule in self._rules if not rule.is_local):
            return name
        raise Refused(f"{name[:255]}:{port} is not among the hosts of this run")


@dataclass(frozen=True, slots=True)
class OuterProxy:
    """The proxy by which this machine reaches the internet, as in a company's network."""

    host: str
    port: int
    tls: bool = False
    authorization: str | None = None  # the value of a header

    @classmethod
    def find(cls, environ: Mapping[str, str], scheme: Literal["http", "https"], host: str) -> OuterProxy | None:
        """Return the proxy for a host by ``HTTPS_PROXY`` or ``HTTP_PROXY`` and ``NO_PROXY``; None if there is none."""
        text = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        excepted = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
        if not text or any(_is_excepted(host, entry) for entry in excepted.split(",")):
            return None
        parts = urlsplit(text if "://" in text else f"http://{text}")
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            return None
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else None
        tls = parts.scheme == "https"
        return cls(
            parts.hostname,
            parts.port or (443 if tls else 80),
            tls,
            None if login is None else f"Basic {base64.b64encode(login.encode()).decode()}",
        )


def _is_excepted(host: str, entry: str) -> bool:
    """Tell whether an entry of ``NO_PROXY`` names a host: ``example.com``, ``.example.com`` or ``*``."""
    name = entry.strip().lower().lstrip(".")
    return name == "*" or (name != "" and (host == name or host.endswith(f".{name}")))


async def connect(
    host: str, port: int, seconds: float, proxy: OuterProxy | None = None, *, tunnel: bool = True
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a host by a public address of it; raise :class:`Refused` if it has none, or OSError.

    By ``proxy`` a tunnel to the host is made; without ``tunnel``, the connection is one to the proxy itself. The proxy
    looks up the name. If this machine can do so too, it must find a public address.
    """
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        if proxy is None:
            raise
        found = []
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    public = [address for address in addresses if is_public(address)]
    if not public and addresses:
        raise Refused(f"{host} leads to {', '.join(addresses)[:200]}, which is not a public address")
    async with asyncio.timeout(seconds):
        if proxy is None:
            # The checked address, not the name: a second look-up could return another one.
            return await asyncio.open_connection(public[0], port)
        reader, writer = await asyncio.open_connection(proxy.host, proxy.port, ssl=proxy.tls or None)
        if tunnel:
            try:
                await _open_tunnel(host, port, proxy, reader, writer)
            except BaseException:
                writer.close()
                raise
        return reader, writer


async def _open_tunnel(
    host: str, port: int, proxy: OuterProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    login = f"proxy-authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
    writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n{login}\r\n".encode())
    try:
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise OSError(f"the proxy {proxy.host}:{proxy.port} closed the connection to {host}") from None
    status = answer.split(" ", 2)[1:2]
    if status != ["200"]:
        raise OSError(f"the proxy {proxy.host}:{proxy.port} does not connect to {host}: {answer.splitlines()[0][:100]}")


def is_public(address: str) -> bool:
    """Tell whether an address is one of the public internet, also if it is written inside an IPv6 address."""
    ip = _as_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return inner.is_global and not inner.is_multicast
    return ip is not None and ip.is_global and not ip.is_multicast


def server_name(data: bytes) -> str | None:
    """Return the server name in a TLS ClientHello; None when it is not one, or has none."""
    try:
        if data[0] != _HANDSHAKE or data[5] != _CLIENT_HELLO:
            return None
        at = 5 + 4 + 2 + 32
        at += 1 + data[at]  # session id
        at += 2 + int.from_bytes(data[at : at + 2])  # cipher suites
        at += 1 + data[at]  # compression methods
        end = at + 2 + int.from_bytes(data[at : at + 2])
        at += 2
        while at < end:
            kind, length = int.from_bytes(data[at : at + 2]), int.from_bytes(data[at + 2 : at + 4])
            if kind == _SERVER_NAME:
                size = int.from_bytes(data[at + 7 : at + 9])
                return data[at + 9 : at + 9 + size].decode("ascii").lower()
            at += 4 + length
    except (IndexError, UnicodeDecodeError):
        return None
    return None


def _as_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
