"""Fields with their label above them, which write what is typed into an object; and one to search with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from nicegui import ui
from nicegui.elements.mixins.disableable_element import DisableableElement

from kingdom.web.dashboard.building import labelled, tag, text

E = TypeVar("E", bound=DisableableElement)
_LOOK: Final = "outlined dense"


@contextmanager
def field(label: str, hint: str = "", classes: str = "") -> Iterator[None]:
    """The place of a field, below its label. Whoever cannot see that is told by the field itself."""
    with tag("div", f"k-labelled {classes}"):
        text(label, "k-label", name="div").props["aria-hidden"] = "true"
        yield
        if hint:
            text(hint, "k-hint", name="div")


def line(label: str, target: Any, name: str, *, hint: str = "", locked: bool = False) -> ui.input:
    """One line."""
    with field(label, hint):
        made = ui.input(value=getattr(target, name)).bind_value_to(target, name, forward=_text)
    return _dressed(made, label, locked=locked)


def area(
    label: str, target: Any, name: str, *, hint: str = "", locked: bool = False, mono: bool = False
) -> ui.textarea:
    """Several lines."""
    with field(label, hint, "k-mono-field" if mono else ""):
        made = ui.textarea(value=getattr(target, name)).bind_value_to(target, name, forward=_text)
    return _dressed(made, label, "autogrow", locked=locked)


def choice(label: str, options: Any, target: Any, name: str, *, locked: bool = False) -> ui.select:
    """One of some."""
    with field(label):
        made = ui.select(options, value=getattr(target, name)).bind_value_to(target, name)
    return _dressed(made, label, locked=locked)


def several(
    label: str, options: list[str], target: Any, name: str, *, hint: str = "", locked: bool = False
) -> ui.select:
    """Any of some."""
    chosen = list(getattr(target, name))
    known = options + [one for one in chosen if one not in options]
    with field(label, hint):
        made = ui.select(known, value=chosen, multiple=True).bind_value_to(target, name, forward=_list)
    return _dressed(made, label, "use-chips", locked=locked)


def switch(label: str, target: Any, name: str, *, locked: bool = False) -> ui.checkbox:
    """Yes or no."""
    made = ui.checkbox(label, value=getattr(target, name)).bind_value_to(target, name)
    made.props("dense").set_enabled(not locked)
    return made


def count(label: str, target: Any, name: str, *, most: int, locked: bool = False) -> ui.number:
    """A whole number from 0 on."""
    with field(label, classes="k-narrow-field"):
        made = ui.number(value=getattr(target, name), min=0, max=most, precision=0)
        made.bind_value_to(target, name, forward=lambda given: int(given or 0))
    return _dressed(made, label, locked=locked)


def search_box(label: str, value: str, found_at: Callable[[str | None], str], classes: str = "") -> None:
    """A box to search with: the visitor is taken to where what is typed (None: nothing) is found."""

    def go() -> None:
        ui.navigate.to(found_at(made.value or None))

    made = ui.input(value=value, placeholder=label).props(f"{_LOOK} clearable")
    labelled(made.classes(f"k-field k-search {classes}"), label)
    made.on("keydown.enter", go)
    made.on("clear", go)


def _dressed(made: E, label: str, props: str = "", *, locked: bool) -> E:
    made.props(f"{_LOOK} {props}").classes("k-field").set_enabled(not locked)
    return labelled(made, label)


def _text(given: Any) -> str:
    return str(given or "")


def _list(given: Any) -> list[str]:
    return list(given or ())
