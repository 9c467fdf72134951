"""Serve an application with uvicorn inside the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from kingdom.court.errors import CourtError
from kingdom.web.record import record_server, running_server, url_of
from kingdom.web.security.credentials import read_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from fastapi import FastAPI
    from uvicorn._types import ASGISendEvent

    from kingdom.web.context import WebContext
    from kingdom.web.settings import WebSettings

_DATE_SECONDS: Final = 1.0  # how often the Date header is updated
_GRACE_SECONDS: Final = 2  # for running requests at shutdown; streams end then
_TOKEN_CHECK_SECONDS: Final = 1.0  # interval of checks for a renewed token
_MAX_WEBSOCKET_BYTES: Final = 2 * 1024 * 1024  # per message of a client
CLOSE_SECONDS: float = 60.0
"""How long a WebSocket's client may take to read why it was closed. Then the connection is dropped."""
log = logging.getLogger("kingdom.web")


class CannotServe(CourtError):
    """Cannot listen on the address, or the application does not start."""

    code = "CANNOT_SERVE"


class _UvicornServer(uvicorn.Server):
    """A uvicorn server that signals readiness and leaves signal handling to the caller."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Wait for shutdown and update the Date header every second. Uvicorn's own loop wakes ten times as often."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ending.wait()

    def end(self) -> None:
        """Request shutdown."""
        self.should_exit = True
        self._ending.set()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Tells a client that does not read why it was closed, and drops it if it never reads that."""

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] != "websocket.close":
            await super().send(message)
            return
        self.writable.set()  # the reason takes its place behind what the client has not read: it needs no room
        await super().send(message)
        # Closing alone would wait for ever until the client has read everything.
        self.loop.call_later(CLOSE_SECONDS, self.transport.abort)


class RunningServer:
    """A running server."""

    def __init__(self, url: str, server: _UvicornServer, task: asyncio.Task[None]) -> None:
        self.url = url
        self._server = server
        self._task = task

    async def wait(self) -> None:
        """Wait until the server ends. It ends by itself only on an error, which is raised."""
        await asyncio.shield(self._task)

    @property
    def broken(self) -> BaseException | None:
        """The error that ended the server; None while it runs."""
        if not self._task.done():
            return None
        return asyncio.CancelledError() if self._task.cancelled() else self._task.exception() or CannotServe("it ended")

    @property
    def connections(self) -> list[Any]:
        """The open connections, as uvicorn's protocols."""
        return list(self._server.server_state.connections)

    def drop_connections(self) -> None:
        """Abort all connections."""
        for connection in self.connections:
            transport: Any = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()


@contextlib.asynccontextmanager
async def serve(
    app: FastAPI, context: WebContext, listener: socket.socket | None = None
) -> AsyncIterator[RunningServer]:
    """Serve an application for the length of the block. Raises :class:`CannotServe`.

    ``listener`` is the result of :func:`listen`; by default it is called here.

    At the end no new connections are accepted, WebSockets are closed, and running requests get a moment to finish. If
    the token is renewed meanwhile, the new one takes effect and all connections are dropped.
    """
    listener = listener or listen(context.root, context.settings)
    # No access log: it would contain the token of the login link. No compression on WebSockets: it takes 300 KiB per
    # connection, and most connections are local.
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="on",
        ws=WebSocketProtocol,
        ws_max_size=_MAX_WEBSOCKET_BYTES,
        ws_per_message_deflate=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _UvicornServer(config)
    task = asyncio.create_task(_run(server, listener), name="web-server")
    ready = asyncio.create_task(server.ready.wait())
    following: asyncio.Task[None] | None = None
    try:
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        url = url_of(context.settings.host, listener.getsockname()[1])
        running = RunningServer(url, server, task)
        following = asyncio.create_task(_follow_token(context, running), name="web-token")
        with record_server(context.root, url):
            yield running
    finally:
        if following is not None:
            following.cancel()
        ready.cancel()
        context.live.disconnect()
        server.end()
        await asyncio.wait({task})
        await _wait_for_requests(server)
        listener.close()


async def _run(server: _UvicornServer, listener: socket.socket) -> None:
    try:
        await server.serve([listener])
    except SystemExit:  # uvicorn raises it when the application does not start; the guard has logged why
        raise CannotServe("the web application did not start; see the log") from None


async def _wait_for_requests(server: _UvicornServer) -> None:
    """Wait for requests that uvicorn cancelled after the grace period: it does not wait for them itself."""
    if tasks := [task for task in server.server_state.tasks if not task.done()]:
        await asyncio.wait(tasks, timeout=_GRACE_SECONDS)


async def _follow_token(context: WebContext, running: RunningServer) -> None:
    while True:
        await asyncio.sleep(_TOKEN_CHECK_SECONDS)
        try:
            found = read_token(context.root)
            if found is not None and found != context.token:
                context.token = found
                running.drop_connections()
                log.info("the token was renewed: all clients have to log in again")
            context.connections.end_revoked()
        except Exception:  # one failed check must not leave those revoked later connected
            log.exception("cannot check whose access was revoked; retrying")


def listen(root: Path, settings: WebSettings) -> socket.socket:
    """Listen on the address of the settings. Raises :class:`CannotServe`, which names the other user if known."""
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.create_server(address, family=family)
    except OSError as error:
        raise CannotServe(_listen_error(root, host, port, error)) from None
    # Without TCP_NODELAY the body of a response waits up to 40 ms for the client to acknowledge the headers. The event
    # loop sets it only for sockets that it created itself. Accepted connections inherit it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def _listen_error(root: Path, host: str, port: int, error: OSError) -> str:
    where = url_of(host, port).removeprefix("http://")
    if error.errno != errno.EADDRINUSE:
        return f"cannot listen on {where}: {error.strerror or error}; choose another --host or --port"
    other = running_server(root)
    if other is not None and other.url == url_of(host, port):
        return (
            f"the web server of {root} is already running at {other.url} (pid {other.process.pid}): "
            "kingdom web --link shows its link"
        )
    return (
        f"port {port} is in use: another program listens on {where}; choose another port with --port "
        "(web.port in config/system.yaml), or 0 for any free port"
    )
