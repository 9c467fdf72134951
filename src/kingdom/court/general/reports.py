"""End a task: build its result, store it, and clean up."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kingdom.agents.untrusted import clean, cut_middle
from kingdom.base.files import encode_json, read_json
from kingdom.court.activity import missing_entries
from kingdom.court.general.context import RESUME_TYPE, load_task_history
from kingdom.court.general.errors import TaskRefused
from kingdom.court.general.preparation import remove_handover, session_file
from kingdom.court.general.prompts import add_to_memory
from kingdom.court.general.results import append_task_log, journal_entry, question_of, result_time, text_of, texts_of
from kingdom.court.general.workspace import TASK_FILE
from kingdom.court.models import Result
from kingdom.gitops import GitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from kingdom.agents.port import Outcome
    from kingdom.agents.port import Status as RunStatus
    from kingdom.court.general.context import GeneralContext, TaskContext, TaskProgress
    from kingdom.court.general.task_run import TaskParked
    from kingdom.court.home import Home
    from kingdom.court.models import EvidenceCheck, ResultStatus, Task


# Making the result of a task from what is known about it.


_MAX_ERROR_BYTES: Final = 20_000


@dataclass(frozen=True, slots=True)
class ResultBuilder:
    """What is known at the end of a task."""

    context: GeneralContext
    task_context: TaskContext
    progress: TaskProgress
    outcome: Outcome | None
    soldier_id: str | None

    def failure(self, error: str) -> Result:
        """A task that could not be done, or was cancelled."""
        return self._make("failed", error)

    def of(self, status: RunStatus, error: str | None, checks: Sequence[EvidenceCheck]) -> Result:
        """What a run came to; ``error`` is why it is not a success."""
        if status == "rate_limited":
            raise ValueError("a task over its limit is parked; it has no result yet")
        if status == "needs_human" and question_of(self._document) is None:
            return self._make("failed", "the soldier asked for a person, but its question cannot be understood")
        if status in ("failed", "timeout", "killed") and not error:
            error = text_of(self._document, "error") or f"the soldier ended as {status} and gave no reason"
        return self._make(status, None if status in ("success", "skipped", "needs_human") else error, checks)

    @property
    def _document(self) -> Mapping[str, Any] | None:
        return self.outcome.result if self.outcome else None

    def _make(self, status: ResultStatus, error: str | None, checks: Sequence[EvidenceCheck] = ()) -> Result:
        context, outcome, task = self.context, self.outcome, self.task_context.task
        now = context.clock()
        used = replace(self.progress, tokens=dict(self.progress.tokens))
        if outcome is not None:
            used.charge(outcome)
        more: dict[str, Any] = {
            "event_id": task.event_id,
            "task_type": task.type,
            "subject": self.task_context.subject,  # by these two later tasks find this one, and a resume its repository
            "repo": self.task_context.repo if isinstance(self.task_context.repo, str) else None,
        }
        if task.type == RESUME_TYPE:
            more["original_task_id"] = task.payload.get("original_task_id")
        return Result(
            task_id=task.id,
            general=context.name,
            status=status,
            summary=text_of(self._document, "summary"),
            error=None if error is None else cut_middle(clean(error), _MAX_ERROR_BYTES),
            question=question_of(self._document) if status == "needs_human" else None,
            retry_count=self.progress.retries,
            soldier_id=self.soldier_id,
            session_id=outcome.session_id if outcome else None,
            engine=context.manifest.engine.name,
            model=(outcome.model if outcome else None) or context.manifest.engine.model,
            started_at=result_time(self.progress.started_at),
            ended_at=result_time(now),
            duration_seconds=round(max(now - self.progress.started_at, 0.0), 3),  # a clock may have been set back
            tokens=used.tokens,
            cost_usd=used.cost_usd,
            evidence=list(checks),
            links=texts_of(self._document, "links"),
            memory_updates=texts_of(self._document, "memory_updates"),
            **more,
        )


# The end of a task: the result first and durably, then everything that follows from it.
#
# Each step may be repeated: a process that died, or found the disk full, between two of them begins again at the first.


_DEFAULT_PARKING_SECONDS: Final = 300.0  # seconds a task is parked when nobody knows when the limit ends
_PARKING_RANGE_SECONDS: Final = (5.0, 8 * 86400.0)  # seconds: at least, at most
_MAX_JITTER_SECONDS: Final = 30.0  # so that not all who wait for one limit come back at once


def stored_result(context: GeneralContext, task_id: str) -> Result | None:
    """The result of a task that has one."""
    document = read_json(context.home.result(task_id))
    try:
        return None if document is None else Result.model_validate(document)
    except ValidationError:
        return None


async def store_results(context: GeneralContext, *results: Result) -> dict[str, OSError]:
    """Make results known, all of them at once; return what kept some from being known, by task.

    Those are to be done again.
    """
    troubles: dict[str, OSError] = {}
    again = {result.task_id for result in results if stored_result(context, result.task_id) is not None}
    new = {result.task_id: _result_files(context.home, result) for result in results if result.task_id not in again}
    try:
        if new:
            await context.writer.write(*(file for files in new.values() for file in files))
    except OSError:
        for task_id, files in new.items():  # one of them may be what does not fit
            try:
                await context.writer.write(*files)
            except OSError as error:
                troubles[task_id] = error
    for result in results:
        if result.task_id not in troubles:
            try:
                _after_result_stored(context, result, again=result.task_id in again)
            except OSError as error:
                troubles[result.task_id] = error
    return troubles


def _result_files(home: Home, result: Result) -> list[tuple[Path, bytes]]:
    files = [(home.result(result.task_id), encode_json(result.document()))]
    if result.session_id and result.status == "needs_human":  # it is going to be resumed
        path, content = session_file(home, result.task_id, result.session_id)
        files.insert(0, (path, content.encode()))
    return files


def _after_result_stored(context: GeneralContext, result: Result, *, again: bool) -> None:
    home = context.home
    remove_handover(home, result.task_id)
    day = result.ended_at.date().isoformat()
    memory = home.general_memory(context.name)
    add_to_memory(memory, result.task_id, day, result.memory_updates, context.manifest.memory_max_bytes)
    entry = journal_entry(result)
    if not again or missing_entries(home.journal, [(entry.spec.name, entry.to_dict())]):
        append_task_log(home, result, context.clock())
        context.emit(entry)


def parking_seconds(context: GeneralContext, parked: TaskParked) -> float:
    """How many seconds a task over its limit waits."""
    left = _DEFAULT_PARKING_SECONDS
    if parked.resets_at is not None and math.isfinite(parked.resets_at):
        left = min(max(parked.resets_at - context.clock(), _PARKING_RANGE_SECONDS[0]), _PARKING_RANGE_SECONDS[1])
    return left + context.deps.random() * min(_MAX_JITTER_SECONDS, 1 + left / 10)


# Removing places that nobody works in any more.
#
# A place stays for some days after it was last prepared: people look at it, and an answer may come. Then the folder goes;
# the branch stays, and what was not committed is kept under a ref (:meth:`kingdom.gitops.Worktrees.release`), so that a
# late answer still finds its way.


WORKPLACE_KEPT_SECONDS: Final = 14 * 86400.0
log = logging.getLogger("kingdom.court")


async def remove_old_workplaces(context: GeneralContext, held: Callable[[], Iterable[Task]]) -> list[str]:
    """Remove old places; return whose they were. ``held`` tells the tasks that are worked on at that moment."""
    removed: list[str] = []
    for work_id, folder in context.workspace.places():
        if context.clock() - _last_used(folder) < WORKPLACE_KEPT_SECONDS or work_id in _work_ids_in_use(
            context, held()
        ):
            continue
        try:
            await context.workspace.remove(work_id)
        except (GitError, OSError) as error:
            log.warning("%s: the place of %s could not be removed: %s", context.name, work_id, error)
        else:
            removed.append(work_id)
        await asyncio.sleep(0)
    if removed:
        log.info("%s: removed the places of %s", context.name, ", ".join(removed))
    return removed


def _last_used(folder: Path) -> float:
    """When a place was last prepared for a soldier; a place without our file there was never used."""
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
