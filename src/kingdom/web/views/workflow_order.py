"""The order of the list of workflows: by time, or by a column and then by time."""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from kingdom.web.envelope import cursor_position, invalid_cursor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.workflow.agent_records import WorkflowCost
    from kingdom.workflow.store.transactions import WorkflowTransaction

WorkflowOrder: TypeAlias = Literal["newest", "oldest", "name", "status", "progress", "issue", "cost"]
"""By creation, or by a column: texts from A to Z, the most complete and the most expensive first. Where they are equal,
the newest comes first."""
ColumnOrder: TypeAlias = Literal["name", "status", "progress", "issue", "cost"]
SortKey: TypeAlias = str | float
_TEXT_ORDERS: Final = ("name", "status", "issue")
_RELOAD_SECONDS: Final = 60.0
_MAX_CHANGED: Final = 500  # workflows in one statement; more are read as all


class ProgressCache:
    """The progress of all workflows, kept in memory.

    Every change of a work has an event, so that only workflows with new events are read again. Ten thousand
    workflows of three works took 55 ms of CPU time to count, SQLite.
    """

    def __init__(self) -> None:
        self._parts: dict[str, float] = {}
        self._position = 0
        self._reload_at = 0.0

    async def read(self, tx: WorkflowTransaction) -> Mapping[str, float]:
        """Return the completed part of each workflow that has works, from 0 to 1."""
        last, now = await tx.workflows.last_event(), time.monotonic()
        if last == self._position and now < self._reload_at:
            return self._parts
        changed = []
        if now < self._reload_at and last > self._position:
            changed = await tx.workflows.changed_between(self._position, last)
        if 0 < len(changed) <= _MAX_CHANGED:
            found = await tx.workflows.progress(changed)
            self._parts |= {one: found.get(one, 0.0) for one in changed}
        else:
            self._parts = await tx.workflows.progress()
            self._reload_at = now + _RELOAD_SECONDS
        self._position = last
        return self._parts


async def sorted_page(
    tx: WorkflowTransaction,
    order: ColumnOrder,
    spent: Mapping[str, WorkflowCost],
    progress: ProgressCache,
    *,
    cursor: str | None = None,
    limit: int = 100,
    **filters: Any,
) -> list[tuple[SortKey, str]]:
    """Return keys and ids of workflows that match, in order, after a cursor; workflows may have come or gone since."""
    after = _position(cursor, order)
    if order in _TEXT_ORDERS:
        return [*await tx.workflows.sorted_by(order, after=after, limit=limit, **filters)]
    ids = await tx.workflows.ids(**filters)
    if order == "cost":  # costs are in no table
        found = [(-round(spent[one].cost_usd, 6) if one in spent else 0.0, one) for one in ids]
    else:
        parts = await progress.read(tx)
        found = [(-parts.get(one, 0.0), one) for one in ids]
    found.sort(key=lambda entry: entry[0])  # stable: the newest first among equals
    start = 0
    if after is not None:
        key, last = after
        start = bisect_left(found, True, key=lambda entry: entry[0] > key or (entry[0] == key and entry[1] < last))
    return [*found[start : start + limit]]


def _position(cursor: str | None, order: ColumnOrder) -> tuple[Any, str] | None:
    """Return the key and id of a cursor."""
    position = cursor_position(cursor)
    if position is None:
        return None
    match position:
        case [str() as key, str() as item_id] if order in _TEXT_ORDERS and _is_text(key) and _is_text(item_id):
            return key, item_id
        case [float() | int() as key, str() as item_id] if order not in _TEXT_ORDERS:
            return key, item_id
    raise invalid_cursor()


def _is_text(value: str) -> bool:
    """Return whether a database takes a text: a forged cursor may have half a character, or none."""
    return "\0" not in value and not any("\ud800" <= one <= "\udfff" for one in value)
