"""ETags: a client that has an answer already is told so, and not sent it again.

They are weak: made of the body without its timestamp, which every answer has anew.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_TIMESTAMP: Final = re.compile(rb',"timestamp":"[^"]*"\}\Z')
_KEPT: Final = frozenset({"etag", "cache-control", "vary", "date"})
"""Headers a 304 has as well."""
_NOT_MODIFIED: Final = 304


def etag_of(body: bytes) -> str:
    """The tag of the body of an answer."""
    told = _TIMESTAMP.sub(b"}", body)
    return f'W/"{hashlib.blake2b(told, digest_size=12).hexdigest()}"'


def matches(asked: str | None, etag: str) -> bool:
    """Whether ``If-None-Match`` names this tag."""
    if asked is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in asked.split(",")]
    return tags == ["*"] or etag.removeprefix("W/") in tags


class ETags:
    """ASGI middleware: tags JSON answers to GET under ``/api``. Streams are passed on as they are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and its answer with a tag."""
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"].startswith("/api/"):
            send = _Tagging(send, Headers(scope=scope).get("if-none-match"))
        await self._app(scope, receive, send)


class _Tagging:
    """Holds a JSON answer back until it is whole."""

    def __init__(self, send: Send, asked: str | None) -> None:
        self._send = send
        self._asked = asked
        self._start: Message | None = None
        self._body: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        """Take a message of an answer."""
        if message["type"] == "http.response.start" and _is_json(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body.append(message.get("body", b""))
            if not message.get("more_body"):
                await self._finish(self._start, b"".join(self._body))

    async def _finish(self, start: Message, body: bytes) -> None:
        etag = etag_of(body)
        headers = MutableHeaders(raw=list(start["headers"]))
        headers["ETag"] = etag
        start = {**start, "headers": headers.raw}
        if matches(self._asked, etag):
            kept = [(name, value) for name, value in headers.raw if name.decode("latin-1").lower() in _KEPT]
            start, body = {**start, "status": _NOT_MODIFIED, "headers": kept}, b""
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def _is_json(start: Message) -> bool:
    kind = Headers(raw=start["headers"]).get("content-type", "")
    return bool(start["status"] == 200 and kind.startswith("application/json"))
