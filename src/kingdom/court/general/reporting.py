"""Making the result of a task from what is known about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.untrusted import clean, cut_middle
from kingdom.court.general.lineage import RESUME
from kingdom.court.general.results import moment, question_of, text_of, texts_of
from kingdom.court.models import Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.agents.port import Outcome
    from kingdom.agents.port import Status as RunStatus
    from kingdom.court.general.errand import Errand
    from kingdom.court.general.notes import Note
    from kingdom.court.general.quarters import Quarters
    from kingdom.court.models import EvidenceCheck, ResultStatus

_LONGEST: Final = 20_000


@dataclass(frozen=True, slots=True)
class Report:
    """What is known at the end of a task."""

    quarters: Quarters
    errand: Errand
    note: Note
    outcome: Outcome | None
    soldier_id: str | None

    def failure(self, error: str) -> Result:
        """A task that could not be done, or was cancelled."""
        return self._make("failed", error)

    def of(self, status: RunStatus, error: str | None, checks: Sequence[EvidenceCheck]) -> Result:
        """What a run came to; ``error`` is why it is not a success."""
        if status == "rate_limited":
            raise ValueError("a task over its limit is parked; it has no result yet")
        if status == "needs_human" and question_of(self._said) is None:
            return self._make("failed", "the soldier asked for a person, but its question cannot be understood")
        if status in ("failed", "timeout", "killed") and not error:
            error = text_of(self._said, "error") or f"the soldier ended as {status} and gave no reason"
        return self._make(status, None if status in ("success", "skipped", "needs_human") else error, checks)

    @property
    def _said(self) -> Mapping[str, Any] | None:
        return self.outcome.result if self.outcome else None

    def _make(self, status: ResultStatus, error: str | None, checks: Sequence[EvidenceCheck] = ()) -> Result:
        quarters, outcome, task = self.quarters, self.outcome, self.errand.task
        now = quarters.clock()
        used = replace(self.note, tokens=dict(self.note.tokens))
        if outcome is not None:
            used.charge(outcome)
        more: dict[str, Any] = {
            "event_id": task.event_id,
            "task_type": task.type,
            "subject": self.errand.subject,  # by these two later tasks find this one, and a resume its repository
            "repo": self.errand.repo if isinstance(self.errand.repo, str) else None,
        }
        if task.type == RESUME:
            more["original_task_id"] = task.payload.get("original_task_id")
        return Result(
            task_id=task.id,
            general=quarters.name,
            status=status,
            summary=text_of(self._said, "summary"),
            error=None if error is None else cut_middle(clean(error), _LONGEST),
            question=question_of(self._said) if status == "needs_human" else None,
            retry_count=self.note.retries,
            soldier_id=self.soldier_id,
            session_id=outcome.session_id if outcome else None,
            engine=quarters.manifest.engine.name,
            model=(outcome.model if outcome else None) or quarters.manifest.engine.model,
            started_at=moment(self.note.started_at),
            ended_at=moment(now),
            duration_seconds=round(max(now - self.note.started_at, 0.0), 3),  # a clock may have been set back
            tokens=used.tokens,
            cost_usd=used.cost_usd,
            evidence=list(checks),
            links=texts_of(self._said, "links"),
            memory_updates=texts_of(self._said, "memory_updates"),
            **more,
        )
