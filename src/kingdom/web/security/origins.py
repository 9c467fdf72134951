"""Which names this server goes by, and which pages are its own.

A page anywhere can have a browser send requests to 127.0.0.1, and a name anywhere can be made to point there (DNS
rebinding). What gives them away is the ``Host`` they ask for and the ``Origin`` they come from.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from kingdom.web.settings import is_loopback

_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_ANY: Final = ("", "0.0.0.0", "::", "*")  # noqa: S104 - compared with, not bound to


class OwnNames:
    """The names of a server: loopback, the address it listens on, and those that were allowed."""

    def __init__(self, host: str, allowed: Iterable[str]) -> None:
        names = [*allowed] if host in _ANY else [host, *allowed]
        self._names = frozenset(name.strip().strip("[]").lower().rstrip(".") for name in names)

    def is_own_host(self, host: str) -> bool:
        """Whether a ``Host`` header names this server."""
        name, _ = _split(host)
        return name is not None and (is_loopback(name) or name in self._names)

    def is_own_origin(self, origin: str, host: str, scheme: str) -> bool:
        """Whether an ``Origin`` header is that of the server a request with this ``Host`` came to.

        The port counts: other programs of this machine serve pages on other ports. Behind a proxy that speaks TLS we
        see plain HTTP; there the name, which was allowed by hand, must do.
        """
        try:
            parts = urlsplit(origin)
            port = parts.port
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            return False
        name, own_port = _split(host)
        if name is None or parts.hostname.lower().rstrip(".") != name:
            return False
        schemes = {_plain(scheme)} if is_loopback(name) else {_plain(scheme), "https"}
        if parts.scheme not in schemes:
            return False
        return (port or _PORTS[parts.scheme]) == (own_port or _PORTS[parts.scheme])


def _plain(scheme: str) -> str:
    return {"ws": "http", "wss": "https"}.get(scheme, scheme)


def _split(host: str) -> tuple[str | None, int | None]:
    """Name and port of a ``Host`` header; no name when it makes no sense."""
    if not host or any(sign in host for sign in "/?#@\\ \t,"):
        return None, None
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None, None
    return (name.lower().rstrip(".") if name else None), port
