"""The head of a workflow's page: how it stands, why, what it costs, and what can be done with it now."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.dashboard.building import badge, button, link, tag, text
from kingdom.web.dashboard.building.formats import money
from kingdom.web.dashboard.workflows.marks import filled, recoloured, told_in
from kingdom.web.dashboard.workflows.saying import address, moment

if TYPE_CHECKING:
    from datetime import tzinfo

    from nicegui.element import Element

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.dashboard.workflows.acting import Hand
    from kingdom.web.views.usage import Usage
    from kingdom.web.views.workflows import WorkflowFull

_STOPPED: Final = ("PAUSED", "FAILED")


class Actions:
    """Buttons of everything that can be done; those that would be refused now are not to be pressed."""

    def __init__(self, visit: Visit, hand: Hand, place: Element, workflow_id: str) -> None:
        words = visit.words
        with place:
            self._start = self._button(words("act.start"), hand.start, "play_arrow", "primary")
            self._pause = self._button(words("act.pause"), hand.pause, "pause", "primary")
            self._retry = self._button(words("act.retry"), hand.retry, "play_arrow", "primary")
            self._resume = self._button(words("act.resume.last"), hand.resume, "replay")
            self._plan = button(
                words("act.plan"), lambda: ui.navigate.to(address("workflows", workflow_id, "plan")), icon="edit"
            )
            self._cancel = self._button(words("act.cancel"), hand.cancel, "block", "danger")
            with button("", icon="more_vert").classes("k-more") as more:
                more.props["aria-label"] = words("act.more")
                more.props["aria-haspopup"] = "true"
                with ui.menu().props("role=menu"):
                    ui.menu_item(words("act.keep"), hand.keep).props("role=menuitem")
                    self._delete = ui.menu_item(words("act.delete"), hand.delete).props("role=menuitem")
        self._retry_words = {True: words("act.retry"), False: words("act.resume")}

    def show(self, full: WorkflowFull) -> None:
        """Have what is allowed now."""
        allowed = set(full.allowed)
        stopped = any(work.status in _STOPPED for work in full.works)
        self._start.set_visibility("start" in allowed)
        self._pause.set_visibility("pause" in allowed)
        for one in (self._retry, self._resume):
            one.set_visibility("resume" in allowed)
        self._resume.set_visibility("resume" in allowed and stopped)
        self._retry.set_text(self._retry_words[stopped])
        self._plan.set_enabled("modify" in allowed)
        self._cancel.set_enabled("cancel" in allowed)
        self._delete.set_enabled("delete" in allowed)

    @staticmethod
    def _button(words: str, act: Callable[[], Awaitable[None]], icon: str, kind: str = "") -> ui.button:
        return button(words, act, kind=kind, icon=icon)


class Facts:
    """How it stands, in one line and a few more."""

    def __init__(self, visit: Visit, full: WorkflowFull, zone: tzinfo) -> None:
        self._words = words = visit.words
        with tag("section", "k-card k-workflow-head", aria_label=words("workflow.status")):
            with tag("div", "k-row k-wrapping"):
                self._status = badge("", "")
                self._bar = tag("div", "k-progress", role="progressbar", aria_valuemin="0")
                self._bar.props["aria-label"] = words("workflow.column.progress")
                with self._bar:
                    self._fill = tag("div")
                self._count = text("", "k-muted")
                self._cost = text("", "k-strong")
                self._tokens = text("", "k-muted")
            self._reason = text("", "k-reason k-wrap", name="div")
            self._reason.props["role"] = "status"
            with tag("div", "k-row k-wrapping k-muted k-small k-more-facts"):
                if full.issue_key:
                    text(full.issue_key, "k-mono")
                text(words("workflow.created", at=moment(full.created_at, zone)))
                if full.template_id:
                    link(words("workflow.template"), address("templates", full.template_id))
                if full.forked_from:
                    text(words("workflow.forked", checkpoint=full.forked_from))
                text(full.id, "k-mono")
            if full.description:
                text(full.description, "k-wrap", name="div")

    def show(self, full: WorkflowFull, usage: Usage) -> None:
        """Have how it stands now."""
        words = self._words
        recoloured(self._status, words.of("workflow.status", full.status), full.status)
        filled(self._bar, self._fill, full.works_completed, full.works_total, bad=bool(full.works_failed))
        self._count.set_text(words("workflow.progress", done=full.works_completed, total=full.works_total))
        self._cost.set_text(money(usage.cost_usd))
        self._tokens.set_text(words("workflow.tokens", count=f"{usage.tokens.total:,}", runs=usage.runs))
        told_in(self._reason, full.reason)
