"""Asking a source over HTTP: time-outs, limits it sets, a circuit breaker, and errors that say what to do.

By aiohttp, which takes a fifth of the processor time that httpx does: a court asks all day, and most often in vain.
Nothing is retried here. A look that fails is repeated as a whole, from a cursor that has not moved.
"""

from __future__ import annotations

import email.utils
import json
import re
import ssl
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import aiohttp
from yarl import URL

from kingdom.court.proxies import proxy_for
from kingdom.court.sentinel.breaker import Breaker
from kingdom.court.sentinel.errors import Busy, CircuitOpen, Missing, Refused, Unauthorized, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

_TIMEOUT: Final = aiohttp.ClientTimeout(total=120.0, sock_connect=10.0, sock_read=20.0)
_LONGEST_LINE: Final = 64 * 1024  # of a header: links to pages carry long tokens
_MAX_BYTES: Final = 32 * 1024 * 1024
_MAX_REDIRECTS: Final = 3
_MAX_PAGES: Final = 200
_SHORT_PAUSE: Final = 60.0  # seconds, after a limit that says no time of its own
_LONGEST_PAUSE: Final = 3 * 3600.0  # a header that asks for more is a mistake
_GONE: Final = (404, 410, 451)
_REDIRECTS: Final = (301, 302, 307, 308)
_NOT_MODIFIED: Final = 304
_LINK: Final = re.compile(r'<(?P<url>[^>]*)>[^,<]*?;\s*rel="?(?P<rel>[\w-]+)')

Params = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a source answered."""

    status: int
    headers: Mapping[str, str]
    body: Any
    next: str | None = None
    """The next page, by the Link header."""
    last: str | None = None

    @property
    def unchanged(self) -> bool:
        """Whether it is what it was at the time of the validators."""
        return self.status == _NOT_MODIFIED

    @property
    def validators(self) -> dict[str, str]:
        """What to send next time, to get the answer only if it is another one."""
        pairs = (("If-None-Match", "etag"), ("If-Modified-Since", "last-modified"))
        return {name: self.headers[header] for name, header in pairs if header in self.headers}


class Client:
    """One source."""

    def __init__(
        self, source: str, url: str, headers: Mapping[str, str], clock: Callable[[], float], *, hint: str = ""
    ) -> None:
        self.source = source
        self.breaker = Breaker(clock)
        self._url = url.rstrip("/")
        self._clock = clock
        self._hint = hint
        self._until = 0.0  # no request before this: the source has said so
        self._headers = {"User-Agent": "kingdom", **headers}
        self._http: aiohttp.ClientSession | None = None

    async def get(self, path: str, params: Params | None = None, validators: Mapping[str, str] | None = None) -> Answer:
        """Read something. With validators of a former answer it may be ``unchanged``."""
        return await self._ask("GET", path, params=params, headers=dict(validators or {}))

    async def post(self, path: str, document: Any) -> Answer:
        """Ask something that needs a document."""
        headers = {"Content-Type": "application/json"}
        return await self._ask("POST", path, data=json.dumps(document).encode(), headers=headers)

    async def patch(self, path: str) -> Answer:
        """Change something."""
        return await self._ask("PATCH", path)

    async def pages(self, first: Answer) -> AsyncIterator[Answer]:
        """This answer and those of all following pages. Raises :class:`Unavailable` when they lead in a circle."""
        answer, been = first, set[str]()
        yield answer
        while answer.next is not None:
            if answer.next in been or len(been) >= _MAX_PAGES:
                raise Unavailable(f"{self.source}: {answer.next} leads in a circle, or to more than {_MAX_PAGES} pages")
            been.add(answer.next)
            answer = await self.get(answer.next)
            yield answer

    async def close(self) -> None:
        """Let go of the connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _ask(self, method: str, path: str, **request: Any) -> Answer:
        self._check_allowed()
        url = self._absolute(path)
        for _ in range(_MAX_REDIRECTS + 1):
            answer, location = await self._send(method, url, **request)
            if location is None:
                return answer
            url = self._absolute(urljoin(url, location))
        raise Unavailable(f"{self.source}: {path} leads from one place to another without end")

    def _check_allowed(self) -> None:
        if (wait := self._until - self._clock()) > 0:
            raise Busy(f"{self.source} asked to be left alone for another {wait:.0f} s", wait)
        if (wait := self.breaker.wait) > 0:
            raise CircuitOpen(f"{self.source} failed several times in a row: not asked for another {wait:.0f} s")

    def _absolute(self, path: str) -> str:
        """The URL of a path, or of a link the source gave; links to anywhere else would carry our token there."""
        url = path if "://" in path else f"{self._url}{path}"
        if urlsplit(url)[:2] != urlsplit(self._url)[:2]:
            raise Missing(f"{self.source}: {url:.200} is not at {self._url}: not followed")
        return url

    async def _send(self, method: str, url: str, **request: Any) -> tuple[Answer, str | None]:
        try:
            # Encoded: links of the source are followed to the letter.
            where = URL(url, encoded=True)
            async with self._session().request(method, where, allow_redirects=False, **request) as response:
                content = await _bounded(response)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self.breaker.failed()
            raise Unavailable(f"{self.source}: {method} {url:.200}: {type(error).__name__} {error}".rstrip()) from None
        self._note_limit(response)
        if content is None:
            raise Unavailable(f"{self.source}: {url:.200} answers with more than {_MAX_BYTES} bytes")
        if response.status in _REDIRECTS and "location" in response.headers:
            return Answer(response.status, {}, None), response.headers["location"]
        return self._checked(method, url, response, content), None

    def _session(self) -> aiohttp.ClientSession:
        """The connections; opened when first needed."""
        if self._http is None:
            connector = aiohttp.TCPConnector(ssl=_trust()) if self._url.startswith("https:") else None
            self._http = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                timeout=_TIMEOUT,
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=proxy_for(self._url),
                max_line_size=_LONGEST_LINE,
                max_field_size=_LONGEST_LINE,
            )
        return self._http

    def _checked(self, method: str, url: str, response: aiohttp.ClientResponse, content: bytes) -> Answer:
        status, what = response.status, f"{self.source}: {method} {url:.200}"
        try:
            body = json.loads(content) if content.strip() else None
        except ValueError:
            if status < 400:
                self.breaker.failed()
                raise Unavailable(f"{what} answers {status} with something that is not JSON") from None
            body = None
        if status >= 500:
            self.breaker.failed()
            if (wait := self._retry_after(response)) is not None:
                raise Busy(f"{what} answers {status} and asks to wait {wait:.0f} s", wait)
            raise Unavailable(f"{what} answers {status}")
        self.breaker.succeeded()
        if status in (403, 429):
            self._raise_if_limited(what, response, body)
        if status in _GONE:
            raise Missing(f"{what} answers {status}")
        if status >= 400:
            error = Unauthorized if status == 401 else Refused
            raise error(f"{what} answers {status}: {_words(body)}{self._hint if status in (401, 403) else ''}")
        headers = {name.lower(): value for name, value in response.headers.items()}
        links = _links(headers.get("link", ""), url)
        return Answer(status, headers, body, links.get("next"), links.get("last"))

    def _raise_if_limited(self, what: str, response: aiohttp.ClientResponse, body: Any) -> None:
        wait = self._retry_after(response)
        if wait is None and response.headers.get("x-ratelimit-remaining") == "0":
            wait = max(self._until - self._clock(), 1.0)
        if wait is None and (response.status == 429 or "rate limit" in _words(body).lower()):
            wait = _SHORT_PAUSE
        if wait is not None:
            self._until = max(self._until, self._clock() + wait)
            raise Busy(f"{what} answers {response.status}: {_words(body)} (wait {wait:.0f} s)", wait)

    def _retry_after(self, response: aiohttp.ClientResponse) -> float | None:
        value = response.headers.get("retry-after", "").strip()
        if not value:
            return None
        if value.replace(".", "", 1).isdigit():
            return min(max(float(value), 1.0), _LONGEST_PAUSE)
        try:
            at = email.utils.parsedate_to_datetime(value).timestamp()
        except ValueError:
            return _SHORT_PAUSE
        return min(max(at - self._clock(), 1.0), _LONGEST_PAUSE)

    def _note_limit(self, response: aiohttp.ClientResponse) -> None:
        """When nothing is left of the hour's requests, wait for the next hour instead of asking to be refused."""
        if response.headers.get("x-ratelimit-remaining") == "0":
            reset = response.headers.get("x-ratelimit-reset", "")
            wait = float(reset) - self._clock() if reset.isdigit() else _SHORT_PAUSE
            self._until = self._clock() + min(max(wait, 1.0), _LONGEST_PAUSE)


@lru_cache(maxsize=1)
def _trust() -> ssl.SSLContext:
    """Whose certificates are believed: reading them takes longer than everything else about a client."""
    import httpx  # it brings certificates along, for machines that have none

    return httpx.create_ssl_context()


async def _bounded(response: aiohttp.ClientResponse) -> bytes | None:
    """The whole answer, or None when it is too long."""
    content = bytearray()
    async for part in response.content.iter_any():
        content += part
        if len(content) > _MAX_BYTES:
            return None
    return bytes(content)


def _links(header: str, url: str) -> dict[str, str]:
    """What a Link header names, by its relations."""
    return {found["rel"]: urljoin(url, found["url"]) for found in _LINK.finditer(header)}


def _words(body: Any) -> str:
    """What the source says is wrong."""
    if isinstance(body, dict):
        for key in ("message", "errorMessages", "error", "errors"):
            if body.get(key):
                return str(body[key])[:300]
    return "no reason given"
