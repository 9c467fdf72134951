"""Request headers that are accepted (`Host`, `Origin`), and security headers of every response."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Final
from urllib.parse import urlsplit

from kingdom.web.settings import is_loopback

# ── Response headers ──


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
    """Create the nonce for the scripts of one response; :func:`nonce` returns it while the page is built."""
    made = secrets.token_urlsafe(16)
    _nonce.set(made)
    return made


def nonce() -> str:
    """Return the nonce for ``<script>`` tags of the current page."""
    return _nonce.get()


def content_security_policy(nonce_of_page: str) -> str:
    """Return the Content-Security-Policy of a dashboard page.

    ``unsafe-eval`` is needed because Vue compiles component templates in the browser, and ``unsafe-inline`` for styles
    because NiceGUI and Quasar write style elements and attributes (both tried in Chromium). Scripts in a page run only
    with the nonce of that response.
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
    """Add security headers to those of a response. Its own ``Cache-Control`` is kept, except under ``/api``."""
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


# ── Request headers ──


_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_ANY_ADDRESS: Final = ("", "0.0.0.0", "::", "*")  # noqa: S104 - compared with, not bound to


class HostNames:
    """The accepted host names of a server: loopback, the address it listens on, and the allowed hosts.

    Any web page can make a browser send requests to 127.0.0.1, and any name can be made to resolve to it (DNS
    rebinding). Checking ``Host`` and ``Origin`` prevents both.
    """

    def __init__(self, host: str, allowed: Iterable[str]) -> None:
        names = [*allowed] if host in _ANY_ADDRESS else [host, *allowed]
        self._names = frozenset(name.strip().strip("[]").lower().rstrip(".") for name in names)

    def is_own_host(self, host: str) -> bool:
        """Return whether a ``Host`` header names this server."""
        name, _ = _split_host(host)
        return name is not None and (is_loopback(name) or name in self._names)

    def is_own_origin(self, origin: str, host: str, scheme: str) -> bool:
        """Return whether an ``Origin`` header matches the server that received a request with this ``Host``.

        The port must match: other programs on this machine serve pages on other ports. Behind a TLS proxy the request
        arrives as plain HTTP; for an allowed host name, https is accepted as well.
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
    """Return name and port of a ``Host`` header; (None, None) if it is malformed."""
    if not host or any(sign in host for sign in "/?#@\\ \t,"):
        return None, None
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None, None
    return (name.lower().rstrip(".") if name else None), port


def is_local_path(path: str) -> bool:
    """Return whether a path stays on this server: browsers take ``//host`` and ``/\\host`` as other hosts."""
    return path.startswith("/") and path[1:2] not in ("/", "\\") and not any(ord(letter) < 32 for letter in path)
