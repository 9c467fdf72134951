"""Log-in with accounts of an OpenID Connect provider, which really runs: who gets in, as whom, and who does not."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from kingdom.court.config_web import OidcSection
from kingdom.court.errors import InvalidConfig
from kingdom.court.init_home import create_home
from kingdom.web.security import cookie_name
from kingdom.web.settings import WebSettings, settings_of
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, Claims, OidcProvider, provided
from tests.support.web import LOCAL, SETTINGS, TOKEN, Web, web_app

ACCOUNTS: dict[str, Claims] = {
    "ann": {"email": "ann@example.org", "email_verified": True, "groups": ["staff"]},
    "bob": {"email": "Bob@Example.org", "email_verified": True, "groups": ["platform", "staff"]},
    "cleo": {"email": "cleo@elsewhere.example", "email_verified": True},
    "dan": {"email": "dan@example.org", "email_verified": False},
    "king": {"email": "king", "email_verified": True, "groups": ["platform"]},
}
PAGE = {"Accept": "text/html"}


def section(provider: OidcProvider, **more: Any) -> OidcSection:
    roles = [{"role": "answer", "email": "*@example.org"}, {"role": "operate", "claim": "groups", "value": "platform"}]
    given = {"issuer": provider.issuer, "client_id": CLIENT_ID, "label": "Example", "roles": roles, **more}
    return OidcSection.model_validate(given)


def settings(provider: OidcProvider, **more: Any) -> WebSettings:
    return replace(SETTINGS, oidc=section(provider, **more), oidc_secret=CLIENT_SECRET)


@pytest.fixture
async def provider() -> AsyncIterator[OidcProvider]:
    async with provided() as found:
        found.accounts = {name: dict(claims) for name, claims in ACCOUNTS.items()}
        yield found


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, provider: OidcProvider, **more: Any) -> AsyncIterator[Web]:
    async with web_app(tmp_path, settings=settings(provider, **more)) as web:
        yield web


async def choose(browser: httpx.AsyncClient, account: str, start: str = "/login/oidc") -> str:
    """Go to the provider, choose an account there, and return where it sends the browser back to: path and query."""
    sent = await browser.get(start)
    assert sent.status_code == 303, sent.text
    async with httpx.AsyncClient(trust_env=False, verify=False) as there:  # it speaks no TLS
        address = sent.headers["Location"]
        assert account in (await there.get(address)).text or not account
        back = await there.post(address, data={"sub": account})
    assert back.status_code == 302, back.text
    parts = urlsplit(back.headers["Location"])
    return f"{parts.path}?{parts.query}"


async def log_in(browser: httpx.AsyncClient, account: str) -> httpx.Response:
    return await browser.get(await choose(browser, account), headers=PAGE)


async def refused(web: Web, account: str, *, status: int = 403) -> str:
    """Log in, and return why that is refused."""
    async with web.without_token() as browser:
        answer = await log_in(browser, account)
        assert answer.status_code == status, answer.text
        assert cookie_name(TOKEN) not in browser.cookies
        assert "/login/oidc" in answer.text, "it can be tried again"
        assert "Traceback" not in answer.text
        return answer.text


# ── getting in ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_person_logs_in_with_their_account_and_signs_with_its_name(
    tmp_path: Path, provider: OidcProvider
) -> None:
    async with serving(tmp_path, provider) as web, web.without_token(headers={"Origin": LOCAL}) as browser:
        page = await browser.get("/", headers=PAGE)
        assert (page.status_code, "Log in with Example" in page.text) == (401, True)
        entered = await log_in(browser, "bob")
        assert entered.status_code == 200
        assert 'content="0;url=/"' in entered.text
        cookie = entered.headers["Set-Cookie"]
        assert "SameSite=strict" in cookie
        assert "HttpOnly" in cookie
        assert "Max-Age=43200" in cookie
        session = (await browser.get("/api/session")).json()["data"]
        assert (session["name"], session["role"], session["identity"]) == ("Bob@Example.org", "operate", "session")
        body = {"type": "test.good", "payload": {}}
        forged = await browser.post("/api/events", json=body)
        assert forged.json()["error"]["code"] == "SYS_CSRF"
        browser.headers["X-CSRF-Token"] = session["csrfToken"]
        assert (await browser.post("/api/events", json=body)).status_code == 201
        denied = await browser.post("/api/tokens", json={"name": "x", "role": "own"})
        assert denied.json()["error"]["code"] == "SYS_ROLE"
        assert "web.oidc.roles" in denied.json()["error"]["message"]
        lines = [json.loads(line) for line in (tmp_path / "logs" / "events.log").read_text().splitlines()]
        done = [line["data"]["user"] for line in lines if line["type"] == "system.person_acted"]
        assert done == ["Bob@Example.org"]
        (device,) = (await browser.get("/api/sessions")).json()["data"]["items"]
        assert (device["name"], device["method"], device["current"]) == ("Bob@Example.org", "oidc", True)
        assert (await browser.delete("/api/session")).status_code == 200
        assert (await browser.get("/api/session")).status_code == 401
    (asked,) = provider.token_requests
    assert len(asked["code_verifier"]) >= 43
    assert "client_secret" not in asked, "the secret goes into the header"


async def test_the_request_to_the_provider_has_pkce_state_and_nonce_of_its_own(
    tmp_path: Path, provider: OidcProvider
) -> None:
    async with serving(tmp_path, provider) as web:
        seen: list[dict[str, list[str]]] = []
        for _ in range(2):
            async with web.without_token() as browser:
                sent = await browser.get("/login/oidc")
                assert "SameSite=lax" in sent.headers["Set-Cookie"]
                seen.append(parse_qs(urlsplit(sent.headers["Location"]).query))
        for query in seen:
            assert query["code_challenge_method"] == ["S256"]
            assert query["response_type"] == ["code"]
            assert query["redirect_uri"] == [f"{LOCAL}/login/callback"]
            assert query["scope"] == ["openid email profile"]
        for name in ("state", "nonce", "code_challenge"):
            assert len(seen[0][name][0]) >= 43
            assert seen[0][name] != seen[1][name]


async def test_a_person_returns_to_the_page_they_wanted_but_to_no_other_site(
    tmp_path: Path, provider: OidcProvider
) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        page = await browser.get("/tasks?status=failed", headers=PAGE)
        assert 'href="/login/oidc?next=%2Ftasks%3Fstatus%3Dfailed"' in page.text
        entered = await browser.get(await choose(browser, "ann", "/login/oidc?next=%2Ftasks%3Fstatus%3Dfailed"))
        assert 'content="0;url=/tasks?status=failed"' in entered.text
        for bad in ("https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
            entered = await browser.get(await choose(browser, "ann", f"/login/oidc?next={bad}"))
            assert 'content="0;url=/"' in entered.text, bad


async def test_claims_that_the_token_lacks_are_read_from_the_user_info(tmp_path: Path, provider: OidcProvider) -> None:
    provider.in_id_token = frozenset()
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        assert (await log_in(browser, "bob")).status_code == 200
        session = (await browser.get("/api/session")).json()["data"]
        assert (session["name"], session["role"]) == ("Bob@Example.org", "operate")


async def test_new_keys_of_the_provider_are_read(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        assert (await log_in(browser, "ann")).status_code == 200
        provider.new_key("second")
        assert (await log_in(browser, "ann")).status_code == 200


async def test_the_role_is_that_of_the_configuration_of_now(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        await log_in(browser, "ann")
        kept = dict(browser.cookies)
    rules = [{"role": "own", "email": "ANN@example.org"}]
    async with serving(tmp_path, provider, roles=rules) as web, web.without_token(cookies=kept) as browser:
        assert (await browser.get("/api/session")).json()["data"]["role"] == "own"
    rules = [{"role": "own", "email": "bob@example.org"}]
    async with serving(tmp_path, provider, roles=rules) as web, web.without_token(cookies=kept) as browser:
        assert (await browser.get("/api/session")).status_code == 401
    async with web_app(tmp_path) as web, web.without_token(cookies=kept) as browser:
        assert (await browser.get("/api/session")).status_code == 401, "without the provider nobody of it is known"
        missing = await browser.get("/login/oidc")
        assert missing.status_code == 404
        assert "Log in with" not in (await browser.get("/", headers=PAGE)).text


async def test_a_token_logs_in_as_before(tmp_path: Path, provider: OidcProvider) -> None:
    provider.broken = 503
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        assert (await browser.get(f"/login?token={TOKEN}")).status_code == 303
        assert (await browser.get("/api/session")).json()["data"]["name"] == "owner"


# ── accounts that may not ───────────────────────────────────────────────────────────────────────────────────────────


async def test_an_account_without_a_role_is_told_whom_to_ask(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web:
        assert "cleo@elsewhere.example may not log in here. Ask an owner" in await refused(web, "cleo")
        assert "has not verified the e-mail address dan@example.org" in await refused(web, "dan")
        assert "cannot sign actions here" in await refused(web, "king")
        assert "The provider did not log you in" in await refused(web, "")
        provider.accounts["ann"] = {"groups": ["platform"]}
        assert "has no claim email" in await refused(web, "ann")
    async with serving(tmp_path, provider, default_role="look") as web, web.without_token() as browser:
        await log_in(browser, "cleo")
        assert (await browser.get("/api/session")).json()["data"]["role"] == "look"


@pytest.mark.parametrize(
    "email", ["ann@example.org.evil.example", "ann@evilexample.org", "@example.org", "a@b@example.org"]
)
async def test_a_domain_is_matched_whole(tmp_path: Path, provider: OidcProvider, email: str) -> None:
    provider.accounts["ann"] = {"email": email, "email_verified": True}
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        assert (await log_in(browser, "ann")).status_code == 403


# ── tokens that are not accepted ────────────────────────────────────────────────────────────────────────────────────


def _unsigned(claims: Claims) -> str:
    parts = [{"alg": "none", "kid": "first"}, claims]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def _signed_with_the_secret(claims: Claims) -> str:
    return jwt.encode(
        {"alg": "HS256", "kid": "first"}, claims, OctKey.import_key(CLIENT_SECRET.encode().ljust(32, b"-"))
    )


def _signed_by_another(claims: Claims) -> str:
    return jwt.encode({"alg": "RS256", "kid": "first"}, claims, RSAKey.generate_key(2048))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"nonce": "another"}, "its claim nonce is not the expected one"),
        ({"nonce": None}, "nonce"),
        ({"aud": "another-client"}, "its claim aud is not the expected one"),
        ({"aud": ["another-client"]}, "its claim aud is not the expected one"),
        ({"aud": [CLIENT_ID, "another-client"]}, "azp"),
        ({"iss": "https://evil.example"}, "its claim iss is not the expected one"),
        ({"sub": None}, "sub"),
        ({"exp": 1_000_000_000}, "clock says"),
        ({"iat": 4_000_000_000, "exp": 4_000_000_300}, "clock says"),
    ],
)
async def test_a_token_with_a_wrong_claim_is_refused(
    tmp_path: Path, provider: OidcProvider, change: Claims, told: str
) -> None:
    provider.forge = lambda claims: claims.update(change)
    async with serving(tmp_path, provider) as web:
        assert told in await refused(web, "ann")


@pytest.mark.parametrize("forge", [_unsigned, _signed_with_the_secret, _signed_by_another, lambda _: "no.token.atall"])
async def test_a_token_that_the_provider_did_not_sign_is_refused(
    tmp_path: Path, provider: OidcProvider, forge: Any
) -> None:
    provider.forge = forge
    async with serving(tmp_path, provider) as web:
        assert "The answer of the provider is not accepted" in await refused(web, "ann")


async def test_clocks_may_differ_by_two_minutes(tmp_path: Path, provider: OidcProvider) -> None:
    now = int(time.time())
    provider.forge = lambda claims: claims.update(iat=now + 60, exp=now + 300)
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        assert (await log_in(browser, "ann")).status_code == 200


# ── answers that are not for this browser ───────────────────────────────────────────────────────────────────────────


async def test_a_wrong_missing_or_used_state_is_refused(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        back = await choose(browser, "ann")
        code = parse_qs(urlsplit(back).query)["code"][0]
        for query in (f"code={code}", f"code={code}&state=guessed", "state=guessed&error=denied"):
            answer = await browser.get(f"/login/callback?{query}")
            assert (answer.status_code, "Start it again" in answer.text) == (400, True)
        assert provider.token_requests == [], "the code stays with the provider"
        assert (await browser.get(back)).status_code == 200
        assert (await browser.get(back)).status_code == 400, "a state is used once"


async def test_a_code_is_good_once(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as browser, web.without_token() as thief:
        code = parse_qs(urlsplit(first := await choose(browser, "ann")).query)["code"][0]
        assert (await browser.get(first)).status_code == 200
        own = parse_qs(urlsplit(await choose(thief, "cleo")).query)
        replayed = await thief.get(f"/login/callback?code={code}&state={own['state'][0]}")
        assert (replayed.status_code, "it was used already" in replayed.text) == (400, True)
        assert cookie_name(TOKEN) not in thief.cookies


async def test_a_stolen_code_fails_for_want_of_the_verifier(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as browser, web.without_token() as thief:
        code = parse_qs(urlsplit(await choose(browser, "ann")).query)["code"][0]
        own = parse_qs(urlsplit(await choose(thief, "cleo")).query)
        injected = await thief.get(f"/login/callback?code={code}&state={own['state'][0]}")
        assert (injected.status_code, "it was used already" in injected.text) == (400, True)


async def test_nobody_finishes_the_log_in_of_another_browser(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as attacker, web.without_token() as victim:
        link = await choose(attacker, "cleo")
        lured = await victim.get(link)
        assert (lured.status_code, "started in another browser" in lured.text) == (400, True)
        assert cookie_name(TOKEN) not in victim.cookies


async def test_an_answer_of_another_issuer_is_refused(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        answer = await browser.get(f"{await choose(browser, 'ann')}&iss=https://evil.example")
        assert (answer.status_code, "https://evil.example" in answer.text) == (403, True)


async def test_hostile_text_of_the_provider_stays_text(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        state = parse_qs(urlsplit(await choose(browser, "ann")).query)["state"][0]
        query = {"state": state, "error": "x", "error_description": "<script>alert(1)</script>"}
        answer = await browser.get("/login/callback", params=query)
        assert answer.status_code == 403
        assert "<script>" not in answer.text


# ── a provider in trouble ───────────────────────────────────────────────────────────────────────────────────────────


async def test_a_provider_that_is_down_says_so_and_what_to_do(tmp_path: Path, provider: OidcProvider) -> None:
    async with serving(tmp_path, provider) as web, web.without_token() as browser:
        provider.broken = 503
        down = await browser.get("/login/oidc", headers={"Accept-Language": "ko"})
        assert (down.status_code, "status 503" in down.text, '<html lang="ko">' in down.text) == (502, True, True)
        provider.broken = 0
        back = await choose(browser, "ann")
        provider.broken = 500
        assert (await browser.get(back)).status_code == 502
        provider.broken = 0
        assert (await log_in(browser, "ann")).status_code == 200
    gone = section(provider, issuer="http://127.0.0.1:9")
    async with web_app(tmp_path, settings=replace(SETTINGS, oidc=gone)) as web, web.without_token() as browser:
        nowhere = await browser.get("/login/oidc", headers=PAGE)
        assert (nowhere.status_code, "does not answer" in nowhere.text) == (502, True)
        assert "kingdom web --link" in nowhere.text


async def test_a_wrong_secret_or_issuer_is_explained_to_the_administrator(
    tmp_path: Path, provider: OidcProvider
) -> None:
    wrong = replace(settings(provider), oidc_secret="wrong")
    async with web_app(tmp_path, settings=wrong) as web:
        assert "check client_id and the client secret" in await refused(web, "ann", status=502)
    slashed = settings(provider, issuer=f"{provider.issuer}/")
    async with web_app(tmp_path, settings=slashed) as web, web.without_token() as browser:
        answer = await browser.get("/login/oidc")
        assert (answer.status_code, "write that as web.oidc.issuer" in answer.text) == (502, True)


async def test_a_log_in_that_takes_too_long_is_started_again(tmp_path: Path, provider: OidcProvider) -> None:
    ahead = 0.0
    async with (
        web_app(tmp_path, settings=settings(provider), clock=lambda: time.time() + ahead) as web,
        web.without_token() as browser,
    ):
        back = await choose(browser, "ann")
        ahead = 601.0
        late = await browser.get(back)
        assert (late.status_code, "longer than ten minutes" in late.text) == (400, True)


# ── configuration ───────────────────────────────────────────────────────────────────────────────────────────────────


CONFIG = """
web:
  oidc:
    issuer: https://login.example.com
    client_id: kingdom
    client_secret_env: TEST_OIDC_SECRET
    public_url: https://kingdom.example.com
    roles:
      - {role: own, email: ada@example.com}
"""


async def test_it_is_configured_with_the_secret_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create_home(tmp_path, ())
    path = tmp_path / "config" / "system.yaml"
    path.write_text(path.read_text() + CONFIG)
    with pytest.raises(InvalidConfig, match="TEST_OIDC_SECRET, but that environment variable is not set"):
        settings_of(tmp_path).check()
    monkeypatch.setenv("TEST_OIDC_SECRET", "hush")
    found = settings_of(tmp_path)
    found.check()
    assert found.oidc is not None
    assert found.oidc.roles[0].role == "own"
    assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("https://login", "http://login"), "must be a URL such as https://login.example.com"),
        (("{role: own, email: ada@example.com}", "{role: own}"), "give email, or claim and value"),
        (("ada@example.com", "'ada*@example.com'"), "must be an address, or"),
        (("      - {role: own, email: ada@example.com}", "      []"), "nobody may log in"),
        (("role: own", "role: king"), "role"),
    ],
)
async def test_a_wrong_configuration_is_told_with_its_line(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    await create_home(tmp_path, ())
    path = tmp_path / "config" / "system.yaml"
    path.write_text(path.read_text() + CONFIG.replace(*change))
    with pytest.raises(InvalidConfig, match=r"system\.yaml:\d+") as error:
        settings_of(tmp_path)
    assert told in str(error.value)


@pytest.mark.walk
def test_nothing_of_it_is_imported_unless_it_is_configured() -> None:
    code = (
        "import sys, kingdom.web.app, kingdom.web.dashboard.nicegui_app\n"
        "print([one for one in sys.modules if one.split('.')[0] in ('authlib', 'joserfc')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
