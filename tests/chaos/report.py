"""What a run of the campaigns did, as JSON for the certificate: ``python -m tests.chaos --report FILE``."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass
class Report:
    """What was counted, skipped and failed, as it goes."""

    counts: Counter[str] = field(default_factory=Counter)
    skipped: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def count(self, tally: Any, **names: str) -> None:
        """Add the whole numbers of a tally, and the totals of its counters; ``names`` renames some of them."""
        for item in fields(tally):
            value = getattr(tally, item.name)
            if isinstance(value, Counter) and item.name != "missed":
                value = value.total()
            if isinstance(value, int):
                self.counts[names.get(item.name, item.name.replace("_", " "))] += value
        if missed := getattr(tally, "missed", None):
            self.skipped.append(f"{tally.transport} {tally.kind}: no stop fell upon {_calls(missed)}")

    def write(self, path: Path) -> None:
        """Write it whole."""
        path.write_text(json.dumps(vars(self), indent=2) + "\n")


def _calls(missed: Counter[str]) -> str:
    return ", ".join(f"{count} × {call}" for call, count in sorted(missed.items()))
