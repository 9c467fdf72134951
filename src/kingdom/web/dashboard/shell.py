"""What every page has around it: the court's name, the ways to the other pages, its health, the choices."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from kingdom.web.dashboard import preferences, styles, theme
from kingdom.web.dashboard.building import badge, empty, failed, labelled, link, tag, text
from kingdom.web.dashboard.health import health_of
from kingdom.web.dashboard.refreshing import Pulse
from kingdom.web.dashboard.visit import THEMES
from kingdom.web.dashboard.words import LOCALES, NAMES

if TYPE_CHECKING:
    from kingdom.web.dashboard.registry import Builder
    from kingdom.web.dashboard.visit import Visit

log = logging.getLogger("kingdom.web")

NAVIGATION: Final = (
    ("court", "/"),
    ("tasks", "/tasks"),
    ("workflows", "/workflows"),
    ("templates", "/templates"),
    ("bus", "/bus"),
)
_THEME_ICONS: Final = {"auto": "brightness_auto", "light": "light_mode", "dark": "dark_mode"}


async def framed(visit: Visit, build: Builder, arguments: dict[str, Any], *, title: str, nav: str, court: bool) -> None:
    """Build a page inside the shell. What goes wrong while it is built is shown in its place."""
    words = visit.words
    ui.page_title(f"{words(title)} · {_name(visit)}")
    ui.add_head_html(f'<style>{theme.background(visit.dark)}</style><link rel="stylesheet" href="{styles.PATH}">')
    drawer = _drawer(visit, nav)
    await _header(visit, nav, drawer)
    with tag("div", "k-main", id="main", tabindex="-1") as main:  # in the <main> of Quasar
        if court and visit.context.services is None:
            empty(
                words("nocourt.title"),
                words("nocourt.hint", folder=visit.context.root),
                f"kingdom init {visit.context.root}",
                page=True,
            )
            return
        try:
            await build(visit, **arguments)
        except Exception as error:  # the visitor is told, in the frame that leads on to other pages
            log.warning("%s cannot be shown: %s", visit.path, error, exc_info=error)
            main.clear()
            with main:
                failed(visit, error, page=True)


def head(title: str, *, above: tuple[str, str] | None = None) -> Any:
    """The title of a page; gives the place for its actions. ``above`` is the page one level up: text and address."""
    with tag("div", "k-page-head"):
        if above is not None:
            link(above[0], above[1], "k-crumb")
            text("/", "k-crumb").props["aria-hidden"] = "true"
        text(title, name="h1")
        return tag("div", "k-page-actions")


def _name(visit: Visit) -> str:
    return visit.context.root.resolve().name or "Kingdom"


def _drawer(visit: Visit, nav: str) -> ui.left_drawer:
    drawer = ui.left_drawer(value=False, fixed=True).props("behavior=mobile overlay width=250 no-swipe-open")
    with drawer, tag("nav", "k-drawer-nav", aria_label=visit.words("nav.label")):
        _links(visit, nav)
    return drawer


def _links(visit: Visit, nav: str) -> None:
    for name, path in NAVIGATION:
        entry = link(visit.words(f"nav.{name}"), path)
        if name == nav:
            entry.props["aria-current"] = "page"


async def _header(visit: Visit, nav: str, drawer: ui.left_drawer) -> None:
    words = visit.words
    with ui.header(elevated=False, wrap=False).classes("k-header"):
        link(words("nav.skip"), "#main", "k-skip")
        menu = ui.button(icon="menu", on_click=drawer.toggle, color=None).props("flat round dense")
        labelled(menu.classes("k-menu-button"), words("nav.open"))
        with link("", "/", "k-brand"):
            tag("img", src="/assets/mark.svg", alt="", width="26", height="26")
            text(_name(visit), "k-clip")
        with tag("nav", "k-nav", aria_label=words("nav.label")):
            _links(visit, nav)
        with tag("div", "k-header-end"):
            await _health(visit)
            with tag("span", "k-connection", role="status"):
                text(words("connection.live"), "k-online")
                text(words("connection.lost"), "k-offline")
            _choice(
                "translate",
                words("choose.locale"),
                [(NAMES[one], preferences.link(visit.path, locale=one), one == visit.locale) for one in LOCALES],
            )
            _choice(
                _THEME_ICONS[visit.theme],
                words("choose.theme"),
                [
                    (words(f"theme.{one}"), preferences.link(visit.path, theme=one), one == visit.theme)
                    for one in THEMES
                ],
            )


async def _health(visit: Visit) -> None:
    if visit.context.services is None:
        return

    def draw(found: tuple[str, str]) -> None:
        colour, why = found
        shown = badge(visit.words.of("health", colour), colour)
        shown.props["title"] = why
        shown.props["data-health"] = colour

    await Pulse(visit).panel(tag("span"), lambda: health_of(visit), draw)


def _choice(icon: str, label: str, choices: list[tuple[str, str, bool]]) -> None:
    opener = labelled(ui.button(icon=icon, color=None).props("flat round dense aria-haspopup=true"), label)
    with opener, ui.menu().classes("k-menu"):
        for content, target, chosen in choices:
            entry = link(content, target)
            if chosen:
                entry.props["aria-current"] = "true"
