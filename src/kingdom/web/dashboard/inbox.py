"""The inbox page: what needs a person, with the action in place."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from datetime import tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from nicegui import ui

from kingdom.court import commands
from kingdom.web.api.court_models import WEB_SOURCE
from kingdom.web.dashboard.components import (
    KeyedList,
    badge,
    button,
    card,
    empty,
    labelled,
    link,
    row,
    run_and_notify,
    tag,
    text,
)
from kingdom.web.dashboard.formats import court_timezone, format_datetime
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.shell import page, page_head
from kingdom.web.dashboard.task_actions import DASHBOARD_USER, answer_task, draw_answer_form
from kingdom.web.dashboard.visit import Visit
from kingdom.web.errors import as_api_error
from kingdom.web.views.bus import requeue_dead
from kingdom.web.views.inbox import COURT_DOWN_ID, InboxItem, acknowledge, read_inbox

if TYPE_CHECKING:
    from kingdom.web.views.inbox import InboxAction

_SHOWN_ITEMS: Final = 5  # the others are folded
_BUTTONS: Final[tuple[InboxAction, ...]] = ("resume", "retry", "requeue", "acknowledge")


@page("/inbox", title="nav.inbox", nav="inbox")
async def inbox_page(visit: Visit) -> None:
    """The inbox page."""
    with page_head(visit.words("nav.inbox")):
        button(visit.words("script.notify.off")).props["data-notify"] = ""
    inbox = InboxPanel(visit, await court_timezone(visit))
    await inbox.begin()


class InboxPanel:
    """The items, five of them open and the rest folded, and the actions on those that are selected."""

    def __init__(self, visit: Visit, zone: tzinfo) -> None:
        self._visit = visit
        self._words = visit.words
        self._zone = zone
        self._refresher = PageRefresher(visit)
        self._items: dict[str, InboxItem] = {}
        self._selected: set[str] = set()
        self._boxes: dict[str, ui.checkbox] = {}

    async def begin(self) -> None:
        """Draw the inbox and keep it up to date."""
        words = self._words
        text(words("inbox.about"), "k-muted k-lead", name="p")
        with card(words("nav.inbox"), flush=True) as (body, side):
            with side:
                self._draw_bulk_actions()
            self._first = KeyedList(tag("ul", "k-lines k-inbox"), _key, self._draw, self._nothing)
            with tag("details", "k-details k-rest") as self._folded:
                self._more = text("", name="summary")
                self._rest = KeyedList(tag("ul", "k-lines k-inbox"), _key, self._draw)
        await self._refresher.panel(body, partial(read_inbox, self._visit.context), self._show, keep=True)

    def _show(self, items: Sequence[InboxItem]) -> None:
        self._items = {item.id: item for item in items}
        self._selected &= set(self._items)
        self._boxes = {item_id: box for item_id, box in self._boxes.items() if item_id in self._items}
        self._first.show(items[:_SHOWN_ITEMS])
        self._rest.show(items[_SHOWN_ITEMS:])
        self._folded.set_visibility(len(items) > _SHOWN_ITEMS)
        self._more.set_text(self._words("list.rest", n=f"{max(len(items) - _SHOWN_ITEMS, 0):,}"))
        self._settle()

    def _nothing(self) -> None:
        with tag("li"):
            empty(self._words("inbox.none"), self._words("inbox.none.hint"))

    # ── one item ──────────────────────────────────────────────────────────────────────────────────────────────

    def _draw(self, item: InboxItem) -> None:
        words = self._words
        with tag("li", "k-inbox-item", data_item=item.id):
            if set(_BUTTONS) & set(item.actions):
                selected = item.id in self._selected
                box = ui.checkbox(value=selected, on_change=partial(self._select, item.id)).props("dense")
                self._boxes[item.id] = labelled(box, words("inbox.select", title=item.title))
            else:
                tag("span", "k-inbox-space")
            with tag("div", "k-stack k-tight k-grow"):
                with row("k-wrapping"):
                    badge(words(f"inbox.kind.{item.kind}"), item.kind)
                    link(item.title, item.path, "k-strong k-wrap")
                    if item.at:
                        text(format_datetime(item.at, self._zone), "k-muted k-small")
                    if item.deadline:
                        at = format_datetime(item.deadline, self._zone)
                        text(words("court.deadline", at=at), "k-small k-text-warn")
                if "answer" in item.actions:
                    asker = item.task_id or item.workflow_id or item.id
                    answer = partial(self._answer, item)
                    draw_answer_form(self._visit, asker, item.text, item.choices, answer, self._refresher.wake)
                else:
                    text(self._text(item), "k-wrap k-inbox-text", name="p")
            with tag("div", "k-inbox-actions"):
                for action in _BUTTONS:
                    if action in item.actions:
                        kind = "primary" if action == "resume" else ""
                        button(words(f"inbox.{action}"), partial(self._act, action, [item.id]), kind=kind)

    def _text(self, item: InboxItem) -> str:
        return self._words("court.attention.down") if item.id == COURT_DOWN_ID else item.text

    async def _answer(self, item: InboxItem, answer: str) -> bool:
        if item.task_id is not None:
            return await answer_task(self._visit, item.task_id, answer)
        execute = self._visit.context.control.execute
        return await run_and_notify(
            self._visit,
            lambda: execute("AnswerWorkflow", str(item.workflow_id), text=answer),
            self._words("workflow.did.answer"),
        )

    # ── many items ────────────────────────────────────────────────────────────────────────────────────────────

    def _draw_bulk_actions(self) -> None:
        words = self._words
        self._all = ui.checkbox(words("inbox.select.all"), on_change=self._select_all).props("dense")
        self._count = text("", "k-muted k-small")
        self._bulk: dict[InboxAction, ui.button] = {
            action: button(words(f"inbox.{action}"), partial(self._act_on_selected, action)) for action in _BUTTONS
        }

    def _select(self, item_id: str, event: Any) -> None:
        (self._selected.add if event.value else self._selected.discard)(item_id)
        self._settle()

    def _select_all(self, event: Any) -> None:
        for box in list(self._boxes.values()):
            box.set_value(bool(event.value))

    def _settle(self) -> None:
        """Offer what can be done with the selected items."""
        chosen = [self._items[one] for one in self._selected]
        self._all.set_visibility(bool(self._items))
        self._count.set_text(self._words("inbox.selected", n=len(chosen)) if chosen else "")
        for action, shown in self._bulk.items():
            shown.set_visibility(any(action in item.actions for item in chosen))

    async def _act_on_selected(self, action: InboxAction) -> None:
        await self._act(action, [one for one in self._selected if action in self._items[one].actions])

    async def _act(self, action: InboxAction, ids: Sequence[str]) -> None:
        """Do the same with several items. What one of them refuses does not stop the others."""
        items = [self._items[one] for one in ids if one in self._items]
        problems: list[str] = []
        if action == "acknowledge":
            await acknowledge(self._visit.context, [item.id for item in items], DASHBOARD_USER)
        else:
            for item in items:
                try:
                    await self._command(action, item)
                except Exception as error:  # noqa: BLE001 - shown with those of the others
                    problems.append(f"{item.title}: {as_api_error(error)}")
        done = len(items) - len(problems)
        self._selected -= set(ids)
        if problems:
            words = self._words("inbox.some", n=done, failed="; ".join(problems)[:500])
            ui.notify(words, type="negative", timeout=10_000, close_button=self._words("action.close"))
        else:
            ui.notify(self._words("inbox.did", n=done), type="positive")
        self._all.set_value(False)
        self._refresher.wake()

    def _command(self, action: InboxAction, item: InboxItem) -> Awaitable[object]:
        context = self._visit.context
        if action == "requeue":
            return requeue_dead(context, str(item.bus), str(item.stream), [str(item.event_id)])
        if item.workflow_id is not None:  # approve a review, or retry
            return context.control.execute("ResumeWorkflow", item.workflow_id, retry=True)
        return commands.retry_task(self._visit.court, str(item.task_id), DASHBOARD_USER, WEB_SOURCE)


def _key(item: InboxItem) -> str:
    return item.id
