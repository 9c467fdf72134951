"""``kingdom run``: one request to an agent, in the repository around the working directory, from start to diff."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from kingdom.base.preload import preload
from kingdom.cli import output
from kingdom.cli.options import LAND_CHOICES, LandChoice, json_lines_option, store_option, workflow_home_option
from kingdom.cli.parsing import argument, command
from kingdom.cli.session import (
    engines_of,
    find_or_create_workflow_home,
    open_workflow_context,
    run_async,
)
from kingdom.cli.workflow.names import check_new_name
from kingdom.cli.workflow.view import JsonWorkflowView, RequestView, WorkflowView

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from kingdom.cli.workflow.checkout import Checkout
    from kingdom.cli.workflow.runner import CommandRequest
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.resources import Git
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.overview import WorkflowOverview

# What a request needs after its first look at the repository, in this order: imported while git looks.
_NEEDED_NEXT: Final = (
    "asyncio",
    "kingdom.workflow.home",
    "kingdom.workflow.context",
    "kingdom.workflow.store.sqlite",
    "kingdom.bus.transports.sqlite",
    "kingdom.workflow.engine",
    "kingdom.workflow.adapters.git_service",
    "kingdom.workflow.overview",
    "kingdom.workflow.usecases",
    "kingdom.cli.workflow.request_result",
    "kingdom.cli.workflow.runner",
)
_PREFERRED_ENGINES: Final = ("claude", "codex")
_WORK: Final = "run"
_TASK: Final = "request"
_ANSWER: Final = "AnswerWorkflow"
_MAX_WORKFLOWS: Final = 1000  # the newest, of which one may be continued


@dataclass(frozen=True, slots=True)
class _Request:
    text: str
    repository: str
    checkout: Checkout | None  # None: it is a URL or a name
    base: str | None
    engine: str | None
    model: str | None
    name: str | None
    options: dict[str, Any]
    continues: bool  # the newest workflow of the repository, instead of a new one
    land: LandChoice | Literal["none"] | None  # None: ask, if there is somebody to ask


@dataclass(frozen=True, slots=True)
class _Source:
    """The repository of a request, and what to tell about it."""

    git: Git
    base: str | None
    start: str | None  # the same, for a person
    folder: Path | None  # the user's own checkout
    notes: tuple[str, ...] = ()


@command("run")
@argument("text", metavar="TEXT", help="What to do, as you would say it to a colleague.")
@click.option("--repo", default=".", metavar="DIR", help="A folder in a git repository, a registered name, or a URL.")
@click.option("--base", metavar="BRANCH", help="The branch to start from. Default: the one that is checked out.")
@click.option(
    "--engine", metavar="NAME", help="claude, codex or another. Default: the first of them that is installed."
)
@click.option("--model", help="The model. Default: that of the engine.")
@click.option("--name", help="The name of the workflow. Default: made from the text.")
@click.option(
    "--option",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the engine, for example profile=full or 'network=[docs.example.com]'; may be repeated.",
)
@click.option(
    "--land",
    type=click.Choice((*LAND_CHOICES, "none")),
    help="What to do with the result: open a pull request, only push, or make a branch in the checkout. "
    "Default: ask on a terminal.",
)
@click.option(
    "--continue",
    "-c",
    "continues",
    is_flag=True,
    help="Go on with the newest request in this repository, or answer its question: the same conversation, the same "
    "branch.",
)
@click.option("--watch/--no-watch", default=True, help="Show what the agent says and does.")
@workflow_home_option
@store_option
@json_lines_option
def run(
    text: str,
    repo: str,
    base: str | None,
    engine: str | None,
    model: str | None,
    name: str | None,
    option: tuple[str, ...],
    land: LandChoice | Literal["none"] | None,
    continues: bool,
    watch: bool,
    home: Path | None,
    store: str | None,
    json: bool,
) -> None:
    """Have an agent do one thing in a git repository.

    It works in a worktree of its own, on a branch of its own: your files are not touched. Ends with what it changed.
    On a terminal you are asked what the agent asks. Ctrl-C pauses it. Without a home, workflows are kept in the data
    folder of the user.
    """
    if not text.strip():
        raise output.usage_error("say what to do: kingdom run 'add a --json flag to ls'")
    if name is not None:
        check_new_name(name, (), "a workflow")
    given = {"--base": base, "--engine": engine, "--model": model, "--name": name, "--option": option or None}
    if continues and (fixed := [word for word, value in given.items() if value is not None]):
        raise output.usage_error(f"{fixed[0]} is for a new request: with --continue it stays as it is")
    # Before the thread below imports parts of its packages.
    from kingdom.cli.workflow.checkout import check_has_start, read_checkout

    loaded = preload(*_NEEDED_NEXT)
    folder = Path(repo).expanduser()
    is_path = folder.is_dir() or repo.startswith((".", "/", "~"))
    checkout = read_checkout(folder) if is_path else None
    loaded()
    if checkout is not None and base is None and not continues:
        check_has_start(checkout)
    request = _Request(text.strip(), repo, checkout, base, engine, model, name, _parse_options(option), continues, land)
    place = find_or_create_workflow_home(home, store)
    view: WorkflowView = JsonWorkflowView() if json else RequestView(watch=watch)
    raise click.exceptions.Exit(run_async(lambda: _run(place, request, view)))


async def _run(place: WorkflowHome, request: _Request, view: WorkflowView) -> int:
    import asyncio

    from kingdom.cli.workflow.names import workflow_word
    from kingdom.cli.workflow.request_result import RequestResult, ask_person
    from kingdom.cli.workflow.runner import CommandRequest, run_request

    engine = None if request.continues else _choose_engine(place, request.engine)
    async with open_workflow_context(place) as context:
        source = await _find_source(context, request)
        interrupt = "only stops watching" if await context.store.engine_running() else "pauses it"
        if engine is None:
            workflow = await _newest_workflow(context, source.git)
            start = await _continuation(context, workflow, request.text)
            answers = ", with your answer" if start.kind == _ANSWER else ""
            view.say(output.wrap(f"{source.git.name} goes on with {workflow.name}{answers}; Ctrl-C {interrupt}"))
        else:
            workflow = await _create(context, request, engine, source)
            start = CommandRequest("StartWorkflow", workflow.id, {}, workflow_word(workflow))
            started = f" from {source.start}" if source.start else ""
            works = f"{engine} works on {source.git.name}{started} (workflow {workflow.name}); Ctrl-C {interrupt}"
            view.say(output.wrap(works))
        for note in source.notes:
            view.say(output.wrap(note))

        async def at_rest(overview: WorkflowOverview, stop: asyncio.Event) -> CommandRequest | None:
            if (answer := await ask_person(overview, view, stop)) is not None:
                return CommandRequest(_ANSWER, workflow.id, {"text": answer}, start.word)
            result = RequestResult(place, context, overview, source.git, source.folder, view)
            if await result.show() and overview.workflow.status == "COMPLETED":
                await result.land(request.land, stop)
            return None

        try:
            return await run_request(place, context, start, view, at_rest)
        except asyncio.CancelledError:  # Ctrl-C, and another process is the engine
            stop = f"kingdom workflow pause {start.word} stops it"
            view.say(output.step(f"it goes on: kingdom workflow watch {start.word}", f"shows it, {stop}"))
            raise


async def _continuation(context: WorkflowContext, workflow: Workflow, text: str) -> CommandRequest:
    """Return the command that goes on with a workflow: the answer to its question if it asks one."""
    from kingdom.cli.workflow.names import workflow_word
    from kingdom.cli.workflow.runner import CommandRequest
    from kingdom.workflow.usecases.follow_up import follow_up_name

    word = workflow_word(workflow)
    async with context.store.reading() as tx:
        if any(work.status == "WAITING" for work in await tx.works.of_workflow(workflow.id)):
            return CommandRequest(_ANSWER, workflow.id, {"text": text}, word)
        given = {"text": text, "name": await follow_up_name(tx, workflow.id, text)}
    return CommandRequest("FollowUpWorkflow", workflow.id, given, word)


def _parse_options(given: Sequence[str]) -> dict[str, Any]:
    """Return the options; a value is YAML, so that lists and numbers can be given."""
    if not given:
        return {}
    import yaml

    made: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise output.usage_error(f"--option {one!r} is not NAME=VALUE")
        try:
            made[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise output.usage_error(f"--option {name}: {value!r:.80} is not a value of YAML: quote it") from None
    return made


def _choose_engine(place: WorkflowHome, name: str | None) -> str:
    """Return the engine to use; raise an error if it is not installed."""
    from kingdom.agents.engine import InstalledEngine
    from kingdom.agents.engines import find_engine
    from kingdom.agents.errors import EngineNotInstalled

    engines = engines_of(place)
    for one in (name,) if name else _PREFERRED_ENGINES:
        found = find_engine(engines, one)
        try:
            if isinstance(found, InstalledEngine):
                found.program_path()
        except EngineNotInstalled:
            if name:
                raise
        else:
            return one
    raise output.CommandError(
        "NO_AGENT",
        "no agent is installed: install Claude Code (npm install -g @anthropic-ai/claude-code) or "
        "Codex (npm install -g @openai/codex), or name another engine with --engine",
    )


# The repository


async def _find_source(context: WorkflowContext, request: _Request) -> _Source:
    """Return the repository that ``--repo`` names; register it if it is new."""
    word, checkout = request.repository, request.checkout
    async with context.store.reading() as tx:
        known = await tx.gits.list(limit=100_000)
    if checkout is None:
        named = next((git for git in known if git.name == word), None)
        git = named or await _registered(context, known, word)
        return _Source(git, request.base, request.base, None)
    missing = None if request.continues else checkout.missing_text()
    git = await _registered(context, known, checkout.root)
    base, start = (request.base, request.base) if request.base else (checkout.base, checkout.start)
    return _Source(git, base, start, Path(checkout.root), () if missing is None else (missing,))


async def _registered(context: WorkflowContext, known: Sequence[Git], url: str) -> Git:
    """Return the repository with this URL; register it under a free name if it is new."""
    from kingdom.gitops import RepositoryRefused
    from kingdom.gitops.names import check_url
    from kingdom.workflow.usecases.catalog import create_git

    check_url(url, allow_local=True)
    same = next((git for git in known if git.url == url), None)
    if same is not None:
        return same
    folder = re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")
    name = re.sub(r"[\W_]+", "-", folder).strip("-") or "repository"
    taken = {git.name for git in known}
    free = next(one for one in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if one not in taken)
    try:
        git_id = await create_git(context, free, url, check=True)
    except RepositoryRefused as error:
        where = shlex.quote(url)
        raise RepositoryRefused(f"{error}; kingdom git add {where} --no-check registers it all the same") from None
    async with context.store.reading() as tx:
        return await tx.gits.get(git_id)


async def _newest_workflow(context: WorkflowContext, git: Git) -> Workflow:
    """Return the newest workflow of a repository that is not cancelled."""
    async with context.store.reading() as tx:
        found = await tx.workflows.list(limit=_MAX_WORKFLOWS)
    for workflow in found:
        if workflow.status != "CANCELLED" and any(ref.git_id == git.id for ref in workflow.git_refs):
            return workflow
    raise output.CommandError(
        "NOT_FOUND", f"there is no request in {git.name} to go on with: leave --continue out to make one"
    )


async def _create(context: WorkflowContext, request: _Request, engine: str, source: _Source) -> Workflow:
    from kingdom.base.text import name_of_text
    from kingdom.workflow.adapters.queries import literal_query
    from kingdom.workflow.domain.resources import GitRef
    from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition
    from kingdom.workflow.own_events import own_events_handled
    from kingdom.workflow.usecases.workflows import create_single_workflow

    work = WorkDefinition(
        _WORK,
        (TaskDefinition(_TASK, literal_query(request.text)),),
        engine=engine,
        model=request.model,
        engine_options=request.options,
    )
    name = request.name or name_of_text(request.text) or _WORK
    refs = [GitRef(source.git.id, source.base)]
    async with own_events_handled(context):
        workflow_id = await create_single_workflow(context, name, work, refs, request.text)
    async with context.store.reading() as tx:
        return await tx.workflows.get(workflow_id)
