"""People have tokens of their own: what each role may do, how acts are signed, and how a token ends."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi.routing import APIRoute
from mcp.shared.memory import create_connected_server_and_client_session
from starlette.routing import BaseRoute, Route, WebSocketRoute
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from kingdom.web import api, live
from kingdom.web.access import check_routes, operation_of
from kingdom.web.mcp_server import TOOL_OPERATIONS, make_server
from kingdom.web.security import CSRF_HEADER, cookie_name, csrf_token
from kingdom.web.security.guard import OPEN_PATHS, OPEN_PREFIX
from kingdom.web.security.roles import OPERATION_ROLES, ROLES, Person, Role, allows
from kingdom.web.security.sessions import SessionStore
from kingdom.web.security.tokens import TokenStore
from tests.support.live import PATIENCE
from tests.support.web import LOCAL, TOKEN, Web, served, web_app
from tests.support.web_court import web_court
from tests.support.web_work import Desk, scripted

pytestmark = pytest.mark.asyncio(loop_scope="module")

# What the page about people promises. A route that is not here fails the test: decide who may use it.
READING = "look"
NEEDED: dict[str, Role] = {
    "DELETE /api/session": "look",
    "DELETE /api/sessions/{sessionId}": "look",
    "POST /api/workflow-templates/convert": "look",
    "POST /api/questions/{taskId}/answer": "answer",
    "POST /api/workflows/{workflowId}/answer": "answer",
    "POST /api/workflows/{workflowId}/follow-up": "operate",
    "POST /api/inbox/acknowledge": "operate",
    "POST /api/inbox/mute": "operate",
    "POST /api/inbox/unmute": "operate",
    "POST /api/events": "operate",
    "POST /api/tasks/{taskId}/cancel": "operate",
    "POST /api/tasks/{taskId}/retry": "operate",
    "POST /api/messages/{messageId}/resend": "operate",
    "POST /api/bus/{bus}/streams/{stream}/dead/requeue": "operate",
    "POST /api/generals/{name}/enable": "operate",
    "POST /api/generals/{name}/disable": "operate",
    "POST /api/gits": "operate",
    "DELETE /api/gits/{gitId}": "operate",
    "POST /api/workflow-templates": "operate",
    "POST /api/workflow-templates/yaml": "operate",
    "PUT /api/workflow-templates/{templateId}": "operate",
    "PUT /api/workflow-templates/{templateId}/yaml": "operate",
    "DELETE /api/workflow-templates/{templateId}": "operate",
    "POST /api/workflows": "operate",
    "DELETE /api/workflows/{workflowId}": "operate",
    "PATCH /api/workflows/{workflowId}": "operate",
    "PUT /api/workflows/{workflowId}/plan": "operate",
    "POST /api/workflows/{workflowId}/template": "operate",
    "POST /api/workflows/{workflowId}/start": "operate",
    "POST /api/workflows/{workflowId}/resume": "operate",
    "POST /api/workflows/{workflowId}/pause": "operate",
    "POST /api/workflows/{workflowId}/cancel": "operate",
    "POST /api/workflows/{workflowId}/fork": "operate",
    "POST /api/workflows/{workflowId}/land": "operate",
    "POST /api/workflows/{workflowId}/rescues/{rescueId}/restore": "operate",
    "POST /api/generals": "own",
    "POST /api/mcp-servers": "own",
    "DELETE /api/mcp-servers/{mcpServerId}": "own",
    "POST /api/tokens": "own",
    "DELETE /api/tokens/{name}": "own",
    "PATCH /api/tokens/{name}": "own",
}
STREAMS = ("/api/stream",)  # their answers do not end


def routes() -> list[BaseRoute]:
    return [route for router in (*api.ROUTERS, *live.ROUTERS) for route in router.routes]


def operations() -> list[tuple[str, APIRoute]]:
    """Every operation behind the token, as method and path."""
    return [
        (f"{method} {route.path}", route)
        for route in routes()
        if isinstance(route, APIRoute) and route.path not in OPEN_PATHS and not route.path.startswith(OPEN_PREFIX)
        for method in sorted(route.methods or ())
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    async with web_app(tmp_path_factory.mktemp("people"), engine=True) as found:
        for role in ROLES:
            found.context.tokens.add(f"{role}-only", role)
        yield found


def as_person(web: Web, name: str, role: Role) -> httpx.AsyncClient:
    """A client with a new token of this name."""
    value = web.context.tokens.add(name, role)
    return web.without_token(headers={"Authorization": f"Bearer {value}"})


def error(answer: httpx.Response) -> Any:
    body = answer.json()
    assert body["success"] is False
    return body["error"]


# ── roles ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_every_route_has_a_role_that_was_decided_on() -> None:
    for name, route in operations():
        method, _, _ = name.partition(" ")
        needed = NEEDED.get(name, READING if method == "GET" else None)
        assert needed is not None, f"{name} has no role"
        if method != "GET":
            assert OPERATION_ROLES[operation_of(route)] == needed, name
    known = {operation_of(route) for _, route in operations()}
    assert set(OPERATION_ROLES) <= known, "roles of operations that do not exist"
    others = [route for route in routes() if not isinstance(route, APIRoute)]
    assert [route.path for route in others if isinstance(route, WebSocketRoute | Route)] == ["/ws/events"]


async def test_an_application_with_a_route_without_a_role_does_not_start() -> None:
    with pytest.raises(KeyError):
        check_routes([APIRoute("/api/anything", lambda: None, methods=["POST"], operation_id="doAnything")])


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_is_allowed_what_it_includes_and_refused_the_rest(web: Web, role: Role) -> None:
    async with as_person(web, f"walker-{role}", role) as person:
        for name, route in operations():
            method, _, path = name.partition(" ")
            if path in STREAMS:
                continue
            wanted = re.sub(r"\{\w+\}", "nothing-there", path)
            answer = await person.request(method, wanted, json={} if method in ("POST", "PUT", "PATCH") else None)
            needed = NEEDED.get(name, "look")
            refused = answer.status_code == 403 and error(answer)["code"] == "SYS_ROLE"
            assert refused is not allows(role, needed), (role, name, answer.text)
            assert answer.status_code < 500, (name, answer.text)
            if refused:
                details = error(answer)["details"][0]
                assert (details["needs"], details["has"]) == (needed, role), operation_of(route)
                assert details["grantedBy"][0] == "owner"
                assert f"role {needed}" in error(answer)["message"]


async def test_the_role_is_checked_before_the_request_is_looked_at(web: Web) -> None:
    async with as_person(web, "curious", "look") as person:
        answer = await person.post("/api/events", content=b"{", headers={"Idempotency-Key": "a-look"})
        assert (answer.status_code, error(answer)["code"]) == (403, "SYS_ROLE")


async def test_the_document_says_which_role_an_operation_needs(web: Web) -> None:
    document = (await web.client.get("/api/openapi.json")).json()
    for name, _ in operations():
        method, _, path = name.partition(" ")
        operation = document["paths"][path][method.lower()]
        assert operation["x-role"] == NEEDED.get(name, "look")
        assert "403" in operation["responses"]


async def test_the_home_s_own_token_is_that_of_the_owner(web: Web) -> None:
    session = (await web.client.get("/api/session")).json()["data"]
    assert (session["name"], session["role"]) == ("owner", "own")
    async with as_person(web, "bea", "answer") as bea:
        session = (await bea.get("/api/session")).json()["data"]
        assert (session["name"], session["role"], session["identity"]) == ("bea", "answer", "bearer")


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_token_is_made_shown_once_used_and_revoked(web: Web) -> None:
    made = (await web.client.post("/api/tokens", json={"name": "cleo", "role": "operate"})).json()["data"]
    assert made["path"] == f"/login?token={made['token']}"
    again = await web.client.post("/api/tokens", json={"name": "cleo", "role": "look"})
    assert (again.status_code, error(again)["code"]) == (409, "SYS_TOKEN_EXISTS")
    listed = (await web.client.get("/api/tokens")).json()["data"]["items"]
    (cleo,) = [one for one in listed if one["name"] == "cleo"]
    assert (cleo["role"], cleo["lastUsedAt"]) == ("operate", None)
    async with web.without_token(headers={"Authorization": f"Bearer {made['token']}"}) as client:
        assert (await client.get("/api/session")).status_code == 200
        listed = (await web.client.get("/api/tokens")).json()["data"]["items"]
        assert [one["lastUsedAt"] is not None for one in listed if one["name"] == "cleo"] == [True]
        assert (await web.client.delete("/api/tokens/cleo")).status_code == 200
        assert (await client.get("/api/session")).status_code == 401
    gone = await web.client.delete("/api/tokens/cleo")
    assert (gone.status_code, error(gone)["code"]) == (404, "SYS_NO_TOKEN")


async def test_a_role_is_changed_without_a_new_token(web: Web) -> None:
    async with as_person(web, "ivy", "look") as ivy, web.without_token(headers={"Origin": LOCAL}) as browser:
        await browser.get("/login", params={"token": ivy.headers["Authorization"].removeprefix("Bearer ")})
        body = {"type": "test.good", "payload": {}}
        refused = await ivy.post("/api/events", json=body)
        assert "kingdom token role ivy operate" in error(refused)["message"]
        changed = await web.client.patch("/api/tokens/ivy", json={"role": "operate"})
        assert changed.json()["data"] == {"name": "ivy", "role": "operate"}
        assert (await ivy.post("/api/events", json=body)).status_code == 201
        session = (await browser.get("/api/session")).json()["data"]
        assert (session["name"], session["role"]) == ("ivy", "operate"), "the browser stays logged in"
        assert acts(web.context.root)[-2] == ("owner", "changeTokenRole", "ivy")
        weaker = await web.client.patch("/api/tokens/ivy", json={"role": "look"})
        assert weaker.status_code == 200
        assert error(await ivy.post("/api/events", json=body))["code"] == "SYS_ROLE"
        assert (await web.client.patch("/api/tokens/ivy", json={"role": "king"})).status_code == 422
        gone = await web.client.patch("/api/tokens/nobody", json={"role": "look"})
        assert (gone.status_code, error(gone)["code"]) == (404, "SYS_NO_TOKEN")


async def test_streams_with_the_former_role_end_and_those_who_come_back_have_the_new_one(tmp_path: Path) -> None:
    async with served(tmp_path, court=False) as web:
        headers = {"Authorization": f"Bearer {web.context.tokens.add('ann', 'own')}"}
        address = f"{web.websocket_url}/ws/events"
        async with asyncio.timeout(PATIENCE), connect(address, additional_headers=headers) as socket:
            TokenStore(tmp_path).change_role("ann", "look")  # by another process
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "the access changed")
            async with connect(address, additional_headers=headers) as again:
                await again.send('{"action":"ping"}')
                assert "pong" in str(await again.recv())


async def test_nothing_on_disk_reveals_a_token(web: Web) -> None:
    key = {"Idempotency-Key": "one-token"}
    made = await web.client.post("/api/tokens", json={"name": "dan", "role": "own"}, headers=key)
    value = made.json()["data"]["token"]
    again = await web.client.post("/api/tokens", json={"name": "dan", "role": "own"}, headers=key)
    assert again.status_code == 409, "the answer with the token is not kept"
    folder = web.context.root / "state" / "web"
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        assert value.encode() not in path.read_bytes(), path
    for name in ("tokens.json", "tokens-used.json"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600, name


@pytest.mark.parametrize("name", ["", "a b", "../x", "-x", "x" * 61, "a\n", "owner", "Web"])
async def test_a_name_that_could_mislead_is_refused(web: Web, name: str) -> None:
    answer = await web.client.post("/api/tokens", json={"name": name, "role": "look"})
    assert answer.status_code == 422, answer.text


async def test_a_browser_logs_in_with_a_person_s_token_until_it_is_revoked(web: Web) -> None:
    value = web.context.tokens.add("eve", "operate")
    async with web.without_token(headers={"Origin": LOCAL}) as browser:
        assert (await browser.get(f"/login?token={value}")).status_code == 303
        cookie = browser.cookies[cookie_name(TOKEN)]
        session = (await browser.get("/api/session")).json()["data"]
        assert (session["name"], session["identity"]) == ("eve", "session")
        headers = {CSRF_HEADER: csrf_token(TOKEN)}
        body = {"type": "test.good", "payload": {}}
        refused = await browser.post("/api/events", json=body, headers=headers)
        assert error(refused)["code"] == "SYS_CSRF", "the owner's value is not eve's"
        headers = {CSRF_HEADER: session["csrfToken"]}
        assert (await browser.post("/api/events", json=body, headers=headers)).status_code == 201
        web.context.tokens.remove("eve")
        assert (await browser.get("/api/session")).status_code == 401
    web.context.tokens.add("eve", "operate")
    async with web.without_token(cookies={cookie_name(TOKEN): cookie}) as browser:
        assert (await browser.get("/api/session")).status_code == 401, "a new token does not revive old sessions"


async def test_a_cookie_cannot_be_made_for_another_person(web: Web) -> None:
    own, other = web.context.tokens.add("gil", "own"), web.context.tokens.add("hal", "look")
    cookies = []
    for value in (own, other):
        async with web.without_token() as browser:
            await browser.get(f"/login?token={value}")
            cookies.append(browser.cookies[cookie_name(TOKEN)])
    session, proof = cookies[0].partition(".")[0], cookies[1].partition(".")[2]
    async with web.without_token(cookies={cookie_name(TOKEN): f"{session}.{proof}"}) as forged:
        assert (await forged.get("/api/session")).status_code == 401


# ── signatures ────────────────────────────────────────────────────────────────────────────────────────────────────


def acts(root: Path) -> list[tuple[str, str, str]]:
    """Who did what to which, as the journal says."""
    lines = [json.loads(line) for line in (root / "logs" / "events.log").read_text().splitlines()]
    found = [line["data"] for line in lines if line["type"] == "system.person_acted"]
    return [(one["user"], one["action"], one["subject"]) for one in found]


async def test_what_a_person_does_is_signed_with_their_name(tmp_path: Path) -> None:
    async with web_court(tmp_path) as court, court.working("gen-ask", "gen-good"):
        web = court.web
        async with as_person(web, "ann", "operate") as ann, as_person(web, "bob", "answer") as bob:
            event = (await ann.post("/api/events", json={"type": "test.ask", "payload": {}})).json()["data"]["id"]
            task = await court.task_of(event, "needs_human")
            lied = await bob.post(f"/api/questions/{task}/answer", json={"text": "Blue.", "user": "ann"})
            assert (lied.status_code, error(lied)["code"]) == (403, "SYS_SIGNATURE")
            forged = {"type": "slack.human_response", "payload": {"task_id": task, "text": "No.", "user": "eve"}}
            lied = await ann.post("/api/events", json=forged)
            assert (lied.status_code, error(lied)["code"]) == (403, "SYS_SIGNATURE")
            answer = await bob.post(f"/api/questions/{task}/answer", json={"text": "Blue."})
            assert answer.status_code == 202, answer.text
            state = await court.until(f"/api/tasks/{task}", lambda found: found if found["answer"] else None)
            assert (state["answer"]["user"], state["answer"]["text"]) == ("bob", "Blue.")
            muted = await ann.post("/api/inbox/mute", json={"ids": ["task:none"]})
            assert muted.status_code == 200
        root = court.context.root
        assert acts(root) == [
            ("ann", "injectEvent", event),
            ("bob", "answerQuestion", task),
            ("ann", "muteInbox", ""),
        ]
        story = await court.get(f"/api/tasks/{task}/trace")
        assert any("person_acted" in str(line) and "bob" in str(line) for line in story["items"]), story


async def test_the_owner_may_say_for_whom_a_program_acts(tmp_path: Path) -> None:
    async with web_court(tmp_path) as court:
        answer = await court.client.post("/api/generals/gen-good/disable", json={"user": "ann"})
        assert answer.status_code == 200
        await court.post("/api/generals/gen-good/enable")
        assert [(who, what) for who, what, _ in acts(court.context.root)] == [
            ("ann", "disableGeneral"),
            ("owner", "enableGeneral"),
        ]


async def test_the_events_of_a_workflow_name_who_did_what(tmp_path: Path) -> None:
    async with web_app(tmp_path, court=False, engine=True) as web, as_person(web, "ann", "operate") as ann:
        desk = Desk(web)
        template = await desk.template(scripted("one"))
        made = (await ann.post("/api/workflows", json={"templateId": template})).json()["data"]["id"]
        assert (await ann.post(f"/api/workflows/{made}/start")).status_code == 202
        await desk.until(made, "COMPLETED")
        events = (await desk.get(f"workflows/{made}/events"))["items"]
        signed = [event["payload"] for event in events if event["type"] == "PersonActed"]
        assert [(one["user"], one["action"]) for one in signed] == [("ann", "createWorkflow"), ("ann", "startWorkflow")]


async def test_a_repeated_request_is_not_signed_twice_nor_shown_to_others(tmp_path: Path) -> None:
    async with web_court(tmp_path) as court:
        key, body = {"Idempotency-Key": "once"}, {"type": "test.good", "payload": {}}
        async with as_person(court.web, "ann", "operate") as ann, as_person(court.web, "bob", "operate") as bob:
            first = await ann.post("/api/events", json=body, headers=key)
            second = await ann.post("/api/events", json=body, headers=key)
            assert (first.status_code, second.json()) == (201, first.json())
            other = await bob.post("/api/events", json=body, headers=key)
            assert (other.status_code, error(other)["code"]) == (422, "SYS_IDEMPOTENCY")
        assert [who for who, _, _ in acts(court.context.root)] == ["ann"]


# ── revocation ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_open_streams_and_sockets_end_when_another_process_revokes_the_token(tmp_path: Path) -> None:
    async with served(tmp_path) as web:
        elsewhere = TokenStore(tmp_path)  # as the command line does
        headers = {"Authorization": f"Bearer {elsewhere.add('ann', 'look')}"}
        other = {"Authorization": f"Bearer {elsewhere.add('bob', 'look')}"}
        address = f"{web.websocket_url}/ws/events"
        async with (
            asyncio.timeout(PATIENCE),
            httpx.AsyncClient(base_url=web.url, headers=headers, trust_env=False, timeout=PATIENCE) as client,
            client.stream("GET", "/api/stream") as stream,
            connect(address, additional_headers=headers) as socket,
            connect(address, additional_headers=other) as others,
        ):
            lines = stream.aiter_lines()
            assert "retry" in await anext(lines)
            elsewhere.remove("ann")
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "the token was revoked")
            with pytest.raises(httpx.RemoteProtocolError):
                async for _ in lines:
                    pass
            assert (await client.get("/api/session")).status_code == 401
            with pytest.raises(InvalidStatus):
                await connect(address, additional_headers=headers)
            await others.send('{"action":"ping"}')
            assert "pong" in str(await others.recv()), "others are not disturbed"


async def test_revocation_is_noticed_after_a_check_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed, holds = asyncio.Event(), SessionStore.holds

    def fail_once(store: SessionStore, person: Person) -> bool:
        if not failed.is_set():
            failed.set()
            raise OSError("too many open files")
        return holds(store, person)

    async with served(tmp_path) as web:
        elsewhere = TokenStore(tmp_path)
        headers = {"Authorization": f"Bearer {elsewhere.add('ann', 'look')}"}
        async with (
            asyncio.timeout(PATIENCE),
            connect(f"{web.websocket_url}/ws/events", additional_headers=headers) as socket,
        ):
            monkeypatch.setattr(SessionStore, "holds", fail_once)
            await failed.wait()
            elsewhere.remove("ann")
            with pytest.raises(ConnectionClosed, match="the token was revoked"):
                await socket.recv()


# ── MCP ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("role", ROLES)
async def test_an_agent_has_the_tools_of_the_role_it_acts_with(web: Web, role: Role) -> None:
    person = web.context.tokens.named(f"{role}-only")
    async with create_connected_server_and_client_session(make_server(web.context, person=person)) as session:
        names = {tool.name for tool in (await session.list_tools()).tools}
    assert "list_tasks" in names
    for tool, operation in TOOL_OPERATIONS.items():
        assert (tool in names) is allows(role, OPERATION_ROLES[operation]), tool


async def test_an_agent_signs_and_loses_its_tools_with_the_token(tmp_path: Path) -> None:
    async with web_court(tmp_path) as court:
        tokens = court.context.tokens
        tokens.add("ann", "operate")
        person = tokens.named("ann")
        async with create_connected_server_and_client_session(make_server(court.context, person=person)) as session:
            emitted = await session.call_tool("emit_event", {"type": "test.good", "payload": {}})
            assert not emitted.isError, emitted.content
            assert [(who, what) for who, what, _ in acts(court.context.root)] == [("ann", "injectEvent")]
            tokens.remove("ann")
            refused = await session.call_tool("emit_event", {"type": "test.good", "payload": {}})
            assert refused.isError
            assert "SYS_UNAUTHORIZED: the token of ann was revoked" in str(refused.content)
