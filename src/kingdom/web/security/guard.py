"""The guard: an ASGI middleware that checks every request before anything else sees it."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from kingdom.web.envelope import ApiError
from kingdom.web.security.credentials import (
    CSRF_HEADER,
    cookie_name,
    cookie_session,
    csrf_token,
    secrets_equal,
)
from kingdom.web.security.headers import HostNames, new_nonce, with_security_headers
from kingdom.web.security.login import LOGIN_PATH, LogIn
from kingdom.web.security.roles import OWNER, Person

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kingdom.web.context import WebContext


_MAX_BUCKETS: Final = 4096  # the least recently used is dropped first


class RateLimiter:
    """A token bucket per key."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str) -> int:
        """Take a token. Returns 0, or the whole seconds after which a token is available."""
        now = self._clock()
        left, since = self._buckets.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        short = left < 1
        self._buckets[key] = (left if short else left - 1, now)
        while len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return max(1, math.ceil((1 - left) / self._per_second)) if short else 0


AuthMethod: TypeAlias = Literal["bearer", "session"]
AUTH_SCOPE_KEY: Final = "kingdom.identity"
"""Scope key of the authentication method of a request: ``bearer``, ``session``, or None."""
PERSON_SCOPE_KEY: Final = "kingdom.person"
"""Scope key of the :class:`~kingdom.web.security.roles.Person` who sends a request; None without a token."""
OPEN_PATHS: Final = ("/healthz", "/readyz")
OPEN_PREFIX: Final = "/hooks/"
TOOLKIT_PREFIX: Final = "/_nicegui"
"""Paths of NiceGUI: its assets, and its socket when it falls back to polling."""
_STREAM_PATH: Final = "/api/stream"
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_WRONG_TOKEN_RATE: Final = (0.2, 10.0)  # per second and burst, per address
_BURST_SECONDS: Final = 4.0  # a burst may have the requests of this many seconds
_POLICY_VIOLATION: Final = 1008
log = logging.getLogger("kingdom.web")


class RequestGuard:
    """ASGI middleware that checks every request and adds security headers to every response.

    Checks, in this order: the path, ``Host``, ``Origin``, the token or cookie, the request rate, and for browsers
    proof that a page of this server sends the request.
    """

    def __init__(self, app: ASGIApp, context: WebContext) -> None:
        settings = context.settings
        self._app = app
        self._context = context
        self._names = HostNames(settings.host, settings.allowed_hosts)
        self._pace = RateLimiter(settings.requests_per_second, settings.requests_per_second * _BURST_SECONDS)
        self._wrong = RateLimiter(*_WRONG_TOKEN_RATE)
        self._login = LogIn(context)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, _log_lifespan_failures(send))
            return
        path, nonce = scope["path"], new_nonce()

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message = {**message, "headers": with_security_headers(path, list(message.get("headers", ())), nonce)}
            await send(message)

        try:
            answer = self._admit(scope)
        except ApiError as error:
            log.debug("refused %s %s: %s", scope.get("method", "WebSocket"), path, error)
            answer = self._refusal(scope, error)
        if answer is None:
            await self._pass_on(scope, receive, send_with_headers)
        elif scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
            await answer(scope, receive, send_with_headers)
        else:
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        person: Person | None = scope[PERSON_SCOPE_KEY]
        stays_open = scope["type"] == "websocket" or scope["path"] == _STREAM_PATH
        try:
            if person is not None and stays_open and (person.session or not person.is_owner):
                await self._context.connections.run(person, self._app, scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except Exception:
            # Errors of WebSockets are logged nowhere else; errors of requests are logged by the error handlers.
            if scope["type"] == "websocket":
                log.exception("WebSocket %s", scope["path"])
            raise

    def _admit(self, scope: Scope) -> ASGIApp | None:
        """Return None to admit a request, or a response to send at once. Raises :class:`ApiError` to refuse it."""
        headers, path = Headers(scope=scope), scope["path"]
        _check_path(path)
        self._check_names(headers, scope)
        address = (scope.get("client") or ("",))[0]
        scope[AUTH_SCOPE_KEY] = scope[PERSON_SCOPE_KEY] = None
        if path == LOGIN_PATH or path.startswith(f"{LOGIN_PATH}/"):
            self._check_pace(f"open {address}")
            return self._log_in(scope, headers, address)
        if path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
            self._check_pace(f"open {address}")
            return None
        identity, person = self._identity(headers, address)
        if not path.startswith(TOOLKIT_PREFIX):  # not limited: a page has dozens of assets
            self._check_pace(f"{identity} {person.key}")
        if identity == "session":
            self._check_page(headers, scope, person)
        scope[AUTH_SCOPE_KEY], scope[PERSON_SCOPE_KEY] = identity, person
        self._context.tokens.used(person)
        self._context.sessions.seen(person.session)
        return None

    def _check_names(self, headers: Headers, scope: Scope) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._names.is_own_host(hosts[0]):
            raise ApiError(
                403,
                "SYS_HOST",
                f"unknown host {', '.join(hosts)!r:.120}: use the server's own address, "
                "or start it with --allow-host NAME (web.allowed_hosts in config/system.yaml)",
            )
        for origin in headers.getlist("origin"):
            if not self._names.is_own_origin(origin, hosts[0], scope["scheme"]):
                raise ApiError(403, "SYS_ORIGIN", f"requests from pages of {origin!r:.120} are not allowed")

    def _identity(self, headers: Headers, address: str) -> tuple[AuthMethod, Person]:
        token = self._context.token
        if (given := headers.get("authorization")) is not None:
            kind, _, value = given.partition(" ")
            if kind.lower() == "bearer" and (person := self._person(value.strip())) is not None:
                return "bearer", person
            raise self._wrong_token(address)
        if cookies := list(_cookies(headers, cookie_name(token))):
            sessions = [found for value in cookies if (found := cookie_session(token, value)) is not None]
            for session_id in sessions:
                if (known := self._context.sessions.person(session_id)) is not None:
                    return "session", known
            if sessions:
                raise ApiError(401, "SYS_UNAUTHORIZED", "this browser is not logged in any more: log in again")
            raise self._wrong_token(address)
        raise ApiError(
            401,
            "SYS_UNAUTHORIZED",
            "not authenticated: send Authorization: Bearer TOKEN, or log in with kingdom web --link",
        )

    def _person(self, token: str) -> Person | None:
        """Return the person with this token."""
        return OWNER if secrets_equal(token, self._context.token) else self._context.tokens.find(token)

    def _wrong_token(self, address: str) -> ApiError:
        """Return the error for a wrong token. Correct tokens are never limited by wrong ones from the same address."""
        if seconds := self._wrong.take(address):
            return _too_often(seconds, "too many wrong tokens from your address")
        return ApiError(
            401, "SYS_UNAUTHORIZED", "wrong or revoked token: kingdom web --link shows the token of this server"
        )

    def _check_pace(self, key: str) -> None:
        if seconds := self._pace.take(key):
            most = self._context.settings.requests_per_second
            raise _too_often(seconds, f"more than {most:g} requests a second")

    def _check_page(self, headers: Headers, scope: Scope, person: Person) -> None:
        """Check that a page of this server sends the request: browsers send the cookie to other ports, too."""
        site = headers.get("sec-fetch-site")
        is_own = site == "same-origin" or "origin" in headers  # foreign origins are already refused
        if scope["type"] == "websocket":
            if "origin" not in headers:
                raise ApiError(403, "SYS_ORIGIN", "a WebSocket with a cookie needs an Origin header")
            return
        if scope["method"] in _SAFE_METHODS:
            visits = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
            if site not in (None, "none", "same-origin") and not visits:
                raise ApiError(403, "SYS_ORIGIN", "pages of other sites may not use this server's responses")
            return
        if not is_own:
            raise ApiError(403, "SYS_CSRF", "the browser does not confirm that a page of this server sent the request")
        if scope["path"].startswith(TOOLKIT_PREFIX):
            return
        if not secrets_equal(headers.get(CSRF_HEADER, ""), csrf_token(self._context.token, person.key)):
            raise ApiError(
                403, "SYS_CSRF", f"CSRF token missing: send {CSRF_HEADER} with the value from GET /api/session"
            )

    def _log_in(self, scope: Scope, headers: Headers, address: str) -> ASGIApp:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            raise ApiError(405, "SYS_METHOD_NOT_ALLOWED", "GET /login?token=… logs a browser in")
        if scope["path"] != LOGIN_PATH:
            return self._login.with_provider(scope)
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if not given:
            return self._login.page(headers, 401, "needs-link")
        if (person := self._person(given[0])) is None:
            raise self._wrong_token(address)
        self._context.tokens.used(person)
        return self._login.with_token(scope, headers, person)

    def _refusal(self, scope: Scope, error: ApiError) -> Response:
        headers = Headers(scope=scope)
        wants_page = scope["type"] == "http" and "text/html" in headers.get("accept", "")
        if error.status in (401, 429) and wants_page and not scope["path"].startswith("/api"):
            known = "not-logged-in" if error.status == 401 else "too-often"
            query = scope["query_string"].decode("latin-1")
            wanted = scope["path"] if scope["path"] != LOGIN_PATH else "/"
            back = f"{wanted}?{query}" if query and wanted != "/" else wanted
            answer: Response = self._login.page(headers, error.status, known, back=back, why=str(error))
        else:
            answer = JSONResponse(error.body(), error.status)
        answer.headers.update(error.headers)
        if error.status == 401:
            answer.headers["WWW-Authenticate"] = 'Bearer realm="kingdom"'
        return answer


def _log_lifespan_failures(send: Send) -> Send:
    """Log why an application does not start or stop: uvicorn's own log is off."""

    async def telling(message: Message) -> None:
        if message["type"].endswith(".failed"):
            log.error("%s: %s", message["type"], message.get("message", ""))
        await send(message)

    return telling


def _check_path(path: str) -> None:
    """Refuse paths that try to leave a folder. No valid path contains these, in any encoding."""
    if "\\" in path or "\0" in path or ".." in path.split("/"):
        raise ApiError(400, "SYS_PATH", "the path must not contain .., a backslash or a NUL")


def _cookies(headers: Headers, name: str) -> Iterator[str]:
    for line in headers.getlist("cookie"):
        for one in line.split(";"):
            key, _, value = one.strip().partition("=")
            if key == name:
                yield value


def _too_often(seconds: int, why: str) -> ApiError:
    error = ApiError(429, "SYS_TOO_OFTEN", f"{why}: try again in {seconds} s")
    error.headers["Retry-After"] = str(seconds)
    return error
