"""The web of a folder in a test: as an application that is called directly, or on a socket of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from fastapi import FastAPI
from starlette.types import Message, Scope

from kingdom.court.init_home import create_home
from kingdom.web.app import create_app
from kingdom.web.bootstrap import open_context
from kingdom.web.context import WebContext
from kingdom.web.security import cookie_name, cookie_value, csrf_token
from kingdom.web.security.roles import OWNER
from kingdom.web.server import RunningServer, serve
from kingdom.web.settings import WebSettings

TOKEN = "t" * 32
BEARER = {"Authorization": f"Bearer {TOKEN}"}
SETTINGS = WebSettings(port=0, requests_per_second=10_000.0)
LOCAL = "http://127.0.0.1"


class Web(NamedTuple):
    """``context, app, client``; the client has the token, and is given errors as answers."""

    context: WebContext
    app: FastAPI
    client: httpx.AsyncClient

    def as_browser(self) -> httpx.AsyncClient:
        """A client that is logged in as a browser is, with what a page of ours would send."""
        return self.without_token(
            headers={"Origin": LOCAL, "X-CSRF-Token": csrf_token(TOKEN)},
            cookies=dict([session_cookie(self.context)]),
        )

    def without_token(self, *, address: str = "127.0.0.1", **options: Any) -> httpx.AsyncClient:
        """A client nobody knows, who comes from ``address``."""
        return httpx.AsyncClient(transport=_transport(self.app, address), base_url=LOCAL, **options)


def session_cookie(context: WebContext, seconds: float = 3600.0) -> tuple[str, str]:
    """Name and value of the cookie of a browser that was logged in just now by the owner."""
    return cookie_name(TOKEN), cookie_value(TOKEN, context.sessions.add(OWNER, seconds))


class Served(NamedTuple):
    """A server that listens: ``url``, ``context, app``, a client with the token, and what runs it."""

    url: str
    context: WebContext
    app: FastAPI
    client: httpx.AsyncClient
    running: RunningServer

    @property
    def websocket_url(self) -> str:
        """The same address for WebSockets."""
        return self.url.replace("http://", "ws://")


@contextlib.asynccontextmanager
async def opened(
    root: Path,
    *,
    court: bool = True,
    engine: bool = False,
    settings: WebSettings = SETTINGS,
    token: str = TOKEN,
    **options: Any,
) -> AsyncIterator[WebContext]:
    """The context of a folder, which is made a court's home (without generals) if ``court``."""
    if court:
        await create_home(root, (), force=True)
    async with open_context(root, settings, token, engine=engine, **options) as context:
        yield context


@contextlib.asynccontextmanager
async def web_app(root: Path, *, pages: bool = False, **options: Any) -> AsyncIterator[Web]:
    """``async with web_app(tmp_path) as (context, app, client)``; the options are those of :func:`opened`."""
    async with opened(root, **options) as context:
        app = create_app(context, pages=pages)
        transport = _transport(app)
        headers = {"Authorization": f"Bearer {context.token}"}
        async with httpx.AsyncClient(transport=transport, base_url=LOCAL, headers=headers) as client:
            yield Web(context, app, client)


@contextlib.asynccontextmanager
async def served(root: Path, *, pages: bool = False, **options: Any) -> AsyncIterator[Served]:
    """The same, really listening, in this event loop: ``async with served(tmp_path) as web: web.url``.

    The toolkit of the dashboard has one state for the whole process: with ``pages`` one server at a time.
    """
    async with opened(root, **options) as context:
        app = create_app(context, pages=pages)
        headers = {"Authorization": f"Bearer {context.token}"}
        async with (
            serve(app, context) as running,
            httpx.AsyncClient(base_url=running.url, headers=headers, trust_env=False, verify=False) as client,  # no TLS
        ):
            yield Served(running.url, context, app, client, running)


async def raw_request(
    app: FastAPI, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], body: bytes = b""
) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body for exactly this path and these headers: a client would have put them in order."""
    sent: list[Message] = []
    scope: Scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": list(headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"]), dict(sent[0]["headers"]), b"".join(message.get("body", b"") for message in sent)


def _transport(app: FastAPI, address: str = "127.0.0.1") -> httpx.ASGITransport:
    return httpx.ASGITransport(app=app, raise_app_exceptions=False, client=(address, 12345))
