"""Who wants to know what happens, and is told."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.workflow.ports import Store


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """Something that happened, to the court (its journal) or to a workflow."""

    sequence: int
    """Counts over everything, without a gap, also across restarts of the server."""
    source: str
    """``journal`` or ``workflow``."""
    type: str
    occurred_at: str
    data: dict[str, Any]
    workflow_id: str | None = None
    workflow_sequence: int | None = None
    """Counts per workflow, without a gap."""


Listener: TypeAlias = Callable[[Sequence[LiveEvent]], None]


class Hub:
    """Tells listeners of this process what happens, in order."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Have ``listener`` called, in the event loop, with what is new; returns the undo. It must not block."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, events: Sequence[LiveEvent]) -> None:
        """Tell everybody."""
        for listener in list(self._listeners):
            listener(events)


@contextlib.asynccontextmanager
async def open_hub(root: Path, store: Store, services: Services | None) -> AsyncIterator[Hub]:
    """A hub that is fed with the events of the workflows of a store and the journal of a court."""
    yield Hub()
