"""How far the events of a store have come, without reading them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kingdom.workflow.ports import Store


async def last_number(store: Store, workflow_id: str | None) -> int:
    """The number of the last event of a workflow (or of all); 0 when there is none. Some dozen short looks."""

    async def is_beyond(number: int) -> bool:
        return bool(await store.events(workflow_id, number, 1))

    low, step = -1, 1  # the last number is above `low`
    while await is_beyond(low + step):
        low, step = low + step, step * 2
    high = low + step  # nothing is above it
    while high - low > 1:
        middle = (low + high) // 2
        if await is_beyond(middle):
            low = middle
        else:
            high = middle
    return high
