"""Pages of templates, repositories and MCP servers."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.api.sources import (
    GitBody,
    McpServerBody,
    create_git,
    delete_git,
    register_mcp_server,
    unregister_mcp_server,
)
from kingdom.web.api.templates import YamlBody, create_from_yaml, delete_template, update_from_yaml
from kingdom.web.dashboard.components import (
    DataTable,
    TableColumn,
    button,
    card,
    confirm,
    empty,
    link,
    run_and_notify,
    tag,
    text,
)
from kingdom.web.dashboard.formats import page_url
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.plan_editor import make_editor
from kingdom.web.dashboard.workflows.plan_form import icon_button
from kingdom.web.dashboard.workflows.widgets import search_box, text_area, text_field
from kingdom.web.envelope import ApiError, Ok, Page, parse_body
from kingdom.web.views.sources import GitInfo, McpServerInfo, list_gits, list_mcp_servers
from kingdom.web.views.templates import Template, TemplateSummary, list_templates, read_template, read_yaml

if TYPE_CHECKING:
    from kingdom.web.dashboard.workflows.plan_editor import PlanEditorPanel


# ── Templates ──


_TEMPLATES_PER_PAGE: Final = 50


@page("/templates", title="nav.templates", nav="templates")
async def template_list_page(visit: Visit, search: str = "", cursor: str = "") -> None:
    """The template list page."""
    words = visit.words
    with page_head(words("nav.templates")):
        link(words("sources.title"), "/repositories", "k-quiet-link")
        if visit.may("createTemplateFromYaml"):
            button(words("template.new"), lambda: ui.navigate.to("/templates/new"), kind="primary", icon="add")
    search_box(words("template.search"), search, lambda text: page_url("templates", search=text), "k-filters")
    with card(words("nav.templates"), flush=True) as (body, _):
        pass
    pages = tag("nav", "k-row k-pages", aria_label=words("pages.label"))
    columns: list[TableColumn[TemplateSummary]] = [
        TableColumn(words("plan.name"), lambda one: one.name, target=lambda one: page_url("templates", one.id)),
        TableColumn(
            words("template.works"), lambda one: ", ".join(one.works), classes="k-clip k-hide-narrow", width="30%"
        ),
        TableColumn(words("template.tasks"), lambda one: str(one.tasks), classes="k-num"),
        TableColumn(words("plan.description"), lambda one: one.description, classes="k-clip k-muted", width="40%"),
    ]

    async def load() -> Page[TemplateSummary]:
        return await list_templates(
            visit.context, search=search or None, limit=_TEMPLATES_PER_PAGE, cursor=cursor or None
        )

    def draw(found: Page[TemplateSummary]) -> None:
        if found.items:
            DataTable(words("nav.templates"), lambda one: one.id, columns).show(found.items)
        else:
            empty(words("template.none"), words("template.none.hint"))
            if visit.may("createTemplateFromYaml"):
                link(words("template.new"), "/templates/new", "k-state-link")
        pages.clear()
        with pages:
            if cursor:
                link(words("pages.first"), page_url("templates", search=search))
            if found.next_cursor:
                link(words("pages.next"), page_url("templates", search=search, cursor=found.next_cursor))

    await PageRefresher(visit, lambda event: event.type.startswith("WorkflowTemplate")).panel(body, load, draw)


@page("/templates/new", title="template.new", nav="templates", operation="createTemplateFromYaml")
async def new_template_page(visit: Visit) -> None:
    """The page that creates a template."""
    words = visit.words
    actions = page_head(words("template.new"), above=(words("nav.templates"), "/templates"))
    editor = await make_editor(visit, "template/new", None)

    async def save() -> None:
        async def act(yaml: str) -> Ok[Template]:
            async with visit.acts("createTemplateFromYaml"):
                return await create_from_yaml(visit.context, parse_body(YamlBody, yaml=yaml))

        made = await editor.run(act)
        if made is not None:
            await editor.saved()
            ui.navigate.to(page_url("templates", made.data.id))

    with actions:
        button(words("act.save"), save, kind="primary", icon="check")


@page("/templates/{template_id}", title="nav.templates", nav="templates")
async def template_page(visit: Visit, template_id: str) -> None:
    """The page of one template: edit, delete, or create a workflow from it."""
    words = visit.words
    found = await read_template(visit.context, template_id)
    actions = page_head(found.name, above=(words("nav.templates"), "/templates"))
    editor = await make_editor(visit, f"template/{template_id}", await read_yaml(visit.context, template_id))

    async def delete() -> None:
        question = words("template.ask.delete", name=found.name)
        detail = words("template.ask.delete.detail")
        if await confirm(visit, question, detail=detail, yes=words("act.delete"), danger=True) and await run_and_notify(
            visit,
            lambda: delete_template(visit.context, template_id),
            words("template.did.delete"),
            "deleteTemplate",
            template_id,
        ):
            ui.navigate.to("/templates")

    if not visit.may("updateTemplateFromYaml"):
        return
    with actions:
        target = page_url("workflows", "new", template=template_id)
        button(words("workflow.new"), lambda: ui.navigate.to(target), icon="play_arrow")
        button(words("act.delete"), delete, kind="danger", icon="delete")
        button(words("act.save"), lambda: _save(visit, template_id, editor), kind="primary", icon="check")


async def _save(visit: Visit, template_id: str, editor: PlanEditorPanel) -> None:
    async def act(yaml: str) -> Ok[Template]:
        async with visit.acts("updateTemplateFromYaml", template_id):
            return await update_from_yaml(visit.context, template_id, parse_body(YamlBody, yaml=yaml))

    if await editor.run(act) is not None:
        await editor.saved()
        ui.notify(visit.words("template.did.save"), type="positive")


# ── Repositories and MCP servers ──


_MAX_SOURCES: Final = 500


@page("/repositories", title="sources.title", nav="templates")
async def sources_page(visit: Visit) -> None:
    """The page of repositories and MCP servers."""
    words = visit.words
    page_head(words("sources.title"), above=(words("nav.templates"), "/templates"))
    refresher = PageRefresher(visit, lambda event: event.type.startswith(("Git", "McpServer", "Workflow")))
    with tag("div", "k-grid"):
        with card(words("sources.repositories"), "k-col-6", flush=True):
            gits = tag("div")
            if visit.may("createGit"):
                _NewGitForm(visit, refresher)
        with card(words("sources.mcp"), "k-col-6", flush=True):
            servers = tag("div")
            if visit.may("registerMcpServer"):
                _NewServerForm(visit, refresher)

    async def load_gits() -> list[GitInfo]:
        return (await list_gits(visit.context, limit=_MAX_SOURCES)).items

    async def load_servers() -> list[McpServerInfo]:
        return (await list_mcp_servers(visit.context, limit=_MAX_SOURCES)).items

    def draw_gits(found: list[GitInfo]) -> None:
        if not found:
            empty(words("sources.repositories.none"), words("sources.repositories.hint"))
        with tag("ol", "k-lines"):
            for one in found:
                _draw_git(visit, refresher, one)

    def draw_servers(found: list[McpServerInfo]) -> None:
        if not found:
            empty(words("sources.mcp.none"), words("sources.mcp.hint"))
        with tag("ol", "k-lines"):
            for one in found:
                _draw_server(visit, refresher, one)

    await refresher.panel(gits, load_gits, draw_gits)
    await refresher.panel(servers, load_servers, draw_servers)


def _draw_git(visit: Visit, refresher: PageRefresher, git: GitInfo) -> None:
    with tag("li", "k-row"):
        with tag("div", "k-grow"):
            text(git.name, "k-strong", name="div")
            text(git.url, "k-mono k-muted k-wrap", name="div")
            text(visit.words("sources.used", count=len(git.used_by)), "k-muted k-small", name="div")
        _remove_button(visit, refresher, git, "sources.ask.git", lambda: delete_git(visit.context, git.id), "deleteGit")


def _draw_server(visit: Visit, refresher: PageRefresher, server: McpServerInfo) -> None:
    with tag("li", "k-row"):
        with tag("div", "k-grow"):
            text(server.name, "k-strong", name="div")
            text(server.url or shlex.join(server.command), "k-mono k-muted k-wrap", name="div")
            if server.env:
                pairs = " ".join(f"{name}={value}" for name, value in server.env.items())
                text(pairs, "k-mono k-muted k-wrap", name="div")
            text(visit.words("sources.used", count=len(server.used_by)), "k-muted k-small", name="div")
        _remove_button(
            visit,
            refresher,
            server,
            "sources.ask.mcp",
            lambda: unregister_mcp_server(visit.context, server.id),
            "unregisterMcpServer",
        )


def _remove_button(
    visit: Visit,
    refresher: PageRefresher,
    source: GitInfo | McpServerInfo,
    question: str,
    act: Callable[[], Awaitable[object]],
    operation: str,
) -> None:
    """Draw the button that removes a repository or MCP server; ``question`` is the text key of the confirmation."""
    words = visit.words

    async def remove() -> None:
        asked_first, detail = words(question, name=source.name), words("sources.ask.detail")
        if await confirm(visit, asked_first, detail=detail, yes=words("act.remove"), danger=True):
            await run_and_notify(visit, act, words("sources.did.remove"), operation, source.id)
            refresher.wake()

    if visit.may(operation):
        icon_button("delete", words("sources.remove", name=source.name), remove).set_enabled(not source.used_by)


class _NewGitForm:
    def __init__(self, visit: Visit, refresher: PageRefresher) -> None:
        self._visit = visit
        self._refresher = refresher
        self.name = ""
        self.url = ""
        words = visit.words
        with tag("div", "k-pad k-column k-form k-new-source"):
            text(words("sources.git.new"), name="h3")
            self._fields: list[ui.input] = [
                text_field(words("sources.url"), self, "url"),
                text_field(words("plan.name"), self, "name"),
            ]
            button(words("act.add"), self._add, kind="primary", icon="add")

    async def _add(self) -> None:
        async def act() -> None:
            body = parse_body(GitBody, name=self.name.strip() or _name_from_url(self.url), url=self.url.strip())
            await create_git(self._visit.context, body)

        if await run_and_notify(self._visit, act, self._visit.words("sources.did.add"), "createGit"):
            for field in self._fields:
                field.set_value("")
            self._refresher.wake()


class _NewServerForm:
    def __init__(self, visit: Visit, refresher: PageRefresher) -> None:
        self._visit = visit
        self._refresher = refresher
        self.name = ""
        self.command = ""
        self.url = ""
        self.env = ""
        words = visit.words
        with tag("div", "k-pad k-column k-form k-new-source"):
            text(words("sources.mcp.new"), name="h3")
            self._fields: list[ui.input | ui.textarea] = [
                text_field(words("plan.name"), self, "name"),
                text_field(words("sources.command"), self, "command"),
                text_field(words("sources.mcp.url"), self, "url"),
                text_area(words("sources.env"), self, "env", hint=words("sources.env.hint"), mono=True),
            ]
            button(words("act.add"), self._add, kind="primary", icon="add")

    async def _add(self) -> None:
        async def act() -> None:
            body = parse_body(
                McpServerBody,
                name=self.name.strip(),
                command=_split_command(self.command),
                url=self.url.strip() or None,
                env=_parse_env(self.env),
            )
            await register_mcp_server(self._visit.context, body)

        if await run_and_notify(self._visit, act, self._visit.words("sources.did.add"), "registerMcpServer"):
            for field in self._fields:
                field.set_value("")
            self._refresher.wake()


def _name_from_url(url: str) -> str:
    """Return the default name of a repository: the last part of its URL."""
    return url.strip().rstrip("/").replace(":", "/").split("/")[-1].removesuffix(".git")


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ApiError(422, "MCP_INVALID", f"invalid command: {error}") from error


def _parse_env(lines: str) -> dict[str, str]:
    """Parse ``NAME=VALUE`` lines."""
    made = {}
    for one in filter(None, map(str.strip, lines.splitlines())):
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise ApiError(422, "MCP_INVALID", f"invalid line {one!r:.80}: write NAME=VALUE")
        made[name.strip()] = value.strip()
    return made
