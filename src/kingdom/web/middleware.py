"""ASGI middleware for requests under `/api`: size limit, idempotency keys, ETags."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from kingdom.web.envelope import ApiError
from kingdom.web.errors import as_api_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


# ── ETags ──


_TIMESTAMP_PATTERN: Final = re.compile(rb',"timestamp":"[^"]*"\}\Z')
_NOT_MODIFIED_HEADERS: Final = frozenset({"etag", "cache-control", "vary", "date"})
"""Headers that a 304 response keeps."""
_NOT_MODIFIED: Final = 304


def etag_of(body: bytes) -> str:
    """Return a weak ETag of a response body. The timestamp is ignored: it differs in every response."""
    content = _TIMESTAMP_PATTERN.sub(b"}", body)
    return f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'


def matches(if_none_match: str | None, etag: str) -> bool:
    """Return whether ``If-None-Match`` contains this ETag."""
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return tags == ["*"] or etag.removeprefix("W/") in tags


class ETagMiddleware:
    """ASGI middleware that adds ETags to JSON responses of GET under ``/api`` and answers 304.

    Streams pass unchanged.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"].startswith("/api/"):
            send = _TaggedSend(send, Headers(scope=scope).get("if-none-match"))
        await self._app(scope, receive, send)


class _TaggedSend:
    """Buffers a JSON response until it is complete."""

    def __init__(self, send: Send, if_none_match: str | None) -> None:
        self._send = send
        self._if_none_match = if_none_match
        self._start: Message | None = None
        self._body: list[bytes] = []

    async def __call__(self, message: Message) -> None:
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
        if matches(self._if_none_match, etag):
            kept = [
                (name, value) for name, value in headers.raw if name.decode("latin-1").lower() in _NOT_MODIFIED_HEADERS
            ]
            start, body = {**start, "status": _NOT_MODIFIED, "headers": kept}, b""
        await self._send(start)
        await self._send({"type": "http.response.body", "body": body})


def _is_json(start: Message) -> bool:
    kind = Headers(raw=start["headers"]).get("content-type", "")
    return bool(start["status"] == 200 and kind.startswith("application/json"))


# ── Size limit ──


MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024


class SizeLimitMiddleware:
    """ASGI middleware that refuses requests under ``/api`` with a body over the limit."""

    def __init__(self, app: ASGIApp, largest: int = MAX_REQUEST_BYTES) -> None:
        self._app = app
        self._largest = largest
        self._refusal = f"a request may have at most {largest:,} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        said = Headers(scope=scope).get("content-length", "0")
        if said.isdecimal() and int(said) > self._largest:
            await JSONResponse(ApiError(413, "SYS_TOO_LARGE", self._refusal).body(), 413)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._largest:
                raise HTTPException(413, self._refusal)
            return message

        await self._app(scope, counted, send)


# ── Idempotency keys ──


T = TypeVar("T")
IDEMPOTENCY_HEADER: Final = "Idempotency-Key"
REPLAYED_HEADER: Final = "Idempotency-Replayed"
KEY_PATTERN: Final = r"^[\x21-\x7e]{1,200}$"
CHANGING_METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""Methods of requests that change something and may carry an idempotency key."""
_UNTRIED_STATUSES: Final = frozenset({400, 401, 403, 405, 413, 415, 429})
_SECRET_PATHS: Final = frozenset({"/api/tokens"})
"""Responses of these contain a secret and are not stored; their requests can be done once anyway."""
_KEPT_SECONDS: Final = 24 * 3600.0
_MAX_STORED_RESPONSES: Final = 10_000
_IDEMPOTENCY_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS answer (
    key TEXT PRIMARY KEY, asked TEXT NOT NULL, owner TEXT NOT NULL, at REAL NOT NULL,
    status INTEGER, headers TEXT, body BLOB
);
CREATE INDEX IF NOT EXISTS answer_by_age ON answer (at);
"""


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The response to a request."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def is_invalid_request(self) -> bool:
        """Whether the request was refused for its form, before anything was tried."""
        return self.status == 422 and b'"code":"SYS_INVALID"' in self.body


class ResponseStore:
    """The responses of the last day by idempotency key, in a SQLite file. A row without a status is in progress."""

    def __init__(self, path: Path, clock: Callable[[], float], *, most: int = _MAX_STORED_RESPONSES) -> None:
        self._path = path
        self._clock = clock
        self._most = most
        self._owner = secrets.token_hex(8)  # rows in progress with another owner were interrupted
        self._lock = asyncio.Lock()

    async def begin(self, key: str, fingerprint: str) -> StoredResponse | None:
        """Return the stored response of a key, or None if the request is new and must be executed now.

        Raises :class:`ApiError` if the key was used for another request, or its request is in progress or was cut off.
        """
        return await self._do(lambda connection: self._begin(connection, key, fingerprint))

    async def finish(self, key: str, answer: StoredResponse) -> None:
        """Store a response."""
        values = (answer.status, json.dumps(answer.headers), answer.body, key)
        statement = "UPDATE answer SET status = ?, headers = ?, body = ? WHERE key = ?"
        await self._do(lambda connection: connection.execute(statement, values))

    async def forget(self, key: str) -> None:
        """Remove a key: nothing was done, and the request may be retried."""
        await self._do(lambda connection: connection.execute("DELETE FROM answer WHERE key = ?", (key,)))

    async def cut_off(self, key: str) -> None:
        """Mark a request as interrupted: whether it was done is unknown."""
        await self._do(lambda connection: connection.execute("UPDATE answer SET owner = '' WHERE key = ?", (key,)))

    def _begin(self, connection: sqlite3.Connection, key: str, fingerprint: str) -> StoredResponse | None:
        now = self._clock()
        connection.execute("DELETE FROM answer WHERE at < ?", (now - _KEPT_SECONDS,))
        found = connection.execute(
            "SELECT asked, owner, status, headers, body FROM answer WHERE key = ?", (key,)
        ).fetchone()
        if found is None:
            connection.execute(
                "DELETE FROM answer WHERE key IN (SELECT key FROM answer ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (self._most - 1,),
            )
            connection.execute(
                "INSERT INTO answer (key, asked, owner, at) VALUES (?, ?, ?, ?)", (key, fingerprint, self._owner, now)
            )
            return None
        before, owner, status, headers, body = found
        if before != fingerprint:
            raise ApiError(
                422, "SYS_IDEMPOTENCY", f"{IDEMPOTENCY_HEADER} {key} was used for another request: use a new key"
            )
        if status is not None:
            return StoredResponse(status, [(name, value) for name, value in json.loads(headers)], body)
        if owner == self._owner:
            raise ApiError(
                409, "SYS_IN_PROGRESS", f"the request with {IDEMPOTENCY_HEADER} {key} is in progress: retry later"
            )
        raise ApiError(
            409,
            "SYS_CUT_OFF",
            f"the request with {IDEMPOTENCY_HEADER} {key} was interrupted: check its effect, then use a new key",
        )

    async def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        async with self._lock:
            return await asyncio.to_thread(self._in_transaction, action)

    def _in_transaction(self, action: Callable[[sqlite3.Connection], T]) -> T:
        if not self._path.exists():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
        with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
            connection.executescript(_IDEMPOTENCY_SCHEMA)
            connection.execute("BEGIN IMMEDIATE")
            return action(connection)


class IdempotencyMiddleware:
    """ASGI middleware that executes a request with an ``Idempotency-Key`` once and replays its response for a day."""

    def __init__(self, app: ASGIApp, store: ResponseStore) -> None:
        self._app = app
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = Headers(scope=scope).get(IDEMPOTENCY_HEADER) if scope["type"] == "http" else None
        if key is None or scope["method"] not in CHANGING_METHODS or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        try:
            await self._keyed(key, scope, receive, send)
        except (ApiError, HTTPException) as error:
            problem = as_api_error(error)
            await JSONResponse(problem.body(), problem.status)(scope, receive, send)

    async def _keyed(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not re.match(KEY_PATTERN, key):
            raise ApiError(422, "SYS_IDEMPOTENCY", f"{IDEMPOTENCY_HEADER} must have 1 to 200 visible ASCII characters")
        body = await _read_body(receive)
        if body is None:  # the client disconnected: nothing is done, and nobody waits for a response
            return
        known = await self._store.begin(key, _fingerprint(scope, body))
        if known is not None:
            headers = {**dict(known.headers), REPLAYED_HEADER: "true"}
            await Response(known.body, known.status, headers)(scope, receive, send)
            return
        recorded = _RecordedResponse()
        try:
            await self._app(scope, _replay_body(body, receive), recorded)
        except asyncio.CancelledError:
            await asyncio.shield(self._store.cut_off(key))
            raise
        except Exception:
            await self._store.forget(key)
            raise
        answer = recorded.answer()
        untried = answer.status >= 500 or answer.status in _UNTRIED_STATUSES or answer.is_invalid_request
        if untried or scope["path"] in _SECRET_PATHS:
            # nothing was tried: the request may be sent again, also a corrected one
            await self._store.forget(key)
        else:
            await self._store.finish(key, answer)
        for message in recorded.messages:
            await send(message)


class _RecordedResponse:
    """Records a response, which is sent after it is stored."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    def answer(self) -> StoredResponse:
        """Return the recorded response."""
        start = self.messages[0]
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
        return StoredResponse(
            start["status"], headers, b"".join(message.get("body", b"") for message in self.messages[1:])
        )


async def _read_body(receive: Receive) -> bytes | None:
    """Read the body of a request; None if the client disconnected before its end."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that replays a body, then passes further messages."""
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return waiting.pop() if waiting else await receive()

    return received


def _fingerprint(scope: Scope, body: bytes) -> str:
    digest = hashlib.sha256()
    person = scope.get("kingdom.person")  # nobody is shown the responses to another person's requests
    who = () if person is None or person.is_owner else (person.key.encode(),)
    for part in (scope["method"].encode(), scope["path"].encode(), scope.get("query_string", b""), body, *who):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
