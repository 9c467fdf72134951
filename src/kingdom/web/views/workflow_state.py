"""State that the views of workflows keep between requests: summaries, agent output, costs."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kingdom.homes import engines_of
from kingdom.web.envelope import not_found
from kingdom.workflow.agent_records import LedgerReader, TranscriptLine, TranscriptReader
from kingdom.workflow.domain.statuses import WorkStatus
from kingdom.workflow.home import git_service
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
    from kingdom.workflow.ports import WorkflowTransaction


# What lists tell of workflows, kept for as long as these do not change: reading fifty of them takes its time.


_MAX_SUMMARIES: Final = 5_000  # workflows that are remembered


@dataclass(frozen=True, slots=True)
class SummaryFacts:
    """What a list tells of one version of a workflow."""

    version: int
    facts: dict[str, Any]
    running: tuple[str, ...]
    """The ids of the works under way."""


class SummaryCache:
    """Remembers what was told, by the version of the workflow."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, SummaryFacts] = OrderedDict()

    async def of(self, tx: WorkflowTransaction, versions: Sequence[tuple[str, int]]) -> list[SummaryFacts]:
        """What is to be told of these, in their order."""
        known = {item_id: self._told[item_id] for item_id, version in versions if self._knows(item_id, version)}
        changed = [item_id for item_id, _ in versions if item_id not in known]
        known |= {workflow.id: summary_facts(workflow) for workflow in await tx.workflows.find_all(changed)}
        for item_id, told in known.items():
            self._told[item_id] = told
            self._told.move_to_end(item_id)
        while len(self._told) > _MAX_SUMMARIES:
            self._told.popitem(last=False)
        return [known[item_id] for item_id, _ in versions if item_id in known]

    def _knows(self, item_id: str, version: int) -> bool:
        told = self._told.get(item_id)
        return told is not None and told.version == version


def summary_facts(workflow: Workflow) -> SummaryFacts:
    """What a list tells of a workflow."""
    statuses = workflow.work_statuses
    facts = {
        **workflow_summary(workflow),
        "reason": workflow.reason,
        "worksFailed": list(statuses.values()).count(WorkStatus.FAILED),
    }
    running = tuple(work_id for work_id, status in statuses.items() if status is WorkStatus.RUNNING)
    return SummaryFacts(workflow.version, facts, running)


# The words of the agents of one workflow: the last ones of each run, numbered, so that a reader can go on.


_MAX_LINES_PER_RUN: Final = 2000  # words of one run; older ones are in its transcript


@dataclass(frozen=True, slots=True)
class OutputLine:
    """Something an agent said, and the how manieth of its run it is."""

    number: int
    position: int
    said: TranscriptLine


class OutputReader:
    """Reads on each time it is asked; what was read is kept."""

    def __init__(self, runs: Path, sessions: Path, engines: Mapping[str, Engine | InProcessEngine]) -> None:
        self._listening = TranscriptReader(runs, sessions, engines)
        self._runs: dict[str, deque[OutputLine]] = {}
        self._counts: dict[str, int] = {}
        self._heard = 0
        self._lock = asyncio.Lock()

    async def read_on(self, work_ids: Iterable[str]) -> None:
        """Hear what was said since the last time by runs of these works."""
        async with self._lock:
            for said in await asyncio.to_thread(self._listening.read_on, list(work_ids)):
                number = self._counts[said.run_id] = self._counts.get(said.run_id, 0) + 1
                self._heard += 1
                words = self._runs.setdefault(said.run_id, deque(maxlen=_MAX_LINES_PER_RUN))
                words.append(OutputLine(number, self._heard, said))

    def after(self, counts: Mapping[str, int], prefix: str = "") -> list[OutputLine]:
        """What was said behind these numbers of each run, in the order in which it was heard.

        Only by runs whose id begins with ``prefix``.
        """
        found = [
            one
            for run_id, words in self._runs.items()
            if run_id.startswith(prefix)
            for one in words
            if one.number > counts.get(run_id, 0)
        ]
        return sorted(found, key=lambda one: one.position)


# What the views of workflows keep between two looks.


_MAX_OUTPUT_READERS: Final = 32  # workflows whose words are kept
_COST_SECONDS: Final = 1.0  # seconds for which what was spent counts: lists are asked for often


class WorkflowViewState:
    """For the views of the workflows of one place."""

    def __init__(self, context: WebContext) -> None:
        self._place = context.place
        self._clock = context.parts.clock
        self._ledgers = LedgerReader(context.place.ledger)
        self._reading = asyncio.Lock()
        self._read_again = 0.0
        self._voices: OrderedDict[str, OutputReader] = OrderedDict()
        self.summaries = SummaryCache()
        self.naming = asyncio.Lock()
        """Held from the look whether a name is taken until it is: two who ask at once must not both get it."""

    @cached_property
    def engines(self) -> Mapping[str, Engine | InProcessEngine]:
        """The engines agents run on."""
        return engines_of(self._place)

    @cached_property
    def git(self) -> GitopsService:
        """The clones and worktrees."""
        return git_service(self._place, self._clock)

    async def spent(self, *, fresh: bool = False) -> Mapping[str, WorkflowCost]:
        """What each workflow has spent; a second ago, or (``fresh``) now."""
        async with self._reading:
            if fresh or time.monotonic() >= self._read_again:
                await asyncio.to_thread(self._ledgers.read_on)  # the first time it reads months
                self._read_again = time.monotonic() + _COST_SECONDS
        return self._ledgers.by_workflow

    def voices(self, workflow_id: str) -> OutputReader:
        """What the agents of a workflow say."""
        found = self._voices.pop(workflow_id, None)
        if found is None:
            found = OutputReader(self._place.runs, self._place.sessions, self.engines)
        self._voices[workflow_id] = found
        while len(self._voices) > _MAX_OUTPUT_READERS:
            self._voices.popitem(last=False)
        return found


def workflow_state(context: WebContext) -> WorkflowViewState:
    """The desk of the workflows of a context."""
    return context.keep(WorkflowViewState, lambda: WorkflowViewState(context))


# Workflows and checkpoints by their ids, for views and routes that need one to be there.


async def find_workflow(tx: WorkflowTransaction, workflow_id: str) -> Workflow:
    """A workflow; raises :class:`kingdom.web.envelope.ApiError` when there is none."""
    found = await tx.workflows.find(workflow_id)
    if found is None:
        raise not_found("WFL", "workflow", workflow_id)
    return found


async def find_checkpoint(tx: WorkflowTransaction, workflow_id: str, checkpoint_id: str) -> Checkpoint:
    """A finished checkpoint of a workflow; raises :class:`kingdom.web.envelope.ApiError` when there is none."""
    found = await tx.checkpoints.find(checkpoint_id)
    if found is None or not found.complete or found.workflow_id != workflow_id:
        raise not_found("WFL", "checkpoint", checkpoint_id)
    return found
