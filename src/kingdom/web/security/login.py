"""Log a browser in: with the link that contains a token, or with an account of the provider."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response

from kingdom.base.text import one_line
from kingdom.web.envelope import ApiError
from kingdom.web.locales import preferred_locale
from kingdom.web.security.accounts import Accounts, LoginRefused
from kingdom.web.security.credentials import cookie_name, cookie_session, cookie_value, secrets_equal
from kingdom.web.security.headers import is_local_path
from kingdom.web.security.login_page import entered_page, login_page
from kingdom.web.security.roles import Person
from kingdom.web.security.sessions import TOKEN_SESSION_SECONDS, Session

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from kingdom.court.config_web import OidcSection
    from kingdom.web.context import WebContext
    from kingdom.web.security.oidc import Provider

LOGIN_PATH: Final = "/login"
PROVIDER_PATH: Final = "/login/oidc"
CALLBACK_PATH: Final = "/login/callback"
_ATTEMPT_SECONDS: Final = 600  # for a person to log in at the provider
_MAX_ATTEMPTS: Final = 1000  # the oldest is dropped first
_SECRET_BYTES: Final = 32
_MAX_PATH_CHARS: Final = 500
log = logging.getLogger("kingdom.web")


class LogIn:
    """Answers the requests under ``/login``."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._provider: ProviderLogIn | None = None
        self._label = ""
        if (section := context.settings.oidc) is not None:
            self._provider = ProviderLogIn(context, self, section)
            self._label = section.label or urlsplit(section.issuer).hostname or section.issuer

    def page(self, headers: Headers, status: int, what: str, *, back: str = "/", **fields: str) -> Response:
        """Return the page for those who are not logged in. ``back`` is where they wanted to go."""
        query = f"?{urlencode({'next': back})}" if back not in ("", "/") else ""
        start = "" if self._provider is None else PROVIDER_PATH + query
        return login_page(self.locale(headers), status, what, self._label, start, **fields)

    def locale(self, headers: Headers) -> str:
        """Return the language of a browser."""
        cookies = cookie_parser(headers.get("cookie", ""))
        return preferred_locale(cookies, headers.get("accept-language", ""), self._context.settings.locale)

    def with_token(self, scope: Scope, headers: Headers, person: Person) -> Response:
        """Log a browser in as the person with a token."""
        answer = RedirectResponse("/", 303)
        add_session(self._context, answer, scope, headers, person, TOKEN_SESSION_SECONDS)
        return answer

    def with_provider(self, scope: Scope) -> ASGIApp:
        """Return the application that logs a browser in with an account of the provider."""
        if self._provider is None or scope["path"] not in (PROVIDER_PATH, CALLBACK_PATH):
            raise ApiError(404, "SYS_NOT_FOUND", "there is nothing here: /login?token=… logs a browser in")
        if scope["method"] != "GET":
            raise ApiError(405, "SYS_METHOD_NOT_ALLOWED", f"{scope['path']} is opened by a browser")
        return self._provider


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A browser on its way to the provider and back."""

    browser: str
    """A secret in a cookie of that browser: nobody can have another person finish their log-in."""
    nonce: str
    verifier: str
    redirect_uri: str
    back: str
    started: float


class ProviderLogIn:
    """Sends a browser to the provider, and logs it in when it comes back. Attempts are kept in memory."""

    def __init__(self, context: WebContext, login: LogIn, section: OidcSection) -> None:
        from kingdom.web.security.oidc import Provider  # half a second, and only here

        self._context = context
        self._login = login
        self._section = section
        self._provider: Provider = Provider(section, context.settings.oidc_secret, context.clock)
        self._accounts = Accounts(section)
        self._attempts: OrderedDict[str, _Attempt] = OrderedDict()  # by state
        context.sessions.find_account = self._find_account

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        given = {name: values[0] for name, values in parse_qs(scope["query_string"].decode("latin-1")).items()}
        act = self._start if scope["path"] == PROVIDER_PATH else self._finish
        try:
            answer = await act(scope, headers, given)
        except LoginRefused as refused:
            log.warning("a log-in with %s was refused: %s", self._section.issuer, refused)
            answer = self._login.page(headers, refused.status, refused.reason, **refused.fields)
        await answer(scope, receive, send)

    async def _start(self, scope: Scope, headers: Headers, given: dict[str, str]) -> Response:
        back = given.get("next", "/")
        attempt = _Attempt(
            browser=self._browser(headers) or secrets.token_urlsafe(_SECRET_BYTES),
            nonce=secrets.token_urlsafe(_SECRET_BYTES),
            verifier=secrets.token_urlsafe(_SECRET_BYTES),
            redirect_uri=self._redirect_uri(scope, headers),
            back=back if is_local_path(back) and len(back) <= _MAX_PATH_CHARS else "/",
            started=self._context.clock(),
        )
        state = secrets.token_urlsafe(_SECRET_BYTES)
        url = await self._provider.authorization_url(attempt.redirect_uri, state, attempt.nonce, attempt.verifier)
        self._attempts[state] = attempt
        while len(self._attempts) > _MAX_ATTEMPTS:
            self._attempts.popitem(last=False)
        answer = RedirectResponse(url, 303)
        answer.set_cookie(
            self._cookie,
            attempt.browser,
            max_age=_ATTEMPT_SECONDS,
            path=LOGIN_PATH,
            secure=scope["scheme"] == "https",
            httponly=True,
            samesite="lax",  # it must come along when the provider sends the browser back
        )
        return answer

    async def _finish(self, scope: Scope, headers: Headers, given: dict[str, str]) -> Response:
        attempt = self._attempts.pop(given.get("state", ""), None)
        if attempt is None or self._context.clock() - attempt.started > _ATTEMPT_SECONDS:
            raise LoginRefused("expired", 400)
        if not secrets_equal(self._browser(headers), attempt.browser):
            raise LoginRefused("other-browser", 400)
        if "iss" in given:
            self._provider.check_issuer(given["iss"])
        if "code" not in given:
            why = one_line(given.get("error_description") or given.get("error") or "it sent no code")
            raise LoginRefused("denied", why=why)
        claims = await self._provider.claims(
            given["code"], attempt.redirect_uri, attempt.nonce, attempt.verifier, self._accounts.claims
        )
        person = self._accounts.person(claims)
        # Not a redirect: the browser comes from another site, and would not send the strict cookie along.
        answer = entered_page(self._login.locale(headers), attempt.back)
        seconds = round(self._section.session_hours * 3600)
        add_session(self._context, answer, scope, headers, person, seconds, self._accounts.kept(claims))
        log.info("%s logged in with %s", person.name, self._section.issuer)
        return answer

    @property
    def _cookie(self) -> str:
        return f"{cookie_name(self._context.token)}_login"

    def _browser(self, headers: Headers) -> str:
        return cookie_parser(headers.get("cookie", "")).get(self._cookie, "")

    def _redirect_uri(self, scope: Scope, headers: Headers) -> str:
        own = self._section.public_url or f"{scope['scheme']}://{headers['host']}"
        return own.rstrip("/") + CALLBACK_PATH

    def _find_account(self, session: Session) -> Person | None:
        try:
            found = self._accounts.person(session.claims or {})
        except LoginRefused:
            return None
        return found if found.key == session.key else None  # of another issuer


def add_session(
    context: WebContext,
    answer: Response,
    scope: Scope,
    headers: Headers,
    person: Person,
    seconds: int,
    claims: dict[str, Any] | None = None,
) -> None:
    """Log a browser in with a response. The session that it had ends."""
    name = cookie_name(context.token)
    former = cookie_parser(headers.get("cookie", "")).get(name, "")
    if (replaced := cookie_session(context.token, former)) is not None:
        context.sessions.end(replaced)
    address = (scope.get("client") or ("",))[0]
    agent = headers.get("user-agent", "")
    session_id = context.sessions.add(person, seconds, address=address, agent=agent, claims=claims)
    answer.set_cookie(
        name,
        cookie_value(context.token, session_id),
        max_age=seconds,
        path="/",
        secure=scope["scheme"] == "https",
        httponly=True,
        samesite="strict",
    )
