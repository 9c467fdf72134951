"""Calls to Slack's Web API, over its own client."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from kingdom.court.envoy.slack.errors import Refused, TooFast, Unreachable, Unsure
from kingdom.court.proxies import proxy_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kingdom.court.envoy.config import Tokens

_READING: Final = ("conversations.history", "conversations.replies", "conversations.list", "conversations.info")
_READING_PEOPLE: Final = ("users.info",)
_SECONDS: Final = 10.0  # for one call
_WAIT_UNTOLD: Final = 30.0  # seconds, when Slack says "too fast" and not for how long
_BACK_OFF: Final = (2.0, 60.0)  # seconds to leave it alone when nobody is there: at first, at most
_PAGES: Final = 50


class SlackApi:
    """The Web API, with what is known after a call that failed told apart (:mod:`.errors`)."""

    def __init__(self, tokens: Tokens, url: str, clock: Callable[[], float], seconds: float = _SECONDS) -> None:
        self._tokens = tokens
        self._url = url
        self._clock = clock
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._session: aiohttp.ClientSession | None = None
        self._clients: dict[str, AsyncWebClient] = {}
        self._failures = 0
        self.down_until = 0.0
        self.scopes: frozenset[str] = frozenset()
        """What the token of the last call may do, as Slack told."""

    @property
    def session(self) -> aiohttp.ClientSession:
        """The connections; opened when first needed."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=self._timeout, proxy=proxy_for(self._url))
        return self._session

    async def call(self, method: str, **arguments: Any) -> dict[str, Any]:
        """Call a method; returns Slack's answer.

        Raises :class:`Refused`, :class:`TooFast`, :class:`Unreachable` (nothing was done) or :class:`Unsure`.
        """
        client = self._client(self._tokens.app if method.startswith("apps.") else self._tokens.bot)
        given = {key: value for key, value in arguments.items() if value is not None}
        reading = method in _READING or method in _READING_PEOPLE
        try:
            if reading:
                answer = await client.api_call(method, http_verb="GET", params=given)
            else:
                answer = await client.api_call(method, json=given)
        except SlackApiError as error:
            raise _problem(method, error) from None
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise self._unreachable(f"{type(error).__name__}: {error}") from None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise Unsure(f"no answer from Slack to {method}: {type(error).__name__} {error}".rstrip()) from None
        self._failures, self.down_until = 0, 0.0
        self.scopes = frozenset(filter(None, str(answer.headers.get("x-oauth-scopes", "")).replace(" ", "").split(",")))
        return dict(answer.data) if isinstance(answer.data, dict) else {}

    async def pages(self, method: str, key: str, **arguments: Any) -> AsyncIterator[dict[str, Any]]:
        """Everything a method lists, page by page."""
        cursor, seen = None, set()
        for _ in range(_PAGES):
            answer = await self.call(method, cursor=cursor, **arguments)
            for item in answer.get(key) or ():
                yield item
            cursor = (answer.get("response_metadata") or {}).get("next_cursor") or None
            if cursor is None or cursor in seen:
                return
            seen.add(cursor)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
            self._clients.clear()

    def _client(self, token: str) -> AsyncWebClient:
        if token not in self._clients:
            # No retry handlers: the client's own would post again after a connection that broke, without looking.
            client = AsyncWebClient(token=token, base_url=self._url, session=self.session, retry_handlers=[])
            client.proxy = None  # it does not know NO_PROXY; what the session was given does
            self._clients[token] = client
        return self._clients[token]

    def _unreachable(self, why: str) -> Unreachable:
        first, most = _BACK_OFF
        after = min(first * 2.0**self._failures, most)
        self._failures = min(self._failures + 1, 10)
        self.down_until = self._clock() + after
        return Unreachable(after, f"Slack cannot be reached: {why}")


def _problem(method: str, error: SlackApiError) -> Exception:
    response = error.response
    status = getattr(response, "status_code", None) or getattr(response, "status", 0)
    data = getattr(response, "data", None)
    answer = data if isinstance(data, dict) else {}
    word = str(answer.get("error") or "")
    if status == 429 or word in ("ratelimited", "rate_limited"):
        return TooFast(_retry_after(response), f"Slack asks to wait before the next {method}")
    if word:
        return Refused(method, word, str(answer.get("needed") or ""))
    return Unsure(f"Slack answers {method} with status {status} and nothing that makes sense")


def _retry_after(response: Any) -> float:
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except (ValueError, AttributeError):
        return _WAIT_UNTOLD
    return seconds if 0 < seconds < math.inf else _WAIT_UNTOLD
