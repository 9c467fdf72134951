"""State that the views of workflows keep between requests: summaries, agent output, costs."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kingdom.homes import engines_of, git_settings_of
from kingdom.web.envelope import not_found
from kingdom.web.views.workflow_order import ProgressCache
from kingdom.workflow.agent_records import LedgerReader, TranscriptLine, TranscriptReader
from kingdom.workflow.domain.statuses import WorkStatus
from kingdom.workflow.home import git_service, lander
from kingdom.workflow.overview import workflow_summary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.web.context import WebContext
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.agent_records import WorkflowCost
    from kingdom.workflow.domain.resources import Checkpoint
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.landing import Lander
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.store.transactions import WorkflowTransaction


_MAX_SUMMARIES: Final = 5_000


@dataclass(frozen=True, slots=True)
class SummaryFacts:
    """The summary of one version of a workflow."""

    version: int
    facts: dict[str, Any]
    running: tuple[str, ...]
    """Ids of the running works."""


class SummaryCache:
    """Caches summaries by the version of the workflow: reading fifty workflows is slow."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, SummaryFacts] = OrderedDict()

    async def of(self, tx: WorkflowTransaction, versions: Sequence[tuple[str, int]]) -> list[SummaryFacts]:
        """Return the summaries of workflows, in order."""
        known = {item_id: self._entries[item_id] for item_id, version in versions if self._knows(item_id, version)}
        changed = [item_id for item_id, _ in versions if item_id not in known]
        known |= {workflow.id: summary_facts(workflow) for workflow in await tx.workflows.find_all(changed)}
        for item_id, entry in known.items():
            self._entries[item_id] = entry
            self._entries.move_to_end(item_id)
        while len(self._entries) > _MAX_SUMMARIES:
            self._entries.popitem(last=False)
        return [known[item_id] for item_id, _ in versions if item_id in known]

    def _knows(self, item_id: str, version: int) -> bool:
        entry = self._entries.get(item_id)
        return entry is not None and entry.version == version


def summary_facts(workflow: Workflow) -> SummaryFacts:
    """Create the summary of a workflow."""
    statuses = workflow.work_statuses
    facts = {
        **workflow_summary(workflow),
        "reason": workflow.reason,
        "worksFailed": list(statuses.values()).count(WorkStatus.FAILED),
        "asking": WorkStatus.WAITING in statuses.values(),
    }
    running = tuple(work_id for work_id, status in statuses.items() if status is WorkStatus.RUNNING)
    return SummaryFacts(workflow.version, facts, running)


_MAX_LINES_PER_RUN: Final = 2000  # older lines are in the transcript


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line of agent output; ``number`` counts within the run, ``position`` over all runs."""

    number: int
    position: int
    said: TranscriptLine


class OutputReader:
    """Reads the agent output of one workflow incrementally and keeps the last lines of each run."""

    def __init__(self, runs: Path, sessions: Path, engines: Mapping[str, Engine | InProcessEngine]) -> None:
        self._listening = TranscriptReader(runs, sessions, engines)
        self._runs: dict[str, deque[OutputLine]] = {}
        self._counts: dict[str, int] = {}
        self._heard = 0
        self._lock = asyncio.Lock()

    async def read_on(self, work_ids: Iterable[str]) -> None:
        """Read new output of the runs of these works."""
        async with self._lock:
            for said in await asyncio.to_thread(self._listening.read_on, list(work_ids)):
                number = self._counts[said.run_id] = self._counts.get(said.run_id, 0) + 1
                self._heard += 1
                words = self._runs.setdefault(said.run_id, deque(maxlen=_MAX_LINES_PER_RUN))
                words.append(OutputLine(number, self._heard, said))

    def after(self, counts: Mapping[str, int], prefix: str = "") -> list[OutputLine]:
        """Return the lines after these numbers of each run, in the order in which they were read.

        Only of runs whose id begins with ``prefix``.
        """
        found = [
            one
            for run_id, words in self._runs.items()
            if run_id.startswith(prefix)
            for one in words
            if one.number > counts.get(run_id, 0)
        ]
        return sorted(found, key=lambda one: one.position)


_MAX_OUTPUT_READERS: Final = 32  # workflows whose output is kept in memory
_COST_SECONDS: Final = 1.0  # how long costs are reused


class WorkflowViewState:
    """State that the views of workflows keep between requests."""

    def __init__(self, context: WebContext) -> None:
        self._place = context.place
        self._clock = context.parts.clock
        self._ledgers = LedgerReader(context.place.ledger)
        self._reading = asyncio.Lock()
        self._read_again = 0.0
        self._readers: OrderedDict[str, OutputReader] = OrderedDict()
        self.summaries = SummaryCache()
        self.progress = ProgressCache()
        self.name_lock = asyncio.Lock()
        """Held while a name is checked and taken, so that two requests cannot take the same name."""

    @cached_property
    def engines(self) -> Mapping[str, Engine | InProcessEngine]:
        """The agent engines."""
        return engines_of(self._place)

    @cached_property
    def git(self) -> GitopsService:
        """Access to clones and worktrees."""
        return git_service(self._place, self._clock)

    def lander(self, store: WorkflowStore) -> Lander:
        """Return what lands workflows."""
        return lander(self._place, store, self._clock, git_settings_of(self._place))

    async def spent(self, *, fresh: bool = False) -> Mapping[str, WorkflowCost]:
        """Return the spending by workflow, at most a second old, or current with ``fresh``."""
        async with self._reading:
            if fresh or time.monotonic() >= self._read_again:
                await asyncio.to_thread(self._ledgers.read_on)  # the first read covers months
                self._read_again = time.monotonic() + _COST_SECONDS
        return self._ledgers.by_workflow

    def output_reader(self, workflow_id: str) -> OutputReader:
        """Return the reader of a workflow's agent output."""
        found = self._readers.pop(workflow_id, None)
        if found is None:
            found = OutputReader(self._place.runs, self._place.sessions, self.engines)
        self._readers[workflow_id] = found
        while len(self._readers) > _MAX_OUTPUT_READERS:
            self._readers.popitem(last=False)
        return found


def workflow_state(context: WebContext) -> WorkflowViewState:
    """Return the state of the workflow views of a context."""
    return context.cached(WorkflowViewState, lambda: WorkflowViewState(context))


async def find_workflow(tx: WorkflowTransaction, workflow_id: str) -> Workflow:
    """Return a workflow. Raises :class:`kingdom.web.envelope.ApiError` if it does not exist."""
    found = await tx.workflows.find(workflow_id)
    if found is None:
        raise not_found("WFL", "workflow", workflow_id)
    return found


async def find_checkpoint(tx: WorkflowTransaction, workflow_id: str, checkpoint_id: str) -> Checkpoint:
    """Return a completed checkpoint. Raises :class:`kingdom.web.envelope.ApiError` if it does not exist."""
    found = await tx.checkpoints.find(checkpoint_id)
    if found is None or not found.complete or found.workflow_id != workflow_id:
        raise not_found("WFL", "checkpoint", checkpoint_id)
    return found
