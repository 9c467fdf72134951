"""What people are told of a case: a thread for it, its end, a question, a report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.king.cleaning import one_line, storable
from kingdom.court.king.texts import say
from kingdom.court.king.times import moment_of
from kingdom.court.models import Message, timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.config.system import SystemConfig
    from kingdom.court.king.cases import Case
    from kingdom.court.models import MessageType, Question, Result, Urgency

_MOST_TEXT: Final = 20_000  # characters of a summary, an error or a question
_TITLES: Final = ("title", "summary", "subject", "name")


@dataclass(slots=True)
class Draft:
    """A message that has no id yet."""

    type: MessageType
    content: str
    context: dict[str, Any] = field(default_factory=dict)
    urgency: Urgency = "normal"

    def message(self, message_id: str, channel: str, now: float) -> Message:
        """The message under its id."""
        return Message(
            id=message_id,
            type=self.type,
            channel=channel,
            urgency=self.urgency,
            content=storable(self.content),
            context=storable(self.context),
            created_at=moment_of(now),
        )


def title_of(cause: Mapping[str, Any], subject: str | None) -> str:
    """What an event is about, in one short line: its subject and its title, or its type."""
    payload = cause.get("payload")
    given = (payload.get(name) for name in _TITLES) if isinstance(payload, dict) else ()
    title = next((line for text in given if isinstance(text, str) and (line := one_line(text))), "")
    named = " ".join(part for part in (one_line(subject or ""), title) if part)
    return one_line(named or str(cause.get("type")))


class Speaker:
    """Composes messages in the language of the court."""

    def __init__(self, config: SystemConfig) -> None:
        self._locale = config.locale

    def started(self, case: Case, notify: str) -> list[Draft]:
        """A thread for a case that begins. Schedules have none: they end in a report."""
        if notify != "all" or case.scheduled:
            return []
        return [Draft("thread_start", self._head("started", case), self._context(case))]

    def ended(self, case: Case, notify: str, result: Result) -> list[Draft]:
        """What came of it."""
        if notify == "silent":
            return []
        well = result.status in ("success", "skipped")
        name = result.status if result.status in ("success", "skipped", "timeout") else "failed"
        body = [result.summary, *result.links] if well else [result.error or result.summary, *result.links]
        content = "\n".join([self._head(name, case), *(one[:_MOST_TEXT] for one in body if one)])
        context = {**self._context(case), "status": result.status, "links": list(result.links)}
        kind: MessageType = "thread_update" if notify == "all" else "notification"
        if case.scheduled:
            kind = "report" if well else "notification"
        return [Draft(kind, content, context, "normal" if well else "high")]

    def question(self, case: Case, question: Question, deadline: float) -> Draft:
        """A question to a person. It is asked whatever the general's manifest says about notices."""
        lines = [self._head("question", case), question.text[:_MOST_TEXT]]
        if question.default is not None:
            lines.append(say(self._locale, "default", deadline=timestamp(deadline), default=question.default))
        context = {
            **self._context(case),
            "question": question.text[:_MOST_TEXT],
            "choices": list(question.choices),
            "default": question.default,
            "deadline": timestamp(deadline),
        }
        return Draft("human_input_request", "\n".join(lines), context, "high")

    def reminder(self, case: Case, question: str) -> Draft:
        """The deadline has passed, and there is nothing to go on with."""
        content = "\n".join([self._head("reminder", case), question[:_MOST_TEXT]])
        return Draft("notification", content, {**self._context(case), "status": "needs_human"}, "high")

    def cancelled(self, user: str) -> str:
        """Why a task was ended."""
        return say(self._locale, "cancelled", user=one_line(user))

    def _head(self, name: str, case: Case) -> str:
        return say(self._locale, name, general=case.general, title=case.title)

    def _context(self, case: Case) -> dict[str, Any]:
        context = {"task_id": case.task, "event_id": case.root, "general": case.general, "type": case.type}
        if case.thread != case.task:
            context["original_task_id"] = case.thread
        return context
