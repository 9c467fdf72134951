"""Talking to Slack: Web API calls, their errors, and the Socket Mode connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from kingdom.base.backoff import backoff
from kingdom.court.environment import proxy_for
from kingdom.court.envoy.port import TryLater
from kingdom.court.errors import CourtError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kingdom.court.envoy.config import SlackTokens


_ERROR_ADVICE: Final = {
    "not_in_channel": "invite the app into the channel: /invite @kingdom",
    "channel_not_found": "the channel does not exist, or it is private and the app was not invited",
    "is_archived": "the channel is archived: set another one in config/envoy.yaml",
    "invalid_auth": "the token is not valid: check it with kingdom connect slack",
    "not_authed": "there is no token: check it with kingdom connect slack",
    "token_expired": "the token has expired: install the app again and use the new token",
    "token_revoked": "the token was revoked: install the app again and use the new token",
    "account_inactive": "the app was removed from the workspace: install it again",
    "missing_scope": "the app lacks a scope: kingdom connect slack lists the scopes it needs",
    "not_allowed_token_type": "the token has the wrong kind: bot tokens begin with xoxb-, app-level tokens with xapp-",
}
_TOKEN_ERRORS: Final = frozenset(
    {"invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive", "org_login_required"}
)
# Slack's own failures. "It's possible some aspect of the operation succeeded before the error was raised."
_SERVER_ERRORS: Final = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
_GET_METHODS: Final = (
    "conversations.history",
    "conversations.replies",
    "conversations.list",
    "conversations.info",
    "users.info",
)
_CALL_TIMEOUT_SECONDS: Final = 10.0
_DEFAULT_RETRY_SECONDS: Final = 30.0  # for a rate limit that names no time
_API_BACK_OFF_SECONDS: Final = (2.0, 60.0)  # first and longest pause while Slack is unreachable
_MAX_PAGES: Final = 50
_RECONNECT_BACK_OFF_SECONDS: Final = (1.0, 60.0)  # first and longest pause before reconnecting
_DRAIN_SECONDS: Final = 30.0  # an old connection is still read for this time after a new one is open
_STABLE_SECONDS: Final = 10.0  # a connection that lasts this long counts as successful
_HEARTBEAT_SECONDS: Final = 30.0
_MAX_ENVELOPE_BYTES: Final = 16 * 1024 * 1024
log = logging.getLogger("kingdom.court.envoy.slack")


class SlackError(CourtError):
    """A call to Slack that failed."""

    code = "SLACK"


class SlackRefused(SlackError):
    """Slack refused the call, so nothing was done. ``error`` is Slack's error code."""

    def __init__(self, method: str, error: str, needed: str = "") -> None:
        self.method, self.error, self.needed = method, error, needed
        advice = _ERROR_ADVICE.get(error, "")
        if needed:
            advice = f"the app needs the scope {needed}: add it at api.slack.com and install the app again"
        super().__init__(f"Slack refuses {method}: {error}" + (f" ({advice})" if advice else ""))

    @property
    def of_token(self) -> bool:
        """Whether the token is at fault, so that Slack would refuse any other call as well."""
        return self.error in _TOKEN_ERRORS


class SlackOutcomeUnknown(SlackError):
    """There was no response, or none that can be understood: the call may have been carried out or not."""


class SlackRateLimited(TryLater):
    """Slack asks to wait. Nothing was done."""


class SlackUnreachable(TryLater):
    """Slack cannot be reached. Nothing was done."""


class SlackHeld(TryLater):
    """Slack is out of order or refuses our token: what is to be posted waits until that is over."""


class SlackApi:
    """Slack's Web API. The type of an error says whether the call may have been carried out."""

    def __init__(
        self, tokens: SlackTokens, url: str, clock: Callable[[], float], seconds: float = _CALL_TIMEOUT_SECONDS
    ) -> None:
        self._tokens = tokens
        self._url = url
        self._clock = clock
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._session: aiohttp.ClientSession | None = None
        self._clients: dict[str, AsyncWebClient] = {}
        self._failures = 0
        self.down_until = 0.0
        self.scopes: frozenset[str] = frozenset()
        """The scopes of the last call's token, according to Slack."""

    @property
    def session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout, proxy=proxy_for(self._url))
        return self._session

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method and return Slack's response.

        Raises :class:`SlackRefused`, :class:`SlackRateLimited` or :class:`SlackUnreachable` if nothing was done, and
        :class:`SlackOutcomeUnknown` if the call may have been carried out.
        """
        client = self._client(self._tokens.app if method.startswith("apps.") else self._tokens.bot)
        given = {key: value for key, value in arguments.items() if value is not None}
        try:
            if method in _GET_METHODS:
                answer = await client.api_call(method, http_verb="GET", params=given)
            else:
                answer = await client.api_call(method, json=given)
        except SlackApiError as error:
            raise _api_error(method, error) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise SlackUnreachable(
                self._back_off(), f"Slack cannot be reached: {type(error).__name__}: {error}"
            ) from None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise SlackOutcomeUnknown(
                f"no response from Slack to {method}: {type(error).__name__} {error}".rstrip()
            ) from None
        if not method.startswith("apps."):  # another token: it says nothing of the one that posts
            self._failures, self.down_until = 0, 0.0
        self.scopes = frozenset(filter(None, str(answer.headers.get("x-oauth-scopes", "")).replace(" ", "").split(",")))
        return dict(answer.data) if isinstance(answer.data, dict) else {}

    async def pages(self, method: str, key: str, **arguments: Any) -> AsyncIterator[dict[str, Any]]:
        """Yield everything that a method lists, page by page."""
        cursor, seen = None, set()
        for _ in range(_MAX_PAGES):
            answer = await self.call(method, cursor=cursor, **arguments)
            for item in answer.get(key) or ():
                yield item
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None or cursor in seen:
                return
            seen.add(cursor)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            self._clients.clear()

    def _client(self, token: str) -> AsyncWebClient:
        if token not in self._clients:
            # No retry handlers: the client's own would post again after a broken connection, without checking.
            client = AsyncWebClient(token=token, base_url=self._url, session=self.session, retry_handlers=[])
            client.proxy = None  # the client ignores NO_PROXY; the session's proxy setting respects it
            self._clients[token] = client
        return self._clients[token]

    async def is_up(self) -> bool:
        """Ask Slack whether it works for our token."""
        try:
            await self.call("auth.test")
        except (SlackError, SlackUnreachable):
            return False
        except SlackRateLimited:
            pass
        return True

    def hold(self, why: str) -> SlackHeld:
        """Note that nothing can be posted now; return the error to raise."""
        return SlackHeld(self._back_off(), why)

    def _back_off(self) -> float:
        after = backoff(self._failures, *_API_BACK_OFF_SECONDS)
        self._failures += 1
        self.down_until = self._clock() + after
        return after


def _api_error(method: str, error: SlackApiError) -> Exception:
    response = error.response
    status = getattr(response, "status_code", None) or getattr(response, "status", 0)
    data = getattr(response, "data", None)
    answer = data if isinstance(data, dict) else {}
    code = str(answer.get("error") or "")
    if status == 429 or code in ("ratelimited", "rate_limited"):
        return SlackRateLimited(_retry_after(response), f"Slack asks to wait before the next {method}")
    if code in _SERVER_ERRORS:
        return SlackOutcomeUnknown(f"Slack answers {method} with {code}")
    if code:
        return SlackRefused(method, code, str(answer.get("needed") or ""))
    return SlackOutcomeUnknown(f"Slack answers {method} with status {status} and a body that makes no sense")


def _retry_after(response: Any) -> float:
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except (ValueError, AttributeError):
        return _DEFAULT_RETRY_SECONDS
    return seconds if 0 < seconds < math.inf else _DEFAULT_RETRY_SECONDS


class BotIdentity:
    """Our own user and bot ids, requested once."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._user: str | None = None
        self._bot: str | None = None

    async def user_id(self) -> str:
        if self._user is None:
            answer = await self._api.call("auth.test")
            self._user, self._bot = str(answer.get("user_id")), answer.get("bot_id")
        return self._user

    async def is_author(self, post: dict[str, Any]) -> bool:
        """Return whether we wrote a post. Its metadata proves nothing: others could copy it."""
        user = await self.user_id()
        return post.get("user") == user or (self._bot is not None and post.get("bot_id") == self._bot)


StoreEnvelope = Callable[[dict[str, Any]], Awaitable[None]]


class SocketModeReceiver:
    """Receives envelopes over Socket Mode, and keeps a connection open.

    Each envelope is passed to ``store``, and acknowledged on its socket after that. Slack delivers again what was not
    acknowledged. Every few hours Slack asks for a new connection: it is opened before the old one is closed, and the
    old one is read to its end. (The client of slack_sdk closes the old one first.)
    """

    def __init__(
        self,
        api: SlackApi,
        store: StoreEnvelope,
        *,
        back_off: tuple[float, float] = _RECONNECT_BACK_OFF_SECONDS,
    ) -> None:
        self._api = api
        self._store = store
        self._back_off = back_off
        self._readers: set[asyncio.Task[None]] = set()
        self.connected = 0
        self.problem = ""
        """Why there is no connection, or ""."""

    async def run(self) -> None:
        """Connect and reconnect until cancelled."""
        failures = 0
        loop = asyncio.get_running_loop()
        try:
            while True:
                began, connection = loop.time(), _Connection(self, self._api, self._store)
                reading = asyncio.create_task(connection.run())
                self._readers.add(reading)
                reading.add_done_callback(self._readers.discard)
                await _wait_first(reading, connection.ready.wait())
                self._drain_others(reading, connection)
                await _wait_first(reading, connection.replace.wait())
                if connection.problem:
                    self.problem = connection.problem
                    log.warning("the connection to Slack was lost: %s", self.problem)
                # A connection that lasted is replaced at once; after one that ended early, wait first.
                failures = 0 if loop.time() - began > _STABLE_SECONDS else failures + 1
                if failures:
                    await asyncio.sleep(backoff(failures - 1, *self._back_off, jitter=0.2))
        finally:
            readings = list(self._readers)
            for reading in readings:
                reading.cancel()
            await asyncio.gather(*readings, return_exceptions=True)

    def _drain_others(self, reading: asyncio.Task[None], connection: _Connection) -> None:
        """Give the old connections some time to end, now that a new one is open."""
        if connection.ready.is_set():
            self.problem = ""
            for other in self._readers - {reading}:
                asyncio.get_running_loop().call_later(_DRAIN_SECONDS, other.cancel)


class _Connection:
    """One socket, from open to close."""

    def __init__(self, receiver: SocketModeReceiver, api: SlackApi, store: StoreEnvelope) -> None:
        self._receiver = receiver
        self._api = api
        self._store = store
        self.ready = asyncio.Event()  # Slack has sent "hello"
        self.replace = asyncio.Event()  # the connection ends soon, or has ended: open a new one
        self.problem = ""

    async def run(self) -> None:
        """Read until the connection ends. If it could not be opened or broke, ``problem`` says why."""
        try:
            opened = await self._api.call("apps.connections.open")
            async with self._api.session.ws_connect(
                str(opened.get("url")),
                heartbeat=_HEARTBEAT_SECONDS,
                max_msg_size=_MAX_ENVELOPE_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_close=5.0),
            ) as socket:
                await self._read(socket)
        except (SlackError, TryLater, aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
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
                    await self._handle(socket, envelope)

    async def _handle(self, socket: aiohttp.ClientWebSocketResponse, envelope: dict[str, Any]) -> None:
        kind = envelope.get("type")
        if kind == "hello":
            if not self.ready.is_set():
                self._receiver.connected += 1
                self.ready.set()
        elif kind == "disconnect":
            if envelope.get("reason") == "link_disabled":
                self.problem = "Socket Mode is disabled for the app: enable it at api.slack.com"
            self.replace.set()
        elif "envelope_id" in envelope:
            await self._store(envelope)  # if it cannot be stored, this raises: no acknowledgement, Slack delivers again
            with contextlib.suppress(ConnectionError, aiohttp.ClientError):  # connection lost: Slack delivers again
                await socket.send_json({"envelope_id": envelope["envelope_id"]})


async def _wait_first(reading: asyncio.Task[None], waiting: Any) -> None:
    """Wait until the reader has ended or the event is set."""
    other = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([reading, other], return_when=asyncio.FIRST_COMPLETED)
    finally:
        other.cancel()
