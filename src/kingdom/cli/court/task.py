"""``kingdom task …``: look at tasks, and have them ended or done again."""

from __future__ import annotations

import json as jsonlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.court.options import TaskId
from kingdom.cli.court.session import in_court, user_name
from kingdom.cli.court.transcript import transcript
from kingdom.cli.home import HomeOption

if TYPE_CHECKING:
    from kingdom.court.loop import Services

app = typer.Typer()


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    """Look at the tasks of a court, and have them ended or done again."""
    output.help_when_alone(context)


def ls(
    status: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Only those that are pending, in_progress, completed, failed or needs_human.",
            show_default=False,
        ),
    ] = None,
    general: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of this general.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 50,
    home: HomeOption = None,
    json: Json = False,
) -> None:
    """List the tasks, the newest first."""
    from kingdom.court.documents import all_documents

    found = in_court(home, lambda services: all_documents(services, ("tasks",)))
    chosen = [
        stored.document
        for stored in found
        if status in (None, stored.document.get("status"))
        and general in (None, stored.document.get("target_general"))
        and stored.state != "invalid"
    ]
    chosen.sort(key=lambda task: (str(task.get("created_at")), str(task.get("id"))), reverse=True)
    if json:
        output.emit({"tasks": chosen[:limit], "total": len(chosen)})
    elif chosen:
        columns = ("task", "status", "general", "type", "priority", "event", "created")
        keys = ("id", "status", "target_general", "type", "priority", "event_id", "created_at")
        output.print_table(columns, [[task.get(key, "") for key in keys] for task in chosen[:limit]])
        if len(chosen) > limit:
            output.say(f"… and {len(chosen) - limit} older ones (--limit)")
    else:
        output.say("no tasks")


def show(task_id: TaskId, home: HomeOption = None, json: Json = False) -> None:
    """Show one task: what it is, what came of it, who was on it, and where its files lie."""
    document = in_court(home, lambda services: _show(services, task_id))
    if json:
        output.emit(document)
        return
    task, result = document["task"], document["result"]
    facts = [(key, task[key]) for key in task if key != "payload"]
    facts += [(f"result {key}", value) for key, value in (result or {}).items() if value not in (None, "", [], {})]
    facts += [("soldier", f"{one['id']} ({'running' if one['alive'] else 'ended'})") for one in document["soldiers"]]
    facts += [("file", path) for path in document["files"]]
    width = max(len(key) for key, _ in facts)
    for key, value in facts:
        shown = value if isinstance(value, str) else jsonlib.dumps(value, ensure_ascii=False)
        output.say(f"{key:<{width}}  {shown}")
    output.say()
    output.say(jsonlib.dumps(task.get("payload"), ensure_ascii=False, indent=2))


def cancel(task_id: TaskId, home: HomeOption = None, json: Json = False) -> None:
    """Have a task ended: taken out of the queue, or its soldier stopped. The king does it, at the latest when up."""
    _ask(task_id, home, "cancel", json)


def retry(task_id: TaskId, home: HomeOption = None, json: Json = False) -> None:
    """Have a task that ended done once more, as a new task. The king does it, at the latest when up."""
    _ask(task_id, home, "retry", json)


def _ask(task_id: str, home: Any, what: str, json: bool) -> None:
    event_id = in_court(home, lambda services: ask_of_task(services, task_id, what))
    if json:
        output.emit({"id": event_id, "task_id": task_id})
    else:
        output.say(f"asked for as {event_id}: kingdom trace {task_id} tells what becomes of it")


async def ask_of_task(services: Services, task_id: str, what: str) -> str:
    """Ask for a task to be cancelled or retried; returns the id of the event."""
    from kingdom.court import commands

    ask = commands.cancel_task if what == "cancel" else commands.retry_task
    return await ask(services, task_id, user_name())


async def _show(services: Services, task_id: str) -> dict[str, Any]:
    from kingdom.court.commands import find_task
    from kingdom.court.files import read_json
    from kingdom.court.soldiers import soldiers_of

    task = await find_task(services, task_id)
    home = services.home
    soldiers = soldiers_of(home, task_id)
    kept = [home.result(task_id), home.raw_result(task_id), home.prompt(task_id), home.session_id(task_id)]
    kept += [path for soldier in soldiers for path in (soldier.transcript, soldier.errors, soldier.folder)]
    return {
        "task": task.document,
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


for _command_function in (ls, show, cancel, retry, transcript):
    app.command()(_command_function)
