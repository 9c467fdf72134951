"""What a workflow has cost, from the ledger of the agents' runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kingdom.agents.port import Tokens

_CLASSES: Final = ("input", "output", "cache_read", "cache_write")


@dataclass(slots=True)
class Spent:
    """A sum over runs."""

    cost_usd: float = 0.0
    tokens: int = 0
    runs: int = 0
    by_class: Tokens = field(default_factory=Tokens)
    by_work: dict[str, float] = field(default_factory=dict)  # the name of the Work: US dollars


class Ledgers:
    """Reads the ledger for all workflows; cheap to ask again, it reads on."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._offsets: dict[Path, int] = {}
        self.run_ids: set[str] = set()
        self.by_workflow: dict[str, Spent] = {}

    def read_on(self) -> dict[str, Spent]:
        """What was spent so far, by runs that have ended, for each workflow that has spent something."""
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
            by_class = Tokens(*(int(used.get(name) or 0) for name in _CLASSES))
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # a torn line
        if not isinstance(workflow_id, str) or not self._mine(workflow_id) or run_id in self.run_ids:
            return
        self.run_ids.add(run_id)
        total = self.by_workflow.setdefault(workflow_id, Spent())
        total.cost_usd += cost
        total.tokens += tokens
        total.by_class += by_class
        total.runs += 1
        total.by_work[work] = total.by_work.get(work, 0.0) + cost

    def _mine(self, workflow_id: str) -> bool:
        return True


class Spending:
    """Reads the ledger for one workflow; cheap to ask again, it reads on."""

    def __init__(self, ledger: Path, workflow_id: str) -> None:
        self._ledgers = _OfOne(ledger, workflow_id)
        self.total = self._ledgers.by_workflow[workflow_id] = Spent()

    @property
    def run_ids(self) -> set[str]:
        """The runs that were counted."""
        return self._ledgers.run_ids

    def read_on(self) -> Spent:
        """What was spent so far, by runs that have ended."""
        self._ledgers.read_on()
        return self.total


class _OfOne(Ledgers):
    def __init__(self, ledger: Path, workflow_id: str) -> None:
        super().__init__(ledger)
        self._workflow = workflow_id
        self._marker = workflow_id.encode()

    def _wanted(self, raw: bytes) -> bool:
        return self._marker in raw  # most lines need not be decoded

    def _mine(self, workflow_id: str) -> bool:
        return workflow_id == self._workflow
