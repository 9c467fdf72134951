"""Marks that change in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.web.dashboard.theme import Tone, tone_of

if TYPE_CHECKING:
    from nicegui import ui
    from nicegui.element import Element


_UNDER_WAY: Final = frozenset({"RUNNING", "PREPARING", "RESUMING", "CREATING"})


def tone(status: str) -> Tone:
    """The tone of a workflow, Work or task: what is under way is busy, and only what is done is well."""
    return "busy" if status in _UNDER_WAY else tone_of(status)


def recoloured(shown: ui.label, word: str, status: str) -> None:
    """Give a badge another status."""
    shown.set_text(word)
    shown.classes(replace=f"k-badge k-tone-{tone(status)}")


def filled(bar: Element, fill: Element, done: int, total: int, *, bad: bool) -> None:
    """Show how much of something is done."""
    bar.props.update({"aria-valuemax": str(total), "aria-valuenow": str(done)})
    bar.classes(replace=f"k-progress {'k-progress-bad' if bad else ''}")
    fill.style(replace=f"width: {round(100 * done / max(1, total))}%")


def told_in(place: ui.label, words: str | None) -> None:
    """Show words where there are some, and nothing where there are none."""
    place.set_text(words or "")
    place.set_visibility(bool(words))
