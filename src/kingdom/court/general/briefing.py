"""What a soldier is told: gathered from the task, its event, the general's memory and earlier results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.contract import instructions
from kingdom.agents.untrusted import clean_tree
from kingdom.court.files import read_again, read_json
from kingdom.court.general.lineage import RESUME
from kingdom.court.general.memory import read_memory
from kingdom.court.general.prompts import Briefing
from kingdom.court.models import EVENT_FIELDS
from kingdom.court.records import recent_records

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.court.general.errand import Errand
    from kingdom.court.general.pulls import Pull
    from kingdom.court.home import Home
    from kingdom.court.models import Task
    from kingdom.court.packages.manifest import Manifest

_LOOKED_AT: Final = 200  # of the latest results, whatever general they are of
_MOST_RESULTS: Final = 5
_SHOWN: Final = ("task_id", "status", "ended_at", "summary", "error", "links")
_TASK: Final = ("id", "type", "event_id", "priority", "created_at", "payload")


def gather(
    home: Home,
    manifest: Manifest,
    errand: Errand,
    *,
    folder: Path,
    pull: Pull | None,
    instructions_text: str,
    resume: bool,
    previous_error: str | None,
    waiting: Mapping[str, int],
) -> Briefing:
    """Everything the prompt of a task is made of. ``waiting``: how many documents wait in each queue, if asked for."""
    task, subject = errand.task, errand.subject
    document = task.document()
    event = {**(errand.event or {}), "repo": errand.repo}
    if manifest.records_hours is not None:
        records = recent_records(home, manifest.name, task.created_at, manifest.records_hours, waiting)
        document["payload"] = {**task.payload, "records": records}
    resumed = task.type == RESUME
    return Briefing(
        task={key: document.get(key) for key in _TASK},
        event={key: event.get(key) for key in EVENT_FIELDS},
        report=instructions(home.handover(task.id)),
        repo_path=str(folder),
        pull=pull,
        memory=read_memory(home.general_memory(manifest.name), manifest.memory_max_bytes),
        instructions=instructions_text,
        resume=resume,
        question=_said(task, "question") if resumed else None,
        answer=_said(task, "answer") if resumed else None,
        previous_error=previous_error,
        previous_results=earlier_results(home, manifest.name, subject, task.id) if subject else [],
    )


def description(home: Home, task: Task, general: str, pull: Pull | None = None) -> dict[str, Any]:
    """What lies beside the work as ``.kingdom-task.json``; the whole payload, also when the prompt has it cut."""
    said = {key: _said(task, key) for key in ("question", "answer")} if task.type == RESUME else {}
    return {
        "task_id": task.id,
        "result_path": str(home.handover(task.id)),
        "general": general,
        "type": task.type,
        "event_id": task.event_id,
        "payload": clean_tree(task.payload),
        **clean_tree(said),
        **({} if pull is None else {"pull": pull.document()}),
    }


def earlier_results(home: Home, general: str, subject: str, task_id: str) -> list[Mapping[str, Any]]:
    """What the general reported last on a subject, the oldest first."""
    found: list[Mapping[str, Any]] = []
    names = sorted((path.name for path in home.results.glob("task-*.json")), key=_age, reverse=True)
    for name in [name for name in names if not name.endswith("-raw.json")][:_LOOKED_AT]:
        document = read_json(home.results / name)
        if not isinstance(document, dict) or document.get("general") != general or document.get("task_id") == task_id:
            continue
        if document.get("subject") == subject:
            found.append({key: document[key] for key in _SHOWN if document.get(key)})
        if len(found) == _MOST_RESULTS:
            break
    return found[::-1]


def instructions_of(path: Path) -> str | None:
    """The instructions of a general; None when it has none."""
    try:
        return read_again(path, "replace")
    except FileNotFoundError:
        return None


def _age(name: str) -> tuple[str, int]:
    """Task ids count up within a day, without leading zeros after 999."""
    _, day, number, *_ = f"{name.partition('.')[0]}--".split("-")
    return day, int(number) if number.isdigit() else 0


def _said(task: Task, key: str) -> str:
    """The question or the answer of a resume; a question may be an object with a text."""
    value = task.payload.get(key)
    value = value.get("text") if isinstance(value, dict) else value
    return value if isinstance(value, str) else ""
