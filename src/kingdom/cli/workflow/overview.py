"""A workflow as people look at it: rows of a table, in colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kingdom.workflow.domain.task import Task
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.overview import Overview

COLUMNS: Final = ("step", "status", "agent", "attempt", "more")
_COLOURS: Final = {
    "RUNNING": "cyan", "GENERATING": "cyan", "PREPARING": "cyan", "RESUMING": "cyan",
    "COMPLETED": "green", "READY": "green",
    "PAUSED": "yellow", "CANCELLED": "dim", "PENDING": "dim",
    "FAILED": "red", "ERROR": "red",
}  # fmt: skip
_LONGEST: Final = 160  # characters of an error in a table; --json has all of it


def rows(overview: Overview, *, compact: bool = False) -> Iterator[tuple[object, ...]]:
    """A row for each Work, followed by those of its tasks; ``compact``: only of those that are under way."""
    for work in overview.works:
        under_way = work.status not in ("PENDING", "COMPLETED")
        yield _work_row(overview, work, compact=compact)
        for task in work.tasks if under_way or not compact else ():
            yield f"  {task.name}", coloured(_task_status(task)), "", task.attempt, brief(_told(overview, task))


def _work_row(overview: Overview, work: Work, *, compact: bool) -> tuple[object, ...]:
    point = overview.checkpoint_of(work)
    more = work.error or ""
    if not more and point is not None:
        more = f"checkpoint {point.id[-8:] if compact else point.id}"
    waits = f" (after {', '.join(work.after)})" if work.after and not compact else ""
    agent = "" if work.agent_status == "IDLE" else work.agent_status.lower()
    return f"{work.name}{waits}", coloured(work.status), agent, work.attempt, brief(more)


def _told(overview: Overview, task: Task) -> str:
    if task.error:
        return task.error
    report = overview.report_of(task)
    return f"report {report.file_path}" if report is not None and report.file_path else ""


def coloured(status: str) -> Any:
    """A status word in the colour people expect."""
    return output.styled(status, _COLOURS.get(status.split()[0], ""))


def brief(text: str) -> str:
    """One line, and not a long one."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def _task_status(task: Task) -> str:
    if task.status != "RUNNING":
        return task.status
    return "RUNNING (report)" if task.report_status == "GENERATING" else f"RUNNING ({task.query_status.lower()})"
