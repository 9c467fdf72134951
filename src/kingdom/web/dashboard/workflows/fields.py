"""Fields that write what is typed into an object."""

from __future__ import annotations

from typing import Any

from nicegui import ui

_LOOK = "outlined dense"


def line(label: str, target: Any, name: str, *, locked: bool = False) -> ui.input:
    """One line."""
    field = ui.input(label, value=getattr(target, name)).bind_value_to(target, name, forward=_text)
    field.props(_LOOK).classes("k-field").set_enabled(not locked)
    return field


def area(label: str, target: Any, name: str, *, locked: bool = False, mono: bool = False) -> ui.textarea:
    """Several lines."""
    field = ui.textarea(label, value=getattr(target, name)).bind_value_to(target, name, forward=_text)
    field.props(f"{_LOOK} autogrow").classes(f"k-field {'k-mono-field' if mono else ''}").set_enabled(not locked)
    return field


def choice(label: str, options: Any, target: Any, name: str, *, locked: bool = False) -> ui.select:
    """One of some."""
    field = ui.select(options, value=getattr(target, name), label=label).bind_value_to(target, name)
    field.props(_LOOK).classes("k-field").set_enabled(not locked)
    return field


def several(label: str, options: list[str], target: Any, name: str, *, locked: bool = False) -> ui.select:
    """Any of some."""
    chosen = list(getattr(target, name))
    known = options + [one for one in chosen if one not in options]
    field = ui.select(known, value=chosen, label=label, multiple=True).bind_value_to(target, name, forward=_list)
    field.props(f"{_LOOK} use-chips").classes("k-field k-grow").set_enabled(not locked)
    return field


def switch(label: str, target: Any, name: str, *, locked: bool = False) -> ui.checkbox:
    """Yes or no."""
    field = ui.checkbox(label, value=getattr(target, name)).bind_value_to(target, name)
    field.set_enabled(not locked)
    return field


def count(label: str, target: Any, name: str, *, most: int, locked: bool = False) -> ui.number:
    """A whole number from 0 on."""
    field = ui.number(label, value=getattr(target, name), min=0, max=most, precision=0)
    field.bind_value_to(target, name, forward=lambda given: int(given or 0))
    field.props(_LOOK).classes("k-field k-narrow-field").set_enabled(not locked)
    return field


def _text(given: Any) -> str:
    return str(given or "")


def _list(given: Any) -> list[str]:
    return list(given or ())
