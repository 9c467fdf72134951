"""Small things: texts, badges, cards, figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from nicegui import ui

from kingdom.web.dashboard.theme import Tone, tone_of

if TYPE_CHECKING:
    from nicegui.element import Element

E = TypeVar("E", bound="Element")


def tag(name: str, classes: str = "", **attributes: str) -> Element:
    """An HTML element: ``with tag("section", "k-card", aria_label=…):``. Attributes are data, never markup."""
    element = ui.element(name).classes(classes)
    for key, value in attributes.items():
        element.props[key.rstrip("_").replace("_", "-")] = value
    return element


def labelled(element: E, label: str) -> E:
    """Name an element for those who cannot see it (``.props("aria-label=…")`` would read the text as code)."""
    element.props["aria-label"] = label
    return element


def text(content: object, classes: str = "", name: str = "span") -> ui.label:
    """A text, in an element of this name."""
    label = ui.label(str(content)).classes(classes)
    label.tag = name
    return label


def link(content: str, target: str, classes: str = "") -> ui.link:
    """A link to a page of ours."""
    return ui.link(content, target).classes(classes)


@contextmanager
def row(classes: str = "") -> Iterator[Element]:
    """Side by side."""
    with tag("div", f"k-row {classes}") as element:
        yield element


@contextmanager
def stack(classes: str = "") -> Iterator[Element]:
    """One below the other."""
    with tag("div", f"k-stack {classes}") as element:
        yield element


@contextmanager
def card(title: str, classes: str = "", *, flush: bool = False) -> Iterator[tuple[Element, Element]]:
    """A card with a title; gives its body, in which the block builds, and the right side of its head."""
    with tag("section", f"k-card {classes}", aria_label=title):
        with tag("div", "k-card-head"):
            text(title, name="h2")
            side = tag("div", "k-card-side")
        with tag("div", f"k-card-body {'k-flush' if flush else ''}") as body:
            yield body, side


def badge(shown: str, status: str, classes: str = "") -> ui.label:
    """A status in its colour: ``badge(words.of("status", status), status)``."""
    return text(shown, f"k-badge k-tone-{tone_of(status)} {classes}")


def figure(value: str, label: str, tone: Tone | None = None) -> ui.label:
    """A number that matters, with what it counts; gives the label of the number."""
    with tag("div", "k-figure"):
        shown = text(value, f"k-figure-value {f'k-text-{tone}' if tone else ''}")
        text(label, "k-figure-label")
    return shown


def meter(part: float, label: str) -> Element:
    """How much of something is used, 0 to 1 and beyond."""
    tone = "k-meter-bad" if part >= 1 else "k-meter-warn" if part >= 0.8 else ""
    percent = round(min(max(part, 0.0), 1.0) * 100)
    bar = tag("div", f"k-meter {tone}", role="meter", aria_label=label, aria_valuemin="0", aria_valuemax="100")
    bar.props["aria-valuenow"] = str(percent)
    with bar:
        tag("div").style(f"width: {percent}%")
    return bar


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and what they stand for."""
    with tag("dl", "k-facts"):
        for name, value in pairs:
            text(name, name="dt")
            text(value, name="dd")


def code(content: str, classes: str = "k-code") -> ui.label:
    """Text as it is, in lines: output, JSON, an error."""
    element = text(content, classes, name="pre")
    element.props["tabindex"] = "0"  # what scrolls must be reachable by the keyboard
    return element


def button(
    content: str, on_click: Callable[..., Any] | None = None, *, kind: str = "", icon: str | None = None
) -> ui.button:
    """A button; ``kind`` is ``primary`` or ``danger``."""
    element = ui.button(content, on_click=on_click, icon=icon, color=None).props("flat no-caps")
    return element.classes(f"k-button {f'k-{kind}' if kind else ''}")


def tab(content: str, target: str, *, chosen: bool, count: int | None = None) -> None:
    """One of several views of the same, as a link."""
    with link("", target, "k-tab") as element:
        text(content)
        if count is not None:
            text(f"{count:,}", "k-count")
    if chosen:
        element.props["aria-current"] = "page"
