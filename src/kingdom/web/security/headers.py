"""Request headers that are accepted (`Host`, `Origin`), and security headers of every response."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Final
from urllib.parse import urlsplit

from kingdom.web.settings import is_loopback

# What every answer tells the browser: load nothing from elsewhere, show this in nobody's frame, guess no types.


_nonce: Final = ContextVar[str]("nonce", default="")
_PLAIN_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)


def new_nonce() -> str:
    """A number for the scripts of one page, known as :func:`nonce` to whoever makes the page."""
    made = secrets.token_urlsafe(16)
    _nonce.set(made)
    return made


def nonce() -> str:
    """What a ``<script>`` of the page that is being made must carry as its ``nonce``."""
    return _nonce.get()


def content_security_policy(nonce_of_page: str) -> str:
    """The Content-Security-Policy of a page of the dashboard.

    Tried in Chromium without ``unsafe-eval`` no page appears, since Vue compiles the templates of components there; and
    without ``unsafe-inline`` for styles pages lose their look, which NiceGUI and Quasar write into style elements and
    attributes. Scripts in a page run only with the nonce of that very answer.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce_of_page}' 'unsafe-eval'",
            "script-src-attr 'none'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


def with_security_headers(path: str, given: list[tuple[bytes, bytes]], nonce_of_page: str) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, with ours. What an answer says of its own caching stays, except under ``/api``."""
    names = {name.lower(): value for name, value in given}
    is_page = names.get(b"content-type", b"").startswith(b"text/html")
    must = [
        *_SECURITY_HEADERS,
        (b"content-security-policy", (content_security_policy(nonce_of_page) if is_page else _PLAIN_POLICY).encode()),
    ]
    if path.startswith("/api") or b"cache-control" not in names:
        must.append((b"cache-control", b"no-store"))
    replaced = {name for name, _ in must}
    return [(name, value) for name, value in given if name.lower() not in replaced] + must


# Which names this server goes by, and which pages are its own.
#
# A page anywhere can have a browser send requests to 127.0.0.1, and a name anywhere can be made to point there (DNS
# rebinding). What gives them away is the ``Host`` they ask for and the ``Origin`` they come from.


_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::", "*")  # noqa: S104 - compared with, not bound to


class HostNames:
    """The names of a server: loopback, the address it listens on, and those that were allowed."""

    def __init__(self, host: str, allowed: Iterable[str]) -> None:
        names = [*allowed] if host in _ANY_ADDRESS else [host, *allowed]
        self._names = frozenset(name.strip().strip("[]").lower().rstrip(".") for name in names)

    def is_own_host(self, host: str) -> bool:
        """Whether a ``Host`` header names this server."""
        name, _ = _split_host(host)
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
        name, own_port = _split_host(host)
        if name is None or parts.hostname.lower().rstrip(".") != name:
            return False
        schemes = {_http_scheme(scheme)} if is_loopback(name) else {_http_scheme(scheme), "https"}
        if parts.scheme not in schemes:
            return False
        return (port or _DEFAULT_PORTS[parts.scheme]) == (own_port or _DEFAULT_PORTS[parts.scheme])


def _http_scheme(scheme: str) -> str:
    return {"ws": "http", "wss": "https"}.get(scheme, scheme)


def _split_host(host: str) -> tuple[str | None, int | None]:
    """Name and port of a ``Host`` header; no name when it makes no sense."""
    if not host or any(sign in host for sign in "/?#@\\ \t,"):
        return None, None
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None, None
    return (name.lower().rstrip(".") if name else None), port
