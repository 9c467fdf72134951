"""End a task: build its result, store it, write the log and the journal, and remove old workplaces."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from kingdom.agents.port import Outcome
from kingdom.agents.untrusted import clean, clean_line, cut_middle
from kingdom.base.files import encode_json, read_json
from kingdom.court.activity import append_task_log, missing_entries, recent_entries
from kingdom.court.days import day_of
from kingdom.court.general.comments import comments_of
from kingdom.court.general.context import ASKED_REPOSITORY, load_task_history
from kingdom.court.general.errors import TaskRefused
from kingdom.court.general.landing import opened_for
from kingdom.court.general.preparation import remove_handovers, session_file
from kingdom.court.general.prompts import add_to_memory
from kingdom.court.general.workspace import TASK_FILE
from kingdom.court.models import Question, Result
from kingdom.court.request_threads import is_request
from kingdom.gitops import GitError
from kingdom.journal.catalog import TaskCancelled, TaskCompleted, TaskFailed, TaskNeedsHuman, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from kingdom.agents.port import Status as RunStatus
    from kingdom.court.general.context import GeneralContext, TaskContext, TaskProgress
    from kingdom.court.general.errors import RepositoryUnknown
    from kingdom.court.home import Home
    from kingdom.court.models import EvidenceCheck, ResultStatus, Task
    from kingdom.journal import EventData

TaskOutcome = Literal["failed", "needs_human", "cancelled"]
_MAX_TEXT_BYTES: Final = 20_000  # of a summary, an error, a question
_MAX_JOURNAL_CHARS: Final = 1000
_MAX_LIST_ITEMS: Final = 100  # links, memory updates
_DEFAULT_PARKING_SECONDS: Final = 300.0  # when the end of a rate limit is unknown
_PARKING_RANGE_SECONDS: Final = (5.0, 8 * 86400.0)
_MAX_JITTER_SECONDS: Final = 30.0  # spreads the tasks that wait for the same limit
log = logging.getLogger("kingdom.court")


# ── building a result ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ResultBuilder:
    """Builds the result of a task from what is known at its end."""

    context: GeneralContext
    task_context: TaskContext
    progress: TaskProgress
    outcome: Outcome | None
    soldier_id: str | None

    def failure(self, error: str) -> Result:
        """Build the result of a task that could not be done."""
        return self._build("failed", error)

    def asks_repository(self, error: RepositoryUnknown) -> Result:
        """Build the result of a task that waits for a repository. One that its request names cannot be used."""
        asking = replace(self, outcome=Outcome("needs_human", error.document()))
        return asking._build("needs_human", None).model_copy(update={"repo": None, ASKED_REPOSITORY: True})

    def cancelled(self, reason: str) -> Result:
        """Build the result of a task that a person cancelled."""
        return self._build("cancelled", reason)

    def of(self, status: RunStatus, error: str | None, checks: Sequence[EvidenceCheck]) -> Result:
        """Build the result of a run. ``error`` says why it is not a success."""
        if status == "rate_limited":
            raise ValueError("a rate-limited task is parked; it has no result yet")
        if status == "needs_human" and question_of(self._document) is None:
            return self._build("failed", "the soldier asked for a person, but its question cannot be understood")
        if status in ("failed", "timeout", "killed") and not error:
            error = text_of(self._document, "error") or f"the soldier ended as {status} and gave no reason"
        return self._build(status, None if status in ("success", "skipped", "needs_human") else error, checks)

    def _summary(self) -> str:
        """Return the summary, with the comments of a review below it: people read it where there is no diff."""
        summary = text_of(self._document, "summary")
        if "comments" not in self.context.manifest.evidence or self._document is None:
            return summary
        with contextlib.suppress(ValueError):  # reported as missing evidence
            listed = [f"- `{one.place}`: {clean(one.body)}" for one in comments_of(self._document)]
            return "\n".join([summary, *([""] if listed else []), *listed])
        return summary

    def _landed_by_workflow(self) -> Any:
        """Return the pull requests that a workflow opened. Its document is ours: no agent wrote it."""
        if self.context.manifest.mode != "workflow" or self._document is None:
            return None
        return [one | opened_for(self.task_context) for one in self._document.get("pull_requests") or ()]

    @property
    def _document(self) -> Mapping[str, Any] | None:
        return self.outcome.result if self.outcome else None

    def _build(self, status: ResultStatus, error: str | None, checks: Sequence[EvidenceCheck] = ()) -> Result:
        context, outcome, task = self.context, self.outcome, self.task_context.task
        now = context.clock()
        used = replace(self.progress, tokens=dict(self.progress.tokens))
        if outcome is not None:
            used.charge(outcome)
        more: dict[str, Any] = {
            "event_id": task.event_id,
            "task_type": task.type,
            "subject": self.task_context.subject,  # later tasks find this one by it
            "repo": self.task_context.repo if isinstance(self.task_context.repo, str) else None,  # for a resume
        }
        if (before := task.continues) is not None:
            more["original_task_id"] = before
        if is_request(self.task_context.type):
            more["work_id"] = self.task_context.history.work_id  # what is said next in the thread goes on with it
        if self.progress.follow_up_ended:
            more["follow_up_ended"] = True  # landed later, it is not a follow-up either
        if landed := self._landed_by_workflow():
            more |= {"pull_requests": landed, "work_id": self.task_context.history.work_id}
        return Result(
            task_id=task.id,
            general=context.name,
            status=status,
            summary=self._summary(),
            error=None if error is None else cut_middle(clean(error), _MAX_TEXT_BYTES),
            question=question_of(self._document) if status == "needs_human" else None,
            retry_count=self.progress.retries,
            soldier_id=self.soldier_id,
            session_id=outcome.session_id if outcome else None,
            engine=context.manifest.engine.name,
            model=(outcome.model if outcome else None) or context.manifest.engine.model,
            started_at=result_time(self.progress.started_at),
            ended_at=result_time(now),
            duration_seconds=round(max(now - self.progress.started_at, 0.0), 3),  # the clock may have been set back
            tokens=used.tokens,
            cost_usd=used.cost_usd,
            evidence=list(checks),
            links=texts_of(self._document, "links"),
            memory_updates=texts_of(self._document, "memory_updates"),
            **more,
        )


def result_time(seconds: float) -> datetime:
    """Convert epoch seconds to the time format of results."""
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def text_of(document: Mapping[str, Any] | None, key: str) -> str:
    """Return a text of a soldier's result document, cleaned."""
    value = (document or {}).get(key)
    return cut_middle(clean(value).strip(), _MAX_TEXT_BYTES) if isinstance(value, str) else ""


def texts_of(document: Mapping[str, Any] | None, key: str) -> list[str]:
    """Return a list of texts of a soldier's result document, cleaned."""
    values = (document or {}).get(key)
    listed = values[:_MAX_LIST_ITEMS] if isinstance(values, list) else []
    return [cut_middle(clean(value).strip(), _MAX_TEXT_BYTES) for value in listed if isinstance(value, str)]


def question_of(document: Mapping[str, Any] | None) -> Question | None:
    """Return the question of a soldier's result document, cleaned; None when there is no valid one."""
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
    """Return the outcome to settle a task with; None for success."""
    if result.status == "needs_human" or result.status == "cancelled":
        return result.status
    return None if result.status in ("success", "skipped") else "failed"


# ── storing it ────────────────────────────────────────────────────────────────────────────────────────────────────────
# The result comes first, durably; everything else follows from it. Each step can be repeated: after a crash or a full
# disk all steps run again.


def stored_result(context: GeneralContext, task_id: str) -> Result | None:
    """Return the stored result of a task, if it has a valid one."""
    document = read_json(context.home.result(task_id))
    try:
        return None if document is None else Result.model_validate(document)
    except ValidationError:
        return None


async def store_results(context: GeneralContext, *results: Result) -> dict[str, OSError]:
    """Store results in one batch; return the errors by task. Those must be stored again."""
    errors: dict[str, OSError] = {}
    again = {result.task_id for result in results if stored_result(context, result.task_id) is not None}
    new = {result.task_id: _result_files(context.home, result) for result in results if result.task_id not in again}
    try:
        if new:
            await context.writer.write(*(file for files in new.values() for file in files))
    except OSError:
        for task_id, files in new.items():  # perhaps only one of them does not fit on the disk
            try:
                await context.writer.write(*files)
            except OSError as error:
                errors[task_id] = error
    # In a thread: while other processes sync, removing a folder takes a millisecond.
    kept = [result.task_id for result in results if result.task_id not in errors]
    await asyncio.to_thread(remove_handovers, context.home, kept)
    for result in results:
        if result.task_id not in errors:
            try:
                _after_result_stored(context, result, again=result.task_id in again)
            except OSError as error:
                errors[result.task_id] = error
    return errors


def _result_files(home: Home, result: Result) -> list[tuple[Path, bytes]]:
    files = [(home.result(result.task_id), encode_json(result.document()))]
    if result.session_id and result.status == "needs_human":  # the resume will need it
        path, content = session_file(home, result.task_id, result.session_id)
        files.insert(0, (path, content.encode()))
    return files


def _after_result_stored(context: GeneralContext, result: Result, *, again: bool) -> None:
    home = context.home
    day = day_of(result.ended_at.timestamp(), ZoneInfo(context.system.timezone)).isoformat()
    memory = home.general_memory(context.name)
    add_to_memory(memory, result.task_id, day, result.memory_updates, context.manifest.memory_max_bytes)
    entry = journal_entry(result)
    if entry is None:
        if not again:
            log_result(home, result, context.clock())
    elif not again or missing_entries(home.journal, context.clock(), [(entry.spec.name, entry.to_dict())]):
        log_result(home, result, context.clock())
        context.emit(entry)


def journal_entry(result: Result) -> EventData | None:
    """Return the journal event for the end of a task; None for a killed one, which the king may run again."""
    if result.status == "killed":
        return None
    if result.status == "cancelled":
        return TaskCancelled(result.task_id, clean_line(result.error or "cancelled", _MAX_JOURNAL_CHARS))
    if result.status == "needs_human":
        asked = result.question.text if result.question else ""
        return TaskNeedsHuman(result.task_id, clean_line(asked, _MAX_JOURNAL_CHARS))
    if outcome_of(result) is None:
        return TaskCompleted(result.task_id, result.status, result.duration_seconds)
    return TaskFailed(result.task_id, clean_line(result.error or result.status, _MAX_JOURNAL_CHARS), result.retry_count)


def recently_started(home: Home, now: float) -> set[str]:
    """Return the tasks that were started in the last 24 hours according to the journal."""
    return {
        task_id
        for entry in recent_entries(home.journal, now, [TaskStarted.spec.name])
        if isinstance(task_id := entry.fields.get("task_id"), str)
    }


def log_result(home: Home, result: Result, now: float) -> None:
    """Append a line to ``logs/tasks.log``."""
    text = clean_line(result.error or (result.question.text if result.question else "") or result.summary)
    described = (
        f"{result.general} {result.status} {result.duration_seconds:.1f}s "
        f"retries={result.retry_count} soldier={result.soldier_id or '-'} {text}"
    )
    append_task_log(home, result.task_id, now, described)


def parking_seconds(context: GeneralContext, resets_at: float | None) -> float:
    """Return how long to park a task whose engine is rate-limited until ``resets_at``."""
    left = _DEFAULT_PARKING_SECONDS
    if resets_at is not None and math.isfinite(resets_at):
        left = min(max(resets_at - context.clock(), _PARKING_RANGE_SECONDS[0]), _PARKING_RANGE_SECONDS[1])
    return left + context.deps.random() * min(_MAX_JITTER_SECONDS, 1 + left / 10)


# ── old workplaces ────────────────────────────────────────────────────────────────────────────────────────────────────


async def remove_old_workplaces(context: GeneralContext, held: Callable[[], Iterable[Task]]) -> list[str]:
    """Remove workplaces that were not used for ``retention.workspace_days``; return their work ids.

    Until then people may look at them, and an answer may come. The branch stays, and uncommitted changes are kept under
    a ref (:meth:`kingdom.gitops.Worktrees.release`), so that a late answer can still be handled. ``held`` returns the
    tasks that the general holds at the moment.
    """
    from kingdom.court.chamberlain.config import ChamberlainConfigFile  # once a day: it need not be loaded before

    removed: list[str] = []
    loaded = ChamberlainConfigFile(context.home).load()
    if not loaded.sound:  # the file may ask for longer retention than the defaults: remove nothing
        return removed
    kept_seconds = loaded.config.retention.workspace_days * 86400
    for work_id, folder in context.workspace.places():
        if context.clock() - _last_used(folder) < kept_seconds:
            continue
        if work_id in _work_ids_in_use(context, held()):
            continue
        try:
            await context.workspace.remove(work_id)
        except (GitError, OSError) as error:
            log.warning("%s: the workplace of %s could not be removed: %s", context.name, work_id, error)
        else:
            removed.append(work_id)
        await asyncio.sleep(0)
    if removed:
        log.info("%s: removed the workplaces of %s", context.name, ", ".join(removed))
    return removed


def _last_used(folder: Path) -> float:
    """Return when a workplace was last prepared; preparing writes the task file."""
    try:
        return (folder / TASK_FILE).lstat().st_mtime
    except OSError:
        try:
            return folder.lstat().st_mtime
        except OSError:
            return 0.0


def _work_ids_in_use(context: GeneralContext, tasks: Iterable[Task]) -> set[str]:
    used: set[str] = set()
    for task in tasks:
        try:
            used.add(load_task_history(context.home, task).work_id)
        except TaskRefused:
            continue
    return used
