"""The settings page: what is configured and where it comes from, this server, log out. It changes no setting."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom import __version__
from kingdom.court.settings import read_settings
from kingdom.web.dashboard.components import DataTable, TableColumn, badge, button, card, facts, link, tag, text
from kingdom.web.dashboard.devices import devices_card
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.security import csrf_token
from kingdom.web.security.credentials import CSRF_HEADER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.court.settings import Setting, SettingsFile

_SETTINGS_SECONDS: Final = 2.0  # how long a read is reused


@page("/settings", title="nav.settings", nav="settings")
async def settings_page(visit: Visit) -> None:
    """The settings page."""
    words = visit.words
    with page_head(words("nav.settings")):
        button(words("settings.logout"), lambda: _log_out(visit), icon="logout")
    refresher = PageRefresher(visit)
    with tag("div", "k-grid"):
        with tag("div", "k-column k-col-8"):
            files = tag("div", "k-column")
        with tag("div", "k-column k-col-4"):
            with card(words("settings.server")):
                _draw_server(visit)
                link(words("settings.people"), "/people")
            await devices_card(visit, refresher)
    services = visit.context.services
    if services is None:
        with files, card(words("nav.settings")):
            text(words("nocourt.title"), "k-muted", name="p")
        return

    async def load() -> list[SettingsFile]:
        return await visit.shared.read(
            "settings", lambda: asyncio.to_thread(read_settings, services.home), _SETTINGS_SECONDS
        )

    def draw(found: list[SettingsFile]) -> None:
        for one in found:
            _draw_file(visit, one)

    await refresher.panel(files, load, draw)


def _draw_file(visit: Visit, file: SettingsFile) -> None:
    words = visit.words
    with card(f"config/{file.name}", flush=True) as (_, side):
        with side:
            state = "broken" if file.problems else "file" if file.exists else "default"
            badge(words(f"settings.state.{state}"), state).props["data-file"] = file.name
        for problem in file.problems:
            text(problem, "k-wrap k-text-bad k-mono k-pad", name="p")
        given = [one for one in file.settings if one.source == "file"]
        others = [one for one in file.settings if one.source == "default"]
        if given:
            _draw_table(visit, words("settings.given", file=file.name), given)
        if others:
            with tag("details", "k-details k-pad"):
                text(words("settings.defaults", n=len(others)), "k-small k-muted", name="summary")
                _draw_table(visit, words("settings.defaults.of", file=file.name), others)


def _draw_table(visit: Visit, label: str, settings: Sequence[Setting]) -> None:
    words = visit.words
    columns: list[TableColumn[Setting]] = [
        TableColumn(words("settings.key"), lambda one: one.key, classes="k-mono", width="42%"),
        TableColumn(words("settings.value"), lambda one: _shown(one.value), classes="k-wrap k-mono"),
        TableColumn(
            words("settings.source"),
            lambda one: words(f"settings.source.{one.source}"),
            classes="k-muted k-hide-narrow",
            width="100px",
        ),
    ]
    DataTable(label, lambda one: one.key, columns).show(settings)


def _shown(value: str) -> str:
    """Return a JSON value for people: texts without quotes, nothing as a dash."""
    found = json.loads(value)
    if found is None or found in ("", [], {}):
        return "–"
    return found if isinstance(found, str) else value


def _draw_server(visit: Visit) -> None:
    words, context = visit.words, visit.context
    you = words("settings.you.are", name=visit.person.name, role=words(f"access.{visit.person.role}"))
    facts(
        [
            (words("settings.you"), you),
            (words("settings.folder"), str(context.root)),
            (words("settings.address"), f"{context.settings.host}:{context.settings.port}"),
            (words("settings.hosts"), ", ".join(context.settings.allowed_hosts) or "–"),
            (words("settings.version"), __version__),
        ]
    )


def _log_out(visit: Visit) -> None:
    """Have the browser drop its cookie, and show the page for those who are not logged in."""
    headers = json.dumps({CSRF_HEADER: csrf_token(visit.context.token, visit.person.key)})
    ui.run_javascript(
        f"fetch('/api/session', {{method: 'DELETE', headers: {headers}}}).then(() => location.assign('/'))"
    )
