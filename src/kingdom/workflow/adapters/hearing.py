"""What an agent said, and what is made of it: the answer to a query, the text of a report, the reason of a failure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kingdom.agents.port import AgentEvent, Finished, Text
from kingdom.agents.untrusted import cut_middle

if TYPE_CHECKING:
    from kingdom.agents.port import Outcome

ASKS: Final = "the agent asks: "  # how the reason begins when an agent cannot go on without a person
_LONGEST: Final = 16_000  # characters of an answer or a reason that are kept
_LONGEST_SPEECH: Final = 2_000_000  # characters of what a run says that are kept meanwhile


@dataclass(slots=True)
class Said:
    """What one run said in our hearing."""

    lines: list[str] = field(default_factory=list)
    finished: Finished | None = None
    size: int = 0

    def hear(self, event: AgentEvent) -> None:
        """Take an event in."""
        if isinstance(event, Finished):
            self.finished = event
        elif isinstance(event, Text) and self.size < _LONGEST_SPEECH:
            self.lines.append(event.text)
            self.size += len(event.text)

    @property
    def nothing(self) -> bool:
        """Whether nothing was heard: it had ended before we listened."""
        return self.finished is None and not self.lines

    def text(self, outcome: Outcome) -> str:
        """The last message, as far as it was heard; of a program that has none, everything it printed."""
        if self.finished is not None and self.finished.text:
            return self.finished.text
        return "\n".join(self.lines) or str((outcome.result or {}).get("summary", ""))


def answer_text(outcome: Outcome, said: Said) -> str:
    """The answer to a query: the agent's own summary, or its last message where that is all it left."""
    summary = str((outcome.result or {}).get("summary", ""))
    text = said.text(outcome)
    return cut_middle(text if text.startswith(summary) else summary, _LONGEST)


def report_text(outcome: Outcome, said: Said) -> str:
    """A report: from the result file, or the last message."""
    given = (outcome.result or {}).get("report")
    return given if isinstance(given, str) else said.text(outcome)


def reason(outcome: Outcome) -> str:
    """Why there is no answer."""
    if outcome.status == "needs_human":
        asked = (outcome.result or {}).get("question") or {}
        choices = ", ".join(map(str, asked.get("choices") or ()))
        return cut_middle(f"{ASKS}{asked.get('text', '')}{f' (choices: {choices})' if choices else ''}", _LONGEST)
    why = outcome.error or f"the run ended as {outcome.status}, and nothing says why"
    return cut_middle(why if outcome.status == "failed" else f"{outcome.status}: {why}", _LONGEST)
