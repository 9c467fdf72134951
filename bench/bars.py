"""Bars: what a figure has to reach, and whether it did. They are printed; they never fail a run."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from bench.stats import Spread, Values, best, ratios, spread

Op = Literal[">=", "<=", ">", "<"]
_COMPARE: dict[Op, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_SIGN: dict[Op, str] = {">=": "≥", "<=": "≤", ">": ">", "<": "<"}


class Verdict(NamedTuple):
    """A bar, what was measured against it, and whether it was met (None: not measured)."""

    bar: str
    measured: Spread | None
    unit: str
    met: bool | None


@dataclass(frozen=True)
class Bar:
    """``Bar(">=", 0.75, of="bare loop")``: the ratio to another contestant; without ``of``: the figure itself.

    With several names in ``of`` the reference is the best of them in each repetition. ``otherwise`` is a second bar,
    of which only one has to be met.
    """

    op: Op
    value: float
    of: str | tuple[str, ...] = ()
    otherwise: Bar | None = None

    @property
    def references(self) -> tuple[str, ...]:
        """The contestants it refers to."""
        return (self.of,) if isinstance(self.of, str) else self.of

    def text(self, unit: str) -> str:
        """The bar in words."""
        own = f"{_SIGN[self.op]} {amount(self.value, self._unit(unit))}"
        if self.of:
            names = self.references[0] if len(self.references) == 1 else f"the best of {', '.join(self.references)}"
            own += f" {'of ' if self.value < 1 else ''}{names}"
        return f"{own}, or {self.otherwise.text(unit)}" if self.otherwise else own

    def _unit(self, unit: str) -> str:
        """Ratios below one are read as percent, others as a multiple."""
        if not self.of:
            return unit
        return "ratio %" if self.value < 1 else "ratio ×"

    def judge(self, mine: Values, others: Mapping[str, Values], *, unit: str, higher: bool) -> Verdict:
        """Compare the median with the bar."""
        values = mine
        if self.of:
            reference = best([others[name] for name in self.references], higher=higher)
            values = ratios(mine, reference)
        measured = spread(values)
        met = None if measured is None else _COMPARE[self.op](measured.median, self.value)
        if self.otherwise and met is not True:
            second = self.otherwise.judge(mine, others, unit=unit, higher=higher)
            met = met if second.met is None else second.met
        return Verdict(self.text(unit), measured, self._unit(unit), met)


def amount(value: float, unit: str) -> str:
    """A figure for people: ``18,400``, ``1.35``, ``0.31 %``; ratios as ``82 %`` or ``1.9×``."""
    if unit == "ratio %":
        return f"{100 * value:.0f} %"
    if unit == "ratio ×":
        return f"{value:.3g}×"
    if unit == "%":
        return f"{value:.2f} %"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
