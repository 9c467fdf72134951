"""A task as ``kingdom task show`` prints it: what came of it first, then what can be done, then its documents."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.times import epoch_seconds
from kingdom.cli import output
from kingdom.court.days import local_time
from kingdom.court.document_index import describe_document

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo

_ENDED: Final = ("completed", "failed", "cancelled", "answered")


def print_task(document: dict[str, Any], zone: ZoneInfo) -> None:
    """Print the document that ``kingdom task show --json`` prints, for people."""
    task, result = document["task"], document["result"] or {}
    output.say(f"{describe_document(task)}: {document['shown_status']}")
    output.say()
    facts = [*_outcome(document, result, zone), *_about(task, result, zone), *_places(document)]
    output.print_facts([(name, value) for name, value in facts if value])
    if task.get("payload"):
        output.say()
        output.say("payload")
        output.say(json.dumps(task["payload"], ensure_ascii=False, indent=2))
    output.say()
    for line in _next_steps(document):
        output.say(line)


def local_text(text: object, zone: ZoneInfo) -> str:
    """Return a time of a document in the court's zone; a text that is no time as it is."""
    at = epoch_seconds(text)
    return str(text) if at is None else local_time(at, zone)


def _outcome(document: dict[str, Any], result: dict[str, Any], zone: ZoneInfo) -> Iterator[tuple[str, str]]:
    yield "held because", str(document["held_because"] or "")
    yield "why", str(result.get("error") or "")
    question = result.get("question")
    if isinstance(question, dict):
        choices = " | ".join(str(choice) for choice in question.get("choices") or ())
        yield "asks", f"{question.get('text')}{f' ({choices})' if choices else ''}"
    if answer := document["answer"]:
        at, resumed = local_text(answer["at"], zone), answer["resumed_as"]
        yield "answered", f"{answer['text']} (by {answer['user'] or 'somebody'}, {at})"
        yield "goes on as", str(resumed or "")
    yield "result", str(result.get("summary") or "")
    for link in result.get("links") or ():
        yield "link", str(link)
    for check in result.get("evidence") or ():
        if isinstance(check, dict):
            yield "evidence", " ".join(str(value) for value in check.values() if value not in (None, ""))


def _about(task: dict[str, Any], result: dict[str, Any], zone: ZoneInfo) -> Iterator[tuple[str, str]]:
    engine = " ".join(str(result[name]) for name in ("engine", "model") if result.get(name))
    place = f" on {result['machine']}" if result.get("machine") else ""
    yield "general", f"{task.get('target_general')}{f' with {engine}' if engine else ''}{place}"
    if result.get("ended_at"):
        tokens = result.get("tokens")
        count = sum(value for value in tokens.values() if isinstance(value, int)) if isinstance(tokens, dict) else 0
        cost = result.get("cost_usd")
        spent = f", ${cost:,.2f}" if isinstance(cost, int | float) else ""
        yield "took", f"{result.get('duration_seconds') or 0:,.1f} s{spent}{f', {count:,} tokens' if count else ''}"
    yield "tries", str(result["retry_count"] + 1) if result.get("retry_count") else ""
    created = local_text(task.get("created_at"), zone)
    yield "created", f"{created} ({zone.key}), type {task.get('type')}, priority {task.get('priority')}"
    yield "event", str(task.get("event_id") or "")


def _places(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for one in document["soldiers"]:
        yield "soldier", f"{one['id']} ({'running' if one['alive'] else 'ended'})"
    for path in document["files"]:
        yield "file", str(path)


def _next_steps(document: dict[str, Any]) -> Iterator[str]:
    """Return the commands that fit the state of the task."""
    task_id, status = shlex.quote(str(document["task"]["id"])), document["shown_status"]
    if status == "needs_human":
        yield f'kingdom answer {task_id} "…"'.ljust(45) + "answer it"
    if status == "in_progress":
        yield f"kingdom task attach {task_id}".ljust(45) + "watch it"
    if document["soldiers"]:
        yield f"kingdom task transcript {task_id}".ljust(45) + "what its agent said and did"
    yield f"kingdom trace {task_id}".ljust(45) + "its history"
    if status in _ENDED:
        yield f"kingdom task retry {task_id}".ljust(45) + "do it again"
    else:
        yield f"kingdom task cancel {task_id}".ljust(45) + "stop it"
