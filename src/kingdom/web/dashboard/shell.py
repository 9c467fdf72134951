"""The frame of every page: navigation, health badge, language and theme."""

from __future__ import annotations

import functools
import html
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias, cast, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from nicegui import ui
from starlette.responses import RedirectResponse

from kingdom.court.attention import AttentionItem, CourtCondition, condition_of
from kingdom.web.acting import check_may
from kingdom.web.dashboard import theme
from kingdom.web.dashboard.components import badge, empty, failed, labelled, link, tag, text
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.visit import THEME_COOKIE, THEMES, Theme, Visit, current_visit
from kingdom.web.dashboard.words import LOCALE_NAMES, Translations
from kingdom.web.errors import as_api_error
from kingdom.web.locales import LOCALE_COOKIE, LOCALES
from kingdom.web.security import nonce
from kingdom.web.security.headers import is_local_path
from kingdom.web.views.court import court_overview
from kingdom.web.views.inbox import InboxItem, read_inbox
from kingdom.web.views.search import HitKind

# ── Registration of pages ──


PageBuilder: TypeAlias = Callable[..., Awaitable[None]]
_LANGUAGES: Final[dict[str, Any]] = {"en": "en-US", "ko": "ko-KR"}
_BUILD_SECONDS: Final = 30.0  # NiceGUI aborts a page that takes longer


class LocalizedPage(ui.page):
    """A page whose first response already has the visitor's theme and language."""

    def resolve_dark(self) -> bool | None:
        """Return the visitor's theme."""
        visit = current_visit.get(None)
        return None if visit is None else visit.dark

    def resolve_language(self) -> Any:
        """Return the visitor's language, for screen readers and for Quasar's own texts."""
        visit = current_visit.get(None)
        return _LANGUAGES[visit.locale] if visit else "en-US"


def page(
    path: str, *, title: str, nav: str, court: bool = False, operation: str = ""
) -> Callable[[PageBuilder], PageBuilder]:
    """Register ``async def build(visit, …)`` as the page of a path. Other parameters come from the path and the query.

    ``title`` is a text key, ``nav`` the navigation entry. With ``court``, a folder without a court shows a hint how to
    create one instead. ``operation`` is the one of the API that the page is for: who may not do it sees which role it
    needs.
    """

    def register(build: PageBuilder) -> PageBuilder:
        signature = inspect.signature(build, eval_str=True)
        asked = [parameter for name, parameter in signature.parameters.items() if name != "visit"]

        @functools.wraps(build)
        async def built(**arguments: Any) -> RedirectResponse | None:
            visit = current_visit.get()
            if path == "/" and visit.context.services is None:
                return RedirectResponse(_WORKFLOWS_PATH, 303)  # there is nothing else here
            await build_page(visit, build, arguments, title=title, nav=nav, court=court, operation=operation)
            return None

        cast(Any, built).__signature__ = inspect.Signature(asked)
        LocalizedPage(path, response_timeout=_BUILD_SECONDS)(built)
        return build

    return register


# ── Preferences: kept in cookies, set by following a link ──


preferences_router = APIRouter(include_in_schema=False)
PREFERENCES_PATH: Final = "/preferences"
_COOKIE_SECONDS: Final = 365 * 24 * 3600


@preferences_router.get(PREFERENCES_PATH)
async def set_preference(
    theme: Annotated[Theme | None, Query()] = None,
    locale: Annotated[Literal["en", "ko"] | None, Query()] = None,
    back: Annotated[str, Query(max_length=2000)] = "/",
) -> RedirectResponse:
    """Store a preference in a cookie and redirect back to the page."""
    response = RedirectResponse(back if is_local_path(back) else "/", 303)
    for name, value in ((THEME_COOKIE, theme), (LOCALE_COOKIE, locale)):
        if value is not None:
            response.set_cookie(name, value, max_age=_COOKIE_SECONDS, httponly=True, samesite="strict")
    return response


def preference_link(back: str, **choice: str) -> str:
    """Return the URL that sets a preference: ``preference_link(visit.path, theme="dark")``."""
    return f"{PREFERENCES_PATH}?{urlencode({**choice, 'back': back})}"


_INBOX_SECONDS: Final = 2.0
_MAX_NOTICES: Final = 20  # items that the browser hears of at once
_MAX_NOTICE_CHARS: Final = 200
_CONDITION_SECONDS: Final = 2.0  # how long the condition in the header is reused; the court page reads its own


async def court_condition(visit: Visit) -> CourtCondition:
    """Return the condition of the court and its reasons."""

    async def read() -> CourtCondition:
        return condition_of(await court_overview(visit.context))

    return await visit.shared.read("condition", read, _CONDITION_SECONDS)


def attention_text(words: Translations, item: AttentionItem) -> str:
    """Say what needs a person, or limits the court."""
    if item.kind == "alert":
        return item.subject
    reason = f" ({words.reason(item.reason)})" if item.reason else ""
    state = words.of({"load": "load", "budget": "budget"}.get(item.kind, "role"), item.detail)
    return words(f"court.attention.{item.kind}", subject=item.subject, state=state, reason=reason, n=item.count)


# ── Frame ──


log = logging.getLogger("kingdom.web")

_DAILY: Final = (
    ("court", "/"),
    ("inbox", "/inbox"),
    ("tasks", "/tasks"),
    ("workflows", "/workflows"),
    ("templates", "/templates"),
    ("generals", "/generals"),
)
_MORE: Final = (
    ("events", "/events"),
    ("messages", "/messages"),
    ("bus", "/bus"),
    ("logs", "/logs"),
    ("overTime", "/over-time"),
)
"""Pages that the header has in a menu. The drawer of a small window has all."""
NAVIGATION: Final = (*_DAILY, *_MORE)
_WITHOUT_COURT: Final = ("workflows", "inbox", "templates", "bus")
_WORKFLOWS_PATH: Final = "/workflows"
_SETTINGS: Final = ("settings", "/settings")
_REASON_PAGES: Final = {"problems": "/#troubles", "held": "/#troubles", "role": "/#roles", "budget": "/#cost"}
_HIT_KINDS: Final = ("page", *get_args(HitKind))
_KEY_WORDS: Final = ("search", "palette", "next", "previous", "open", "help", "close", "done", "on")
_SCRIPT_WORDS: Final = (
    *("restored", "discard", "notify.on", "notify.off", "notify.denied", "keys"),
    *("search", "search.hint", "search.results", "search.found", "search.none", "search.failed"),
    *(f"keys.{name}" for name in _KEY_WORDS),
    *(f"kind.{kind}" for kind in _HIT_KINDS),
)
_FURTHER_PAGES: Final = (
    ("sources.title", "/repositories", None),
    ("nav.settings", "/settings", None),
    ("people.title", "/people", None),
    ("emit.title", "/events/new", "injectEvent"),
    ("workflow.new", "/workflows/new", "createWorkflow"),
    ("template.new", "/templates/new", "createTemplateFromYaml"),
)
"""Pages that the palette offers beside those of the navigation, and the operation of the API that each is for."""
_MARK: Final = "/assets/mark.svg"
_THEME_ICONS: Final = {"auto": "brightness_auto", "light": "light_mode", "dark": "dark_mode"}


async def build_page(
    visit: Visit,
    build: PageBuilder,
    arguments: dict[str, Any],
    *,
    title: str,
    nav: str,
    court: bool = False,
    operation: str = "",
) -> None:
    """Build a page inside the frame. An error replaces the content of the page."""
    words = visit.words
    # Without its client on this side the browser loads the page again, with the role of then.
    client = ui.context.client
    client.on_delete(visit.context.connections.watch(visit.person, client.delete))
    ui.page_title(f"{words(title)} · {_court_name(visit)}")
    ui.add_head_html(
        f'<style>{theme.background(visit.dark)}</style><link rel="stylesheet" href="{theme.STYLESHEET_PATH}">'
        f'<script nonce="{nonce()}" src="{theme.SCRIPT_PATH}" data-words="{_script_words(words)}" '
        f'data-pages="{_pages(visit)}" defer></script>'
    )
    ui.add_body_html(_opening(visit))
    counts: list[ui.label] = []
    drawer = _drawer(visit, nav, counts)
    await _header(visit, nav, drawer, counts)
    with tag("div", "k-main", id="main", tabindex="-1") as main:  # in the <main> of Quasar
        if court and visit.context.services is None:
            text(words(title), "k-hidden-text", name="h1")
            empty(
                words("nocourt.title"),
                words("nocourt.hint", folder=visit.context.root),
                f"kingdom init {visit.context.root}",
                page=True,
            )
            return
        try:
            if operation:
                check_may(visit.context, visit.person, operation)
            await build(visit, **arguments)
        except Exception as error:  # show the error inside the frame, so that other pages stay reachable
            status = as_api_error(error).status
            if status >= 500:
                log.warning("cannot show %s: %s", visit.path, error, exc_info=error)
            elif not ui.context.client.has_socket_connection:
                ui.context.client.status_code = status
            main.clear()
            with main:
                text(words(title), "k-hidden-text", name="h1")
                failed(visit, error, page=True)


def _script_words(words: Translations) -> str:
    """Return the texts of the page's script as an attribute."""
    return html.escape(json.dumps({key: words(f"script.{key}") for key in _SCRIPT_WORDS}))


def _pages(visit: Visit) -> str:
    """Return the title and path of the pages that the visitor may use, as an attribute."""
    court = visit.context.services is not None
    further = [
        (title, path)
        for title, path, operation in _FURTHER_PAGES
        if (operation is None or visit.may(operation)) and (court or operation != "injectEvent")
    ]
    daily, more = _navigation(visit)
    pages = [*((f"nav.{name}", path) for name, path in (*daily, *more)), *further]
    return html.escape(json.dumps([(visit.words(title), path) for title, path in pages]))


def page_head(title: str, *, above: tuple[str, str] | None = None) -> Any:
    """Draw the title of a page. Returns the container for its actions. ``above`` is the parent page: text and URL."""
    with tag("div", "k-page-head"):
        if above is not None:
            link(above[0], above[1], "k-crumb")
            text("/", "k-crumb").props["aria-hidden"] = "true"
        text(title, name="h1")
        return tag("div", "k-page-actions")


def draw_emit_link(visit: Visit) -> None:
    """Draw the link to the form that emits an event, below an empty state, for those who may."""
    if visit.may("injectEvent"):
        link(visit.words("emit.title"), "/events/new", "k-state-link")


def _court_name(visit: Visit) -> str:
    return visit.context.root.resolve().name or "Kingdom"


def _opening(visit: Visit) -> str:
    """Return the header as the browser shows it until the scripts have drawn the page."""
    name = html.escape(_court_name(visit))
    links = "".join(f"<span>{html.escape(visit.words(f'nav.{page}'))}</span>" for page, _ in _navigation(visit)[0])
    return (
        '<div class="k-opening" aria-hidden="true"><div class="k-brand">'
        f'<img src="{_MARK}" alt="" width="26" height="26"><span class="k-clip">{name}</span></div>'
        f'<div class="k-nav">{links}</div></div>'
    )


def _drawer(visit: Visit, nav: str, counts: list[ui.label]) -> ui.left_drawer:
    drawer = ui.left_drawer(value=False, fixed=True).props("behavior=mobile overlay width=250 no-swipe-open")
    with drawer, tag("nav", "k-drawer-nav", aria_label=visit.words("nav.label")):
        daily, more = _navigation(visit)
        _links(visit, nav, counts, (*daily, *more, _SETTINGS))
    return drawer


def _navigation(visit: Visit) -> tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
    """Return the pages of the header, and those of its menu. A folder without a court has no pages of one."""
    if visit.context.services is not None:
        return _DAILY, _MORE
    known = dict(NAVIGATION)
    return tuple((name, known[name]) for name in _WITHOUT_COURT), ()


def _links(visit: Visit, nav: str, counts: list[ui.label], entries: Sequence[tuple[str, str]]) -> None:
    """Draw links to pages; the label with the number of items in the inbox is added to ``counts``."""
    for name, path in entries:
        with link("", path) as entry:
            text(visit.words(f"nav.{name}"))
            if name == "inbox":
                counts.append(text("", "k-nav-count"))
        if name == nav:
            entry.props["aria-current"] = "page"


def _more(visit: Visit, nav: str, entries: Sequence[tuple[str, str]]) -> None:
    words = visit.words
    with ui.button(color=None).props("flat no-caps dense aria-haspopup=true").classes("k-nav-more") as opener:
        text(words("nav.more"))
        ui.icon("expand_more").props("aria-hidden=true")
        # A landmark of its own: the menu is drawn outside of the header.
        with labelled(ui.menu().classes("k-menu").props("role=navigation"), words("nav.more.label")):
            for name, path in entries:
                entry = link(words(f"nav.{name}"), path)
                if name == nav:
                    entry.props["aria-current"] = "page"
                    opener.classes("k-nav-here")
    labelled(opener, words("nav.more"))


async def _header(visit: Visit, nav: str, drawer: ui.left_drawer, counts: list[ui.label]) -> None:
    words = visit.words
    with ui.header(elevated=False, wrap=False).classes("k-header"):
        link(words("nav.skip"), "#main", "k-skip")
        menu = ui.button(icon="menu", on_click=drawer.toggle, color=None).props("flat round dense")
        labelled(menu.classes("k-menu-button"), words("nav.open"))
        with link("", "/", "k-brand"):
            tag("img", src=_MARK, alt="", width="26", height="26")
            text(_court_name(visit), "k-clip")
        with tag("nav", "k-nav", aria_label=words("nav.label")):
            daily, more = _navigation(visit)
            _links(visit, nav, counts, daily)
            if more:
                _more(visit, nav, more)
        with tag("div", "k-header-end"):
            refresher = PageRefresher(visit)
            await _health(visit, refresher)
            await _count(visit, refresher, counts)
            with tag("span", "k-connection", role="status"):
                text(words("connection.live"), "k-online")
                text(words("connection.lost"), "k-offline")
            finder = ui.button(icon="search", color=None).props("flat round dense aria-haspopup=dialog")
            labelled(finder, words("script.search")).on(
                "click", js_handler="(event) => kingdomKeys.searchFrom(event.target.closest('button'))"
            )
            with labelled(link("", _SETTINGS[1], "k-icon-link"), words("nav.settings")) as gear:
                ui.icon("settings", size="24px")
            if nav == _SETTINGS[0]:
                gear.props["aria-current"] = "page"
            _choice(
                "translate",
                words("choose.locale"),
                [(LOCALE_NAMES[one], preference_link(visit.path, locale=one), one == visit.locale) for one in LOCALES],
            )
            _choice(
                _THEME_ICONS[visit.theme],
                words("choose.theme"),
                [(words(f"theme.{one}"), preference_link(visit.path, theme=one), one == visit.theme) for one in THEMES],
            )


async def shared_inbox(visit: Visit) -> list[InboxItem]:
    """Return the inbox, for all pages together."""
    return await visit.shared.read("inbox", lambda: read_inbox(visit.context), _INBOX_SECONDS)


def _notice_text(visit: Visit, item: InboxItem) -> str:
    return item.text if item.kind == "question" else visit.words.reason(item.text)


async def _count(visit: Visit, refresher: PageRefresher, counts: list[ui.label]) -> None:
    """Keep the number of items in the navigation and in the title of the browser's tab up to date."""

    def draw(items: list[InboxItem]) -> None:
        for label in counts:
            label.set_text(f"{len(items):,}" if items else "")
            label.set_visibility(bool(items))
        shown = [
            {"id": item.id, "title": item.title, "text": _notice_text(visit, item)[:_MAX_NOTICE_CHARS]}
            for item in items[:_MAX_NOTICES]
        ]
        news = {"count": len(items), "items": shown}
        ui.run_javascript(f"kingdomInbox.show({json.dumps(news)})")

    await refresher.panel(tag("span", "k-none"), lambda: shared_inbox(visit), draw, keep=True)


async def _health(visit: Visit, refresher: PageRefresher) -> None:
    if visit.context.services is None:
        return

    def draw(found: CourtCondition) -> None:
        words, level = visit.words, visit.words.of("condition", found.level)
        with (
            ui.button(color=None).props("flat no-caps dense aria-haspopup=true").classes("k-condition-button") as shown
        ):
            badge(level, found.level)
            with ui.menu().classes("k-menu k-reasons"), tag("ul", "k-lines"):
                for item in found.reasons:
                    with tag("li"):
                        link(attention_text(words, item), _REASON_PAGES.get(item.kind, "/"), "k-wrap")
                if not found.reasons:
                    text(words("condition.none"), name="li")
        labelled(shown, words("condition.why", level=level)).props["data-condition"] = found.level

    await refresher.panel(tag("span"), lambda: court_condition(visit), draw)


def _choice(icon: str, label: str, choices: list[tuple[str, str, bool]]) -> None:
    opener = labelled(ui.button(icon=icon, color=None).props("flat round dense aria-haspopup=true"), label)
    with opener, ui.menu().classes("k-menu").props("role=menu"):
        for content, target, chosen in choices:
            entry = link(content, target)
            entry.props["role"] = "menuitem"
            if chosen:
                entry.props["aria-current"] = "true"


# ── Not found ──


async def not_found_page() -> None:
    """Show "not found" inside the usual frame."""
    visit = current_visit.get()
    ui.context.client.status_code = 404
    ui.context.client.page.language = _LANGUAGES[visit.locale]
    ui.dark_mode(visit.dark)
    await build_page(visit, _build_not_found, {}, title="nowhere.title", nav="")


async def _build_not_found(visit: Visit) -> None:
    words = visit.words
    text(words("nowhere.title"), "k-hidden-text", name="h1")
    empty(words("nowhere.title"), words("nowhere.hint", path=visit.path[:200]), page=True)
    link(words("nav.court"), "/")
