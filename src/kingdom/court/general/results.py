"""What a general reports: the result of a task, a line in ``logs/tasks.log``, and entries in the journal."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from kingdom.agents.untrusted import clean, clean_line, cut_middle
from kingdom.court.activity import journal_tail
from kingdom.court.models import Question, Result, timestamp
from kingdom.journal import JournalError
from kingdom.journal.catalog import TaskCompleted, TaskFailed, TaskNeedsHuman, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.home import Home
    from kingdom.journal import EventData, Journal

TaskOutcome = Literal["failed", "needs_human"]
_MAX_TEXT_BYTES: Final = 20_000  # bytes of a summary or an error
_MAX_JOURNAL_CHARS: Final = 1000  # characters in the journal
_MAX_LIST_ITEMS: Final = 100  # links, memory updates
log = logging.getLogger("kingdom.court")


class GeneralJournal:
    """Writes to the journal in the name of a general. Work goes on when the journal cannot be written to."""

    def __init__(self, journal: Journal, general: str) -> None:
        self._journal = journal
        self._actor = general if general.startswith("gen-") else f"gen-{general}"  # the journal's word for generals

    def __call__(self, event: EventData) -> None:
        """Write down that something happened."""
        try:
            self._journal.emit(event, self._actor)
        except JournalError as error:
            log.warning("%s: not in the journal: %s: %s", self._actor, event, error)


def result_time(seconds: float) -> datetime:
    """A time of the clock as it stands in a result."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def text_of(document: Mapping[str, Any] | None, key: str) -> str:
    """A text of a soldier's result document, cleaned."""
    value = (document or {}).get(key)
    return cut_middle(clean(value).strip(), _MAX_TEXT_BYTES) if isinstance(value, str) else ""


def texts_of(document: Mapping[str, Any] | None, key: str) -> list[str]:
    """A list of texts of a soldier's result document, cleaned."""
    values = (document or {}).get(key)
    listed = values if isinstance(values, list) else []
    return [
        cut_middle(clean(value).strip(), _MAX_TEXT_BYTES)
        for value in listed[:_MAX_LIST_ITEMS]
        if isinstance(value, str)
    ]


def question_of(document: Mapping[str, Any] | None) -> Question | None:
    """The question in a soldier's result document, cleaned; None when it asks nothing that can be understood."""
    asked = (document or {}).get("question")
    fields = {"text": asked} if isinstance(asked, str) else asked
    if not isinstance(fields, dict):
        return None
    try:
        question = Question.model_validate(fields)
    except ValidationError:
        return None
    text = cut_middle(clean(question.text).strip(), _MAX_TEXT_BYTES)
    choices = [clean_line(choice) for choice in question.choices]
    default = None if question.default is None else clean_line(question.default)
    return question.model_copy(update={"text": text, "choices": choices, "default": default}) if text else None


def outcome_of(result: Result) -> TaskOutcome | None:
    """The word with which a task is settled; None for one that ended well."""
    if result.status == "needs_human":
        return "needs_human"
    return None if result.status in ("success", "skipped") else "failed"


def journal_entry(result: Result) -> EventData:
    """What the journal says of the end of a task."""
    if result.status == "needs_human":
        asked = result.question.text if result.question else ""
        return TaskNeedsHuman(result.task_id, clean_line(asked, _MAX_JOURNAL_CHARS))
    if outcome_of(result) is None:
        return TaskCompleted(result.task_id, result.status, result.duration_seconds)
    return TaskFailed(result.task_id, clean_line(result.error or result.status, _MAX_JOURNAL_CHARS), result.retry_count)


def recently_started(home: Home) -> set[str]:
    """The tasks of which the journal said lately that they were started."""
    return {
        task_id
        for entry in journal_tail(home.journal)
        if entry.type == TaskStarted.spec.name and isinstance(task_id := entry.fields.get("task_id"), str)
    }


def append_task_log(home: Home, result: Result, now: float) -> None:
    """Add a line for people to ``logs/tasks.log``. Work goes on when that is not possible."""
    said = clean_line(result.error or (result.question.text if result.question else "") or result.summary)
    line = (
        f"{timestamp(now)} {result.task_id} {result.general} {result.status} {result.duration_seconds:.1f}s "
        f"retries={result.retry_count} soldier={result.soldier_id or '-'} {said}\n"
    )
    try:
        with (home.logs / "tasks.log").open("ab") as file:
            file.write(line.encode())
    except OSError as error:
        log.warning("%s: not in tasks.log: %s: %s", result.general, result.task_id, error)
