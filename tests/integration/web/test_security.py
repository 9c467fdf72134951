"""Who gets in, and who does not: each way in that local servers were broken into by, tried."""

from __future__ import annotations

import http.cookies
import itertools
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from kingdom.web.security import CSRF_HEADER, cookie_name, cookie_value, csrf_token
from kingdom.web.settings import WebSettings
from tests.support.web import BEARER, LOCAL, TOKEN, Served, Web, raw_request, served, session_cookie, web_app

ANYTHING = "/api/session"
PAGE = {"Accept": "text/html,application/xhtml+xml"}


pytestmark = pytest.mark.asyncio(loop_scope="module")
_addresses = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    async with web_app(tmp_path_factory.mktemp("web"), court=False) as found:
        found.app.add_api_route("/api/broken", _broken)
        yield found


async def _broken() -> None:
    raise RuntimeError("<script>alert(1)</script>")


async def ask(web: Web, path: str = ANYTHING, method: str = "GET", **headers: str) -> httpx.Response:
    """Ask as somebody new: those who asked before have no part in the answer."""
    async with web.without_token(address=f"10.0.0.{next(_addresses)}") as nobody:
        return await nobody.request(method, path, headers={key.replace("_", "-"): it for key, it in headers.items()})


def cookie(web: Web | Served) -> str:
    """The header of a browser that is logged in."""
    return "=".join(session_cookie(web.context))


def code(answer: httpx.Response) -> str:
    body = answer.json()
    assert body["success"] is False
    return str(body["error"]["code"])


# ── the token ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_without_a_token_nothing_is_answered(web: Web) -> None:
    refused = await ask(web)
    assert (refused.status_code, code(refused)) == (401, "SYS_UNAUTHORIZED")
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert (await web.client.get(ANYTHING)).status_code == 200


@pytest.mark.parametrize("given", ["Bearer " + "u" * 32, "Bearer", "Bearer ", "Basic " + TOKEN, TOKEN, "Bearer ü"])
async def test_a_wrong_token_opens_nothing(web: Web, given: str) -> None:
    async with web.without_token(address=f"wrong {given}") as nobody:
        refused = await nobody.get(ANYTHING, headers=[(b"Authorization", given.encode())])
    assert (refused.status_code, code(refused)) == (401, "SYS_UNAUTHORIZED")


async def test_a_wrong_token_is_not_made_good_by_a_cookie(web: Web) -> None:
    assert (await ask(web, Authorization="Bearer wrong", Cookie=cookie(web))).status_code == 401


async def test_the_token_in_an_address_opens_nothing_but_the_login(web: Web) -> None:
    assert (await ask(web, f"{ANYTHING}?token={TOKEN}")).status_code == 401


async def test_a_cookie_of_a_wrong_value_opens_nothing(web: Web) -> None:
    assert (await ask(web, Cookie=f"{cookie_name(TOKEN)}={TOKEN}")).status_code == 401
    name, value = session_cookie(web.context)
    assert (await ask(web, Cookie=f"{name}={value}")).status_code == 200
    assert (await ask(web, Cookie=f"kingdom_session={value}")).status_code == 401
    assert (await ask(web, Cookie=f"{name}={value}0")).status_code == 401
    assert (await ask(web, Cookie=f"{name}={value.partition('.')[0]}")).status_code == 401
    unknown = cookie_value(TOKEN, "0" * 24)
    assert (await ask(web, Cookie=f"{name}={unknown}")).status_code == 401, "a proof without a session"


async def test_too_many_wrong_tokens_are_answered_no_more_but_the_right_one_is(web: Web) -> None:
    async with web.without_token(address="10.1.1.1") as guesser:
        guesses = [{"Authorization": f"Bearer wrong{number}"} for number in range(12)]
        answers = [await guesser.get(ANYTHING, headers=guess) for guess in guesses]
        assert (await guesser.get(ANYTHING, headers=BEARER)).status_code == 200
    assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 2
    assert code(answers[-1]) == "SYS_TOO_OFTEN"
    assert int(answers[-1].headers["Retry-After"]) > 0


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_whether_it_is_alive_anybody_may_ask(web: Web, path: str) -> None:
    assert (await ask(web, path)).status_code == 200


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/session", "/api/none", "/ws/events", "/healthz/", "/hooks"])
async def test_everything_else_needs_a_token_whether_it_exists_or_not(web: Web, path: str) -> None:
    assert (await ask(web, path)).status_code == 401


# ── logging in ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_link_logs_a_browser_in_and_is_gone_from_the_address(web: Web) -> None:
    answer = await ask(web, f"/login?token={TOKEN}", **PAGE)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = http.cookies.SimpleCookie(answer.headers["Set-Cookie"])[cookie_name(TOKEN)]
    assert cookie.value == cookie_value(TOKEN, cookie.value.partition(".")[0])
    assert TOKEN not in answer.headers["Set-Cookie"]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["domain"]) == (True, "strict", "/", "")
    assert int(cookie["max-age"]) > 0
    assert not cookie["secure"]
    assert (await ask(web, Cookie=f"other=1; {cookie_name(TOKEN)}={cookie.value}")).status_code == 200


async def test_behind_a_proxy_with_tls_the_cookie_stays_with_tls(tmp_path: Path) -> None:
    settings = WebSettings(port=0, allowed_hosts=("kingdom.example.com",))
    async with served(tmp_path, court=False, settings=settings) as web:
        headers = {"Host": "kingdom.example.com", "X-Forwarded-Proto": "https"}
        answer = await web.client.get("/login", params={"token": TOKEN}, headers=headers)
        assert "secure" in answer.headers["Set-Cookie"].lower()


@pytest.mark.parametrize("address", ["/login", "/login?token=", "/login?token=wrong", "/login?token=" + "u" * 32])
async def test_a_link_that_is_wrong_says_how_to_get_the_right_one(web: Web, address: str) -> None:
    answer = await ask(web, address, **PAGE)
    assert answer.status_code == 401
    assert "kingdom web --link" in answer.text
    assert "Set-Cookie" not in answer.headers


async def test_who_is_not_logged_in_is_told_how_on_a_page(web: Web) -> None:
    answer = await ask(web, "/", **PAGE)
    assert answer.status_code == 401
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "kingdom web --link" in answer.text


async def test_nobody_logs_in_by_a_form(web: Web) -> None:
    assert (await ask(web, f"/login?token={TOKEN}", "POST")).status_code == 405


# ── whose name, whose page ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8700", "localhost:1", "LOCALHOST", "[::1]:8700", "127.8.9.1"])
async def test_the_names_of_this_machine_are_answered(web: Web, host: str) -> None:
    assert (await ask(web, Host=host, **BEARER)).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8700",
        "127.0.0.1.evil.example",  # a name anybody can have point to 127.0.0.1
        "localhost.evil.example",
        "localtest.me",
        "192.168.1.10:8700",
        "0.0.0.0",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "127.0.0.1, evil.example",
        "2130706433",
        "",
    ],
)
async def test_a_foreign_host_is_refused_even_with_the_token(web: Web, host: str) -> None:
    refused = await ask(web, Host=host, **BEARER)
    assert (refused.status_code, code(refused)) == (403, "SYS_HOST")


async def test_a_name_made_to_point_here_gets_nothing_from_a_browser_that_is_logged_in(web: Web) -> None:
    """DNS rebinding: to the browser it is all one origin, and only the name gives it away."""
    rebound = {"Host": "rebound.evil.example", "Origin": "http://rebound.evil.example", "Sec-Fetch-Site": "same-origin"}
    for path in (ANYTHING, "/healthz", f"/login?token={TOKEN}", "/hooks/github"):
        refused = await ask(web, path, Cookie=cookie(web), **rebound)
        assert (refused.status_code, code(refused)) == (403, "SYS_HOST")


async def test_two_hosts_are_one_too_many(web: Web) -> None:
    hosts = [(b"host", b"127.0.0.1"), (b"host", b"evil.example")]
    assert await raw(web, [*hosts, *bearer()]) == 403


async def test_no_host_at_all_is_refused(web: Web) -> None:
    assert await raw(web, bearer()) == 403


async def test_names_can_be_allowed(tmp_path: Path) -> None:
    settings = WebSettings(port=0, allowed_hosts=("Kingdom.example.com",))
    async with web_app(tmp_path, court=False, settings=settings) as web:
        own = {"Host": "kingdom.example.com", "Origin": "https://kingdom.example.com"}
        assert (await ask(web, **own, **BEARER)).status_code == 200
        foreign = {**own, "Origin": "https://other.example.com"}
        assert code(await ask(web, **foreign, **BEARER)) == "SYS_ORIGIN"


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://127.0.0.1:3000",  # another program of this machine
        "http://localhost",  # this machine, but to a browser another origin
        "https://127.0.0.1",
        "http://127.0.0.1.evil.example",
        "null",
        "file://",
        "chrome-extension://abcdef",
        "http://127.0.0.1:x",
        "",
    ],
)
async def test_a_foreign_origin_is_refused_even_with_the_token(web: Web, origin: str) -> None:
    refused = await ask(web, Origin=origin, **BEARER)
    assert (refused.status_code, code(refused)) == (403, "SYS_ORIGIN")


async def test_the_own_origin_is_answered(web: Web) -> None:
    assert (await ask(web, Origin=LOCAL, **BEARER)).status_code == 200
    assert (await ask(web, Host="localhost:8700", Origin="http://localhost:8700", **BEARER)).status_code == 200


async def test_no_page_of_another_site_is_told_that_it_may_ask(web: Web) -> None:
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    refused = await ask(web, ANYTHING, "OPTIONS", **asked)
    assert refused.status_code == 403
    assert not [name for name in refused.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "null"])
async def test_a_websocket_of_a_foreign_page_is_refused(served_web: Served, origin: str) -> None:
    assert await shaken(served_web, Origin=origin, Cookie=cookie(served_web)) == 403
    assert await shaken(served_web, Origin=origin, **BEARER) == 403


async def test_a_websocket_without_token_wrong_token_or_foreign_host_is_refused(served_web: Served) -> None:
    assert await shaken(served_web) == 401
    assert await shaken(served_web, Authorization="Bearer wrong") == 401
    assert await shaken(served_web, Host="evil.example", **BEARER) == 403


async def test_a_websocket_with_a_cookie_must_say_whose_page_it_is(served_web: Served) -> None:
    assert await shaken(served_web, Cookie=cookie(served_web)) == 403
    assert await shaken(served_web, Cookie=cookie(served_web), Origin=served_web.url) == 101
    assert await shaken(served_web, **BEARER) == 101


# ── pages that change something ───────────────────────────────────────────────────────────────────────────────────


async def test_a_form_of_another_site_is_refused(web: Web) -> None:
    """What a browser sends of it; SameSite=Strict keeps the cookie back, and here it comes all the same."""
    form = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie(web)}
    for proof in (
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
        {},
    ):
        refused = await ask(web, "/api/workflows", "POST", **form, **proof)
        assert refused.status_code == 403
        assert code(refused) in ("SYS_ORIGIN", "SYS_CSRF")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("given", [None, "", "wrong", TOKEN, cookie_value(TOKEN, "a" * 24)])
async def test_with_a_cookie_a_change_needs_the_token_against_forgery(web: Web, method: str, given: str | None) -> None:
    proof = {} if given is None else {CSRF_HEADER: given}
    refused = await ask(web, ANYTHING, method, Cookie=cookie(web), Origin=LOCAL, **proof)
    assert (refused.status_code, code(refused)) == (403, "SYS_CSRF")


async def test_a_page_of_ours_may_change_something(web: Web) -> None:
    async with web.as_browser() as browser:
        session = (await browser.get("/api/session")).json()["data"]
        assert session["csrfToken"] == csrf_token(TOKEN)
        assert session["identity"] == "session"
        assert (await browser.post(ANYTHING)).status_code == 405  # let in; there is nothing to change


async def test_a_program_with_the_token_needs_no_proof(web: Web) -> None:
    assert (await web.client.post(ANYTHING)).status_code == 405


async def test_a_page_of_another_port_gets_nothing_by_image_or_script(web: Web) -> None:
    for site in ("same-site", "cross-site"):
        fetched = {
            "Sec-Fetch-Site": site,
            "Sec-Fetch-Mode": "no-cors",
            "Sec-Fetch-Dest": "image",
            "Cookie": cookie(web),
        }
        assert code(await ask(web, **fetched)) == "SYS_ORIGIN"
        visited = {
            "Sec-Fetch-Site": site,
            "Sec-Fetch-Mode": "navigate",
            "Sec-Fetch-Dest": "document",
            "Cookie": cookie(web),
        }
        assert (await ask(web, **visited)).status_code == 200


# ── paths ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", ["/../etc/passwd", "/a/../b", "/a\\..\\b", "/a\0b", "/.."])
async def test_a_path_that_leads_upwards_is_refused_wherever_it_is(web: Web, path: str) -> None:
    assert await raw(web, [(b"host", b"127.0.0.1"), *bearer()], path) == 400


# ── pace ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    settings = WebSettings(port=0, requests_per_second=0.5)
    async with web_app(tmp_path, court=False, settings=settings) as web:
        answers = [await web.client.get(ANYTHING) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
        assert code(answers[-1]) == "SYS_TOO_OFTEN"
        assert int(answers[-1].headers["Retry-After"]) in (1, 2)
        async with web.as_browser() as browser:  # a program that runs wild does not shut the dashboard
            assert (await browser.get(ANYTHING)).status_code == 200


# ── what every answer says ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (ANYTHING, BEARER, 200),
        ("/api/none", BEARER, 404),
        ("/api/broken", BEARER, 500),
        ("/api/session", {}, 401),
        ("/", {**PAGE}, 401),
        (f"/login?token={TOKEN}", {}, 303),
        ("/healthz", {}, 200),
        ("/healthz", {"Host": "evil.example"}, 403),
        ("/metrics", BEARER, 200),
        ("/%2e%2e/", {}, 400),
    ],
)
async def test_every_answer_carries_the_headers(web: Web, path: str, headers: dict[str, str], status: int) -> None:
    answer = await ask(web, path, **headers)
    assert answer.status_code == status
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "http:" not in policy
    assert "https:" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "server" not in answer.headers
    if path.startswith("/api"):
        assert answer.headers["Cache-Control"] == "no-store"


async def test_script_in_an_error_is_sent_as_json_that_no_browser_takes_for_a_page(web: Web) -> None:
    for path in ("/api/<script>alert(1)</script>", "/api/session/<img src=x onerror=alert(1)>"):
        answer = await web.client.get(path, headers=PAGE)
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    refused = await ask(web, Host="<script>alert(1)</script>", **PAGE)
    assert refused.headers["Content-Type"] == "application/json"


async def test_the_token_is_in_no_log(served_web: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with httpx.AsyncClient(base_url=served_web.url, trust_env=False) as client:
        caplog.clear()
        for address in (f"/login?token={TOKEN}", f"/api/none?token={TOKEN}", f"/%2e%2e/?token={TOKEN}"):
            await client.get(address, headers=BEARER)
        await shaken(served_web, Authorization=f"Bearer {TOKEN}x")
    ours = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore", "websockets"))]
    assert not [record for record in ours if TOKEN in record.getMessage()]
    assert not [record for record in ours if any(value in record.getMessage() for value in client.cookies.values())]


# ── means ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served_web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with served(tmp_path_factory.mktemp("served"), court=False) as found:
        yield found


async def shaken(web: Served, **headers: str) -> int:
    """The status a WebSocket is answered with; 101 when it is let in."""
    host = headers.pop("Host", "127.0.0.1")
    address = urlsplit(web.url)
    target = {"host": address.hostname, "port": address.port}
    try:
        async with connect(f"ws://{host}:{address.port}/ws/events", additional_headers=headers, proxy=None, **target):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def bearer() -> list[tuple[bytes, bytes]]:
    return [(b"authorization", f"Bearer {TOKEN}".encode())]


async def raw(web: Web, headers: list[tuple[bytes, bytes]], path: str = ANYTHING) -> int:
    status, _, _ = await raw_request(web.app, "GET", path, headers)
    return status
