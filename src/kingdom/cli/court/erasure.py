"""``kingdom export`` and ``kingdom forget``: everything about a person or a repository."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kingdom.cli import output
from kingdom.cli.options import PATH, home_option, json_option, yes_option
from kingdom.cli.parsing import command
from kingdom.cli.session import (
    find_home,
    find_workflow_home,
    open_court,
    open_workflow_context,
    open_workflow_store,
    run_async,
)

if TYPE_CHECKING:
    from kingdom.court.erasure.collection import KnownRecords
    from kingdom.court.erasure.names import SubjectNames
    from kingdom.court.erasure.plan import RemovalPlan
    from kingdom.court.home import Home
    from kingdom.web.security.sessions import SessionStore
    from kingdom.workflow.erasure import KnownWorkflows
    from kingdom.workflow.home import WorkflowHome

_STORE_VARIABLE = "KINGDOM_WORKFLOW_STORE"


def _subject_options(function: Callable[..., None]) -> Callable[..., None]:
    function = click.option(
        "--repository", metavar="OWNER/NAME", multiple=True, help="A repository; may be repeated for former names."
    )(function)
    return click.option(
        "--person",
        metavar="NAME",
        multiple=True,
        help="A login, user id, address or full name of a person; may be repeated for all names of one person.",
    )(function)


@command()
@_subject_options
@click.option("--to", "target", type=PATH, metavar="FILE", required=True, help="The ZIP file to write.")
@home_option
@json_option
def export(person: tuple[str, ...], repository: tuple[str, ...], target: Path, home: Path | None, json: bool) -> None:
    """Export everything known about a person or a repository.

    The ZIP file has events, tasks, messages, questions, answers, results, prompts, transcripts, workflows, and lines of
    journal and ledger. Only its owner can read it. The court may be up.
    """
    import time

    court = find_home(home)
    place = _workflows_of(court)

    async def run() -> dict[str, int]:
        from kingdom.court.erasure.collection import collect_records
        from kingdom.court.erasure.export import ExportPart, write_export

        names = _subject(person, repository)
        async with open_court(court) as services:
            found = await collect_records(services, names)
        workflows = await _find_workflows(place, names)
        more = ExportPart(_workflow_documents(workflows), [*_workflow_paths(court, place, workflows)])
        if tokens := _tokens(court, names):
            more.documents["tokens.json"] = {"tokens": tokens}
        if sessions := _sessions(court, names):
            more.documents["sessions.json"] = {"sessions": sessions}
        return write_export(court, names, found, target, time.time(), more)

    counts = run_async(run)
    if json:
        output.print_json({"path": str(target), "counts": counts})
        return
    known = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "nothing"
    output.say(f"{target}: {known}")
    output.say("what an export does not reach is in its about.json")


@command()
@_subject_options
@click.option("--resume", is_flag=True, help="Complete a removal that was interrupted.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed; change nothing.")
@yes_option
@home_option
@json_option
def forget(
    person: tuple[str, ...],
    repository: tuple[str, ...],
    resume: bool,
    dry_run: bool,
    yes: bool,
    home: Path | None,
    json: bool,
) -> None:
    """Remove everything known about a person or a repository.

    The court must be down, and nothing of it unfinished. Where others' records mention it, its names are replaced by
    x's. It cannot be undone: kingdom export first.
    """
    from contextlib import nullcontext

    from kingdom.cli.session import errors_reported
    from kingdom.court.erasure.plan import court_at_rest

    court = find_home(home)
    place = _workflows_of(court)
    with errors_reported(), nullcontext() if dry_run else court_at_rest(court):
        if not dry_run:
            _check_no_server(court)
        plan, left = _resumed(court) if resume else _plan(court, place, _subject(person, repository), check=not dry_run)
        if not json:
            _print_plan(plan, left)
        if not dry_run:
            output.confirm(f"Remove all this about the {plan.subject.text}? It cannot be undone.", yes=yes)
            run_async(lambda: _carry_out(court, place, plan))
    if json:
        output.print_json({"removed": not dry_run, **_document(plan), "left": left})
    elif not dry_run:
        output.say("removed; kingdom up starts the court again")


def _subject(person: tuple[str, ...], repository: tuple[str, ...]) -> SubjectNames:
    from kingdom.court.erasure.names import SubjectNames

    if bool(person) == bool(repository):
        raise output.usage_error("name a person (--person NAME) or a repository (--repository OWNER/NAME)")
    return SubjectNames("person", person) if person else SubjectNames("repository", repository)


def _workflows_of(court: Home) -> WorkflowHome:
    return find_workflow_home(court.root, os.environ.get(_STORE_VARIABLE))


async def _find_workflows(place: WorkflowHome, names: SubjectNames) -> KnownWorkflows:
    from kingdom.workflow.erasure import KnownWorkflows, find_workflows

    if not place.has_store:
        return KnownWorkflows()
    async with open_workflow_store(place) as store:
        return await find_workflows(store, names.are_in, repository=names.kind == "repository")


# ── export ──


def _workflow_documents(found: KnownWorkflows) -> dict[str, Any]:
    documents: dict[str, Any] = {f"workflows/{one}.json": document for one, document in found.workflows.items()}
    documents |= {f"workflows/{one}-events.json": {"events": events} for one, events in found.events.items()}
    return documents | {f"workflows/{one}.json": document for one, document in found.gits.items()}


def _workflow_paths(court: Home, place: WorkflowHome, found: KnownWorkflows) -> list[str]:
    """Return the workspaces, runs and transcripts of the workflows."""
    folders = [place.workspaces / one for one in found.workflows]
    folders += [
        path for folder in (place.runs, place.sessions) for one in found.works for path in folder.glob(f"{one}.*")
    ]
    return [str(path.relative_to(court.root)) for path in folders if path.is_relative_to(court.root) and path.exists()]


def _tokens(court: Home, names: SubjectNames) -> list[dict[str, Any]]:
    from dataclasses import asdict

    try:
        from kingdom.web.security.tokens import TokenStore
    except ModuleNotFoundError:  # without the extra web there are none
        return []
    return [asdict(token) for token in TokenStore(court.root).list() if names.are_in(token.name)]


def _sessions(court: Home, names: SubjectNames) -> list[dict[str, Any]]:
    """Return the browsers where the person is logged in."""
    from dataclasses import asdict

    store = _session_store(court)
    known = [] if store is None else [asdict(session) for session in store.stored()]
    return [session for session in known if names.are_in_document(session)]


def _session_store(court: Home) -> SessionStore | None:
    try:
        from kingdom.web.security.sessions import SessionStore
        from kingdom.web.security.tokens import TokenStore
    except ModuleNotFoundError:  # without the extra web nobody can log in
        return None
    return SessionStore(court.root, TokenStore(court.root))


# ── removal ──


def _plan(court: Home, place: WorkflowHome, names: SubjectNames, *, check: bool) -> tuple[RemovalPlan, list[str]]:
    from kingdom.court.erasure.plan import check_no_removal
    from kingdom.court.erasure.removal import NOT_REACHED, check_removable, make_plan

    async def find() -> tuple[KnownRecords, KnownWorkflows]:
        from kingdom.court.erasure.collection import collect_records

        async with open_court(court) as services:
            return await collect_records(services, names), await _find_workflows(place, names)

    check_no_removal(court)
    found, workflows = run_async(find)
    if check:
        found.running += workflows.running
        check_removable(found)
    plan = make_plan(names, found)
    plan.workflows, plan.gits = sorted(workflows.workflows), sorted(workflows.gits)
    return plan, _left(found, workflows, NOT_REACHED)


def _left(found: KnownRecords, workflows: KnownWorkflows, always: tuple[str, ...]) -> list[str]:
    settings = [f"{path}, which names it: change it by hand" for path in found.configuration]
    return [*settings, *(f"{one}, which names it" for one in workflows.left), *always]


def _resumed(court: Home) -> tuple[RemovalPlan, list[str]]:
    from kingdom.court.erasure.plan import stored_plan
    from kingdom.court.erasure.removal import NOT_REACHED

    plan = stored_plan(court)
    if plan is None:
        raise output.CommandError("NOTHING_TO_RESUME", "no removal was interrupted: there is nothing to complete")
    return plan, list(NOT_REACHED)


def _check_no_server(court: Home) -> None:
    from kingdom.court.erasure.plan import RemovalRefused
    from kingdom.web.record import running_server

    if (server := running_server(court.root)) is not None:
        raise RemovalRefused(f"a web server runs on this home (pid {server.process.pid}): stop it first")


async def _carry_out(court: Home, place: WorkflowHome, plan: RemovalPlan) -> None:
    from kingdom.court.erasure.plan import store_plan
    from kingdom.court.erasure.removal import carry_out

    async def further(plan: RemovalPlan) -> None:
        if place.has_store:
            await _remove_workflows(place, plan)
        _revoke_tokens(court, plan.subject)
        _empty_feed(court)

    async with open_court(court) as services:
        await services.lead.discard_copy()  # refused where another machine led last: then nothing must be completed
        store_plan(court, plan)
        await carry_out(services, plan, further)


async def _remove_workflows(place: WorkflowHome, plan: RemovalPlan) -> None:
    from kingdom.workflow.engine import EngineLease
    from kingdom.workflow.erasure import remove_workflows
    from kingdom.workflow.own_events import own_events_handled

    async with open_workflow_context(place) as context:
        lease = EngineLease(context.store)
        await lease.take()  # raises while an engine runs
        try:
            async with own_events_handled(context, has_lease=True):
                await remove_workflows(context, plan.workflows, plan.gits, plan.subject.hide)
        finally:
            await lease.release()
    if place.database.is_file():
        _compact(place.database)


def _revoke_tokens(court: Home, names: SubjectNames) -> None:
    try:
        from kingdom.web.security.tokens import TokenStore
    except ModuleNotFoundError:
        return
    store = TokenStore(court.root)
    for token in store.list():
        if names.are_in(token.name):
            store.remove(token.name)
    if (sessions := _session_store(court)) is not None:
        for session in _sessions(court, names):
            sessions.end(session["id"])


def _empty_feed(court: Home) -> None:
    """Delete the stored live events, which repeat journal lines. Clients load the state again."""
    try:
        from kingdom.web.live.feed import FEED_FILE, FeedFile
        from kingdom.web.record import STATE_FOLDER
    except ModuleNotFoundError:
        return
    path = court.root / STATE_FOLDER / FEED_FILE
    if path.is_file():
        feed = FeedFile(path)
        feed.drop_history({})
        feed.close()
        _compact(path)


def _compact(database: Path) -> None:
    """Rewrite a database, so that its file has no deleted rows any more."""
    import contextlib
    import sqlite3

    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _document(plan: RemovalPlan) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(plan)


def _print_plan(plan: RemovalPlan, left: list[str]) -> None:
    rows = [(stream, len(ids), "removed") for stream, ids in plan.events.items()]
    rows += [("files and folders", len(plan.paths), "removed"), ("workflows", len(plan.workflows), "removed")]
    rows += [("repositories of workflows", len(plan.gits), "removed")]
    rows += [("other files", len(plan.mentions), "names replaced")]
    output.print_table(("what", "count", "how"), [row for row in rows if row[1]], right=("count",))
    output.say(f"journal lines stay, without texts and names. Not reached: {'; '.join(left)}")
