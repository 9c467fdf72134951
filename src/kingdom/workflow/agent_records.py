"""What agents' runs wrote: transcripts and the cost ledger, readable by any process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.errors import AgentsError
from kingdom.agents.folder import RunFolder
from kingdom.agents.port import AgentEvent, Began, Finished, Tokens, Usage
from kingdom.agents.transcript import Transcript, describe_event

if TYPE_CHECKING:
    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.agents.port import Order


# ── transcripts ──────────────────────────────────────────────────────────────────────────────────────────────────────


_TRANSCRIPT_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One line of a transcript."""

    run_id: str
    work: str  # names, for people
    task: str
    text: str


class TranscriptReader:
    """Reads the transcripts of works' runs, while they run. The id of a run starts with the id of its Work."""

    def __init__(self, soldiers: Path, sessions: Path, engines: Mapping[str, Engine | InProcessEngine]) -> None:
        self._soldiers = soldiers
        self._sessions = sessions
        self._engines = engines
        self._heard: dict[str, tuple[Order, Transcript]] = {}
        self.usage: dict[str, Usage] = {}  # by run id, as last reported

    def read_on(self, work_ids: Iterable[str]) -> list[TranscriptLine]:
        """Return the lines that runs of these works wrote since the last call."""
        for run_id in self._runs(tuple(f"{work_id}." for work_id in work_ids)):
            if run_id not in self._heard and (order := self._order(run_id)) is not None:
                path = self._sessions / f"{run_id}{_TRANSCRIPT_SUFFIX}"
                self._heard[run_id] = order, Transcript(path, order, self._engines)
        found: list[TranscriptLine] = []
        for run_id, (order, transcript) in self._heard.items():
            for event in transcript.read_new():
                if isinstance(event, Usage):
                    self.usage[run_id] = event
                if not _is_start_or_end(event) and (text := describe_event(event)):
                    found.append(
                        TranscriptLine(run_id, order.labels.get("work", ""), order.labels.get("task", ""), text)
                    )
        return found

    def _runs(self, prefixes: tuple[str, ...]) -> list[str]:
        try:
            with os.scandir(self._sessions) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:
            return []
        return sorted(
            name.removesuffix(_TRANSCRIPT_SUFFIX)
            for name in names
            if name.startswith(prefixes) and name.endswith(_TRANSCRIPT_SUFFIX)
        )

    def _order(self, run_id: str) -> Order | None:
        try:
            return RunFolder(self._soldiers, run_id).read_order()
        except AgentsError:
            return None


def _is_start_or_end(event: AgentEvent) -> bool:
    """Return whether an event only marks the start or the successful end of a run: the workflow's events say that."""
    return isinstance(event, Began) or (isinstance(event, Finished) and event.ok)


# ── cost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


_TOKEN_CLASSES: Final = ("input", "output", "cache_read", "cache_write")


@dataclass(slots=True)
class WorkflowCost:
    """The tokens and cost of a workflow's runs."""

    cost_usd: float = 0.0
    tokens: int = 0
    runs: int = 0
    by_class: Tokens = field(default_factory=Tokens)
    by_work: dict[str, float] = field(default_factory=dict)  # US dollars by the name of the Work


class LedgerReader:
    """Sums up the ledger by workflow. Reads only new lines on each call."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._offsets: dict[Path, int] = {}
        self.run_ids: set[str] = set()
        self.by_workflow: dict[str, WorkflowCost] = {}

    def read_on(self) -> dict[str, WorkflowCost]:
        """Read new lines; return the cost of ended runs by workflow id."""
        for path in sorted(self._ledger.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._offsets[path] = self._offsets.get(path, 0) + whole
            for line in data[:whole].splitlines():
                if self._wanted(line):
                    self._take(line)
        return self.by_workflow

    def _wanted(self, raw: bytes) -> bool:
        return b'"workflow"' in raw

    def _take(self, raw: bytes) -> None:
        try:
            line: dict[str, Any] = json.loads(raw)
            run_id, work = str(line["run_id"]), str(line.get("work", ""))
            workflow_id = line.get("workflow")
            used = line.get("tokens") or {}
            cost, tokens = float(line.get("cost_usd") or 0.0), int(used.get("total") or 0)
            by_class = Tokens(*(int(used.get(name) or 0) for name in _TOKEN_CLASSES))
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # an incomplete line
        if not isinstance(workflow_id, str) or not self._mine(workflow_id) or run_id in self.run_ids:
            return
        self.run_ids.add(run_id)
        total = self.by_workflow.setdefault(workflow_id, WorkflowCost())
        total.cost_usd += cost
        total.tokens += tokens
        total.by_class += by_class
        total.runs += 1
        total.by_work[work] = total.by_work.get(work, 0.0) + cost

    def _mine(self, workflow_id: str) -> bool:
        return True


class WorkflowLedger:
    """Sums up the ledger for one workflow. Reads only new lines on each call."""

    def __init__(self, ledger: Path, workflow_id: str) -> None:
        self._ledgers = _SingleWorkflowReader(ledger, workflow_id)
        self.total = self._ledgers.by_workflow[workflow_id] = WorkflowCost()

    @property
    def run_ids(self) -> set[str]:
        """The ids of the runs that were counted."""
        return self._ledgers.run_ids

    def read_on(self) -> WorkflowCost:
        """Read new lines; return the cost of ended runs."""
        self._ledgers.read_on()
        return self.total


class _SingleWorkflowReader(LedgerReader):
    def __init__(self, ledger: Path, workflow_id: str) -> None:
        super().__init__(ledger)
        self._workflow = workflow_id
        self._marker = workflow_id.encode()

    def _wanted(self, raw: bytes) -> bool:
        return self._marker in raw  # most lines need not be decoded

    def _mine(self, workflow_id: str) -> bool:
        return workflow_id == self._workflow
