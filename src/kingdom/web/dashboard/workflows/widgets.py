"""Form fields that write into an object, and badges and bars that change in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from nicegui import ui
from nicegui.elements.mixins.disableable_element import DisableableElement

from kingdom.web.dashboard.components import labelled, tag, text
from kingdom.web.dashboard.theme import Tone, tone_of

if TYPE_CHECKING:
    from nicegui.element import Element


# Fields with their label above them, which write what is typed into an object; and one to search with.


E = TypeVar("E", bound=DisableableElement)
_FIELD_PROPS: Final = "outlined dense"


@contextmanager
def labelled_field(label: str, hint: str = "", classes: str = "") -> Iterator[None]:
    """The place of a field, below its label. Whoever cannot see that is told by the field itself."""
    with tag("div", f"k-labelled {classes}"):
        text(label, "k-label", name="div").props["aria-hidden"] = "true"
        yield
        if hint:
            text(hint, "k-hint", name="div")


def text_field(label: str, target: Any, name: str, *, hint: str = "", locked: bool = False) -> ui.input:
    """One line."""
    with labelled_field(label, hint):
        made = ui.input(value=getattr(target, name)).bind_value_to(target, name, forward=_text)
    return _styled(made, label, locked=locked)


def text_area(
    label: str, target: Any, name: str, *, hint: str = "", locked: bool = False, mono: bool = False
) -> ui.textarea:
    """Several lines."""
    with labelled_field(label, hint, "k-mono-field" if mono else ""):
        made = ui.textarea(value=getattr(target, name)).bind_value_to(target, name, forward=_text)
    return _styled(made, label, "autogrow", locked=locked)


def select_field(label: str, options: Any, target: Any, name: str, *, locked: bool = False) -> ui.select:
    """One of some."""
    with labelled_field(label):
        made = ui.select(options, value=getattr(target, name)).bind_value_to(target, name)
    return _styled(made, label, locked=locked)


def multi_select(
    label: str, options: list[str], target: Any, name: str, *, hint: str = "", locked: bool = False
) -> ui.select:
    """Any of some."""
    chosen = list(getattr(target, name))
    known = options + [one for one in chosen if one not in options]
    with labelled_field(label, hint):
        made = ui.select(known, value=chosen, multiple=True).bind_value_to(target, name, forward=_list)
    return _styled(made, label, "use-chips", locked=locked)


def checkbox_field(label: str, target: Any, name: str, *, locked: bool = False) -> ui.checkbox:
    """Yes or no."""
    made = ui.checkbox(label, value=getattr(target, name)).bind_value_to(target, name)
    made.props("dense").set_enabled(not locked)
    return made


def number_field(label: str, target: Any, name: str, *, most: int, locked: bool = False) -> ui.number:
    """A whole number from 0 on."""
    with labelled_field(label, classes="k-narrow-field"):
        made = ui.number(value=getattr(target, name), min=0, max=most, precision=0)
        made.bind_value_to(target, name, forward=lambda given: int(given or 0))
    return _styled(made, label, locked=locked)


def search_box(label: str, value: str, found_at: Callable[[str | None], str], classes: str = "") -> None:
    """A box to search with: the visitor is taken to where what is typed (None: nothing) is found."""

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


# Marks that change in place.


_BUSY_STATUSES: Final = frozenset({"RUNNING", "PREPARING", "RESUMING", "CREATING"})


def status_tone(status: str) -> Tone:
    """The tone of a workflow, Work or task: what is under way is busy, and only what is done is well."""
    return "busy" if status in _BUSY_STATUSES else tone_of(status)


def update_badge(shown: ui.label, word: str, status: str) -> None:
    """Give a badge another status."""
    shown.set_text(word)
    shown.classes(replace=f"k-badge k-tone-{status_tone(status)}")


def update_progress(bar: Element, fill: Element, done: int, total: int, *, bad: bool) -> None:
    """Show how much of something is done."""
    bar.props.update({"aria-valuemax": str(total), "aria-valuenow": str(done)})
    bar.classes(replace=f"k-progress {'k-progress-bad' if bad else ''}")
    fill.style(replace=f"width: {round(100 * done / max(1, total))}%")


def update_text(place: ui.label, words: str | None) -> None:
    """Show words where there are some, and nothing where there are none."""
    place.set_text(words or "")
    place.set_visibility(bool(words))
