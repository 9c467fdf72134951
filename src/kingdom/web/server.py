"""An application on a socket, in the event loop of whoever asks for it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from kingdom.court.errors import CourtError
from kingdom.web.record import record_server, running_server, url_of
from kingdom.web.security.credentials import read_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from fastapi import FastAPI

    from kingdom.web.context import WebContext
    from kingdom.web.settings import WebSettings

_DATE_SECONDS: Final = 1.0  # seconds for which the date in an answer holds
_GRACE_SECONDS: Final = 2  # seconds for requests that are being answered; streams end then
_TOKEN_CHECK_SECONDS: Final = 1.0  # seconds between two looks whether there is a new token
_MAX_WEBSOCKET_BYTES: Final = 2 * 1024 * 1024  # bytes from a client's WebSocket
log = logging.getLogger("kingdom.web")


class CannotServe(CourtError):
    """The address cannot be listened on, or the application does not start."""

    code = "CANNOT_SERVE"


class _UvicornServer(uvicorn.Server):
    """Says when it is ready, and leaves signals to whoever runs the loop."""

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
        """Wait for the end, with a new date for the answers every second. Uvicorn's own looks ten times as often."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ending.wait()

    def end(self) -> None:
        """Have it stop."""
        self.should_exit = True
        self._ending.set()


class RunningServer:
    """A server that runs."""

    def __init__(self, url: str, server: _UvicornServer, task: asyncio.Task[None]) -> None:
        self.url = url
        self._server = server
        self._task = task

    async def wait(self) -> None:
        """Wait until it ends, which it does by itself only when it breaks; raises why."""
        await asyncio.shield(self._task)

    @property
    def broken(self) -> BaseException | None:
        """Why it ended, if it did."""
        if not self._task.done():
            return None
        return asyncio.CancelledError() if self._task.cancelled() else self._task.exception() or CannotServe("it ended")

    def drop_connections(self) -> None:
        """End every connection there is, whatever runs on it."""
        for connection in list(self._server.server_state.connections):
            transport: Any = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()


@contextlib.asynccontextmanager
async def serve(
    app: FastAPI, context: WebContext, listener: socket.socket | None = None
) -> AsyncIterator[RunningServer]:
    """Serve an application for the length of the block. Raises :class:`CannotServe`.

    ``listener`` is what :func:`listen` gave; without it that is done here.

    At the end no new connection is taken, WebSockets are closed, requests get a moment to be answered. A token that is
    renewed meanwhile counts from then on, and whoever came with the old one is thrown out.
    """
    listener = listener or listen(context.root, context.settings)
    # No access log: it would hold the token of the login link. No compression on WebSockets: it takes 300 KiB for each,
    # and the network is most often none.
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="on",
        ws="websockets-sansio",
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


def freeze_garbage_collector() -> None:
    """Take what a server was made of out of the garbage collector's sight: it stays for as long as the process does.

    For a process that is nothing but a server. A full collection looked at 100,000 objects of the web toolkit alone,
    for a third of a second in which nobody was answered.
    """
    gc.collect()
    gc.freeze()


async def _run(server: _UvicornServer, listener: socket.socket) -> None:
    try:
        await server.serve([listener])
    except SystemExit:  # uvicorn's way to say that the application did not start; the guard has told why
        raise CannotServe("the web application did not start: the log has the reason") from None


async def _wait_for_requests(server: _UvicornServer) -> None:
    """Wait for the requests that uvicorn cancels at the end of its patience, but does not wait for."""
    if tasks := [task for task in server.server_state.tasks if not task.done()]:
        await asyncio.wait(tasks, timeout=_GRACE_SECONDS)


async def _follow_token(context: WebContext, running: RunningServer) -> None:
    while True:
        await asyncio.sleep(_TOKEN_CHECK_SECONDS)
        found = read_token(context.root)
        if found is not None and found != context.token:
            context.token = found
            running.drop_connections()
            log.info("there is a new token: everybody has to log in again")


def listen(root: Path, settings: WebSettings) -> socket.socket:
    """A socket at the address of the settings. Raises :class:`CannotServe`, which says who has it, if that is known."""
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listener = socket.create_server(address, family=family)
    except OSError as error:
        raise CannotServe(_listen_error(root, host, port, error)) from None
    # Without it the body of an answer waits up to 40 ms for the client to acknowledge the head. The event loop sets it
    # on connections of sockets that it made itself, not of ours; those that are accepted inherit it.
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
            f"the web server of {root} runs already, at {other.url} (pid {other.process.pid}): "
            "kingdom web --link shows the link to it"
        )
    return (
        f"port {port} is taken: another program listens on {where}; choose another one with --port "
        "(web.port in config/system.yaml), 0 takes any that is free"
    )
