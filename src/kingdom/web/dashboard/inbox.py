"""The inbox page: what needs a person, with the action in place."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
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
    dialog_box,
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
from kingdom.web.dashboard.task_actions import answer_task, draw_answer_form
from kingdom.web.dashboard.visit import Visit
from kingdom.web.errors import as_api_error
from kingdom.web.views.bus import requeue_dead
from kingdom.web.views.inbox import (
    COURT_DOWN_ID,
    InboxItem,
    MutedItem,
    acknowledge,
    list_muted,
    mute,
    read_inbox,
    unmute,
)

if TYPE_CHECKING:
    from nicegui.events import GenericEventArguments

    from kingdom.web.dashboard.words import Translations
    from kingdom.web.views.inbox import InboxAction

_SHOWN_ITEMS: Final = 5  # the others are folded
_BUTTONS: Final[tuple[InboxAction, ...]] = ("resume", "retry", "goBack", "requeue", "acknowledge", "mute")
_WAYS_BACK: Final = ("hold", "go")
_MUTE_SECONDS: Final = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0, "ever": None}
_OPERATIONS: Final[dict[InboxAction, str]] = {
    "resume": "resumeWorkflow",
    "goBack": "resumeWorkflow",
    "requeue": "requeueDeadLetters",
    "acknowledge": "acknowledgeInbox",
    "mute": "muteInbox",
}


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
        self._unfolded = False

    async def begin(self) -> None:
        """Draw the inbox and keep it up to date."""
        words = self._words
        text(words("inbox.about"), "k-muted k-lead", name="p")
        with card(words("nav.inbox"), flush=True) as (body, side):
            with side:
                self._draw_bulk_actions()
            self._first = KeyedList(tag("ul", "k-lines k-inbox"), _key, self._draw, self._nothing)
            with tag("details", "k-details k-rest") as self._folded:
                self._folded.on("toggle", self._unfold, js_handler="(event) => emit(event.target.open)")
                self._more = text("", name="summary")
                self._rest = KeyedList(tag("ul", "k-lines k-inbox"), _key, self._draw)
            with tag("details", "k-details k-muted-items") as self._silent:
                self._silent_count = text("", name="summary")
                self._muted = KeyedList(tag("ul", "k-lines k-inbox"), _muted_key, self._draw_muted)
        await self._refresher.panel(body, self._read, self._show, keep=True)

    async def _read(self) -> tuple[list[InboxItem], list[MutedItem]]:
        items = await read_inbox(self._visit.context)
        return [self._offered(item) for item in items], await list_muted(self._visit.context)

    def _offered(self, item: InboxItem) -> InboxItem:
        """Return an item with the actions that the visitor may do."""
        actions = [one for one in item.actions if self._visit.may(_operation(one, item))]
        return item if actions == item.actions else item.model_copy(update={"actions": actions})

    def _show(self, found: tuple[Sequence[InboxItem], Sequence[MutedItem]]) -> None:
        items, muted = found
        self._muted.show(muted)
        self._silent.set_visibility(bool(muted))
        self._silent_count.set_text(self._words("inbox.muted", n=f"{len(muted):,}"))
        self._items = {item.id: item for item in items}
        self._selected &= set(self._items)
        self._boxes = {item_id: box for item_id, box in self._boxes.items() if item_id in self._items}
        self._first.show(items[:_SHOWN_ITEMS])
        self._show_rest()
        self._folded.set_visibility(len(items) > _SHOWN_ITEMS)
        self._more.set_text(self._words("list.rest", n=f"{max(len(items) - _SHOWN_ITEMS, 0):,}"))
        self._settle()

    def _unfold(self, event: GenericEventArguments) -> None:
        self._unfolded = bool(event.args)
        self._show_rest()

    def _show_rest(self) -> None:
        """Draw the items behind the first ones when they are looked at: hundreds take most of a second."""
        if self._unfolded:
            self._rest.show([*self._items.values()][_SHOWN_ITEMS:])

    def _nothing(self) -> None:
        with tag("li"):
            empty(self._words("inbox.none"), self._words("inbox.none.hint"))

    # ── one item ──────────────────────────────────────────────────────────────────────────────────────────────

    def _draw(self, item: InboxItem) -> None:
        words = self._words
        with tag("li", "k-inbox-item", data_item=item.id):
            if _is_selectable(item):
                selected = item.id in self._selected
                box = ui.checkbox(value=selected, on_change=partial(self._select, item.id)).props("dense")
                self._boxes[item.id] = labelled(box, words("inbox.select", title=item.title))
            else:
                tag("span", "k-inbox-space")
            with tag("div", "k-stack k-tight k-grow"):
                with row("k-wrapping"):
                    badge(words(f"inbox.kind.{item.kind}"), item.kind)
                    link(item.title, item.path, "k-strong k-wrap")
                    if item.kind == "failed_task" and item.task_id != item.title:
                        text(item.task_id, "k-muted k-small k-mono")
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

    def _draw_muted(self, item: MutedItem) -> None:
        words = self._words
        with tag("li", "k-inbox-item", data_muted=item.id):
            with tag("div", "k-stack k-tight k-grow"):
                with row("k-wrapping"):
                    badge(words(f"inbox.kind.{item.kind}"), item.kind)
                    link(item.title, item.path, "k-strong k-wrap")
                    end = "inbox.muted.ever" if item.until is None else "inbox.muted.until"
                    text(words(end, at=format_datetime(item.until, self._zone)), "k-muted k-small")
                    text(words("inbox.muted.by", user=item.user), "k-muted k-small")
                text(words.reason(item.text), "k-wrap k-inbox-text", name="p")
            with tag("div", "k-inbox-actions"):
                if self._visit.may("unmuteInbox"):
                    button(words("inbox.unmute"), partial(self._unmute, item.id))

    def _text(self, item: InboxItem) -> str:
        return self._words("court.attention.down") if item.id == COURT_DOWN_ID else self._words.reason(item.text)

    async def _answer(self, item: InboxItem, answer: str) -> bool:
        if item.task_id is not None:
            return await answer_task(self._visit, item.task_id, answer)
        execute = self._visit.context.control.execute
        return await run_and_notify(
            self._visit,
            lambda: execute("AnswerWorkflow", str(item.workflow_id), text=answer),
            self._words("workflow.did.answer"),
            "answerWorkflow",
            workflow_id=str(item.workflow_id),
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
        can_be = (item_id for item_id, item in self._items.items() if _is_selectable(item))
        self._selected = set(can_be) if event.value else set()
        for box in list(self._boxes.values()):
            box.set_value(bool(event.value))
        self._settle()

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
        until, hold = None, False
        if action == "mute":
            if (span := await self._ask(_mute_question(self._words, items), "inbox.mute", _MUTE_SECONDS)) is None:
                return
            until = None if (seconds := _MUTE_SECONDS[span]) is None else self._visit.context.clock() + seconds
        elif action == "goBack":
            if (way := await self._ask(_back_question(self._words, items), "inbox.goBack", _WAYS_BACK)) is None:
                return
            hold = way == "hold"
        together = action in ("acknowledge", "mute")
        for some in [items] if together else [[item] for item in items]:
            try:
                await self._command(action, some, hold=hold, until=until)
            except Exception as error:  # noqa: BLE001 - shown with those of the others
                problems += [f"{item.title}: {as_api_error(error)}" for item in some]
        done = len(items) - len(problems)
        self._selected -= set(ids)
        if problems:
            words = self._words("inbox.some", n=done, failed="; ".join(problems)[:500])
            ui.notify(words, type="negative", timeout=10_000, close_button=self._words("action.close"))
        else:
            ui.notify(self._words("inbox.did", n=done), type="positive")
        self._all.set_value(False)
        self._refresher.wake()

    async def _ask(self, question: str, prefix: str, choices: Iterable[str]) -> str | None:
        """Ask for one of the choices in a dialog. Returns None if the visitor cancels."""
        words = self._words
        with dialog_box(question) as dialog:
            text(words(f"{prefix}.detail"), "k-muted k-wrap", name="div")
            with tag("div", "k-dialog-actions k-wrapping"):
                button(words("action.back"), lambda: dialog.submit(None)).props("autofocus")
                for choice in choices:
                    button(words(f"{prefix}.{choice}"), partial(dialog.submit, choice), kind="primary")
        chosen = await dialog
        return None if chosen is None else str(chosen)

    async def _unmute(self, item_id: str) -> None:
        async def act() -> None:
            await unmute(self._visit.context, [item_id])

        await run_and_notify(self._visit, act, self._words("inbox.did", n=1), "unmuteInbox", item_id)
        self._refresher.wake()

    async def _command(
        self, action: InboxAction, items: Sequence[InboxItem], *, hold: bool, until: float | None
    ) -> None:
        """Do something with several items that are acknowledged or muted, or with one."""
        context, name, item = self._visit.context, self._visit.person.name, items[0]
        ids = [one.id for one in items]
        subject = item.task_id or item.workflow_id or item.event_id or item.id
        workflow_id = item.workflow_id if action in ("retry", "resume", "goBack") else None
        async with self._visit.acts(
            _operation(action, item), subject if len(items) == 1 else "", workflow_id=workflow_id or ""
        ):
            if action == "acknowledge":
                await acknowledge(context, ids, name)
            elif action == "mute":
                await mute(context, ids, name, until)
            else:
                await self._one(action, item, hold=hold)

    def _one(self, action: InboxAction, item: InboxItem, *, hold: bool) -> Awaitable[object]:
        context, name = self._visit.context, self._visit.person.name
        if action == "goBack":
            point = {"checkpoint_id": item.checkpoint_id, "hold": hold}
            return context.control.execute("ResumeWorkflow", str(item.workflow_id), **point)
        if action == "requeue":
            return requeue_dead(context, str(item.bus), str(item.stream), [str(item.event_id)])
        if item.workflow_id is not None:  # approve a review, or retry
            return context.control.execute("ResumeWorkflow", item.workflow_id, retry=True)
        return commands.retry_task(self._visit.court, str(item.task_id), name, WEB_SOURCE)


def _operation(action: InboxAction, item: InboxItem) -> str:
    """Return the operation of the API that does the same."""
    of_workflow = item.workflow_id is not None
    if action == "answer":
        return "answerWorkflow" if of_workflow else "answerQuestion"
    if action == "retry":
        return "resumeWorkflow" if of_workflow else "retryTask"
    return _OPERATIONS[action]


def _is_selectable(item: InboxItem) -> bool:
    return not set(_BUTTONS).isdisjoint(item.actions)


def _key(item: InboxItem) -> str:
    return item.id


def _muted_key(item: MutedItem) -> str:
    return item.id


def _mute_question(words: Translations, items: Sequence[InboxItem]) -> str:
    return (
        words("inbox.mute.ask", title=items[0].title) if len(items) == 1 else words("inbox.mute.ask.many", n=len(items))
    )


def _back_question(words: Translations, items: Sequence[InboxItem]) -> str:
    return (
        words("inbox.goBack.ask", work=items[0].work)
        if len(items) == 1
        else words("inbox.goBack.ask.many", n=len(items))
    )
