"""A minimal HTTP/1.1 on asyncio streams: JSON bodies, one request per connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

_MAX_BODY = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A request as a server reads it; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True, slots=True)
class Response:
    """A response; header names are in lower case where it was read from the network."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


class BadMessage(ConnectionError):
    """The peer closed the connection early, or does not speak HTTP."""


async def send(
    method: str, url: str, body: Any = None, *, headers: Mapping[str, str] | None = None, within: float
) -> Response:
    """Send one request and wait for its answer.

    Raises ``TimeoutError`` when the whole exchange takes longer than ``within`` seconds, and ``ConnectionError``
    (or another ``OSError``) when the connection fails: in both cases the peer may have acted, or not.
    """
    parts = urlsplit(url)
    async with asyncio.timeout(within):
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        try:
            writer.write(_encode(f"{method} {parts.path} HTTP/1.1", body, {"Host": parts.netloc, **(headers or {})}))
            await writer.drain()
            start, answered, document = await _read(reader)
        finally:
            writer.close()
    try:
        status = int(start.split(" ", 2)[1])
    except (IndexError, ValueError):
        raise BadMessage(f"{url} answered {start[:80]!r}, which is not HTTP") from None
    return Response(status, document, answered)


async def read_request(reader: asyncio.StreamReader) -> Request:
    """Read one request; raises :class:`BadMessage` when the client sends something else, or nothing."""
    start, headers, body = await _read(reader)
    try:
        method, path, _version = start.split(" ")
    except ValueError:
        raise BadMessage(f"not a request: {start[:80]!r}") from None
    return Request(method, path, headers, body)


async def write_response(writer: asyncio.StreamWriter, response: Response) -> None:
    """Write a response and flush; ignore a client that has disconnected."""
    phrase = HTTPStatus(response.status).phrase
    with contextlib.suppress(ConnectionError):
        writer.write(_encode(f"HTTP/1.1 {response.status} {phrase}", response.body, response.headers))
        await writer.drain()


def _encode(start: str, body: Any, headers: Mapping[str, str]) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [start, *(f"{name}: {value}" for name, value in headers.items())]
    lines += ["Content-Type: application/json", f"Content-Length: {len(content)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + content


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], Any]:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        start, *lines = head[:-4].split("\r\n")
        fields = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        length = int(headers.get("content-length", "0"))
        if not 0 <= length <= _MAX_BODY:
            raise BadMessage(f"a body of {length} bytes is not accepted")
        content = await reader.readexactly(length)
        return start, headers, json.loads(content) if content else None
    except asyncio.IncompleteReadError:
        raise BadMessage("the connection closed before the message was complete") from None
    except (asyncio.LimitOverrunError, ValueError) as error:
        raise BadMessage(f"the message is not HTTP with a JSON body: {error}") from None
