"""What lists tell of workflows, kept for as long as these do not change: reading fifty of them takes its time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.workflow.domain.statuses import WorkStatus
from kingdom.workflow.overview import summary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import Transaction

_MOST: Final = 5_000  # workflows that are remembered


@dataclass(frozen=True, slots=True)
class Told:
    """What a list tells of one version of a workflow."""

    version: int
    facts: dict[str, Any]
    running: tuple[str, ...]
    """The ids of the works under way."""


class Summaries:
    """Remembers what was told, by the version of the workflow."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, Told] = OrderedDict()

    async def of(self, tx: Transaction, versions: Sequence[tuple[str, int]]) -> list[Told]:
        """What is to be told of these, in their order."""
        changed = [item_id for item_id, version in versions if not self._knows(item_id, version)]
        found = {workflow.id: told_of(workflow) for workflow in await tx.workflows.find_all(changed)}
        known = {item_id: found.get(item_id) or self._told.get(item_id) for item_id, _ in versions}
        for item_id, told in known.items():
            if told is not None:
                self._told[item_id] = told
                self._told.move_to_end(item_id)
        while len(self._told) > _MOST:
            self._told.popitem(last=False)
        return [told for told in known.values() if told is not None]

    def _knows(self, item_id: str, version: int) -> bool:
        told = self._told.get(item_id)
        return told is not None and told.version == version


def told_of(workflow: Workflow) -> Told:
    """What a list tells of a workflow."""
    statuses = workflow.work_statuses
    facts = {
        **summary(workflow),
        "reason": workflow.reason,
        "worksFailed": list(statuses.values()).count(WorkStatus.FAILED),
    }
    running = tuple(work_id for work_id, status in statuses.items() if status is WorkStatus.RUNNING)
    return Told(workflow.version, facts, running)
