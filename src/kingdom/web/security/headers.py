"""What every answer tells the browser: load nothing from elsewhere, show this in nobody's frame, guess no types."""

from __future__ import annotations

import secrets
from contextvars import ContextVar
from typing import Final

_nonce: Final = ContextVar[str]("nonce", default="")
_PLAIN: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_ALWAYS: Final = (
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


def policy(nonce_of_page: str) -> str:
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


def added(path: str, given: list[tuple[bytes, bytes]], nonce_of_page: str) -> list[tuple[bytes, bytes]]:
    """The headers of an answer, with ours. What an answer says of its own caching stays, except under ``/api``."""
    names = {name.lower(): value for name, value in given}
    is_page = names.get(b"content-type", b"").startswith(b"text/html")
    must = [*_ALWAYS, (b"content-security-policy", (policy(nonce_of_page) if is_page else _PLAIN).encode())]
    if path.startswith("/api") or b"cache-control" not in names:
        must.append((b"cache-control", b"no-store"))
    replaced = {name for name, _ in must}
    return [(name, value) for name, value in given if name.lower() not in replaced] + must
