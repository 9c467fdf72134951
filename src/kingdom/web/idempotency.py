"""``Idempotency-Key``: a request that is sent again, because its answer was lost, is not carried out again.

For a day the answer is kept beside the key; the same request with the same key gets it once more.
"""

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

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from kingdom.web.envelope import ApiError
from kingdom.web.errors import as_api_error

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")
HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
KEY_PATTERN: Final = r"^[\x21-\x7e]{1,200}$"
METHODS: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
"""Of requests that change something, and so may carry a key."""
_SECONDS: Final = 24 * 3600.0
_MOST: Final = 10_000  # answers that are kept
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS answer (
    key TEXT PRIMARY KEY, asked TEXT NOT NULL, owner TEXT NOT NULL, at REAL NOT NULL,
    status INTEGER, headers TEXT, body BLOB
);
CREATE INDEX IF NOT EXISTS answer_by_age ON answer (at);
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request was answered."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class Answers:
    """The answers of the last day, in a small database. A row without a status is of a request under way."""

    def __init__(self, path: Path, clock: Callable[[], float], *, most: int = _MOST) -> None:
        self._path = path
        self._clock = clock
        self._most = most
        self._owner = secrets.token_hex(8)  # what another process left under way was cut off
        self._lock = asyncio.Lock()

    async def begin(self, key: str, asked: str) -> Answer | None:
        """The answer that was given before; None: there is none, and the request is to be carried out now.

        Raises :class:`ApiError` when the key belongs to another request, or to one that is under way or was cut off.
        """
        return await self._do(lambda connection: self._begin(connection, key, asked))

    async def finish(self, key: str, answer: Answer) -> None:
        """Keep an answer."""
        values = (answer.status, json.dumps(answer.headers), answer.body, key)
        statement = "UPDATE answer SET status = ?, headers = ?, body = ? WHERE key = ?"
        await self._do(lambda connection: connection.execute(statement, values))

    async def forget(self, key: str) -> None:
        """Nothing was done: it may be tried again."""
        await self._do(lambda connection: connection.execute("DELETE FROM answer WHERE key = ?", (key,)))

    async def cut_off(self, key: str) -> None:
        """Whether it was done is not known."""
        await self._do(lambda connection: connection.execute("UPDATE answer SET owner = '' WHERE key = ?", (key,)))

    def _begin(self, connection: sqlite3.Connection, key: str, asked: str) -> Answer | None:
        now = self._clock()
        connection.execute("DELETE FROM answer WHERE at < ?", (now - _SECONDS,))
        found = connection.execute(
            "SELECT asked, owner, status, headers, body FROM answer WHERE key = ?", (key,)
        ).fetchone()
        if found is None:
            connection.execute(
                "DELETE FROM answer WHERE key IN (SELECT key FROM answer ORDER BY at DESC LIMIT -1 OFFSET ?)",
                (self._most - 1,),
            )
            connection.execute(
                "INSERT INTO answer (key, asked, owner, at) VALUES (?, ?, ?, ?)", (key, asked, self._owner, now)
            )
            return None
        before, owner, status, headers, body = found
        if before != asked:
            raise ApiError(422, "SYS_IDEMPOTENCY", f"{HEADER} {key} belongs to another request: use a new one")
        if status is not None:
            return Answer(status, [(name, value) for name, value in json.loads(headers)], body)
        if owner == self._owner:
            raise ApiError(409, "SYS_IN_PROGRESS", f"the request with {HEADER} {key} is under way: ask again later")
        raise ApiError(
            409,
            "SYS_CUT_OFF",
            f"the request with {HEADER} {key} was cut off: look whether it was done, and use a new key if it was not",
        )

    async def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        async with self._lock:
            return await asyncio.to_thread(self._in_transaction, action)

    def _in_transaction(self, action: Callable[[sqlite3.Connection], T]) -> T:
        if not self._path.exists():
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
        with contextlib.closing(sqlite3.connect(self._path)) as connection, connection:
            connection.executescript(_TABLE)
            connection.execute("BEGIN IMMEDIATE")
            return action(connection)


class Idempotency:
    """ASGI middleware: looks at changes under ``/api`` with a key, and passes everything else on."""

    def __init__(self, app: ASGIApp, answers: Answers) -> None:
        self._app = app
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Carry a request out, or give the answer it had before."""
        key = Headers(scope=scope).get(HEADER) if scope["type"] == "http" else None
        if key is None or scope["method"] not in METHODS or not scope["path"].startswith("/api/"):
            await self._app(scope, receive, send)
            return
        try:
            await self._keyed(key, scope, receive, send)
        except (ApiError, HTTPException) as error:
            told = as_api_error(error)
            await JSONResponse(told.body(), told.status)(scope, receive, send)

    async def _keyed(self, key: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not re.match(KEY_PATTERN, key):
            raise ApiError(422, "SYS_IDEMPOTENCY", f"{HEADER} has 1 to 200 visible ASCII characters")
        body = await _read(receive)
        if body is None:  # cut off before it was whole: nothing is done, and nobody is there to be told
            return
        known = await self._answers.begin(key, _fingerprint(scope, body))
        if known is not None:
            headers = {**dict(known.headers), REPLAYED: "true"}
            await Response(known.body, known.status, headers)(scope, receive, send)
            return
        heard = _Heard()
        try:
            await self._app(scope, _again(body, receive), heard)
        except asyncio.CancelledError:
            await asyncio.shield(self._answers.cut_off(key))
            raise
        except Exception:
            await self._answers.forget(key)
            raise
        answer = heard.answer()
        if answer.status >= 500 or answer.status == 429:  # nothing was done: it may be tried again
            await self._answers.forget(key)
        else:
            await self._answers.finish(key, answer)
        for message in heard.messages:
            await send(message)


class _Heard:
    """Takes an answer, to be sent once it is kept."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        """Take a message."""
        self.messages.append(message)

    def answer(self) -> Answer:
        """The whole of it."""
        start = self.messages[0]
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
        return Answer(start["status"], headers, b"".join(message.get("body", b"") for message in self.messages[1:]))


async def _read(receive: Receive) -> bytes | None:
    """The body of a request; None when the client went away in the middle of it."""
    parts = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read, to be read by the application; then whatever else the client says."""
    waiting: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return waiting.pop() if waiting else await receive()

    return received


def _fingerprint(scope: Scope, body: bytes) -> str:
    told = hashlib.sha256()
    for part in (scope["method"].encode(), scope["path"].encode(), scope.get("query_string", b""), body):
        told.update(len(part).to_bytes(8, "big") + part)
    return told.hexdigest()
