"""The client of an OpenID Connect provider: authorization code flow with PKCE. Imported only where one is configured.

Requests are built and tokens are checked by Authlib; httpx sends them.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ClaimError, ExpiredTokenError, InvalidClaimError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from kingdom.base.text import one_line
from kingdom.court.config_web import OidcSection
from kingdom.web.security.accounts import LoginRefused
from kingdom.web.settings import is_loopback

_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a key pair. Neither `none` nor those with the client secret."""
_LEEWAY_SECONDS: Final = 120  # between the clocks of the provider and this machine
_METADATA_SECONDS: Final = 3600.0  # how long the provider's description and keys are reused
_TIMEOUT_SECONDS: Final = 10.0
_TIME_CLAIMS: Final = frozenset({"exp", "iat", "nbf"})
_NEEDED_METADATA: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class Provider:
    """An OpenID Connect provider. Errors are :class:`~kingdom.web.security.accounts.LoginRefused`."""

    def __init__(self, section: OidcSection, secret: str | None, clock: Callable[[], float]) -> None:
        self._section = section
        self._secret = secret
        self._clock = clock
        self._metadata: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._read_at = 0.0  # monotonic

    async def authorization_url(self, redirect_uri: str, state: str, nonce: str, verifier: str) -> str:
        """Return the address at the provider where a person logs in."""
        metadata = await self._read_metadata()
        url: str = prepare_grant_uri(
            metadata["authorization_endpoint"],
            self._section.client_id,
            "code",
            redirect_uri=redirect_uri,
            scope=" ".join(self._section.scopes),
            state=state,
            nonce=nonce,
            code_challenge=create_s256_code_challenge(verifier),
            code_challenge_method="S256",
        )
        return url

    async def claims(
        self, code: str, redirect_uri: str, nonce: str, verifier: str, wanted: frozenset[str]
    ) -> dict[str, Any]:
        """Exchange a code for the claims of the person. If the token lacks one of ``wanted``, the user info is read."""
        tokens = await self._exchange(code, redirect_uri, verifier)
        id_token, access_token = tokens.get("id_token"), tokens.get("access_token")
        if not isinstance(id_token, str):
            raise self._broken("its answer contains no id_token: is openid among the scopes that it allows?")
        claims = await self._checked(id_token, nonce, access_token if isinstance(access_token, str) else None)
        endpoint = self._metadata.get("userinfo_endpoint")
        if wanted <= claims.keys() or not isinstance(access_token, str) or not isinstance(endpoint, str):
            return claims
        info = await self._get(endpoint, {"Authorization": f"Bearer {access_token}"})
        if info.get("sub") != claims["sub"]:
            raise LoginRefused("bad-token", why="the user info is that of another account")
        return {**info, **claims}

    def check_issuer(self, issuer: str) -> None:
        """Check the issuer that an answer names (RFC 9207): another provider's answer is not for this one."""
        if issuer != self._section.issuer:
            raise LoginRefused("bad-token", why=f"the answer is that of {one_line(issuer)}")

    async def _exchange(self, code: str, redirect_uri: str, verifier: str) -> dict[str, Any]:
        metadata = await self._read_metadata()
        endpoint: str = metadata["token_endpoint"]
        body = prepare_token_request("authorization_code", redirect_uri=redirect_uri, code=code, code_verifier=verifier)
        auth = ClientAuth(self._section.client_id, self._secret, self._auth_method())
        headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        endpoint, headers, body = auth.prepare("POST", endpoint, headers, body)
        answer = await self._send("POST", endpoint, headers, body)
        found = _json_object(answer)
        if answer.status_code == 200 and found is not None:
            return found
        error = str((found or {}).get("error", f"status {answer.status_code}"))
        if error == "invalid_grant":
            raise LoginRefused("used-code", 400)
        if error in ("invalid_client", "unauthorized_client"):
            raise self._broken(f"it does not know this server ({error}): check client_id and the client secret")
        description = (found or {}).get("error_description")
        raise self._broken(one_line(f"{error}: {description}" if description else error))

    def _auth_method(self) -> str:
        if self._secret is None:
            return "none"
        known = self._metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        return "client_secret_basic" if "client_secret_basic" in known else "client_secret_post"

    async def _checked(self, id_token: str, nonce: str, access_token: str | None) -> dict[str, Any]:
        """Check the signature, issuer, audience, time and nonce of an ID token, and return its claims."""
        try:
            try:
                token = self._decoded(id_token, await self._read_keys())
            except InvalidKeyIdError:  # the provider may have new keys
                token = self._decoded(id_token, await self._read_keys(again=True))
            client_id = self._section.client_id
            claims = CodeIDToken(
                token.claims,
                token.header,
                {
                    "iss": {"essential": True, "values": [self._section.issuer]},
                    "aud": {"essential": True, "values": [client_id]},
                    "exp": {"essential": True},
                },
                {"nonce": nonce, "client_id": client_id, "access_token": access_token},
            )
            claims.validate(now=int(self._clock()), leeway=_LEEWAY_SECONDS)
        except (ExpiredTokenError, InvalidClaimError) as error:
            if error.claim in _TIME_CLAIMS:
                raise self._skewed(token.claims) from error
            raise LoginRefused("bad-token", why=f"its claim {error.claim} is not the expected one") from error
        except ClaimError as error:
            raise LoginRefused("bad-token", why=one_line(str(error))) from error
        except (JoseError, ValueError, TypeError) as error:  # ValueError: it has no form at all
            raise LoginRefused("bad-token", why=one_line(str(error) or type(error).__name__)) from error
        return dict(claims)

    def _decoded(self, id_token: str, keys: KeySet) -> jwt.Token:
        registry = JWSRegistry(algorithms=list(_ALGORITHMS), strict_check_header=False)
        return jwt.decode(id_token, keys, registry=registry)

    def _skewed(self, claims: Mapping[str, Any]) -> LoginRefused:
        return LoginRefused(
            "clock", issued=_time(claims.get("iat")), expires=_time(claims.get("exp")), now=_time(self._clock())
        )

    async def _read_metadata(self) -> dict[str, Any]:
        if self._metadata and time.monotonic() - self._read_at < _METADATA_SECONDS:
            return self._metadata
        found = await self._get(f"{self._section.issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self._section.issuer:
            raise self._broken(
                f"it calls itself {one_line(str(found.get('issuer')))}: write that as web.oidc.issuer if it is right"
            )
        for name in _NEEDED_METADATA:
            if not _is_secure(found.get(name)):
                raise self._broken(f"its {name} is not an https address")
        self._metadata, self._keys, self._read_at = found, None, time.monotonic()
        return found

    async def _read_keys(self, *, again: bool = False) -> KeySet:
        metadata = await self._read_metadata()
        if self._keys is None or again:
            found: Any = await self._get(metadata["jwks_uri"])
            if not isinstance(found.get("keys"), list):
                raise self._broken("its keys cannot be read")
            self._keys = KeySet.import_key_set(found)
        return self._keys

    async def _get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        answer = await self._send("GET", url, headers or {}, "")
        found = _json_object(answer)
        if answer.status_code != 200 or found is None:
            raise self._broken(f"{url} answers with status {answer.status_code}, not with a document")
        return found

    async def _send(self, method: str, url: str, headers: Mapping[str, str], body: str) -> httpx.Response:
        # Proxies of the environment are for other machines.
        trust = not is_loopback(urlsplit(url).hostname or "")
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT_SECONDS, trust_env=trust, verify=_tls(trust)) as client:
                return await client.request(method, url, headers=headers, content=body.encode())
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise LoginRefused(
                "no-answer", 502, issuer=self._section.issuer, why=one_line(str(error) or type(error).__name__)
            ) from error

    def _broken(self, why: str) -> LoginRefused:
        return LoginRefused("provider", 502, issuer=self._section.issuer, why=why)


@cache
def _tls(trust_env: bool) -> ssl.SSLContext:
    """Load the certificates of authorities. It takes 26 ms, in which the server does nothing else."""
    return httpx.create_ssl_context(trust_env=trust_env)


def _json_object(answer: httpx.Response) -> dict[str, Any] | None:
    try:
        found = answer.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _is_secure(url: Any) -> bool:
    parts = urlsplit(url) if isinstance(url, str) else None
    return parts is not None and (parts.scheme == "https" or is_loopback(parts.hostname or ""))


def _time(seconds: Any) -> str:
    if not isinstance(seconds, int | float):
        return "–"
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
