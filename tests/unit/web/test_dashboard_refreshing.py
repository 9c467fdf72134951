"""Panels of a page: drawn when there is something new, and only then."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, cast

import pytest
from nicegui import Client, background_tasks, ui

from kingdom.web.dashboard.components import KeyedList, tag, text
from kingdom.web.dashboard.refresh import PagePanel

if TYPE_CHECKING:
    from nicegui.element import Element


@contextlib.asynccontextmanager
async def a_page() -> AsyncIterator[None]:
    """A page nobody looks at, to build in."""
    with Client(ui.page("")) as client:
        yield
    client.delete()
    await background_tasks.teardown()


async def test_a_panel_is_drawn_anew_only_when_what_it_shows_changed() -> None:
    async with a_page():
        data, drawn = ["a"], []

        async def load() -> str:
            return data[0]

        def draw(found: str) -> None:
            drawn.append(found)
            text(found)

        inside = tag("div")
        panel = PagePanel(inside, load, draw, keep=False)
        for _ in range(3):
            await panel.refresh()
        assert drawn == ["a"]
        data[0] = "b"
        await panel.refresh()
        assert drawn == ["a", "b"]
        assert _texts(inside) == ["b"]


async def test_what_could_not_be_drawn_is_drawn_the_next_time() -> None:
    async with a_page():
        broken = [True]

        async def load() -> str:
            return "a"

        def draw(found: str) -> None:
            if broken:
                raise ValueError(found)
            text(found)

        inside = tag("div")
        panel = PagePanel(inside, load, draw, keep=True)
        with pytest.raises(ValueError, match="a"):
            await panel.refresh()
        broken.clear()
        await panel.refresh()
        assert _texts(inside) == ["a"]


async def test_a_note_stands_below_until_a_refresh_succeeds() -> None:
    async with a_page():

        async def load() -> str:
            return "a"

        inside = tag("div")
        panel = PagePanel(inside, load, lambda found: cast(None, text(found)), keep=False)
        await panel.refresh()
        panel.note(lambda: cast(None, text("it went wrong")))
        assert _texts(inside) == ["a", "it went wrong"]
        await panel.refresh()
        assert _texts(inside) == ["a"]


async def test_a_list_keeps_the_elements_of_what_stays_and_follows_the_order() -> None:
    async with a_page():
        inside = tag("ul")

        def make(item: tuple[str, str]) -> None:
            text(f"{item[0]}={item[1]}", name="li")

        listed: KeyedList[tuple[str, str]] = KeyedList(
            inside, lambda item: item[0], make, lambda: cast(None, text("none"))
        )
        listed.show([])
        assert _texts(inside) == ["none"]
        listed.show([("a", "1"), ("b", "1"), ("c", "1")])
        first = {child.id for child in inside.default_slot.children}
        listed.show([("c", "1"), ("d", "1"), ("a", "1")])
        assert _texts(inside) == ["c=1", "d=1", "a=1"]
        assert len(first & {child.id for child in inside.default_slot.children}) == 2
        listed.show([("c", "2"), ("d", "1")])
        assert _texts(inside) == ["c=2", "d=1"]


async def test_a_list_tells_an_element_of_its_new_version() -> None:
    async with a_page():
        inside = tag("ul")
        told: list[tuple[str, str]] = []
        listed: KeyedList[tuple[str, str]] = KeyedList(inside, lambda item: item[0], lambda item: _made(item, told))
        listed.show([("a", "1")])
        (element,) = inside.default_slot.children
        listed.show([("a", "1")])
        listed.show([("a", "2")])
        assert told == [("a", "2")]
        assert inside.default_slot.children == [element]


def _made(item: tuple[str, str], told: list[tuple[str, str]]) -> Callable[[tuple[str, str]], None]:
    text(item[1])
    return told.append


def _texts(inside: Element) -> list[str]:
    return [one.text for one in inside.descendants() if isinstance(one, ui.label)]
