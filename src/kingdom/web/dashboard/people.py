"""The page of people: who has a token, with which role. Those with the role ``own`` add and revoke tokens here."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from nicegui import ui

from kingdom.web.dashboard.components import (
    badge,
    button,
    card,
    confirm,
    dialog_box,
    empty,
    labelled,
    row,
    run_and_notify,
    tag,
    text,
)
from kingdom.web.dashboard.formats import court_timezone, format_datetime
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.visit import Visit
from kingdom.web.dashboard.workflows.widgets import labelled_field
from kingdom.web.security.roles import ROLES, Role
from kingdom.web.views.tokens import TokenInfo, add_token, change_role, list_tokens, revoke_token

if TYPE_CHECKING:
    from datetime import tzinfo

_MAX_NAME_CHARS = 60


@page("/people", title="people.title", nav="settings")
async def people_page(visit: Visit) -> None:
    """The page of people and their tokens."""
    words = visit.words
    page_head(words("people.title"), above=(words("nav.settings"), "/settings"))
    text(words("people.about"), "k-muted k-lead", name="p")
    refresher = PageRefresher(visit)
    zone = await court_timezone(visit)
    with tag("div", "k-grid"):
        with tag("div", "k-column k-col-8"), card(words("people.tokens"), flush=True) as (body, _):
            pass
        with tag("div", "k-column k-col-4"):
            if visit.may("createToken"):
                with card(words("people.add")), tag("div", "k-stack"):
                    _NewTokenForm(visit, refresher)
            with card(words("people.roles")), tag("dl", "k-roles"):
                for role in ROLES:
                    text(words(f"access.{role}"), "k-strong", name="dt")
                    text(words(f"access.{role}.may"), "k-muted", name="dd")

    def draw(found: list[TokenInfo]) -> None:
        if not found:
            empty(words("people.none"), words("people.none.hint"))
            return
        with tag("ul", "k-lines"):
            for one in found:
                _draw_token(visit, refresher, zone, one)

    await refresher.panel(body, partial(asyncio.to_thread, list_tokens, visit.context), draw)


def _draw_token(visit: Visit, refresher: PageRefresher, zone: tzinfo, token: TokenInfo) -> None:
    words = visit.words
    with tag("li", "k-row k-wrapping", data_token=token.name):
        with tag("div", "k-grow k-stack k-tight"):
            with row("k-wrapping"):
                text(token.name, "k-strong k-wrap")
                badge(words(f"access.{token.role}"), "idle").props["data-role"] = token.role
                if token.name == visit.person.name:
                    text(words("people.you"), "k-muted k-small")
            used = words("people.never") if token.last_used_at is None else format_datetime(token.last_used_at, zone)
            made = format_datetime(token.created_at, zone)
            text(words("people.times", created=made, used=used), "k-muted k-small", name="div")
        if visit.may("changeTokenRole"):
            asked = button(words("people.change"), partial(_change_role, visit, refresher, token))
            labelled(asked, words("people.change.of", name=token.name))
        if visit.may("revokeToken"):
            asked = button(words("people.revoke"), partial(_revoke, visit, refresher, token.name), kind="danger")
            labelled(asked, words("people.revoke.of", name=token.name))


async def _change_role(visit: Visit, refresher: PageRefresher, token: TokenInfo) -> None:
    words = visit.words
    with dialog_box(words("people.change.of", name=token.name)) as dialog:
        text(words("people.change.hint"), "k-muted k-wrap", name="p")
        with labelled_field(words("people.role")):
            select = ui.select({role: words(f"access.{role}") for role in ROLES}, value=token.role)
        labelled(select.props("outlined dense").classes("k-field"), words("people.role"))
        with tag("div", "k-dialog-actions"):
            button(words("action.back"), lambda: dialog.submit(False))
            button(words("people.change"), lambda: dialog.submit(True), kind="primary")
    if not await dialog or select.value == token.role:
        return
    role: Role = select.value

    async def act() -> None:
        await asyncio.to_thread(change_role, visit.context, token.name, role)

    done = words("people.changed", name=token.name, role=words(f"access.{role}"))
    await run_and_notify(visit, act, done, "changeTokenRole", token.name)
    refresher.wake()
    visit.context.connections.end_revoked()  # last: it may be this page that ends


async def _revoke(visit: Visit, refresher: PageRefresher, name: str) -> None:
    words = visit.words
    question, detail = words("people.revoke.sure", name=name), words("people.revoke.detail", name=name)
    if not await confirm(visit, question, detail=detail, yes=words("people.revoke"), danger=True):
        return

    async def act() -> None:
        await asyncio.to_thread(revoke_token, visit.context, name)

    await run_and_notify(visit, act, words("people.revoked", name=name), "revokeToken", name)
    refresher.wake()
    visit.context.connections.end_revoked()  # last: it may be this page that ends


class _NewTokenForm:
    """Gives a person a token, and shows it once."""

    def __init__(self, visit: Visit, refresher: PageRefresher) -> None:
        self._visit = visit
        self._refresher = refresher
        words = visit.words
        with labelled_field(words("people.name"), words("people.name.hint")):
            self._name = ui.input().props("outlined dense").classes("k-field")
        self._name.props["maxlength"] = _MAX_NAME_CHARS
        labelled(self._name, words("people.name"))
        with labelled_field(words("people.role")):
            self._role = ui.select({role: words(f"access.{role}") for role in ROLES}, value="answer")
        labelled(self._role.props("outlined dense").classes("k-field"), words("people.role"))
        self._name.on("keydown.enter", self._add)
        button(words("people.add.do"), self._add, kind="primary", icon="person_add")

    async def _add(self) -> None:
        words, name = self._visit.words, (self._name.value or "").strip()
        made: list[tuple[str, str]] = []

        async def act() -> None:
            role = cast(Any, self._role.value)
            made.append(await asyncio.to_thread(add_token, self._visit.context, name, role))

        if await run_and_notify(self._visit, act, words("people.added", name=name), "createToken", name):
            self._name.set_value("")
            self._refresher.wake()
            await _show_token(self._visit, name, *made[0])


async def _show_token(visit: Visit, name: str, value: str, path: str) -> None:
    """Show a new token in a dialog. It cannot be shown again."""
    words = visit.words
    origin = await ui.run_javascript("location.origin")
    with dialog_box(words("people.new", name=name)) as dialog:
        dialog.props("persistent")
        text(words("people.new.hint"), "k-muted k-wrap", name="p")
        for label, shown in ((words("people.link"), f"{origin}{path}"), (words("people.token"), value)):
            text(label, "k-label", name="div")
            text(shown, "k-mono k-command k-wrap k-secret", name="code").props["data-secret"] = label
        with tag("div", "k-dialog-actions"):
            button(words("people.new.done"), lambda: dialog.submit(True), kind="primary").props("autofocus")
    await dialog
