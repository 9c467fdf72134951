"""The generals: a list, and a page for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import yaml
from nicegui import ui

from kingdom.court.init_home import shipped_generals
from kingdom.web.dashboard.components import (
    DataTable,
    TableColumn,
    badge,
    button,
    card,
    code,
    confirm,
    dialog_box,
    empty,
    facts,
    figure,
    labelled,
    link,
    row,
    run_and_notify,
    tag,
    text,
    usage,
)
from kingdom.web.dashboard.formats import (
    court_timezone,
    format_clock,
    format_count,
    format_datetime,
    format_span,
    format_usd,
    page_url,
)
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.task_list import about_summary
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.court import budget
from kingdom.web.views.documents import DocumentFilter, TaskSummary, list_tasks
from kingdom.web.views.generals import (
    GeneralState,
    install_general,
    list_generals,
    read_general,
    read_record,
    set_enabled,
)

if TYPE_CHECKING:
    from kingdom.court.general_record import GeneralRecord
    from kingdom.web.live.event import LiveEvent

_RECENT_TASKS: Final = 10
_GENERALS_SECONDS: Final = 2.0  # how long a read is reused: it checks every package
_RECORD_SECONDS: Final = 5.0
_MAX_PATH_CHARS: Final = 4000


def general_status(general: GeneralState) -> str:
    """Return the state of a general for people: ``enabled``, ``disabled``, or ``broken`` when it has problems."""
    if general.problems:
        return "broken"
    return "enabled" if general.enabled else "disabled"


# ── List ──


@dataclass(frozen=True, slots=True)
class _ListedGeneral:
    general: GeneralState
    day_usd: float


@page("/generals", title="nav.generals", nav="generals", court=True)
async def general_list_page(visit: Visit) -> None:
    """The list of generals."""
    words = visit.words
    refresher = PageRefresher(visit)
    with page_head(words("nav.generals")):
        if visit.may("installGeneral"):
            button(words("general.install"), partial(_install, visit), icon="add")
        if visit.may("injectEvent"):
            button(words("emit.title"), lambda: ui.navigate.to("/events/new"), kind="primary", icon="bolt")
    with card(words("nav.generals"), flush=True) as (body, _), tag("div", "k-scroll"):
        table: DataTable[_ListedGeneral] = DataTable(
            words("nav.generals"), lambda one: one.general.name, _columns(visit), partial(_none, visit)
        )

    async def load() -> list[_ListedGeneral]:
        spent = (await budget(visit.context)).day_by_general
        found = await visit.shared.read("generals", lambda: list_generals(visit.context), _GENERALS_SECONDS)
        return [_ListedGeneral(one, spent[one.name].cost_usd if one.name in spent else 0.0) for one in found]

    await refresher.panel(body, load, table.show, keep=True)


def _columns(visit: Visit) -> list[TableColumn[_ListedGeneral]]:
    words = visit.words
    return [
        TableColumn(
            words("task.general"),
            lambda one: one.general.name,
            target=lambda one: page_url("generals", one.general.name),
            width="150px",
        ),
        TableColumn(
            words("general.state"),
            lambda one: words(f"general.{general_status(one.general)}"),
            status=lambda one: general_status(one.general),
            width="110px",
        ),
        TableColumn(words("general.does"), _does, classes="k-clip"),
        TableColumn(
            words("general.hears"),
            lambda one: ", ".join(one.general.hears) or "–",
            classes="k-clip k-mono k-muted k-hide-narrow",
            width="26%",
        ),
        TableColumn(words("general.engine"), lambda one: one.general.engine, classes="k-hide-narrow", width="110px"),
        TableColumn(
            words("general.today"), lambda one: format_usd(one.day_usd), classes="k-num k-hide-narrow", width="110px"
        ),
    ]


def _does(one: _ListedGeneral) -> str:
    return " ".join(one.general.problems[:1]) or one.general.description


def _none(visit: Visit) -> None:
    empty(visit.words("general.none"), visit.words("general.none.hint"))
    if visit.may("installGeneral"):
        with tag("div", "k-row k-state-actions"):
            button(visit.words("general.install"), partial(_install, visit), kind="primary")


async def _install(visit: Visit) -> None:
    """Ask for a folder and install the general in it."""
    words = visit.words
    with dialog_box(words("general.install")) as dialog:
        text(words("general.install.hint", names=", ".join(shipped_generals())), "k-muted k-wrap", name="p")
        folder = ui.input(placeholder="/home/ann/gen-pr").props("outlined dense autofocus").classes("k-field")
        folder.props["maxlength"] = _MAX_PATH_CHARS
        labelled(folder, words("general.folder"))
        replace = ui.checkbox(words("general.replace")).props("dense")
        with tag("div", "k-dialog-actions"):
            button(words("action.back"), lambda: dialog.submit(None))
            button(words("general.install.do"), lambda: dialog.submit(folder.value or ""), kind="primary")
        folder.on("keydown.enter", lambda: dialog.submit(folder.value or ""))
    path = await dialog
    made: list[GeneralState] = []

    async def act() -> None:
        made.append(await install_general(visit.context, path.strip(), replace=replace.value))

    if path and await run_and_notify(visit, act, words("general.installed"), "installGeneral"):
        ui.navigate.to(page_url("generals", made[0].name))


# ── Page ──


@page("/generals/{name}", title="nav.generals", nav="generals", court=True)
async def general_page(visit: Visit, name: str) -> None:
    """The page of one general: record, tasks, subscriptions, schedules, budget, manifest, check."""
    words, zone = visit.words, await court_timezone(visit)

    async def load() -> GeneralState:
        return await visit.shared.read(("general", name), lambda: read_general(visit.context, name))

    async def load_record() -> GeneralRecord | None:
        if (await load()).manifest is None:
            return None
        return await visit.shared.read(("record", name), lambda: read_record(visit.context, name), _RECORD_SECONDS)

    async def load_tasks() -> list[TaskSummary]:
        wanted = DocumentFilter(general=name)
        key = ("tasks of", name)
        return (await visit.shared.read(key, lambda: list_tasks(visit.context, wanted, _RECENT_TASKS))).items

    await load()  # an unknown general raises here, and the error replaces the page

    def concerns(event: LiveEvent) -> bool:
        return name in str(event.data) or event.actor == name

    refresher = PageRefresher(visit, concerns)
    actions = page_head(name, above=(words("nav.generals"), "/generals"))
    await refresher.panel(actions, load, lambda state: _draw_actions(visit, state, refresher))
    with tag("div", "k-card k-card-body"):
        lead = tag("div", "k-stack")
    with lead:
        about, figures = tag("div"), tag("div", "k-figures")
    await refresher.panel(about, load, lambda state: _draw_about(visit, state))
    await refresher.panel(figures, load_record, lambda record: _draw_figures(visit, record))
    with tag("div", "k-grid k-below"):
        with tag("div", "k-column k-col-8"):
            with card(words("general.tasks"), flush=True) as (body, side), tag("div", "k-scroll"):
                table = _task_table(visit, zone)
            with side:
                link(words("general.tasks.all"), page_url("tasks", general=name))
            await refresher.panel(body, load_tasks, table.show, keep=True)
            with card(words("general.check")) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: _draw_check(visit, state))
            with card(words("general.manifest")) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: _draw_manifest(visit, state))
        with tag("div", "k-column k-col-4"):
            with card(words("general.hears"), flush=True) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: _draw_subscriptions(visit, state))
            with card(words("general.schedules"), flush=True) as (body, _):
                pass
            await refresher.panel(body, load_record, lambda record: _draw_schedules(visit, zone, record))
            with card(words("court.budget")) as (body, _):
                pass
            await refresher.panel(body, load_record, lambda record: _draw_budget(visit, record))
            with card(words("task.facts")) as (body, _):
                pass
            await refresher.panel(body, load, lambda state: _draw_facts(visit, state))


def _draw_actions(visit: Visit, state: GeneralState, refresher: PageRefresher) -> None:
    words, status = visit.words, general_status(state)
    badge(words(f"general.{status}"), status).props["data-status"] = status
    if not state.enabled and status == "broken":
        badge(words("general.disabled"), "disabled")
    kind = next((one for one in state.hears if "*" not in one), None)
    if visit.may("injectEvent"):
        button(words("emit.title"), lambda: ui.navigate.to(page_url("events", "new", type=kind)), icon="bolt")
    if not visit.may("disableGeneral"):
        return
    if state.enabled:
        button(words("general.disable"), lambda: _switch(visit, state.name, False, refresher), kind="danger")
    else:
        button(words("general.enable"), lambda: _switch(visit, state.name, True, refresher), kind="primary")


async def _switch(visit: Visit, name: str, enabled: bool, refresher: PageRefresher) -> None:
    words = visit.words
    sure = enabled or await confirm(
        visit,
        words("general.disable.sure", name=name),
        detail=words("general.disable.detail"),
        yes=words("general.disable"),
        danger=True,
    )

    async def act() -> None:
        await set_enabled(visit.context, name, visit.person.name, enabled=enabled)

    done = words("general.did.enable" if enabled else "general.did.disable", name=name)
    operation = "enableGeneral" if enabled else "disableGeneral"
    if sure and await run_and_notify(visit, act, done, operation, name):
        refresher.wake()


def _draw_about(visit: Visit, state: GeneralState) -> None:
    if state.description:
        text(state.description, "k-wrap", name="p")
    if not state.enabled:
        text(visit.words("general.disabled.note"), "k-wrap k-muted", name="p").props["role"] = "status"


def _draw_figures(visit: Visit, record: GeneralRecord | None) -> None:
    words = visit.words
    if record is None:
        return
    rate, ended = record.success_rate, record.outcomes["completed"] + record.outcomes["failed"]
    shown = "–" if rate is None else f"{rate:.0%}"
    figure(shown, words("general.success", n=f"{ended:,}"), "bad" if rate is not None and rate < 0.5 else None)
    figure(format_span(record.durations.median, words, step=1), words("general.median", n=record.durations.tasks))
    figure(format_span(record.durations.p95, words, step=1), words("general.p95"))
    figure(format_usd(record.day_usd), words("court.cost.day"))
    figure(format_usd(record.month_usd), words("court.cost.month"))


def _task_table(visit: Visit, zone: tzinfo) -> DataTable[TaskSummary]:
    words = visit.words

    def created(task: TaskSummary) -> str:
        return format_clock(task.created_at, zone, now=visit.context.clock())

    columns: list[TableColumn[TaskSummary]] = [
        TableColumn(
            words("task.id"),
            lambda one: one.id,
            target=lambda one: page_url("tasks", one.id),
            classes="k-mono",
            width="170px",
        ),
        TableColumn(
            words("task.status"),
            lambda one: words.of("status", one.shown_status),
            status=lambda one: one.shown_status,
            width="130px",
        ),
        TableColumn(words("task.about"), about_summary, classes="k-clip"),
        TableColumn(words("task.created"), created, classes="k-num k-muted", width="140px"),
    ]
    return DataTable(
        words("general.tasks"), lambda one: one.id, columns, lambda: empty(words("task.none")), classes="k-stacked"
    )


def _draw_check(visit: Visit, state: GeneralState) -> None:
    if not state.problems:
        text(visit.words("general.check.ok"), "k-text-ok", name="p")
        return
    with tag("ul", "k-stack k-tight"):
        for problem in state.problems:
            text(problem, "k-wrap k-text-bad k-mono", name="li")


def _draw_manifest(visit: Visit, state: GeneralState) -> None:
    if state.manifest is None:
        empty(visit.words("general.manifest.none"))
        return
    with tag("details", "k-details"):
        text(visit.words("general.manifest.show"), "k-small k-muted", name="summary")
        code(yaml.safe_dump(state.manifest, allow_unicode=True, sort_keys=False))


def _draw_subscriptions(visit: Visit, state: GeneralState) -> None:
    words = visit.words
    found: Sequence[dict[str, Any]] = (state.manifest or {}).get("subscribes") or ()
    if not found:
        text(words("general.hears.none"), "k-muted k-small k-pad", name="p")
        return
    with tag("ul", "k-lines"):
        for one in found:
            with tag("li", "k-stack k-tight"):
                text(one["type"], "k-mono k-wrap")
                for name in ("repos", "exclude_repos", "authors", "exclude_authors"):
                    if one.get(name):
                        text(words(f"general.{name}", names=", ".join(one[name])), "k-small k-muted k-wrap")
                if one.get("own"):
                    text(words("general.own"), "k-small k-muted")
                if one.get("priority"):
                    text(words("general.priority", priority=one["priority"]), "k-small k-muted")


def _draw_schedules(visit: Visit, zone: tzinfo, record: GeneralRecord | None) -> None:
    words = visit.words
    if record is None or not record.planned:
        text(words("general.schedules.none"), "k-muted k-small k-pad", name="p")
        return
    with tag("ul", "k-lines"):
        for one in record.planned:
            with tag("li", "k-stack k-tight"):
                with row("k-spread"):
                    text(one.name, "k-strong")
                    text(f"{one.cron} ({one.timezone})", "k-mono k-muted k-small")
                key = "general.due" if one.is_due else "general.next"
                text(words(key, at=format_datetime(one.next_at, zone)), "k-small")


def _draw_budget(visit: Visit, record: GeneralRecord | None) -> None:
    words = visit.words
    if record is None:
        return
    with tag("div", "k-stack"):
        for limit in record.limits:
            usage(limit.name, limit.shown, limit.part)
        if not record.limits:
            text(words("general.unlimited"), "k-muted k-small", name="p")
        used = words("general.used", tokens=format_count(record.month_tokens), runs=f"{record.month_runs:,}")
        text(used, "k-muted k-small", name="p")


def _draw_facts(visit: Visit, state: GeneralState) -> None:
    words, manifest = visit.words, state.manifest or {}
    model = f" · {state.model}" if state.model else ""
    found = [
        (words("general.engine"), f"{state.engine}{model}"),
        (
            words("general.mode"),
            state.mode if not manifest.get("template") else f"{state.mode}: {manifest['template']}",
        ),
        (words("general.profile"), str(manifest.get("profile") or "–")),
        (words("general.concurrency"), str(state.concurrency)),
        (words("general.timeout"), format_span(state.timeout_seconds, words)),
        (words("task.retries"), str(manifest.get("retries", "–"))),
    ]
    facts(found)
