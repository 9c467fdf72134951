"""Browsers that are logged in: who sees which, how one is ended, and what ends with it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from kingdom.bus.testing import ManualClock
from kingdom.web.security import cookie_name, renew_token
from kingdom.web.security.roles import OWNER, Role
from kingdom.web.security.sessions import SessionStore
from kingdom.web.security.tokens import TokenStore
from kingdom.web.views.sessions import device_name
from tests.support.web import LOCAL, TOKEN, Web, served, web_app

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:149.0) Gecko/20100101 Firefox/149.0"


@contextlib.asynccontextmanager
async def browser_of(web: Web, name: str, role: Role, agent: str = FIREFOX) -> AsyncIterator[httpx.AsyncClient]:
    """A browser of a person who logged in with a token of their own."""
    known = {person.name for person in web.context.tokens.people()}
    if name in known:
        web.context.tokens.remove(name)
    value = web.context.tokens.add(name, role)
    async with web.without_token(address="192.0.2.7", headers={"Origin": LOCAL, "User-Agent": agent}) as browser:
        assert (await browser.get("/login", params={"token": value})).status_code == 303
        browser.headers["X-CSRF-Token"] = (await browser.get("/api/session")).json()["data"]["csrfToken"]
        yield browser


async def listed(client: httpx.AsyncClient) -> list[Any]:
    return list((await client.get("/api/sessions")).json()["data"]["items"])


async def test_each_sees_their_own_and_an_owner_all(tmp_path: Path) -> None:
    async with (
        web_app(tmp_path) as web,
        web.as_browser(),
        browser_of(web, "ann", "answer") as ann,
        browser_of(web, "bob", "own", "curl/8") as bob,
    ):
        (own,) = await listed(ann)
        assert (own["name"], own["role"], own["method"], own["current"]) == ("ann", "answer", "token", True)
        assert (own["address"], own["userAgent"]) == ("192.0.2.7", FIREFOX)
        assert own["lastSeenAt"] >= own["createdAt"]
        assert sorted(one["name"] for one in await listed(bob)) == ["ann", "bob", "owner"]
        everything = await listed(web.client)
        assert [one["current"] for one in everything] == [False] * 3
        path = tmp_path / "state" / "web" / "sessions.json"
        assert path.stat().st_mode & 0o777 == 0o600
        assert ann.cookies[cookie_name(TOKEN)].partition(".")[2] not in path.read_text()


async def test_one_is_ended_and_the_others_go_on(tmp_path: Path) -> None:
    async with (
        web_app(tmp_path) as web,
        browser_of(web, "ann", "answer") as ann,
        browser_of(web, "bob", "operate") as bob,
    ):
        (mine,), (other,) = await listed(ann), await listed(bob)
        refused = await ann.delete(f"/api/sessions/{other['id']}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "SYS_NO_SESSION")
        assert (await bob.get("/api/session")).status_code == 200
        ended = await web.client.delete(f"/api/sessions/{other['id']}")
        assert ended.json()["data"] == {"id": other["id"], "name": "bob"}
        gone = await bob.get("/api/session")
        assert (gone.status_code, "log in again" in gone.text) == (401, True)
        assert (await ann.get("/api/session")).status_code == 200
        assert (await ann.delete(f"/api/sessions/{mine['id']}")).status_code == 200
        assert (await ann.get("/api/session")).status_code == 401
        lines = [json.loads(line) for line in (tmp_path / "logs" / "events.log").read_text().splitlines()]
        done = [line["data"] for line in lines if line["type"] == "system.person_acted"]
        assert [(one["user"], one["action"], one["subject"]) for one in done] == [
            ("owner", "endSession", "bob"),
            ("ann", "endSession", "ann"),
        ]


async def test_logging_out_ends_the_session_not_only_the_cookie(tmp_path: Path) -> None:
    async with web_app(tmp_path) as web, browser_of(web, "ann", "look") as ann:
        kept = ann.cookies[cookie_name(TOKEN)]
        assert (await ann.delete("/api/session")).status_code == 200
        async with web.without_token(cookies={cookie_name(TOKEN): kept}) as thief:
            assert (await thief.get("/api/session")).status_code == 401
        assert await listed(web.client) == []


async def test_logging_in_again_replaces_the_session_of_the_browser(tmp_path: Path) -> None:
    async with web_app(tmp_path) as web, web.without_token() as browser:
        for _ in range(3):
            await browser.get("/login", params={"token": TOKEN})
        (only,) = await listed(web.client)
        assert only["name"] == "owner"


async def test_a_session_ends_by_itself_and_with_a_new_token_of_the_home(tmp_path: Path) -> None:
    clock = ManualClock()
    tokens = TokenStore(tmp_path, clock)
    sessions = SessionStore(tmp_path, tokens, clock)
    short, long = sessions.add(OWNER, 60), sessions.add(OWNER, 3600)
    assert sessions.person(short) == OWNER
    clock.advance(61)
    assert sessions.person(short) is None
    assert [session.id for session, _ in sessions.list()] == [long]
    renew_token(tmp_path)
    assert sessions.person(long) is None
    assert sessions.list() == []


async def test_a_broken_file_logs_everybody_out_and_nothing_else(tmp_path: Path) -> None:
    async with web_app(tmp_path) as web, browser_of(web, "ann", "look") as ann:
        path = tmp_path / "state" / "web" / "sessions.json"
        for broken in ("{", "[]", '{"a": 1}', '{"a": {"key": 3, "expires": "x"}}'):
            path.write_text(broken)
            assert (await ann.get("/api/session")).status_code == 401
            assert await listed(web.client) == []


@pytest.mark.parametrize("name", ["ann", "owner"])
async def test_open_streams_of_a_session_end_at_once(tmp_path: Path, name: str) -> None:
    async with served(tmp_path, court=False) as web:
        value = TOKEN if name == "owner" else web.context.tokens.add(name, "look")
        async with httpx.AsyncClient(base_url=web.url, trust_env=False) as browser, httpx.AsyncClient() as other:
            for one in (browser, other):
                await one.get(f"{web.url}/login", params={"token": value})
            headers = [
                {"Cookie": f"{cookie_name(TOKEN)}={one.cookies[cookie_name(TOKEN)]}", "Origin": web.url}
                for one in (browser, other)
            ]
            address = f"{web.websocket_url}/ws/events"
            async with (
                connect(address, additional_headers=headers[0]) as ending,
                connect(address, additional_headers=headers[1]) as going_on,
            ):
                (session,) = [one for one in await listed(browser) if one["current"]]
                assert (await web.client.delete(f"/api/sessions/{session['id']}")).status_code == 200
                with pytest.raises(ConnectionClosed) as closed:
                    await ending.recv()
                assert closed.value.rcvd is not None
                assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "the session ended")
                await going_on.send('{"action":"ping"}')
                assert "pong" in str(await going_on.recv())


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        (FIREFOX, "Firefox · Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) Chrome/140.0 Safari/537.36 Edg/140.0", "Edge · Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) Version/19.0 Safari/604.1", "Safari · iPhone"),
        ("Mozilla/5.0 (Linux; Android 16) Chrome/140.0 Mobile Safari/537.36", "Chrome · Android"),
        ("curl/8.1", "curl/8.1"),
        ("", "–"),
    ],
)
def test_a_device_has_a_name_that_people_know(agent: str, name: str) -> None:
    assert device_name(agent) == name
