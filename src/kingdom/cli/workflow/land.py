"""Commands that bring results home: land, update-base."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kingdom.cli import output
from kingdom.cli.options import PATH, json_option, store_option, workflow_argument, workflow_home_option
from kingdom.cli.parsing import command
from kingdom.cli.session import (
    find_workflow_home,
    git_settings_of,
    open_workflow_context,
    open_workflow_store,
    run_async,
    utc_now,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kingdom.cli.options import LandChoice
    from kingdom.workflow.domain.landing import LandPlan
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.landing import BroughtBranch, LandedBranch, Lander


@command()
@workflow_argument
@click.option("--push", is_flag=True, help="Only push the branch; open no pull request.")
@click.option("--into", type=PATH, metavar="DIR", help="Make the branch in your own checkout; no file there changes.")
@click.option("--patch", metavar="FILE", help="Write the commits as patches that git am takes; - prints them.")
@click.option("--repo", metavar="NAME", help="Only this repository of the workflow.")
@click.option("--branch", metavar="NAME", help="The branch. Default: made from the issue key and the name.")
@click.option("--base", metavar="BRANCH", help="The branch to merge into. Default: the one it started from.")
@click.option(
    "--squash", type=click.Choice(("work", "all", "none")), help="One commit for each work (default), one, or as it is."
)
@click.option("--title", help="The title of the pull request.")
@click.option("--draft", is_flag=True, help="Open the pull request as a draft.")
@click.option("--force", is_flag=True, help="With --into: replace a branch that has other commits.")
@workflow_home_option
@store_option
@json_option
def land(
    workflow: str,
    push: bool,
    into: Path | None,
    patch: str | None,
    repo: str | None,
    branch: str | None,
    base: str | None,
    squash: Literal["work", "all", "none"] | None,
    title: str | None,
    draft: bool,
    force: bool,
    home: Path | None,
    store: str | None,
    json: bool,
) -> None:
    """Push the branch of a workflow and open its pull request.

    Repeat it after more works: the same branch and the same pull request get the new commits. Agents never have the
    token; it is read from git.credentials of system.yaml (kingdom git add says which one is missing).
    """
    if sum((push, into is not None, patch is not None)) > 1:
        raise output.usage_error("--push, --into and --patch are different ways to land: use only one of them")
    if force and into is None:
        raise output.usage_error("--force replaces a branch in a checkout: it needs --into DIR")
    changes = {"how": "push" if push else None, "squash": squash, "branch": branch, "title": title, "draft": draft}
    given = {name: value for name, value in changes.items() if value}
    place = find_workflow_home(home, store)
    if into is not None:
        _print_brought(run_async(lambda: _bring_into(place, workflow, given, repo, into, force=force)), json=json)
    elif patch is not None:
        _save_patches(run_async(lambda: _patches(place, workflow, given, repo)), patch, json=json)
    else:
        _print_landed(run_async(lambda: _land(place, workflow, given, repo, base)), json=json)


@command("update-base")
@workflow_argument
@click.option("--from", "branch", metavar="BRANCH", help="The branch to merge. Default: the one it started from.")
@click.option("--agent", is_flag=True, help="On conflicts, add a work that has the agent resolve them.")
@workflow_home_option
@store_option
@json_option
def update_base(
    workflow: str, branch: str | None, agent: bool, home: Path | None, store: str | None, json: bool
) -> None:
    """Merge the newest commits of the base branch into a workflow.

    Nothing changes if there are conflicts; it says which files. Land again afterwards.
    """
    place = find_workflow_home(home, store)
    merged, work = run_async(lambda: _update_base(place, workflow, branch, agent=agent))
    if json:
        found = [{"name": name, "merged": new} for name, new in merged.items()]
        output.print_json({"repositories": found, "work": work})
        return
    for name, new in merged.items():
        output.say(f"{name}: {'merged' if new else 'has everything already'}")
    if work is not None:
        output.say(f"there are conflicts: kingdom workflow resume {shlex.quote(workflow)} runs the new work {work!r}")


@dataclass(frozen=True, slots=True)
class _Request:
    """A workflow to land, and how."""

    workflow: Workflow
    lander: Lander
    git_id: str | None = None  # only this repository

    def plan(self, given: dict[str, Any]) -> LandPlan:
        """Return how the workflow says it is landed, with what was given on the command line."""
        from kingdom.workflow.domain.landing import LandPlan

        return replace(self.workflow.land or LandPlan(), **given)


@contextlib.asynccontextmanager
async def _opened(place: WorkflowHome, word: str, repository: str | None = None) -> AsyncIterator[_Request]:
    from kingdom.cli.workflow.names import find_git, find_workflow
    from kingdom.workflow.home import lander

    async with open_workflow_store(place) as store:
        async with store.reading() as tx:
            workflow = await find_workflow(tx, word)
            git = None if repository is None else await find_git(tx, repository)
        yield _Request(workflow, lander(place, store, utc_now, git_settings_of(place)), None if git is None else git.id)


async def _land(
    place: WorkflowHome, word: str, given: dict[str, Any], repository: str | None, base: str | None
) -> list[LandedBranch]:
    async with _opened(place, word, repository) as found:
        return await found.lander.land(found.workflow.id, found.plan(given), base=base, only=found.git_id)


async def _bring_into(
    place: WorkflowHome, word: str, given: dict[str, Any], repository: str | None, folder: Path, *, force: bool
) -> BroughtBranch:
    async with _opened(place, word, repository) as found:
        plan = found.plan(given)
        return await found.lander.bring_into(found.workflow.id, folder, plan, only=found.git_id, force=force)


async def land_result(lander: Lander, workflow_id: str, how: LandChoice, folder: Path | None, *, json: bool) -> bool:
    """Land a workflow that has just ended, as a person chose, print where it is, and return True."""
    from kingdom.workflow.domain.landing import LandPlan

    if how == "checkout":
        _print_brought(await lander.bring_into(workflow_id, folder or Path.cwd()), json=json)
    else:
        _print_landed(await lander.land(workflow_id, LandPlan(how)), json=json)
    return True


async def _patches(place: WorkflowHome, word: str, given: dict[str, Any], repository: str | None) -> str:
    async with _opened(place, word, repository) as found:
        return await found.lander.patches(found.workflow.id, found.plan(given), only=found.git_id)


async def _update_base(
    place: WorkflowHome, word: str, branch: str | None, *, agent: bool
) -> tuple[dict[str, bool], str | None]:
    """Return which repositories had something to merge, and the Work that resolves conflicts."""
    from kingdom.workflow.adapters.git_service import MergeConflict
    from kingdom.workflow.own_events import own_events_handled
    from kingdom.workflow.usecases.follow_up import add_merge_work

    async with _opened(place, word) as found:
        try:
            return await found.lander.update_base(found.workflow.id, branch), None
        except MergeConflict as error:
            if not agent:
                raise
            conflict = error
    async with open_workflow_context(place) as context, own_events_handled(context):
        base, commit = conflict.branch, conflict.commit
        return {}, await add_merge_work(context, found.workflow.id, base, commit, conflict.files)


# ── output ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _print_landed(landed: list[LandedBranch], *, json: bool) -> None:
    if json:
        output.print_json({"repositories": [_document(one) for one in landed]})
        return
    for one in landed:
        landing = one.landing
        where = f"{landing.url} ({'opened' if one.opened else 'updated'})" if landing.url else f"at {landing.remote}"
        count = output.plural(one.commits, "commit")
        output.say(
            output.step(f"{one.git.name}: {count} on {landing.branch}, to be merged into {landing.base}:", where)
        )


def _document(one: LandedBranch) -> dict[str, Any]:
    landing = one.landing
    return {
        "name": one.git.name,
        "gitId": one.git.id,
        "branch": landing.branch,
        "base": landing.base,
        "commit": landing.pushed,
        "commits": one.commits,
        "url": landing.url,
        "opened": one.opened,
    }


def _print_brought(brought: BroughtBranch, *, json: bool) -> None:
    if json:
        folder = str(brought.folder)
        named = {"name": brought.git.name, "gitId": brought.git.id, "branch": brought.branch, "folder": folder}
        output.print_json(named | {"commits": brought.commits})
    else:
        count = output.plural(brought.commits, "commit")
        output.say(output.step(f"{brought.git.name}: {count} on the branch {brought.branch} in", str(brought.folder)))
        taking = f"take them with git merge {brought.branch}"
        output.say(output.step(f"see them with git log {brought.branch},", taking))


def _save_patches(text: str, file: str, *, json: bool) -> None:
    count = text.count("\nSubject: ")
    if json:
        output.print_json({"commits": count, "patches": text} if file == "-" else {"commits": count, "file": file})
    if file == "-":
        if not json:
            output.say(text.rstrip("\n"))
        return
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise output.CommandError("NOT_WRITTEN", f"{file} cannot be written: {error.strerror}") from None
    if not json:
        output.say(f"{output.plural(count, 'commit')} in {file}: apply them with git am {file}")
