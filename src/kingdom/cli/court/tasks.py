"""Commands for events and tasks of a court: emit, answer, task."""

from __future__ import annotations

import json as jsonlib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import home_option, json_option, task_argument
from kingdom.cli.parsing import argument, command, group
from kingdom.cli.session import find_home, user_name, with_court

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.court.loop import Services


@command()
@argument("event_type", metavar="TYPE", help="The type, for example github.pr.review_requested.")
@click.option("--source", default="console", metavar="NAME", help="The source of the event.")
@click.option("--repo", metavar="OWNER/NAME", help="The repository it is about.")
@click.option(
    "--payload",
    default="{}",
    metavar="JSON|@FILE",
    help="A JSON object, or @ and the name of a file that contains one.",
)
@click.option("--priority", default="normal", metavar="high|normal|low", help="How urgent it is.")
@click.option("--id", "event_id", metavar="ID", help="The id of the event; an id that is known already is ignored.")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait for its end, or a question; exit 1 if it failed, 3 if no general takes it.",
)
@home_option
@json_option
def emit(
    event_type: str,
    source: str,
    repo: str | None,
    payload: str,
    priority: str,
    event_id: str | None,
    wait: bool,
    home: Path | None,
    json: bool,
) -> None:
    """Publish an event to the court.

    It is durable when the command returns. The court handles it at once, or when it starts.
    """
    document: dict[str, Any] = {
        "type": event_type,
        "source": source,
        "repo": repo,
        "payload": _parse_payload(payload),
        "priority": priority,
    }
    from kingdom.bus.envelope import new_event_id
    from kingdom.court.commands import inject_event

    document["id"] = event_id or f"evt-console-{new_event_id()}"
    accepted = with_court(home, lambda services: inject_event(services, document))
    if not json:
        output.say(document["id"] if accepted else f"{document['id']} is already known: nothing changed")
    elif not wait:
        output.print_json({"id": document["id"], "accepted": accepted})
    if wait:
        _wait_for_end(home, document["id"], accepted=accepted, json=json)


def _wait_for_end(home: Path | None, event_id: str, *, accepted: bool, json: bool) -> None:
    from dataclasses import asdict

    from kingdom.court.commands import wait_for_outcome
    from kingdom.court.patterns import NOBODY_SUBSCRIBES

    known = with_court(home, lambda services: wait_for_outcome(services, event_id), lasting=True)
    if json:
        output.print_json({"id": event_id, "accepted": accepted, **asdict(known)})
    elif known.status == "needs_human":
        output.say(f'{known.task_id} asks: {known.summary} (kingdom answer {known.task_id} "…")')
    elif known.discarded is not None:
        nearest = _nearest(known.known_types) if known.discarded == NOBODY_SUBSCRIBES else ""
        output.say(f"no task: {known.discarded}{nearest}")
    else:
        output.say(f"{known.task_id or 'no task'}: {known.result or known.status}. {known.summary}".rstrip(". "))
    if known.known_types or known.discarded == NOBODY_SUBSCRIBES:
        raise click.exceptions.Exit(output.UNWANTED)
    if not known.succeeded and known.status != "needs_human":
        raise click.exceptions.Exit(output.FAILED)


def _nearest(types: Sequence[str]) -> str:
    if not types:
        return "; no general subscribes to anything: kingdom general ls lists generals"
    return f". The nearest types that are known here: {', '.join(types)}"


def _parse_payload(text: str) -> dict[str, Any]:
    where = "--payload"
    if text.startswith("@"):
        where = text[1:]
        try:
            text = Path(where).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise output.usage_error(f"--payload {text}: {error}") from None
    try:
        document = jsonlib.loads(text)
    except ValueError as error:
        raise output.usage_error(f"{where}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise output.usage_error(f"{where}: the payload must be a JSON object ({{…}}), not {type(document).__name__}")
    return document


@command()
@task_argument
@argument("text", help="The answer.")
@home_option
@json_option
def answer(task_id: str, text: str, home: Path | None, json: bool) -> None:
    """Answer the question of a task.

    The task then continues. The first answer counts.
    """
    if not text.strip():
        raise output.usage_error("the answer is empty")
    event_id = with_court(home, lambda services: answer_question(services, task_id, text))
    if json:
        output.print_json({"id": event_id, "task_id": task_id})
    else:
        output.say(f"sent as {event_id}")


async def answer_question(services: Services, task_id: str, text: str) -> str:
    """Publish the answer to the question of a task; return the id of the event."""
    from kingdom.court import commands

    return await commands.answer_question(services, task_id, text, user_name())


@command()
@task_argument
@click.option("--soldier", metavar="ID", help="The soldier. Default: the last one.")
@click.option("--raw", is_flag=True, help="Print every line as the agent wrote it.")
@home_option
def transcript(task_id: str, soldier: str | None, raw: bool, home: Path | None) -> None:
    """Show what a soldier of the task said and did."""
    from kingdom.agents.engines import default_engines
    from kingdom.court.commands import find_task
    from kingdom.court.soldiers import soldiers_of_task, transcript_lines

    with_court(home, lambda services: find_task(services, task_id))
    found = soldiers_of_task(find_home(home), task_id)
    chosen = [one for one in found if soldier in (None, one.id)]
    if not chosen:
        names = ", ".join(one.id for one in found) or "none"
        who = "no soldier has worked on it yet" if soldier is None else f"no soldier {soldier} worked on it"
        raise output.CommandError("NOT_FOUND", f"{task_id}: {who} (soldiers of the task: {names})")
    last = chosen[-1]
    if not last.transcript.exists():
        raise output.CommandError(
            "NOT_FOUND", f"{last.transcript} is gone: transcripts are removed after their retention time"
        )
    if raw:
        with last.transcript.open("rb") as file:
            for line in file:
                sys.stdout.write(output.sanitize(line.decode(errors="replace")))
        return
    output.say(f"# {last.id}, {last.order.engine}: {last.transcript}")
    for line_ in transcript_lines(last, default_engines()):
        output.say(line_)


@command()
@task_argument
@click.option("--transcript", "plain", is_flag=True, help="Print the transcript, also if the soldier runs in tmux.")
@home_option
def attach(task_id: str, plain: bool, home: Path | None) -> None:
    """Watch a task while it runs, until it ends.

    Shows the terminal of a soldier that runs in tmux, read only (C-b d detaches). Otherwise prints the transcript as it
    grows. Ctrl-C stops watching; the task goes on. Exits with 1 if the task failed.
    """
    from kingdom.court.commands import find_task
    from kingdom.court.following import follow_task, terminal_command

    with_court(home, lambda services: find_task(services, task_id))
    shown = None if plain or not sys.stdout.isatty() else terminal_command(find_home(home), task_id)
    if shown is not None and shutil.which(shown[0]) is not None:
        os.execvp(shown[0], shown)  # noqa: S606 - no shell: the arguments are a list
    end = with_court(home, lambda services: follow_task(services, task_id, output.say), lasting=True)
    ask = f' (kingdom answer {task_id} "…")' if end.status == "needs_human" else ""
    output.say(f"# {task_id}: {end.status}. {end.summary}".rstrip(". ") + ask)
    if end.status in ("failed", "timeout", "killed"):
        raise click.exceptions.Exit(output.FAILED)


@group("task")
def app() -> None:
    """Manage tasks: list, show, attach, cancel, retry, land."""


@command()
@click.option(
    "--status",
    metavar="WORD",
    help="Only tasks that are pending, in_progress, completed, failed, cancelled, needs_human or answered.",
)
@click.option("--general", metavar="NAME", help="Only tasks of this general.")
@click.option("--limit", type=click.IntRange(1), default=50, help="Show at most this many, the newest.")
@home_option
@json_option
def ls(status: str | None, general: str | None, limit: int, home: Path | None, json: bool) -> None:
    """List tasks, the newest first."""
    from kingdom.cli.court.task_text import local_text
    from kingdom.court.config import court_zone
    from kingdom.court.document_index import describe_document

    found = with_court(home, _listed_tasks)
    chosen = [
        task
        for task in found
        if status in (None, task["shown_status"]) and general in (None, task.get("target_general"))
    ]
    chosen.sort(key=lambda task: (str(task.get("created_at")), str(task.get("id"))), reverse=True)
    if json:
        output.print_json({"tasks": chosen[:limit], "total": len(chosen)})
    elif chosen:
        zone = court_zone(find_home(home))
        rows = [
            (
                task.get("id"),
                task["shown_status"],
                task.get("target_general"),
                describe_document(task),
                local_text(task.get("created_at"), zone),
            )
            for task in chosen[:limit]
        ]
        output.print_table(("task", "status", "general", "about", f"created ({zone.key})"), rows)
        if len(chosen) > limit:
            output.say(f"… and {len(chosen) - limit} older ones (use --limit)")
    else:
        output.say("no tasks")


@command()
@task_argument
@home_option
@json_option
def show(task_id: str, home: Path | None, json: bool) -> None:
    """Show a task: what came of it, and what can be done."""
    document = with_court(home, lambda services: _task_document(services, task_id))
    if json:
        output.print_json(document)
        return
    from kingdom.cli.court.task_text import print_task
    from kingdom.court.config import court_zone

    print_task(document, court_zone(find_home(home)))


@command()
@task_argument
@click.option("--reason", metavar="TEXT", help="The reason. It is also posted on the issue, pull request or ticket.")
@home_option
@json_option
def cancel(task_id: str, reason: str | None, home: Path | None, json: bool) -> None:
    """Cancel a task.

    The king removes it from the queue or stops its soldier, now or when the court starts. If work had begun, a comment
    on its issue, pull request or ticket says that it was stopped.
    """
    _request(task_id, home, "cancel", json, reason)


@command()
@task_argument
@home_option
@json_option
def retry(task_id: str, home: Path | None, json: bool) -> None:
    """Repeat a finished task as a new task.

    The king creates the new task, now or when the court starts.
    """
    _request(task_id, home, "retry", json)


def _request(task_id: str, home: Any, what: str, json: bool, reason: str | None = None) -> None:
    event_id = with_court(home, lambda services: request_for_task(services, task_id, what, reason))
    if json:
        output.print_json({"id": event_id, "task_id": task_id})
    else:
        output.say(f"requested as {event_id}: kingdom trace {task_id} shows what happens")


async def request_for_task(services: Services, task_id: str, what: str, reason: str | None = None) -> str:
    """Request that a task is cancelled, for a reason, or retried; return the id of the event."""
    from kingdom.court import commands

    if what == "cancel":
        return await commands.cancel_task(services, task_id, user_name(), note=reason)
    return await commands.retry_task(services, task_id, user_name())


async def _listed_tasks(services: Services) -> list[dict[str, Any]]:
    """Return the documents of all valid tasks, each with its status as people are shown it, and its answer."""
    from kingdom.court.questions import shown_status, with_answers
    from kingdom.court.queues import all_documents

    tasks = [stored for stored in await all_documents(services, ("tasks",)) if stored.state != "invalid"]
    answers = await with_answers(services, tasks)
    return [
        {
            **task.document,
            "shown_status": await shown_status(services, task, answers),
            **({"answer": answers[task.id].document()} if task.id in answers else {}),
        }
        for task in tasks
    ]


async def _task_document(services: Services, task_id: str) -> dict[str, Any]:
    from kingdom.base.files import read_json
    from kingdom.court.commands import find_task
    from kingdom.court.packages.installed import held_tasks
    from kingdom.court.questions import shown_status, with_answers
    from kingdom.court.queues import all_documents
    from kingdom.court.soldiers import soldiers_of_task

    task = await find_task(services, task_id)
    holds = held_tasks(services.home) if task.state != "completed" else {}
    home = services.home
    answers = await with_answers(services, await all_documents(services, ("tasks",)))
    soldiers = soldiers_of_task(home, task_id)
    kept = [home.result(task_id), home.raw_result(task_id), home.prompt(task_id), home.session_id(task_id)]
    kept += [path for soldier in soldiers for path in (soldier.transcript, soldier.errors, soldier.folder)]
    return {
        "task": task.document,
        "shown_status": await shown_status(services, task, answers),
        "answer": answers[task_id].document() if task_id in answers else None,
        "held_because": next((reason for reason, tasks in holds.items() if task_id in tasks), None),
        "locked_by": task.locked_by,
        "result": read_json(home.result(task_id)),
        "soldiers": [
            {
                "id": soldier.id,
                "engine": soldier.order.engine,
                "pid": soldier.pid,
                "alive": soldier.at_work,
                "started_at": soldier.started_at,
            }
            for soldier in soldiers
        ],
        "files": [str(path) for path in kept if path.exists()],
    }


@command()
@task_argument
@click.option("--push", is_flag=True, help="Only push the branch; open no pull request.")
@home_option
@json_option
def land(task_id: str, push: bool, home: Path | None, json: bool) -> None:
    """Push what a finished task committed, and open a pull request.

    For a task that could not be landed when it ended, or whose general does not land. May be repeated.
    """
    from kingdom.court.general.landing import land_again
    from kingdom.gitops.errors import GitError

    try:
        landed = with_court(home, lambda services: land_again(services, task_id, "push" if push else None))
    except GitError as error:
        raise output.CommandError("NOT_LANDED", str(error)) from error
    if json:
        output.print_json({"task_id": task_id, "branch": landed.branch, "commits": landed.commits, "url": landed.url})
    else:
        output.say(f"{landed.branch}: {landed.commits} commit(s) pushed" + (f", {landed.url}" if landed.url else ""))


for _command in (ls, show, attach, cancel, retry, land, transcript):
    app.add_command(_command)
