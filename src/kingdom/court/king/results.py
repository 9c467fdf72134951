"""What generals report: read, told to people, and the events completed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from kingdom.court.king.cleaning import storable
from kingdom.court.king.questions import ask
from kingdom.court.king.times import moment_of
from kingdom.court.models import Result
from kingdom.court.queues import MAX_DOCUMENT_BYTES

if TYPE_CHECKING:
    from kingdom.court.king.cases import Case
    from kingdom.court.king.desk import Desk

MOST_AT_ONCE: Final = 500
_CHECKED_AT_ONCE: Final = 50


async def collect(desk: Desk) -> bool:
    """Read the results that are there; return whether there may be more."""
    read = 0
    for case in desk.cases.active():
        result = read_result(desk, case)
        if result is not None:
            if read == MOST_AT_ONCE:
                return True
            read += 1
            await conclude(desk, case, result)
    return False


def read_result(desk: Desk, case: Case) -> Result | None:
    """The result of a case's task, if there is one. One that cannot be read is a failure: nobody will mend it."""
    path = desk.home.result(case.task)
    try:
        if not os.path.lexists(path):
            return None
        size = path.stat().st_size
        if size > MAX_DOCUMENT_BYTES:
            return failure(desk, case, f"its result in {path} has {size:,} bytes, {MAX_DOCUMENT_BYTES:,} are allowed")
        # Not by pydantic's own parser, which refuses half a surrogate pair: a good result may quote a bad text.
        result = Result.model_validate(storable(json.loads(path.read_bytes())))
    except OSError as error:
        return failure(desk, case, f"its result cannot be read: {error}")
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, item['loc'])) or 'the file'}: {item['msg']}" for item in error.errors())
        return failure(desk, case, f"its result in {path} makes no sense: {'; '.join(problems)}")
    except (ValueError, RecursionError) as error:
        return failure(desk, case, f"its result in {path} makes no sense: {error}")
    if result.task_id != case.task:
        return failure(desk, case, f"its result in {path} is that of {result.task_id}")
    return result


async def conclude(desk: Desk, case: Case, result: Result) -> None:
    """Go on with a case by what came of its task."""
    if result.status == "needs_human":
        ask(desk, case, result)
        return
    if result.status == "killed":
        if case.killed < desk.config.retries.killed:
            document = await desk.task_document(case.task)
            if document is not None:
                case.killed += 1
                desk.next_task(case, desk.same_task(document, desk.task_ids.take(), case.root))
                return
        result = result.model_copy(update={"status": "failed", "error": _killed(case, result)})
    desk.end_case(case, result)


async def find_lost(desk: Desk, after: str) -> str:
    """Look whether the tasks of some cases are still there, beginning after ``after``; return where to go on.

    A task that was deleted by hand, or was set aside as invalid, gets no result from anybody.
    """
    planned = {task.id for task in desk.plan.tasks}  # made in this very look, and in the queue at its end only
    cases = sorted((case for case in desk.cases.active() if case.task not in planned), key=lambda case: case.task)
    some = [case for case in cases if case.task > after][:_CHECKED_AT_ONCE]
    for case in some:
        record = await desk.bus.find(case.task)
        if record is not None and record.status in ("PENDING", "PROCESSING"):
            continue
        if desk.home.result(case.task).exists():
            continue  # it ended just now
        if record is None:
            why = "it is in no queue any more"
        elif record.status == "DEAD":
            why = f"it was set aside: {record.error_message or record.error_code}"
        else:
            why = "it ended without a result"
        desk.end_case(case, failure(desk, case, f"task {case.task} is lost: {why}"))
    return some[-1].task if len(some) == _CHECKED_AT_ONCE else ""


def failure(desk: Desk, case: Case, reason: str) -> Result:
    """A result that says why there is no better one."""
    now = moment_of(desk.clock())
    return Result(
        task_id=case.task, general=case.general, status="failed", error=reason[:4000], started_at=now, ended_at=now
    )


def _killed(case: Case, result: Result) -> str:
    times = f"its soldier was killed {case.killed + 1} times" if case.killed else "its soldier was killed"
    return f"{times}: {result.error}" if result.error else times
