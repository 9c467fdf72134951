"""What in a court needs a person now, and its condition. `kingdom status`, the API and the dashboard begin with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from kingdom.court.machines.listing import MachineState
    from kingdom.court.overview import ActiveAlert, BudgetSummary, HealthState, OpenQuestion, RoleState
    from kingdom.court.problems import CourtProblem

_MAX_NAMED_TASKS: Final = 3
AttentionKind: TypeAlias = Literal["alert", "role", "questions", "problems", "down", "load", "budget", "held"]
ConditionLevel: TypeAlias = Literal["ok", "limited", "attention", "down"]


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """Something that needs a person, or limits the court. ``subject`` and ``detail`` depend on the kind."""

    kind: AttentionKind
    subject: str = ""
    """The text of an alert, the name of a role, the first tasks that ask, or this machine, where others may be up."""
    detail: str = ""
    """The state of a role, of the load or of the budget."""
    reason: str = ""
    count: int = 1

    def __str__(self) -> str:
        plural = "s" * (self.count > 1)
        match self.kind:
            case "alert":
                return self.subject
            case "role":
                why = f" ({self.reason})" if self.reason else ""
                return f"{self.subject} is {self.detail}{why}: logs/system.log has more"
            case "questions":
                return f'{self.count} question{plural} open ({self.subject}): kingdom answer TASK "…"'
            case "problems":
                return f"{self.count} problem{plural}, listed below"
            case "down":
                return f"{self.subject or 'the court'} is not up: kingdom up starts it"
            case "load":
                why = f" ({self.reason})" if self.reason else ""
                return f"health is {self.detail}{why}"
            case "budget":
                return f"the budget is {self.detail} ({self.reason})"
            case "held":
                return f"{self.count} event{plural} or task{plural} held back: {self.reason}"


class CourtFacts(Protocol):
    """The part of an overview that decides."""

    @property
    def running(self) -> bool: ...
    @property
    def roles(self) -> Sequence[RoleState]: ...
    @property
    def questions(self) -> Sequence[OpenQuestion]: ...
    @property
    def problems(self) -> Sequence[CourtProblem]: ...
    @property
    def alerts(self) -> Sequence[ActiveAlert]: ...
    @property
    def health(self) -> HealthState: ...
    @property
    def budget(self) -> BudgetSummary: ...
    @property
    def holds(self) -> Mapping[str, Any]: ...
    @property
    def machines(self) -> Sequence[MachineState]: ...


def attention_of(court: CourtFacts) -> list[AttentionItem]:
    """Return what needs a person now; an empty list when nothing does."""
    found = [AttentionItem("alert", one.text) for one in court.alerts]
    found += [
        AttentionItem("role", role.name, role.state, role.reason)
        for role in court.roles
        if role.state in ("failed", "late")
    ]
    if court.questions:
        some = ", ".join(one.task_id for one in court.questions[:_MAX_NAMED_TASKS])
        found.append(AttentionItem("questions", some, count=len(court.questions)))
    if court.problems:
        found.append(AttentionItem("problems", count=sum(one.count for one in court.problems)))
    if not court.running:
        found.append(AttentionItem("down", "this machine" if len(court.machines) > 1 else ""))
    return found


@dataclass(frozen=True, slots=True)
class CourtCondition:
    """How a court is, and everything that speaks against ``ok``.

    ``down``: it does not run. ``attention``: something is wrong that a person has to look at. ``limited``: it works,
    and holds work back for its load, its budget or another reason. Open questions are no fault: they change nothing.
    """

    level: ConditionLevel
    reasons: tuple[AttentionItem, ...] = ()


def condition_of(court: CourtFacts) -> CourtCondition:
    """Return the condition of a court: the one definition for all that show it."""
    wrong = [item for item in attention_of(court) if item.kind != "questions"]
    limits = []
    if court.health.level != "green":
        limits.append(AttentionItem("load", detail=court.health.level, reason=court.health.reason))
    if court.budget.status != "ok":
        limits.append(AttentionItem("budget", detail=court.budget.status, reason="; ".join(court.budget.spent)))
    limits += [AttentionItem("held", reason=reason, count=held_count(held)) for reason, held in court.holds.items()]
    level: ConditionLevel = "limited" if limits else "ok"
    if wrong:
        level = "attention" if court.running else "down"
    return CourtCondition(level, (*wrong, *limits))


def held_count(held: object) -> int:
    """Return how many events or tasks a hold of an overview stands for."""
    count = held.get("count") if isinstance(held, Mapping) else held
    return count if isinstance(count, int) else 1
