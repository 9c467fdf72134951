"""Dead letters: why each failed, what it carries, and another chance for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.dashboard.building import (
    Keyed,
    badge,
    button,
    code,
    confirm,
    empty,
    labelled,
    link,
    row,
    tag,
    text,
    told,
)
from kingdom.web.dashboard.building.formats import day_and_time
from kingdom.web.views.bus import list_dead, requeue_dead

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.refreshing import Pulse
    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.bus import DeadLetterState

_LIMIT: Final = 25
_BATCH: Final = 100


@dataclass(frozen=True, slots=True)
class Letters:
    """What is shown: the first pages together."""

    items: list[DeadLetterState]
    more: bool


class LetterList:
    """The dead letters of one stream."""

    def __init__(
        self, visit: Visit, bus: str, stream: str, pulse: Pulse, body: Element, side: Element, zone: tzinfo
    ) -> None:
        self._visit = visit
        self._bus = bus
        self._stream = stream
        self._pulse = pulse
        self._zone = zone
        self._wanted = _LIMIT
        self._chosen: set[str] = set()
        words = visit.words
        with side:
            self._kind = ui.select([], on_change=lambda: self._settle()).props("outlined dense options-dense")
            labelled(self._kind.classes("k-field k-kind"), words("bus.type"))
            self._by_type = button(words("bus.requeue.type"), self._requeue_type)
            self._selected = button("", self._requeue_chosen)
        with body:
            self._list: Keyed[DeadLetterState] = Keyed(
                tag("ul", "k-lines"), lambda one: one.event_id, self._draw, self._nothing
            )
            with row("k-pager") as self._pager:
                button(words("list.more"), self._more)
        self._side = side

    async def load(self) -> Letters:
        """Read as many as are wanted."""
        found: list[DeadLetterState] = []
        cursor = None
        while len(found) < self._wanted:
            page, cursor = await list_dead(
                self._visit.context, self._bus, self._stream, min(self._wanted, _BATCH), cursor
            )
            found += page
            if cursor is None:
                break
        return Letters(found, cursor is not None)

    def show(self, letters: Letters) -> None:
        """Have these."""
        self._chosen &= {one.event_id for one in letters.items}
        self._list.show(letters.items)
        self._pager.set_visibility(letters.more)
        kinds = sorted({one.type for one in letters.items if one.requeueable})
        self._side.set_visibility(bool(kinds))
        value = self._kind.value if self._kind.value in kinds else (kinds[0] if kinds else None)
        if kinds != self._kind.options:
            self._kind.set_options(kinds, value=value)
        self._settle()

    def _settle(self) -> None:
        self._selected.set_text(self._visit.words("bus.requeue.chosen", n=len(self._chosen)))
        self._selected.set_enabled(bool(self._chosen))
        self._by_type.set_enabled(self._kind.value is not None)

    def _nothing(self) -> None:
        with tag("li"):
            empty(self._visit.words("bus.dead.none"), self._visit.words("bus.dead.hint"))

    def _draw(self, letter: DeadLetterState) -> None:
        words = self._visit.words
        with tag("li", "k-letter", data_letter=letter.event_id):
            if letter.requeueable:
                box = ui.checkbox(on_change=lambda event: self._choose(letter.event_id, event.value)).props("dense")
                labelled(box, words("bus.choose", event=letter.event_id))
            else:
                tag("span")
            with tag("div", "k-stack k-tight"):
                with row("k-wrapping"):
                    self._name(letter)
                    badge(letter.error_code or words("bus.no.code"), "dead")
                    text(letter.type, "k-muted")
                    if letter.attempts:
                        text(words("bus.attempts", n=letter.attempts), "k-muted k-small")
                    if letter.dead_at:
                        text(day_and_time(letter.dead_at, self._zone), "k-muted k-small")
                text(letter.error_message or words("bus.no.reason"), "k-wrap k-text-bad", name="p")
                if not letter.requeueable:
                    text(words("bus.mend"), "k-muted k-small", name="p")
                _payload(letter, words("bus.payload"))
            if letter.requeueable:
                asked = button(words("bus.requeue"), partial(self._requeue, [letter.event_id]))
                labelled(asked, words("bus.requeue.one", event=letter.event_id))

    def _name(self, letter: DeadLetterState) -> None:
        if letter.event_id.startswith("task-"):
            link(letter.event_id, f"/tasks/{letter.event_id}", "k-mono k-strong")
        else:
            text(letter.event_id, "k-mono k-strong k-wrap")

    def _choose(self, event_id: str, chosen: bool) -> None:
        (self._chosen.add if chosen else self._chosen.discard)(event_id)
        self._settle()

    def _more(self) -> None:
        self._wanted += _LIMIT
        self._pulse.wake()

    async def _requeue_chosen(self) -> None:
        await self._requeue(sorted(self._chosen))

    async def _requeue_type(self) -> None:
        """All of a type, however many pages they are on."""
        kind, ids = str(self._kind.value), list[str]()
        cursor = None
        while True:
            page, cursor = await list_dead(
                self._visit.context, self._bus, self._stream, _BATCH, cursor, event_type=kind
            )
            ids += [one.event_id for one in page if one.requeueable]
            if cursor is None:
                break
        await self._requeue(ids)

    async def _requeue(self, ids: list[str]) -> None:
        words = self._visit.words
        detail = "\n".join([*ids[:8], *(["…"] if len(ids) > 8 else [])])
        sure = await confirm(
            self._visit, words("bus.requeue.sure", n=len(ids)), detail=detail, yes=words("bus.requeue")
        )
        if not sure:
            return

        async def act() -> None:
            await requeue_dead(self._visit.context, self._bus, self._stream, ids)

        if await told(self._visit, act, words("bus.requeued", n=len(ids))):
            self._chosen -= set(ids)
            self._pulse.wake()


def _payload(letter: DeadLetterState, label: str) -> None:
    if letter.payload is None:
        return
    payload = letter.payload
    shown = payload.text if payload.value is None else json.dumps(payload.value, ensure_ascii=False, indent=2)
    with tag("details", "k-details"):
        text(f"{label} · {payload.size:,}", "k-muted k-small", name="summary")
        code(f"{shown or ''}{'…' if payload.value is None else ''}")
