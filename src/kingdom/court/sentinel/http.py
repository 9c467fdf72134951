"""The HTTP client for sources: timeouts, rate limits, a circuit breaker, and errors that say what to do.

It uses aiohttp, which takes a fifth of the processor time of httpx: a court polls all day, mostly without a result.
Nothing is retried here. A failed poll is repeated as a whole, from a cursor that has not moved.
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

from kingdom.base.backoff import backoff
from kingdom.court.environment import proxy_for
from kingdom.court.sentinel.watcher import (
    CircuitOpen,
    SourceBusy,
    SourceElsewhere,
    SourceGone,
    SourceNotFound,
    SourceRefused,
    SourceUnauthorized,
    SourceUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping


_FAILURES_TO_OPEN: Final = 3  # in a row
_OPEN_SECONDS: Final = (60.0, 1800.0)  # the first pause, the longest pause
_TIMEOUT: Final = aiohttp.ClientTimeout(total=120.0, sock_connect=10.0, sock_read=20.0)
_MAX_HEADER_BYTES: Final = 64 * 1024  # links to further pages carry long tokens
_MAX_RESPONSE_BYTES: Final = 32 * 1024 * 1024
_MAX_REDIRECTS: Final = 3
_MAX_PAGES: Final = 200
_DEFAULT_PAUSE_SECONDS: Final = 60.0  # for a rate limit that names no time
_MAX_PAUSE_SECONDS: Final = 3 * 3600.0  # a header that asks for more is a mistake
_SECONDARY_PAUSE_SECONDS: Final = (60.0, 3600.0)  # for a secondary rate limit that names no time
_SECONDARY_WORDS: Final = ("secondary rate limit", "abuse detection", "secondary-rate-limits")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_GONE: Final = 410
_NOT_FOUND_STATUSES: Final = (404, _GONE, 451)
_REDIRECT_STATUSES: Final = (301, 302, 307, 308)
_NOT_MODIFIED: Final = 304
_LINK_PATTERN: Final = re.compile(r'<(?P<url>[^>]*)>[^,<]*?;\s*rel="?(?P<rel>[\w-]+)')
Params = dict[str, str | int]


class CircuitBreaker:
    """Counts consecutive failures, and blocks requests for a while when there are too many.

    Closed: requests pass. Open: none passes. After the pause one request passes; its outcome closes the breaker, or
    opens it again for longer.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures = 0
        self._opened = 0  # times in a row
        self._until = 0.0

    @property
    def wait(self) -> float:
        """Seconds until a request may pass; 0 if one may pass now."""
        return max(self._until - self._clock(), 0.0)

    def record_success(self) -> None:
        self._failures = self._opened = 0
        self._until = 0.0

    def record_failure(self) -> None:
        self._failures += 1
        if self._failures >= _FAILURES_TO_OPEN or self._opened:
            self._failures = 0
            self._until = self._clock() + backoff(self._opened, *_OPEN_SECONDS)
            self._opened += 1


@dataclass(frozen=True, slots=True)
class SourceResponse:
    """The response of a source."""

    status: int
    headers: Mapping[str, str]
    body: Any
    next: str | None = None
    """The URL of the next page, from the Link header."""
    last: str | None = None

    @property
    def unchanged(self) -> bool:
        """Whether the resource is unchanged since the validators that were sent."""
        return self.status == _NOT_MODIFIED

    @property
    def validators(self) -> dict[str, str]:
        """The headers to send next time, to get the content only if it has changed."""
        pairs = (("If-None-Match", "etag"), ("If-Modified-Since", "last-modified"))
        return {name: self.headers[header] for name, header in pairs if header in self.headers}


class SourceClient:
    """Sends requests to one source."""

    def __init__(
        self, source: str, url: str, headers: Mapping[str, str], clock: Callable[[], float], *, hint: str = ""
    ) -> None:
        self.source = source
        self.breaker = CircuitBreaker(clock)
        self._url = url.rstrip("/")
        self._clock = clock
        self._hint = hint
        self._until = 0.0  # the source allows no request before this time
        self._limit = ""  # why
        self._secondary = 0  # secondary rate limits in a row
        self._headers = {"User-Agent": "kingdom", **headers}
        self._http: aiohttp.ClientSession | None = None

    async def get(
        self, path: str, params: Params | None = None, validators: Mapping[str, str] | None = None
    ) -> SourceResponse:
        """Send a GET request. With the validators of a former response the result may be ``unchanged``."""
        return await self._ask("GET", path, params=params, headers=dict(validators or {}))

    async def post(self, path: str, document: Any) -> SourceResponse:
        headers = {"Content-Type": "application/json"}
        return await self._ask("POST", path, data=json.dumps(document).encode(), headers=headers)

    async def patch(self, path: str) -> SourceResponse:
        return await self._ask("PATCH", path)

    async def pages(self, first: SourceResponse) -> AsyncIterator[SourceResponse]:
        """Yield this response and those of all following pages.

        Raises :class:`SourceUnavailable` if the links form a circle.
        """
        answer, followed = first, set[str]()
        yield answer
        while answer.next is not None:
            if answer.next in followed or len(followed) >= _MAX_PAGES:
                raise SourceUnavailable(
                    f"{self.source}: {answer.next} is a circular link, or there are over {_MAX_PAGES} pages"
                )
            followed.add(answer.next)
            answer = await self.get(answer.next)
            yield answer

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _ask(self, method: str, path: str, **request: Any) -> SourceResponse:
        self._check_allowed()
        url = self._absolute(path)
        for _ in range(_MAX_REDIRECTS + 1):
            answer, location = await self._send(method, url, **request)
            if location is None:
                return answer
            url = self._absolute(urljoin(url, location), "redirects")
            if urlsplit(url).query:  # the new address has the parameters already
                request.pop("params", None)
        raise SourceUnavailable(f"{self.source}: {path} redirects more than {_MAX_REDIRECTS} times")

    def _check_allowed(self) -> None:
        if (wait := self._until - self._clock()) > 0:
            raise SourceBusy(f"{self.source}: {self._limit}: no requests for another {wait:.0f} s", wait)
        if (wait := self.breaker.wait) > 0:
            raise CircuitOpen(f"{self.source} failed several times in a row: no requests for another {wait:.0f} s")

    def _absolute(self, path: str, verb: str = "links") -> str:
        """Return the URL of a path or of a link.

        Raises :class:`SourceElsewhere` for another host: our token would be sent there.
        """
        url = path if "://" in path else f"{self._url}{path}"
        if _origin(url) == _origin(self._url):
            return url
        parts, base = urlsplit(url), urlsplit(self._url).path
        itself = f"{parts.scheme}://{parts.netloc}{base if parts.path.startswith(base) else ''}"
        raise SourceElsewhere(
            f"{self.source}: the server {self._url} {verb} to another host, {url:.200}, and the token is not sent "
            f"there. If that is the same server under its own name, set {self.source}.url to {itself:.200}"
        )

    async def _send(self, method: str, url: str, **request: Any) -> tuple[SourceResponse, str | None]:
        try:
            # encoded=True: links of the source are used exactly as they are.
            where = URL(url, encoded=True)
            async with self._session().request(method, where, allow_redirects=False, **request) as response:
                content = await _read_limited(response)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self.breaker.record_failure()
            raise SourceUnavailable(
                f"{self.source}: {method} {url:.200}: {type(error).__name__} {error}".rstrip()
            ) from None
        self._note_limit(response)
        if content is None:
            raise SourceUnavailable(f"{self.source}: {url:.200} sends more than {_MAX_RESPONSE_BYTES} bytes")
        if response.status in _REDIRECT_STATUSES and "location" in response.headers:
            return SourceResponse(response.status, {}, None), response.headers["location"]
        return self._checked(method, url, response, content), None

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            connector = aiohttp.TCPConnector(ssl=_ssl_context()) if self._url.startswith("https:") else None
            self._http = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                timeout=_TIMEOUT,
                cookie_jar=aiohttp.DummyCookieJar(),
                proxy=proxy_for(self._url),
                max_line_size=_MAX_HEADER_BYTES,
                max_field_size=_MAX_HEADER_BYTES,
            )
        return self._http

    def _checked(self, method: str, url: str, response: aiohttp.ClientResponse, content: bytes) -> SourceResponse:
        status, what = response.status, f"{self.source}: {method} {url:.200}"
        try:
            body = json.loads(content) if content.strip() else None
        except ValueError:
            if status < 400:
                self.breaker.record_failure()
                raise SourceUnavailable(f"{what} answers {status} with something that is not JSON") from None
            body = None
        if status >= 500:
            self.breaker.record_failure()
            if (wait := self._retry_after(response)) is not None:
                raise SourceBusy(f"{what} answers {status} and asks to wait {wait:.0f} s", wait)
            raise SourceUnavailable(f"{what} answers {status}")
        self.breaker.record_success()
        if status in (403, 429):
            self._raise_if_limited(what, response, body)
        if status in _NOT_FOUND_STATUSES:
            raise (SourceGone if status == _GONE else SourceNotFound)(f"{what} answers {status}: {_error_text(body)}")
        headers = {name.lower(): value for name, value in response.headers.items()}
        if status >= 400:
            error = SourceUnauthorized if status == 401 else SourceRefused
            hint = self._hint if status in (401, 403) else ""
            raise error(f"{what} answers {status}: {_error_text(body)}{hint}", headers)
        self._secondary = 0
        links = _parse_links(headers.get("link", ""), url)
        return SourceResponse(status, headers, body, links.get("next"), links.get("last"))

    def _raise_if_limited(self, what: str, response: aiohttp.ClientResponse, body: Any) -> None:
        text, wait = _error_text(body), self._retry_after(response)
        about = f"{text} {body.get('documentation_url')}".lower() if isinstance(body, dict) else ""
        limit = "too many requests"
        if response.headers.get("x-ratelimit-remaining") == "0":
            limit, wait = self._limit, wait or max(self._until - self._clock(), 1.0)
        elif any(words in about for words in _SECONDARY_WORDS):
            limit = "too many requests in a short time (secondary rate limit)"
            wait = wait or backoff(self._secondary, *_SECONDARY_PAUSE_SECONDS)
            self._secondary += 1
        elif wait is None and (response.status == 429 or "rate limit" in about):
            wait = _DEFAULT_PAUSE_SECONDS
        if wait is not None:
            self._until, self._limit = max(self._until, self._clock() + wait), limit
            raise SourceBusy(f"{what} answers {response.status}: {limit}: {text} (wait {wait:.0f} s)", wait)

    def _retry_after(self, response: aiohttp.ClientResponse) -> float | None:
        value = response.headers.get("retry-after", "").strip()
        if not value:
            return None
        if value.replace(".", "", 1).isdigit():
            return min(max(float(value), 1.0), _MAX_PAUSE_SECONDS)
        try:
            at = email.utils.parsedate_to_datetime(value).timestamp()
        except ValueError:
            return _DEFAULT_PAUSE_SECONDS
        return min(max(at - self._clock(), 1.0), _MAX_PAUSE_SECONDS)

    def _note_limit(self, response: aiohttp.ClientResponse) -> None:
        """Once the hourly quota is used up, wait for its reset instead of sending requests that would be refused."""
        if response.headers.get("x-ratelimit-remaining") == "0":
            reset = response.headers.get("x-ratelimit-reset", "")
            wait = float(reset) - self._clock() if reset.isdigit() else _DEFAULT_PAUSE_SECONDS
            self._until = self._clock() + min(max(wait, 1.0), _MAX_PAUSE_SECONDS)
            self._limit = "the quota of requests is used up (rate limit)"


@lru_cache(maxsize=1)
def _ssl_context() -> ssl.SSLContext:
    """Load the trusted certificates once: this takes longer than everything else in a client."""
    import httpx  # it brings certificates, for machines that have none

    return httpx.create_ssl_context()


async def _read_limited(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the whole body, or None if it is too large."""
    content = bytearray()
    async for part in response.content.iter_any():
        content += part
        if len(content) > _MAX_RESPONSE_BYTES:
            return None
    return bytes(content)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


def _parse_links(header: str, url: str) -> dict[str, str]:
    """Return the URLs of a Link header by their relation."""
    return {found["rel"]: urljoin(url, found["url"]) for found in _LINK_PATTERN.finditer(header)}


def _error_text(body: Any) -> str:
    if isinstance(body, dict):
        for key in ("message", "errorMessages", "error", "errors"):
            if body.get(key):
                return str(body[key])[:300]
    return "no reason given"
