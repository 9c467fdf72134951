"""A small HTTP server on the loopback interface, for fakes of other people's services. Faults are scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.serving import listen


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Response:
    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Fault:
    """What is answered instead, so many times, to requests whose ``METHOD path`` contains a text."""

    match: str
    response: Response | None  # None: the connection is cut
    times: int


class FakeServer:
    """``async with FakeServer() as server``: answers by :meth:`answer` at ``server.url``."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.before: Callable[[Request], None] = lambda request: None

    async def __aenter__(self) -> Any:
        self._listener = await listen(self._serve)
        self.url = f"http://127.0.0.1:{self._listener.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._listener.close()

    def fail(self, match: str, status: int, times: int = 1, body: Any = None, **headers: str) -> None:
        """Answer the next requests that match with an error. Underscores in header names become dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.faults.append(Fault(match, Response(body, status, named), times))

    def cut(self, match: str, times: int = 1) -> None:
        """Close the connection instead of answering."""
        self.faults.append(Fault(match, None, times))

    def asked(self, match: str) -> int:
        """How often something was asked for."""
        return sum(match in f"{request.method} {request.path}" for request in self.requests)

    def answer(self, request: Request) -> Response:
        raise NotImplementedError

    def _respond(self, request: Request) -> Response | None:
        self.requests.append(request)
        self.before(request)
        for fault in self.faults:
            if fault.times > 0 and fault.match in f"{request.method} {request.path}":
                fault.times -= 1
                return fault.response
        return self.answer(request)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await _read(reader):
                response = self._respond(request)
                if response is None:
                    return
                writer.write(_written(response))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass


async def _read(reader: asyncio.StreamReader) -> Request | None:
    first = (await reader.readline()).decode().split()
    if not first:
        return None
    headers: dict[str, str] = {}
    while line := (await reader.readline()).decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    parts = urlsplit(first[1])
    return Request(first[0], parts.path, dict(parse_qsl(parts.query)), headers, json.loads(body) if body else None)


def _written(response: Response) -> bytes:
    body = b"" if response.body is None else response.body
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **response.headers}
    lines = [f"HTTP/1.1 {response.status} x", *(f"{name}: {value}" for name, value in headers.items())]
    if response.status == 304:
        lines = [line for line in lines if not line.startswith("Content-Length")]
        body = b""
    return "\r\n".join([*lines, "", ""]).encode() + body
