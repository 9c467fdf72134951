"""A Slack of our own on 127.0.0.1: the Web API and Socket Mode, with the faults that the real one has."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import WSMsgType, web

from tests.support.slack_blocks import block_error

BOT, BOT_ID, TEAM = "U0KINGDOM", "B0KINGDOM", "T0TEAM"
CHANNEL, PRIVATE, DIRECT = "C0COURT", "G0SECRET", "D0ANN"
ANN, BEN, EVE = "U0ANN", "U0BEN", "U0EVE"  # Eve is on nobody's list
BOT_TOKEN, APP_TOKEN = "xoxb-for-tests", "xapp-for-tests"
SCOPES = (
    "app_mentions:read,channels:history,channels:read,chat:write,groups:history,groups:read,im:history,im:read,"
    "im:write,reactions:write,users:read"
)


@dataclass
class Fault:
    """What goes wrong with one call."""

    kind: str  # refuse, limit, lost (nothing is done), cut (done, no answer), silent (done, and it never answers)
    error: str = ""
    retry_after: float = 0.0


@dataclass
class Socket:
    """One connection of Socket Mode."""

    number: int
    response: web.WebSocketResponse
    acks: list[str] = field(default_factory=list)


class FakeSlack:
    """The server, and everything a test wants to know of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.posts: list[dict[str, Any]] = []
        self.whispers: list[dict[str, Any]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.channels = {CHANNEL: "kingdom", PRIVATE: "secret"}
        self.members = {CHANNEL, DIRECT}
        self.scopes = SCOPES
        self.page = 100  # posts on one page of a listing
        self.sockets: list[Socket] = []
        self.opened = 0  # connections there ever were
        self.acks: list[str] = []
        self.out_of_order: Fault | None = None  # what goes wrong with every call of the bot
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._numbers = itertools.count(1)
        self._tickets: set[str] = set()
        self._changed = asyncio.Condition()
        self._last = 0
        self.url = ""

    # ── what a test does ──────────────────────────────────────────────────────────────────────────────────────

    @contextlib.asynccontextmanager
    async def serve(self) -> AsyncIterator[FakeSlack]:
        """Run it."""
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/link/{ticket}", self._link)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{port}/api/"
        self._host = f"127.0.0.1:{port}"
        try:
            yield self
        finally:
            for socket in self.sockets:
                await socket.response.close()
            await runner.cleanup()

    def fail(self, method: str, kind: str, times: int = 1, *, error: str = "", retry_after: float = 0.0) -> None:
        """Let the next calls of a method fail."""
        self._faults[method].extend(Fault(kind, error, retry_after) for _ in range(times))

    async def until(self, condition: Callable[[], Any]) -> Any:
        """Wait until something holds of the sockets or what came over them."""
        async with asyncio.timeout(30), self._changed:
            await self._changed.wait_for(condition)
        return condition()

    async def deliver(self, envelope: dict[str, Any], socket: Socket | None = None) -> None:
        """Send an envelope over one connection, as Slack does; the newest unless told."""
        await (socket or self.sockets[-1]).response.send_json(envelope)

    async def delivered(self, envelope: dict[str, Any]) -> None:
        """The same, and wait for its acknowledgement."""
        before = self.acks.count(envelope["envelope_id"])
        await self.deliver(envelope)
        await self.until(lambda: self.acks.count(envelope["envelope_id"]) > before)

    def stamp(self) -> str:
        """The next time stamp, unlike any before it."""
        self._last = max(self._last + 1, int(self._clock() * 1_000_000))
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06d}"

    def texts(self, channel: str = CHANNEL, thread_ts: str | None = None) -> list[str]:
        """What we said in a channel or a thread."""
        ours = (post for post in self.posts if post["user"] == BOT)
        return [post["text"] for post in ours if (post["channel"], post.get("thread_ts")) == (channel, thread_ts)]

    def intents(self) -> list[str]:
        """The messages that our posts are made of, in the order of posting."""
        ours = [post["metadata"] for post in self.posts if post["user"] == BOT and "metadata" in post]
        return [one for metadata in ours for one in metadata["event_payload"]["intents"]]

    def reactions(self, ts: str) -> set[str]:
        """The reactions of a post."""
        return next(post["reactions"] for post in self.posts if post["ts"] == ts)

    def called(self, method: str) -> list[dict[str, Any]]:
        """The arguments of the calls of a method."""
        return [arguments for name, arguments in self.calls if name == method]

    # ── what people do ────────────────────────────────────────────────────────────────────────────────────────

    def posted(
        self, text: str, user: str = ANN, channel: str = CHANNEL, thread_ts: str | None = None
    ) -> dict[str, Any]:
        """Somebody posts something; returns the event that Slack makes of it."""
        post: dict[str, Any] = {"channel": channel, "ts": self.stamp(), "text": text, "user": user, "reactions": set()}
        if thread_ts:
            post["thread_ts"] = thread_ts
        self.posts.append(post)
        kind = "im" if channel.startswith("D") else "channel"
        shown = {key: value for key, value in post.items() if key != "reactions"}
        return {"type": "message", **shown, "team": TEAM, "channel_type": kind, "event_ts": post["ts"]}

    def envelope(self, event: dict[str, Any], event_id: str | None = None) -> dict[str, Any]:
        """An event in its envelope."""
        number = next(self._numbers)
        return {
            "envelope_id": f"00000000-0000-4000-8000-{number:012d}",
            "type": "events_api",
            "accepts_response_payload": False,
            "retry_attempt": 0,
            "retry_reason": "",
            "payload": {
                "token": "none",
                "team_id": TEAM,
                "api_app_id": "A0APP",
                "type": "event_callback",
                "event": event,
                "event_id": event_id or f"Ev{number:09d}",
                "event_time": int(self._clock()),
                "authorizations": [{"enterprise_id": None, "team_id": TEAM, "user_id": BOT, "is_bot": True}],
            },
        }

    def press(self, post: dict[str, Any], choice: int, user: str = ANN) -> dict[str, Any]:
        """Somebody presses a button of a post; returns the envelope."""
        (block,) = [block for block in post["blocks"] if block["type"] == "actions"]
        button = block["elements"][choice]
        return {
            "envelope_id": f"00000000-0000-4000-9000-{next(self._numbers):012d}",
            "type": "interactive",
            "accepts_response_payload": False,
            "payload": {
                "type": "block_actions",
                "user": {"id": user, "username": user.lower(), "team_id": TEAM},
                "team": {"id": TEAM, "domain": "court"},
                "channel": {"id": post["channel"], "name": "kingdom"},
                "container": {"type": "message", "message_ts": post["ts"], "channel_id": post["channel"]},
                "message": {"ts": post["ts"], "thread_ts": post.get("thread_ts"), "text": post["text"]},
                "actions": [{**button, "block_id": block["block_id"], "action_ts": self.stamp()}],
            },
        }

    # ── the Web API ───────────────────────────────────────────────────────────────────────────────────────────

    async def _api(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        arguments: dict[str, Any] = dict(request.query)
        if request.content_type == "application/json":
            arguments |= await request.json()
        elif request.method == "POST":
            arguments |= {key: str(value) for key, value in (await request.post()).items()}
        self.calls.append((method, arguments))
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token != (APP_TOKEN if method.startswith("apps.") else BOT_TOKEN):
            return web.json_response({"ok": False, "error": "invalid_auth"})
        fault = self._faults[method].popleft() if self._faults[method] else Fault("none")
        if self.out_of_order is not None and not method.startswith("apps."):
            fault = self.out_of_order
        if fault.kind == "refuse":
            return web.json_response({"ok": False, "error": fault.error})
        if fault.kind == "limit":
            headers = {"Retry-After": f"{fault.retry_after:g}"}
            return web.json_response({"ok": False, "error": "ratelimited"}, status=429, headers=headers)
        answer = {} if fault.kind == "lost" else self._do(method, arguments)
        if fault.kind in ("lost", "cut"):
            assert request.transport is not None
            request.transport.abort()
        elif fault.kind == "silent":
            await asyncio.sleep(3600)
        return web.json_response({"ok": "error" not in answer, **answer}, headers={"x-oauth-scopes": self.scopes})

    def _do(self, method: str, given: dict[str, Any]) -> dict[str, Any]:
        action: Callable[[dict[str, Any]], dict[str, Any]] = getattr(self, "_" + method.replace(".", "_"))
        return action(given)

    def _auth_test(self, _given: dict[str, Any]) -> dict[str, Any]:
        return {"team": "court", "team_id": TEAM, "user": "kingdom", "user_id": BOT, "bot_id": BOT_ID}

    def _apps_connections_open(self, _given: dict[str, Any]) -> dict[str, Any]:
        ticket = f"t{next(self._numbers)}"
        self._tickets.add(ticket)
        return {"url": f"ws://{self._host}/link/{ticket}"}

    def _chat_postMessage(self, given: dict[str, Any]) -> dict[str, Any]:
        channel = given["channel"]
        if channel not in (*self.channels, DIRECT):
            return {"error": "channel_not_found"}
        if channel not in self.members:
            return {"error": "not_in_channel"}
        if len(given["text"]) > 40_000:
            return {"error": "msg_too_long"}
        if given.get("blocks") and (error := block_error(given["blocks"])):
            return {"error": error}
        if given.get("thread_ts") and not any(post["ts"] == given["thread_ts"] for post in self.posts):
            return {"error": "thread_not_found"}
        kept = {key: given[key] for key in ("channel", "text", "blocks", "thread_ts", "metadata") if given.get(key)}
        post = {**kept, "ts": self.stamp(), "user": BOT, "bot_id": BOT_ID, "reactions": set()}
        self.posts.append(post)
        return {"channel": channel, "ts": post["ts"]}

    def _chat_update(self, given: dict[str, Any]) -> dict[str, Any]:
        post = self._find(given["channel"], given["ts"])
        if post is None:
            return {"error": "message_not_found"}
        if given.get("blocks") and (error := block_error(given["blocks"])):
            return {"error": error}
        # Blocks that are not given stay as they are.
        post.update({key: given[key] for key in ("text", "blocks", "metadata") if key in given})
        return {"channel": given["channel"], "ts": given["ts"]}

    def _chat_postEphemeral(self, given: dict[str, Any]) -> dict[str, Any]:
        self.whispers.append(given)
        return {"message_ts": self.stamp()}

    def _reactions_add(self, given: dict[str, Any]) -> dict[str, Any]:
        post = self._find(given["channel"], given["timestamp"])
        if post is None:
            return {"error": "message_not_found"}
        if given["name"] in post["reactions"]:
            return {"error": "already_reacted"}
        post["reactions"].add(given["name"])
        return {}

    def _reactions_remove(self, given: dict[str, Any]) -> dict[str, Any]:
        post = self._find(given["channel"], given["timestamp"])
        if post is None or given["name"] not in post["reactions"]:
            return {"error": "no_reaction"}
        post["reactions"].remove(given["name"])
        return {}

    def _conversations_history(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._listing(given, [post for post in self._in(given) if not post.get("thread_ts")][::-1])

    def _conversations_replies(self, given: dict[str, Any]) -> dict[str, Any]:
        until = float(given.get("latest", "inf"))
        found = [p for p in self._in(given) if given["ts"] in (p["ts"], p.get("thread_ts")) and float(p["ts"]) < until]
        return self._listing(given, found)

    def _conversations_list(self, given: dict[str, Any]) -> dict[str, Any]:
        found = [{"id": one, "name": name, "is_member": one in self.members} for one, name in self.channels.items()]
        return self._paged(given, "channels", found)

    def _conversations_info(self, given: dict[str, Any]) -> dict[str, Any]:
        name = self.channels.get(given["channel"])
        if name is None:
            return {"error": "channel_not_found"}
        return {"channel": {"id": given["channel"], "name": name, "is_member": given["channel"] in self.members}}

    def _conversations_open(self, _given: dict[str, Any]) -> dict[str, Any]:
        return {"channel": {"id": DIRECT}}

    def _users_info(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["user"] not in (ANN, BEN, EVE):
            return {"error": "user_not_found"}
        return {"user": {"id": given["user"], "name": given["user"].removeprefix("U0").lower()}}

    def _in(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        oldest = float(given.get("oldest", 0))
        return [p for p in self.posts if p["channel"] == given["channel"] and float(p["ts"]) >= oldest]

    def _find(self, channel: str, ts: str) -> dict[str, Any] | None:
        return next((post for post in self.posts if (post["channel"], post["ts"]) == (channel, ts)), None)

    def _listing(self, given: dict[str, Any], posts: list[dict[str, Any]]) -> dict[str, Any]:
        hidden = {"reactions"} if given.get("include_all_metadata") == "true" else {"reactions", "metadata"}
        return self._paged(
            given, "messages", [{key: value for key, value in post.items() if key not in hidden} for post in posts]
        )

    def _paged(self, given: dict[str, Any], key: str, items: list[Any]) -> dict[str, Any]:
        begin, size = int(given.get("cursor") or 0), min(int(given.get("limit", 100)), self.page)
        more = str(begin + size) if begin + size < len(items) else ""
        return {key: items[begin : begin + size], "response_metadata": {"next_cursor": more}}

    # ── Socket Mode ───────────────────────────────────────────────────────────────────────────────────────────

    async def _link(self, request: web.Request) -> web.WebSocketResponse:
        response = web.WebSocketResponse()
        if request.match_info["ticket"] not in self._tickets:
            raise web.HTTPForbidden
        self._tickets.discard(request.match_info["ticket"])  # each can be used once
        await response.prepare(request)
        self.opened += 1
        socket = Socket(self.opened, response)
        await response.send_json({"type": "hello", "num_connections": len(self.sockets) + 1})
        await self._note(lambda: self.sockets.append(socket))
        try:
            async for frame in response:
                if frame.type is WSMsgType.TEXT:
                    envelope_id = json.loads(frame.data)["envelope_id"]
                    socket.acks.append(envelope_id)
                    await self._note(lambda envelope_id=envelope_id: self.acks.append(envelope_id))
        finally:
            await self._note(lambda: self.sockets.remove(socket))
        return response

    async def _note(self, change: Callable[[], Any]) -> None:
        async with self._changed:
            change()
            self._changed.notify_all()
