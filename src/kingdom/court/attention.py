"""What in a court needs a person now. `kingdom status`, the API and the dashboard begin with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from kingdom.court.overview import ActiveAlert, CourtProblem, OpenQuestion, RoleState

_MAX_NAMED_TASKS: Final = 3
AttentionKind: TypeAlias = Literal["alert", "role", "questions", "problems", "down"]


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """Something that needs a person. ``subject`` and ``detail`` depend on the kind."""

    kind: AttentionKind
    subject: str = ""
    """The text of an alert, the name of a role, or the first tasks that ask."""
    detail: str = ""
    """The state of a role."""
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
                return "the court is not up: kingdom up starts it"


class CourtCondition(Protocol):
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


def attention_of(court: CourtCondition) -> list[AttentionItem]:
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
        found.append(AttentionItem("problems", count=len(court.problems)))
    if not court.running:
        found.append(AttentionItem("down"))
    return found
