"""An OpenID Connect provider on loopback: Authlib's authorization server, with a page where one picks an account.

It checks clients, redirect addresses, PKCE and codes as any provider does. ``forge`` changes the ID token that it is
about to give out, as a broken or hostile provider would.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, OAuth2Error, OAuth2Request
from authlib.oauth2.rfc6749.grants import AuthorizationCodeGrant
from authlib.oauth2.rfc6749.requests import BasicOAuth2Payload
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

CLIENT_ID = "kingdom-test"
CLIENT_SECRET = "a secret of the tests: &%"
Claims = dict[str, Any]
Forger = Callable[[Claims], str | None]


@dataclass
class _Client(ClientMixin):
    callback_path: str = "/login/callback"

    def get_client_id(self) -> str:
        return CLIENT_ID

    def get_default_redirect_uri(self) -> None:
        return None

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        parts = urlsplit(redirect_uri)
        return parts.hostname == "127.0.0.1" and parts.path == self.callback_path

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == CLIENT_SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in ("client_secret_basic", "client_secret_post")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class _Code:
    value: str
    account: str
    redirect_uri: str
    scope: str
    nonce: str | None
    code_challenge: str | None
    code_challenge_method: str | None

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str | None:
        return self.nonce

    def get_auth_time(self) -> None:
        return None

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


class _Request(OAuth2Request):
    def __init__(self, request: Request, form: dict[str, str]) -> None:
        super().__init__(request.method, str(request.url), headers=request.headers)
        self._args = dict(request.query_params)
        self._form = form
        self.payload = BasicOAuth2Payload({**self._args, **form})

    @property
    def args(self) -> dict[str, str]:
        return self._args

    @property
    def form(self) -> dict[str, str]:
        return self._form


@cache
def _key(kid: str) -> RSAKey:
    """The same one for each provider of a process: to make one takes longer than a log-in."""
    return RSAKey.generate_key(2048, {"kid": kid, "alg": "RS256"})


@dataclass
class OidcProvider:
    """A provider; ``accounts`` are its claims by subject."""

    issuer: str
    accounts: dict[str, Claims] = field(default_factory=dict)
    forge: Forger | None = None
    """Given the claims of an ID token, returns the token to give out; None: the usual one, with what it changed."""
    in_id_token: frozenset[str] = frozenset({"email", "email_verified", "groups", "preferred_username"})
    """The claims in the ID token. All others are in the user info alone."""
    broken: int = 0
    """The status that every request is answered with, if it is not 0."""
    key: RSAKey = field(default_factory=lambda: _key("first"))
    codes: dict[str, _Code] = field(default_factory=dict)
    access_tokens: dict[str, str] = field(default_factory=dict)
    token_requests: list[dict[str, str]] = field(default_factory=list)

    def new_key(self, kid: str) -> None:
        """Sign with another key from now on."""
        self.key = _key(kid)

    def signed(self, claims: Claims, **header: Any) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid, **header}, claims, self.key)

    def app(self) -> Starlette:
        server = _server(self)

        async def authorize(request: Request) -> Response:
            form = {key: str(value) for key, value in (await request.form()).items()}
            try:
                grant = server.get_consent_grant(_Request(request, {}))
                if request.method == "GET":
                    buttons = "".join(f'<button name="sub" value="{sub}">{sub}</button>' for sub in self.accounts)
                    return HTMLResponse(
                        f'<form method="post"><h1>Example accounts</h1>{buttons}<button name="sub" value="">No</button>'
                    )
                chosen = form.get("sub") or None
                return _response(*grant.create_authorization_response(grant.redirect_uri, chosen))
            except OAuth2Error as error:
                error.state = request.query_params.get("state")
                return _response(*error())

        async def token(request: Request) -> Response:
            form = {key: str(value) for key, value in (await request.form()).items()}
            self.token_requests.append(form)
            return server.create_token_response(_Request(request, form))

        async def userinfo(request: Request) -> Response:
            sub = self.access_tokens.get(request.headers.get("authorization", "").removeprefix("Bearer "))
            return JSONResponse({"sub": sub, **self.accounts[sub]} if sub else {}, 200 if sub else 401)

        async def keys(request: Request) -> Response:
            return JSONResponse(KeySet([self.key]).as_dict(private=False))

        async def metadata(request: Request) -> Response:
            return JSONResponse(
                {
                    "issuer": self.issuer,
                    "authorization_endpoint": f"{self.issuer}/authorize",
                    "token_endpoint": f"{self.issuer}/token",
                    "userinfo_endpoint": f"{self.issuer}/userinfo",
                    "jwks_uri": f"{self.issuer}/keys",
                    # A provider may offer these; nobody has to accept them.
                    "id_token_signing_alg_values_supported": ["RS256", "HS256", "none"],
                }
            )

        def unless_broken(act: Callable[[Request], Any]) -> Callable[[Request], Any]:
            async def acting(request: Request) -> Response:
                if self.broken:
                    return Response("out of order", self.broken)
                answer: Response = await act(request)
                return answer

            return acting

        paths = {
            "/.well-known/openid-configuration": metadata,
            "/authorize": authorize,
            "/token": token,
            "/userinfo": userinfo,
            "/keys": keys,
        }
        return Starlette(
            routes=[Route(path, unless_broken(act), methods=["GET", "POST"]) for path, act in paths.items()]
        )


def _response(status: int, body: Any, headers: Any) -> Response:
    if isinstance(body, dict):
        return JSONResponse(body, status, dict(headers))
    return Response(str(body or ""), status, dict(headers))


def _server(provider: OidcProvider) -> Any:
    class Server(AuthorizationServer):
        def query_client(self, client_id: str) -> _Client | None:
            return _Client() if client_id == CLIENT_ID else None

        def save_token(self, token: Claims, request: OAuth2Request) -> None:
            provider.access_tokens[token["access_token"]] = request.user

        def create_oauth2_request(self, request: _Request) -> _Request:
            return request

        def handle_response(self, status: int, body: Any, headers: Any) -> Response:
            return _response(status, body, headers)

        def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
            pass

    class CodeGrant(AuthorizationCodeGrant):
        def save_authorization_code(self, code: str, request: _Request) -> None:
            given = request.payload.data
            provider.codes[code] = _Code(
                code,
                request.user,
                given["redirect_uri"],
                given["scope"],
                given.get("nonce"),
                given.get("code_challenge"),
                given.get("code_challenge_method"),
            )

        def query_authorization_code(self, code: str, client: _Client) -> _Code | None:
            return provider.codes.get(code)

        def delete_authorization_code(self, authorization_code: _Code) -> None:
            del provider.codes[authorization_code.value]

        def authenticate_user(self, authorization_code: _Code) -> str:
            return authorization_code.account

    class IdToken(OpenIDCode):
        def exists_nonce(self, nonce: str, request: _Request) -> bool:
            return any(code.nonce == nonce for code in provider.codes.values())

        def encode_id_token(self, token: Claims, request: _Request) -> str:
            now, sub = int(time.time()), request.user
            known = {name: value for name, value in provider.accounts[sub].items() if name in provider.in_id_token}
            claims = {"iss": provider.issuer, "aud": CLIENT_ID, "sub": sub, "iat": now, "exp": now + 300, **known}
            claims["nonce"] = request.authorization_code.nonce
            forged = None if provider.forge is None else provider.forge(claims)
            return provider.signed(claims) if forged is None else forged

    server = Server()
    server.register_grant(CodeGrant, [IdToken(require_nonce=True), CodeChallenge(required=True)])
    tokens = iter(range(1, 1_000_000))
    server.register_token_generator("default", BearerTokenGenerator(lambda **_: f"access-{next(tokens)}"))
    return server


@contextlib.asynccontextmanager
async def provided() -> AsyncIterator[OidcProvider]:
    """A provider that listens on a free port of 127.0.0.1."""
    listener = socket.create_server(("127.0.0.1", 0))
    provider = OidcProvider(f"http://127.0.0.1:{listener.getsockname()[1]}")
    server = _Uvicorn(uvicorn.Config(provider.app(), log_config=None, lifespan="off", access_log=False))
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield provider  # the listener takes connections before the server runs
    finally:
        server.should_exit = True
        await task
        listener.close()


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
