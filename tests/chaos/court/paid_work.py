"""Work that costs money, for more than its budget pays for, in a court whose machines fail."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kingdom.court.home import Home
from tests.chaos.processes import Violation
from tests.support.machines import QUICK, Machine, change_manifest, install

GENERAL: Final = "gen-paid"
FIRST: Final = 1_000_000  # number of its first event: those of other work are lower
_BURST: Final = 4  # events: what starts together must stay within the budget together
_COST: Final = 0.5  # of a run of QUICK, in USD


@dataclass
class PaidWork:
    """Twice as many events as the budget of the month pays for."""

    runs: int  # that the budget pays for
    emitted: int = 0

    def install(self, home: Home) -> None:
        """Put its general into a home."""
        install(home, GENERAL, script=QUICK)
        budget = {"monthly_usd": self.runs * _COST}
        change_manifest(home, GENERAL, caps={"cost_usd": _COST}, budget=budget, retries=5)

    async def emit(self, machine: Machine) -> None:
        """Ask for some more runs at once, until there are enough."""
        for _ in range(min(_BURST, 2 * self.runs - self.emitted)):
            self.emitted += 1
            await machine.emit(FIRST + self.emitted, GENERAL)

    def is_used(self, homes: Iterable[Home], ended: int) -> bool:
        """Whether the budget is used up, or nothing waits for it any more."""
        return len(_paid_runs(homes)) >= self.runs or ended == self.emitted

    def check(self, homes: Iterable[Home]) -> str:
        """Compare what was spent with the budget. Return what was spent, for people.

        A run that is repeated since a fault hid its end costs twice; nothing else is paid for above the budget. With
        clocks apart the machines may be in two months, and each has its budget.
        """
        runs = _paid_runs(homes)
        months = dict(runs.values())  # by task
        if over := {month: count for month, count in Counter(months.values()).items() if count > self.runs}:
            raise Violation(f"the budget of a month pays for {self.runs} runs, and these were started: {over}")
        repeats = len(runs) - len(months)
        return f"{len(months)} of {self.emitted} paid tasks within a budget for {self.runs}, {repeats} runs repeated"


def _paid_runs(homes: Iterable[Home]) -> dict[str, tuple[str, str]]:
    """The runs that cost something, by id: task and month. The machines that led have those of others, too."""
    found: dict[str, tuple[str, str]] = {}
    for home in homes:
        for path in home.ledger.glob("*.jsonl"):
            for text in path.read_text(errors="replace").splitlines():
                with contextlib.suppress(ValueError):  # a line that a full disk has torn
                    line = json.loads(text)
                    if line.get("general") == GENERAL and line.get("cost_usd"):
                        found[line["run_id"]] = line["task_id"], path.stem
    return found
