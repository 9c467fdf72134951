"""What workflows draw on: repositories and MCP servers, registered and removed here."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import Final

from nicegui import ui

from kingdom.web.api.work.gits import GitBody, create_git, delete_git
from kingdom.web.api.work.mcp_servers import McpServerBody, register_mcp_server, unregister_mcp_server
from kingdom.web.asked import asked
from kingdom.web.dashboard.building import button, card, confirm, empty, tag, text, told
from kingdom.web.dashboard.refreshing import Pulse
from kingdom.web.dashboard.registry import page
from kingdom.web.dashboard.shell import head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.fields import area, line
from kingdom.web.dashboard.workflows.work_form import small
from kingdom.web.envelope import ApiError
from kingdom.web.views.sources import Git, McpServer, list_gits, list_mcp_servers

_MOST: Final = 500


@page("/repositories", title="sources.title", nav="templates")
async def sources(visit: Visit) -> None:
    """Repositories and MCP servers."""
    words = visit.words
    head(words("sources.title"), above=(words("nav.templates"), "/templates"))
    pulse = Pulse(visit, lambda event: event.type.startswith(("Git", "McpServer", "Workflow")))
    with tag("div", "k-grid"):
        with card(words("sources.repositories"), "k-col-6", flush=True):
            gits = tag("div")
            _NewGit(visit, pulse)
        with card(words("sources.mcp"), "k-col-6", flush=True):
            servers = tag("div")
            _NewServer(visit, pulse)

    async def load_gits() -> list[Git]:
        return (await list_gits(visit.context, limit=_MOST)).items

    async def load_servers() -> list[McpServer]:
        return (await list_mcp_servers(visit.context, limit=_MOST)).items

    def draw_gits(found: list[Git]) -> None:
        if not found:
            empty(words("sources.repositories.none"), words("sources.repositories.hint"))
        with tag("ol", "k-lines"):
            for one in found:
                _git(visit, pulse, one)

    def draw_servers(found: list[McpServer]) -> None:
        if not found:
            empty(words("sources.mcp.none"), words("sources.mcp.hint"))
        with tag("ol", "k-lines"):
            for one in found:
                _server(visit, pulse, one)

    await pulse.panel(gits, load_gits, draw_gits)
    await pulse.panel(servers, load_servers, draw_servers)


def _git(visit: Visit, pulse: Pulse, git: Git) -> None:
    with tag("li", "k-row"):
        with tag("div", "k-grow"):
            text(git.name, "k-strong", name="div")
            text(git.url, "k-mono k-muted k-wrap", name="div")
            text(visit.words("sources.used", count=len(git.used_by)), "k-muted k-small", name="div")
        _removing(visit, pulse, git, "sources.ask.git", lambda: delete_git(visit.context, git.id))


def _server(visit: Visit, pulse: Pulse, server: McpServer) -> None:
    with tag("li", "k-row"):
        with tag("div", "k-grow"):
            text(server.name, "k-strong", name="div")
            text(server.url or shlex.join(server.command), "k-mono k-muted k-wrap", name="div")
            if server.env:
                pairs = " ".join(f"{name}={value}" for name, value in server.env.items())
                text(pairs, "k-mono k-muted k-wrap", name="div")
            text(visit.words("sources.used", count=len(server.used_by)), "k-muted k-small", name="div")
        _removing(visit, pulse, server, "sources.ask.mcp", lambda: unregister_mcp_server(visit.context, server.id))


def _removing(
    visit: Visit, pulse: Pulse, source: Git | McpServer, question: str, act: Callable[[], Awaitable[object]]
) -> None:
    """The button that removes a repository or an MCP server; ``question`` is the key of what is asked before."""
    words = visit.words

    async def remove() -> None:
        asked_first, detail = words(question, name=source.name), words("sources.ask.detail")
        if await confirm(visit, asked_first, detail=detail, yes=words("act.remove"), danger=True):
            await told(visit, act, words("sources.did.remove"))
            pulse.wake()

    small("delete", words("sources.remove", name=source.name), remove).set_enabled(not source.used_by)


class _NewGit:
    """The form that registers a repository."""

    def __init__(self, visit: Visit, pulse: Pulse) -> None:
        self._visit = visit
        self._pulse = pulse
        self.name = ""
        self.url = ""
        words = visit.words
        with tag("div", "k-pad k-column k-form k-new-source"):
            text(words("sources.git.new"), name="h3")
            self._fields: list[ui.input] = [
                line(words("sources.url"), self, "url"),
                line(words("plan.name"), self, "name"),
            ]
            button(words("act.add"), self._add, kind="primary", icon="add")

    async def _add(self) -> None:
        async def act() -> None:
            body = asked(GitBody, name=self.name.strip() or _last(self.url), url=self.url.strip())
            await create_git(self._visit.context, body)

        if await told(self._visit, act, self._visit.words("sources.did.add")):
            for field in self._fields:
                field.set_value("")
            self._pulse.wake()


class _NewServer:
    """The form that registers an MCP server."""

    def __init__(self, visit: Visit, pulse: Pulse) -> None:
        self._visit = visit
        self._pulse = pulse
        self.name = ""
        self.command = ""
        self.url = ""
        self.env = ""
        words = visit.words
        with tag("div", "k-pad k-column k-form k-new-source"):
            text(words("sources.mcp.new"), name="h3")
            self._fields: list[ui.input | ui.textarea] = [
                line(words("plan.name"), self, "name"),
                line(words("sources.command"), self, "command"),
                line(words("sources.mcp.url"), self, "url"),
                area(words("sources.env"), self, "env", hint=words("sources.env.hint"), mono=True),
            ]
            button(words("act.add"), self._add, kind="primary", icon="add")

    async def _add(self) -> None:
        async def act() -> None:
            body = asked(
                McpServerBody,
                name=self.name.strip(),
                command=_words(self.command),
                url=self.url.strip() or None,
                env=_pairs(self.env),
            )
            await register_mcp_server(self._visit.context, body)

        if await told(self._visit, act, self._visit.words("sources.did.add")):
            for field in self._fields:
                field.set_value("")
            self._pulse.wake()


def _last(url: str) -> str:
    """What a repository is called where nobody says: the last part of its address."""
    return url.strip().rstrip("/").replace(":", "/").split("/")[-1].removesuffix(".git")


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ApiError(422, "MCP_INVALID", f"the command cannot be read: {error}") from error


def _pairs(lines: str) -> dict[str, str]:
    """``NAME=VALUE``, one on a line."""
    made = {}
    for one in filter(None, map(str.strip, lines.splitlines())):
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise ApiError(422, "MCP_INVALID", f"{one!r:.80} makes no sense: write NAME=VALUE")
        made[name.strip()] = value.strip()
    return made
