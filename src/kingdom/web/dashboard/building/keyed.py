"""Lists that change without jumping: what stays keeps its elements, with the focus and the text somebody types."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from nicegui.element import Element

T = TypeVar("T")


class Keyed(Generic[T]):
    """Keeps the children of an element in step with a list.

    ``make(item)`` builds exactly one element and gives what it wants called with each later version of the item.
    ``none()`` builds one element that is shown while the list is empty.
    """

    def __init__(
        self,
        inside: Element,
        key: Callable[[T], Hashable],
        make: Callable[[T], Callable[[T], None] | None],
        none: Callable[[], None] | None = None,
    ) -> None:
        self._inside = inside
        self._key = key
        self._make = make
        self._none = none
        self._nothing: Element | None = None
        self._there: dict[Hashable, tuple[Element, Callable[[T], None] | None, T]] = {}

    def show(self, items: Iterable[T]) -> None:
        """Have these, in this order."""
        wanted = {self._key(item): item for item in items}
        self._show_nothing(not wanted)
        for key in [key for key in self._there if key not in wanted]:
            self._there.pop(key)[0].delete()
        for index, (key, item) in enumerate(wanted.items()):
            if key not in self._there:
                self._there[key] = self._made(item)
            element, update, before = self._there[key]
            if before != item and update is not None:
                update(item)
            elif before != item:
                element.delete()
                element, update, _ = self._made(item)
            self._there[key] = element, update, item
            if self._inside.default_slot.children[index] is not element:
                element.move(self._inside, index)

    def _made(self, item: T) -> tuple[Element, Callable[[T], None] | None, T]:
        children = self._inside.default_slot.children
        with self._inside:
            update = self._make(item)
        return children[-1], update, item

    def _show_nothing(self, empty: bool) -> None:
        if not empty and self._nothing is not None:
            self._nothing.delete()
            self._nothing = None
        elif empty and self._nothing is None and self._none is not None:
            with self._inside:
                self._none()
            self._nothing = self._inside.default_slot.children[-1]
