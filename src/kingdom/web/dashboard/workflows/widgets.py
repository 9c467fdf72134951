"""Form fields that write into an object, and badges and bars that change in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nicegui import ui
from nicegui.elements.mixins.disableable_element import DisableableElement

from kingdom.web.dashboard.components import labelled, tag, text, with_draft
from kingdom.web.dashboard.theme import Tone, tone_of

if TYPE_CHECKING:
    from nicegui.element import Element


# ── Form fields ──


E = TypeVar("E", bound=DisableableElement)
_FIELD_PROPS: Final = "outlined dense"


@contextmanager
def labelled_field(label: str, hint: str = "", classes: str = "") -> Iterator[None]:
    """Create a container with a label above. The label is hidden from screen readers: the field has its own name."""
    with tag("div", f"k-labelled {classes}"):
        text(label, "k-label", name="div").props["aria-hidden"] = "true"
        yield
        if hint:
            text(hint, "k-hint", name="div")


def text_field(
    label: str, target: Any, name: str, *, hint: str = "", locked: bool = False, draft: str = ""
) -> ui.input:
    """Create a one-line text field bound to ``target.name``. ``draft`` names what is typed until it is saved."""
    with labelled_field(label, hint):
        made = ui.input(value=getattr(target, name)).bind_value_to(target, name, forward=_text)
    return with_draft(_styled(made, label, locked=locked), draft)


def text_area(
    label: str, target: Any, name: str, *, hint: str = "", locked: bool = False, mono: bool = False, draft: str = ""
) -> ui.textarea:
    """Create a multi-line text field bound to ``target.name``. ``draft`` names what is typed until it is saved."""
    with labelled_field(label, hint, "k-mono-field" if mono else ""):
        made = ui.textarea(value=getattr(target, name)).bind_value_to(target, name, forward=_text)
    return with_draft(_styled(made, label, "autogrow", locked=locked), draft)


def select_field(label: str, options: Any, target: Any, name: str, *, locked: bool = False) -> ui.select:
    """Create a select bound to ``target.name``."""
    with labelled_field(label):
        made = ui.select(options, value=getattr(target, name)).bind_value_to(target, name)
    return _styled(made, label, locked=locked)


def multi_select(
    label: str, options: list[str], target: Any, name: str, *, hint: str = "", locked: bool = False
) -> ui.select:
    """Create a multi-select bound to ``target.name``."""
    chosen = list(getattr(target, name))
    known = options + [one for one in chosen if one not in options]
    with labelled_field(label, hint):
        made = ui.select(known, value=chosen, multiple=True).bind_value_to(target, name, forward=_list)
    return _styled(made, label, "use-chips", locked=locked)


def checkbox_field(label: str, target: Any, name: str, *, locked: bool = False) -> ui.checkbox:
    """Create a checkbox bound to ``target.name``."""
    made = ui.checkbox(label, value=getattr(target, name)).bind_value_to(target, name)
    made.props("dense").set_enabled(not locked)
    return made


def number_field(label: str, target: Any, name: str, *, most: int, locked: bool = False) -> ui.number:
    """Create a field for a whole number, from 0 to ``most``."""
    with labelled_field(label, classes="k-narrow-field"):
        made = ui.number(value=getattr(target, name), min=0, max=most, precision=0)
        made.bind_value_to(target, name, forward=lambda given: int(given or 0))
    return _styled(made, label, locked=locked)


def search_box(label: str, value: str, found_at: Callable[[str | None], str], classes: str = "") -> None:
    """Create a search field. Enter opens the page that ``found_at`` returns for the text (None: cleared)."""

    def go() -> None:
        ui.navigate.to(found_at(made.value or None))

    made = ui.input(value=value, placeholder=label).props(f"{_FIELD_PROPS} clearable")
    labelled(made.classes(f"k-field k-search {classes}"), label)
    made.on("keydown.enter", go)
    made.on("clear", go)


def _styled(made: E, label: str, props: str = "", *, locked: bool) -> E:
    made.props(f"{_FIELD_PROPS} {props}").classes("k-field").set_enabled(not locked)
    return labelled(made, label)


def _text(given: Any) -> str:
    return str(given or "")


def _list(given: Any) -> list[str]:
    return list(given or ())


# ── Badges and bars ──


_BUSY_STATUSES: Final = frozenset({"RUNNING", "PREPARING", "RESUMING", "CREATING"})


def status_tone(status: str) -> Tone:
    """Return the tone of a workflow, work or task status. Running statuses are busy, not ok."""
    return "busy" if status in _BUSY_STATUSES else tone_of(status)


def update_badge(shown: ui.label, word: str, status: str) -> None:
    shown.set_text(word)
    shown.classes(replace=f"k-badge k-tone-{status_tone(status)}")


def workflow_status(status: str, *, asking: bool) -> str:
    """Return the status that people are shown: a workflow that is paused for a question asks."""
    return "ASKING" if asking and status == "PAUSED" else status


def update_progress(bar: Element, fill: Element, done: int, total: int, *, bad: bool) -> None:
    """Set a progress bar to ``done`` of ``total``."""
    bar.props.update({"aria-valuemax": str(total), "aria-valuenow": str(done)})
    bar.classes(replace=f"k-progress {'k-progress-bad' if bad else ''}")
    fill.style(replace=f"width: {round(100 * done / max(1, total))}%")


def update_text(place: ui.label, words: str | None) -> None:
    """Set the text of a label; hide the label if there is none."""
    place.set_text(words or "")
    place.set_visibility(bool(words))
