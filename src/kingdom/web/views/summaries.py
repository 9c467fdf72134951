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
        known = {item_id: self._told[item_id] for item_id, version in versions if self._knows(item_id, version)}
        changed = [item_id for item_id, _ in versions if item_id not in known]
        known |= {workflow.id: told_of(workflow) for workflow in await tx.workflows.find_all(changed)}
        for item_id, told in known.items():
            self._told[item_id] = told
            self._told.move_to_end(item_id)
        while len(self._told) > _MOST:
            self._told.popitem(last=False)
        return [known[item_id] for item_id, _ in versions if item_id in known]

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
