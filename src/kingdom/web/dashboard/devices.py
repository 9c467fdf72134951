"""The devices that are logged in, on the settings page. Each can be logged out."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kingdom.web.dashboard.components import badge, button, card, confirm, labelled, row, run_and_notify, tag, text
from kingdom.web.dashboard.formats import court_timezone, format_datetime
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.visit import Visit
from kingdom.web.views.sessions import BrowserSession, device_name, end_session, list_sessions

if TYPE_CHECKING:
    from datetime import tzinfo

_MAX_SHOWN = 5  # the rest is folded


async def devices_card(visit: Visit, refresher: PageRefresher) -> None:
    """Draw the devices of the visitor; those of everybody for those with the role ``own``."""
    words, zone = visit.words, await court_timezone(visit)
    with card(words("settings.devices"), flush=True) as (body, _):
        pass

    def draw(found: list[BrowserSession]) -> None:
        if not found:
            text(words("devices.none"), "k-muted k-pad", name="p")
        first = sorted(found, key=lambda one: not one.current)  # this device leads
        _draw_lines(visit, refresher, zone, first[:_MAX_SHOWN])
        if rest := first[_MAX_SHOWN:]:
            with tag("details", "k-details k-pad"):
                text(words("devices.more", n=len(rest)), "k-small k-muted", name="summary")
                _draw_lines(visit, refresher, zone, rest)

    await refresher.panel(body, partial(asyncio.to_thread, list_sessions, visit.context, visit.person), draw)


def _draw_lines(visit: Visit, refresher: PageRefresher, zone: tzinfo, found: list[BrowserSession]) -> None:
    if found:
        with tag("ul", "k-lines"):
            for one in found:
                _draw_session(visit, refresher, zone, one)


def _draw_session(visit: Visit, refresher: PageRefresher, zone: tzinfo, session: BrowserSession) -> None:
    words, device = visit.words, device_name(session.user_agent)
    with tag("li", "k-row k-wrapping", data_session=session.id):
        with tag("div", "k-grow k-stack k-tight"):
            with row("k-wrapping"):
                text(device, "k-strong k-wrap").props["title"] = session.user_agent
                if session.current:
                    badge(words("devices.this"), "idle")
            text(words(f"devices.{session.method}", name=session.name, address=session.address), "k-small k-wrap")
            seen = (
                words("people.never") if session.last_seen_at is None else format_datetime(session.last_seen_at, zone)
            )
            since = format_datetime(session.created_at, zone)
            text(words("devices.times", since=since, seen=seen), "k-muted k-small", name="div")
        if not session.current:  # this one logs out with the button of the page
            asked = button(words("devices.end"), partial(_end, visit, refresher, session), kind="danger")
            labelled(asked, words("devices.end.of", device=device, name=session.name))


async def _end(visit: Visit, refresher: PageRefresher, session: BrowserSession) -> None:
    words, device = visit.words, device_name(session.user_agent)
    question = words("devices.end.sure", device=device, name=session.name)
    if not await confirm(visit, question, detail=words("devices.end.detail"), yes=words("devices.end"), danger=True):
        return

    async def act() -> None:
        await asyncio.to_thread(end_session, visit.context, visit.person, session.id)

    await run_and_notify(visit, act, words("devices.ended", device=device), "endSession", session.name)
    visit.context.connections.end_revoked()
    refresher.wake()
