"""Commands that inspect workflows: ls, show, log, verify."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import json_option, store_option, workflow_argument, workflow_home_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import find_workflow_home, open_workflow_store, run_async, utc_now, with_store
from kingdom.cli.workflow.rescues import print_rescues

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.overview import WorkflowOverview
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.rescues import KeptWork
    from kingdom.workflow.store.holds import Holder

_EVENTS_PER_PAGE = 500
NO_ENGINE_ADVICE = "kingdom workflow start WORKFLOW continues one, kingdom workflow engine all of them"


@command()
@click.option(
    "--status",
    multiple=True,
    metavar="WORD",
    help="Only workflows with this status: RUNNING, PAUSED and so on; may be repeated.",
)
@click.option("--limit", type=click.IntRange(1), default=50, help="Show at most this many, the newest.")
@workflow_home_option
@store_option
@json_option
def ls(status: tuple[str, ...], limit: int, home: Path | None, store: str | None, json: bool) -> None:
    """List workflows, the newest first."""
    from kingdom.cli.workflow.view import SHORT_ID_CHARS, coloured, shorten
    from kingdom.workflow.overview import land_again_document, workflow_summary

    words = _parse_statuses(status)
    found, names, engine = with_store(home, store, lambda opened: _read_workflows(opened, words, limit + 1))
    shown = found[:limit]

    def repositories(one: Workflow) -> list[str]:
        return [names.get(ref.git_id, ref.git_id) for ref in one.git_refs]

    if json:
        listed = [
            workflow_summary(one)
            | {"repositories": repositories(one), "reason": one.reason, "landAgain": land_again_document(one)}
            for one in shown
        ]
        output.print_json({"workflows": listed, "engineRunning": engine})
    elif shown:
        rows = [
            (
                one.name,
                coloured(_status_text(one, engine=engine)),
                ", ".join(repositories(one)),
                one.issue_key or "",
                _local_time(one.created_at),
                one.id[-SHORT_ID_CHARS:],
                shorten(one.reason or ""),
            )
            for one in shown
        ]
        columns = ("workflow", "status", "repository", "issue", "created", "id", "why")
        used = [number for number in range(len(columns)) if number < 2 or any(row[number] for row in rows)]
        output.print_table([columns[number] for number in used], [[row[number] for number in used] for row in rows])
        if len(found) > limit:
            output.say("… and older ones (use --limit)")
        if not engine and (advice := next(filter(None, map(_engine_advice, shown)), None)):
            output.say(f"no engine runs: {advice}")
    else:
        output.say("no workflows: kingdom workflow create TEMPLATE creates one")


def _engine_advice(workflow: Workflow) -> str | None:
    """Return what to do for a workflow while no engine runs; None if it needs none."""
    if workflow.is_active:
        return NO_ENGINE_ADVICE
    return None if workflow.land_again is None else "kingdom workflow engine lands what waits"


def _status_text(workflow: Workflow, *, engine: bool) -> str:
    waits = ["not landed"] if workflow.land_again is not None else []
    if not engine and _engine_advice(workflow) is not None:
        waits.append("no engine")
    return workflow.status + (f" ({', '.join(waits)})" if waits else "")


def _local_time(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _parse_statuses(words: Sequence[str]) -> list[str]:
    from kingdom.workflow.domain.statuses import WorkflowStatus

    given = [word.upper() for word in words]
    if unknown := [word for word in given if word not in list(WorkflowStatus)]:
        raise output.usage_error(f"--status {unknown[0]}: use one of {', '.join(WorkflowStatus)}")
    return given


async def _read_workflows(
    store: WorkflowStore, statuses: list[str], limit: int
) -> tuple[list[Workflow], dict[str, str], bool]:
    """Return workflows, the names of repositories by id, and whether an engine runs."""
    async with store.reading() as tx:
        if statuses:
            found = list(reversed(await tx.workflows.with_status(*statuses)))[:limit]
        else:
            found = await tx.workflows.list(limit=limit)
        names = {git_id: name for name, git_id in (await tx.gits.ids_by_name()).items()}
    return found, names, await store.engine_running()


@command()
@workflow_argument
@click.option("--plan", is_flag=True, help="Only its plan, as YAML for kingdom workflow modify --file.")
@workflow_home_option
@store_option
@json_option
def show(workflow: str, plan: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Show a workflow: works, tasks, repositories, checkpoints.

    Also lists rescues: what was dropped when it went back.
    """
    if plan:
        _print_plan(workflow, home, store, json=json)
        return
    from kingdom.cli.workflow.names import workflow_word

    place = find_workflow_home(home, store)
    found, engine, holder, kept = with_store(home, store, lambda opened: _read_whole(place, opened, workflow))
    if json:
        more = {"engineRunning": engine, "heldBy": holder and holder.home, "rescues": [one.document() for one in kept]}
        output.print_json(found.document() | more)
        return
    print_overview(found, engine=engine, holder=holder)
    if kept:
        output.say()
        print_rescues(kept, workflow_word(found.workflow))


def _print_plan(word: str, home: Path | None, store: str | None, *, json: bool) -> None:
    from kingdom.cli.workflow.plans import plan_text

    workflow, text = with_store(home, store, lambda opened: plan_text(opened, word))
    if json:
        output.print_json({"id": workflow.id, "yaml": text})
    else:
        output.say(text.rstrip("\n"))


async def _read_whole(
    place: WorkflowHome, store: WorkflowStore, word: str
) -> tuple[WorkflowOverview, bool, Holder | None, list[KeptWork]]:
    """Return a workflow, whether an engine runs, the one that holds it, and what was dropped of it."""
    from kingdom.gitops import GitError
    from kingdom.workflow.home import git_service
    from kingdom.workflow.rescues import read_rescues

    overview = await read_overview(store, word)
    kept: list[KeptWork] = []
    with contextlib.suppress(GitError):  # of a damaged clone; verify reports it
        kept = await read_rescues(store, git_service(place, utc_now), overview.workflow)
    return overview, await store.engine_running(), await store.holder(overview.workflow.id), kept


async def read_overview(store: WorkflowStore, word: str) -> WorkflowOverview:
    """Return the workflow with everything that belongs to it."""
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.workflow.overview import WorkflowOverview

    async with store.reading() as tx:
        return await WorkflowOverview.read(tx, await find_workflow(tx, word))


def print_overview(found: WorkflowOverview, *, engine: bool = True, holder: Holder | None = None) -> None:
    """Print a workflow; ``engine``: whether one runs; ``holder``: the one that holds it, if several share the store."""
    from kingdom.cli.workflow.view import COLUMNS, SHORT_ID_CHARS, land_again_text, overview_rows

    workflow = found.workflow
    facts = [
        ("workflow", workflow.id),
        ("name", workflow.name),
        ("status", workflow.status + (f": {workflow.reason}" if workflow.reason else "")),
        ("landing", land_again_text(workflow)),
        ("engine", None if engine or (advice := _engine_advice(workflow)) is None else f"none runs: {advice}"),
        ("machine", holder and holder.home + ("" if holder.alive else ": its engine is gone")),
        ("issue", workflow.issue_key),
        ("template", workflow.template_id),
        ("forked from", workflow.forked_from),
        ("variables", ", ".join(f"{name}={value}" for name, value in workflow.variables.items())),
    ]
    for name, value in facts:
        if value:
            output.say(f"{name:<12}{value}")
    document = found.document()
    names = {work.id: work.name for work in found.works}
    for tree in document["repositories"]:
        state = (tree["status"] or "not created yet") + (f": {tree['error']}" if tree.get("error") else "")
        whose = f" of {names[tree['workId']]}" if tree.get("workId") in names else ""
        output.say(f"{'repository':<12}{tree['name']}{whose} {state}")
        if tree.get("path"):  # each on a line of its own, where it can be copied
            output.say(f"{'  branch':<12}{tree['branch']}")
            output.say(f"{'  worktree':<12}{tree['path']}")
    for landing in document["landings"]:
        state = f"{landing['branch']}: {landing['url'] or landing['remote']}" if landing["commit"] else "not pushed"
        output.say(f"{'landed':<12}{landing['name']} {state}" + (f" ({landing['error']})" if landing["error"] else ""))
    output.say()
    output.print_table(COLUMNS, overview_rows(found), right=("attempt",))
    if document["checkpoints"]:
        output.say()
        points = [
            (point["id"][-SHORT_ID_CHARS:], point["workName"] or point["workId"],
             _local_time(datetime.fromisoformat(point["createdAt"])),
             " ".join(f"{name}@{commit[:12]}" for name, commit in point["hashes"].items()),
             "" if point["valid"] else "left behind")
            for point in document["checkpoints"]
        ]  # fmt: skip
        output.print_table(("checkpoint", "work", "made", "commits", ""), points)


@command()
@workflow_argument
@click.option("--after", type=click.IntRange(0), default=0, metavar="N", help="Only events after this number.")
@workflow_home_option
@store_option
@click.option("--json", is_flag=True, help="Print each event as a JSON line.")
def log(workflow: str, after: int, home: Path | None, store: str | None, json: bool) -> None:
    """Show the events of a workflow, in order.

    Their numbers have no gaps.
    """
    with_store(home, store, lambda opened: _print_log(opened, workflow, after, json=json))


async def _print_log(store: WorkflowStore, word: str, after: int, *, json: bool) -> None:
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.cli.workflow.view import event_document, event_line
    from kingdom.workflow.overview import names_by_id

    async with store.reading() as tx:
        workflow = await find_workflow(tx, word)
        names = names_by_id(await tx.works.of_workflow(workflow.id))
    console = output.console()
    while page := await store.events(workflow.id, after, _EVENTS_PER_PAGE):
        for event in page:
            if json:
                output.print_json_line(event_document(event))
            else:
                console.print(event_line(event, names), soft_wrap=not console.is_terminal)
        after = page[-1].sequence


@command()
@argument("workflow", required=False, metavar="[WORKFLOW]", help="Only this workflow. Default: all.")
@click.option("--deep", is_flag=True, help="Also check every file of every commit.")
@workflow_home_option
@store_option
@json_option
def verify(workflow: str | None, deep: bool, home: Path | None, store: str | None, json: bool) -> None:
    """Check that every checkpoint can be restored.

    Each commit must exist and be held by a ref, and the branches of completed workflows must have their last
    checkpoint. Exits 1 otherwise.
    """
    place = find_workflow_home(home, store)
    checked, problems = run_async(lambda: _verify(place, workflow, deep=deep))
    if json:
        output.print_json({"checked": checked, "problems": problems})
    else:
        for problem in problems:
            output.say(f"{problem['workflowId']} {problem['checkpointId']}: {problem['what']}")
        if not problems:
            output.say(f"{checked} checkpoints: every commit exists and is held")
    if problems:
        raise click.exceptions.Exit(output.FAILED)


async def _verify(place: WorkflowHome, word: str | None, *, deep: bool) -> tuple[int, list[dict[str, Any]]]:
    from kingdom.cli.workflow.names import find_workflow
    from kingdom.workflow.checkpoints import verify_checkpoints
    from kingdom.workflow.home import git_service

    async with open_workflow_store(place) as store:
        workflow_id = None
        if word is not None:
            async with store.reading() as tx:
                workflow_id = (await find_workflow(tx, word)).id
        proof = await verify_checkpoints(store, git_service(place, utc_now), workflow_id, deep=deep)
    problems = [
        {"workflowId": one.recorded.workflow, "checkpointId": one.recorded.checkpoint, "what": one.what}
        for one in proof.problems
    ]
    return proof.checked, problems
