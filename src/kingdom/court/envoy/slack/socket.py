"""Socket Mode: the connection over which Slack tells what people do.

Each envelope is handed to ``keep``, which writes it down, and is acknowledged on the socket it came by after that; what
is not acknowledged comes again. Slack asks every few hours for a new connection: it is opened before the old one goes,
and the old one is read to its end. (The client of slack_sdk closes the old one first.)
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from kingdom.court.envoy.port import NotNow
from kingdom.court.envoy.slack.errors import SlackProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.envoy.slack.api import SlackApi

_BACK_OFF: Final = (1.0, 60.0)  # seconds before connecting again: at first, at most
_FAREWELL: Final = 30.0  # seconds that an old connection is still read after a new one is there
_STABLE: Final = 10.0  # seconds after which a connection counts as one that worked
_ALIVE: Final = 30.0  # seconds between two signs of life
_MOST: Final = 16 * 1024 * 1024  # bytes of one envelope
log = logging.getLogger("kingdom.court.envoy.slack")


class Receiver:
    """Keeps a connection open."""

    def __init__(
        self, api: SlackApi, keep: Callable[[dict[str, Any]], None], *, back_off: tuple[float, float] = _BACK_OFF
    ) -> None:
        self._api = api
        self._keep = keep
        self._back_off = back_off
        self._leaving: set[asyncio.Task[None]] = set()
        self.connected = 0
        self.problem = ""
        """Why there is no connection."""

    async def run(self) -> None:
        """Connect, and connect again, until cancelled."""
        failures = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                began, connection = loop.time(), _Connection(self, self._api, self._keep)
                reading = asyncio.create_task(connection.run())
                self._leaving.add(reading)
                reading.add_done_callback(self._leaving.discard)
                await _first(reading, connection.ready.wait())
                self._end_others(reading, connection)
                await _first(reading, connection.replace.wait())
                if connection.problem:
                    self.problem = connection.problem
                    log.warning("the connection to Slack is gone: %s", self.problem)
                # One that was there for long is replaced at once; a new one that goes at once would go again.
                failures = 0 if loop.time() - began > _STABLE else failures + 1
                if failures:
                    pause = min(self._back_off[0] * 2.0 ** (failures - 1), self._back_off[1])
                    await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - no secret
        finally:
            readings = list(self._leaving)
            for reading in readings:
                reading.cancel()
            await asyncio.gather(*readings, return_exceptions=True)

    def _end_others(self, reading: asyncio.Task[None], connection: _Connection) -> None:
        """There is a new connection: those before it have a while to come to their end."""
        if connection.ready.is_set():
            self.problem = ""
            for other in self._leaving - {reading}:
                asyncio.get_running_loop().call_later(_FAREWELL, other.cancel)


class _Connection:
    """One socket, from its opening to its end."""

    def __init__(self, receiver: Receiver, api: SlackApi, keep: Callable[[dict[str, Any]], None]) -> None:
        self._receiver = receiver
        self._api = api
        self._keep = keep
        self.ready = asyncio.Event()  # it has said hello
        self.replace = asyncio.Event()  # it is going to end: a new one is wanted
        self.problem = ""

    async def run(self) -> None:
        """Read until it ends. Why it could not be opened, or broke, is left in ``problem``."""
        try:
            opened = await self._api.call("apps.connections.open")
            async with self._api.session.ws_connect(
                str(opened.get("url")),
                heartbeat=_ALIVE,
                max_msg_size=_MOST,
                timeout=aiohttp.ClientWSTimeout(ws_close=5.0),
            ) as socket:
                await self._read(socket)
        except (SlackProblem, NotNow, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self.replace.set()
            if self.ready.is_set():
                self._receiver.connected -= 1

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for frame in socket:
            if frame.type is aiohttp.WSMsgType.TEXT:
                envelope = json.loads(frame.data)
                if isinstance(envelope, dict):
                    await self._take(socket, envelope)

    async def _take(self, socket: aiohttp.ClientWebSocketResponse, envelope: dict[str, Any]) -> None:
        kind = envelope.get("type")
        if kind == "hello":
            if not self.ready.is_set():
                self._receiver.connected += 1
                self.ready.set()
        elif kind == "disconnect":
            if envelope.get("reason") == "link_disabled":
                self.problem = "Socket Mode is switched off for the app: switch it on at api.slack.com"
            self.replace.set()
        elif "envelope_id" in envelope:
            self._keep(envelope)  # raises when the disk does not take it: no acknowledgement, and it comes again
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):  # gone meanwhile: it comes again
                await socket.send_json({"envelope_id": envelope["envelope_id"]})


async def _first(reading: asyncio.Task[None], waiting: Any) -> None:
    """Until the reading has ended, or what is waited for is there."""
    other = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([reading, other], return_when=asyncio.FIRST_COMPLETED)
    finally:
        other.cancel()
