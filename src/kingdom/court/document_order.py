"""The order of a list of documents: by time, or by a field and then by time."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from kingdom.court.document_index import IndexEntry

SortOrder: TypeAlias = Literal["newest", "oldest", "status", "type", "general", "source", "priority"]
"""Within equal fields, the newest comes first."""
EntryPosition: TypeAlias = tuple[str, float, str]
"""The field of an entry (empty, where the order is by time), its time and its id."""


def sort_entries(newest: list[IndexEntry], order: SortOrder) -> list[IndexEntry]:
    """Return entries, which are the newest first, in another order."""
    if order == "newest":
        return newest
    if order == "oldest":
        return newest[::-1]
    # There are few values: collecting their entries is faster than sorting a hundred thousand.
    groups: dict[str, list[IndexEntry]] = {}
    for entry in newest:
        groups.setdefault(_value(entry, order), []).append(entry)
    return [entry for value in sorted(groups) for entry in groups[value]]


def position_of(entry: IndexEntry, order: SortOrder) -> EntryPosition:
    """Return the position of an entry in a list with this order."""
    return _value(entry, order), entry.at, entry.id


def first_after(entries: list[IndexEntry], order: SortOrder, position: EntryPosition | None) -> int:
    """Return the index of the first entry after a position; entries may have come or gone since it was taken."""
    if position is None:
        return 0
    value, key = position[0], position[1:]

    def is_after(entry: IndexEntry) -> bool:
        own = _value(entry, order)
        if own != value:
            return own > value
        return entry.key > key if order == "oldest" else entry.key < key

    return bisect_left(entries, True, key=is_after)


def _value(entry: IndexEntry, order: SortOrder) -> str:
    return "" if order in ("newest", "oldest") else str(getattr(entry, order))
