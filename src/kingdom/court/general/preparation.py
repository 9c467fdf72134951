"""Prepare a run of a task: its workplace, prompt and session, the order for the soldier, and the soldier's files."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import stat
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.port import Caps, Order, Timers
from kingdom.agents.untrusted import clean_tree
from kingdom.base.files import read_object, write_json
from kingdom.base.times import epoch_seconds
from kingdom.court.errors import InvalidId
from kingdom.court.general.context import ask_repository, has_ended, latest_session, pull_request_of, repository_url_of
from kingdom.court.general.errors import RepositoryDenied, RepositoryMissing, TaskNotNeeded, TaskRefused
from kingdom.court.general.prompts import (
    build_prompt,
    collect_prompt_data,
    read_instructions,
    read_template,
    results_about,
    task_description,
)
from kingdom.court.general.review import REVIEWED_HEAD
from kingdom.court.general.workspace import write_task_files
from kingdom.court.home import check_name
from kingdom.court.models import EVENT_FIELDS, RESUME_TYPE
from kingdom.court.pull_requests import (
    CHECK_FAILED,
    PULL_REQUEST_ENDS,
    PULL_REQUEST_EVENTS,
    OpenedPullRequests,
    is_about_work,
)
from kingdom.court.queues import EVENTS, TASKS
from kingdom.court.repositories import known_repositories
from kingdom.court.request_threads import is_request
from kingdom.court.trust.policy import permit_of
from kingdom.court.trust.text_hash import text_hash_problem

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.agents.port import Outcome
    from kingdom.court.config import SystemConfig
    from kingdom.court.general.context import GeneralContext, TaskContext, TaskProgress
    from kingdom.court.general.workspace import Workplace
    from kingdom.court.home import Home
    from kingdom.court.models import Task
    from kingdom.court.packages.manifest import Manifest, McpServerSection
    from kingdom.court.pull_requests import OpenedPullRequest
    from kingdom.court.trust.policy import Permit

_MAX_INLINE_RENDER_CHARS: Final = 20_000  # a shorter prompt is built faster than a thread could be asked for it
_MAX_CHECKS: Final = 3  # tasks in a row about failed checks of a pull request
_NEW_COMMITS: Final = "updated"
_REQUESTS: Final = ("assigned", "created", "mentioned", "opened", "ready_for_review", "review_requested")
_ISSUE_FIELDS: Final = ("title", "body", "url", "author", "labels", "summary", "description")  # ticket, pull request
_numbers = itertools.count(1)


# ── soldiers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def new_soldier_id(now: float, machine: str | None = None) -> str:
    """Return an id that is unique in this home: ``soldier-{unix}-{n}``, n made of the process id and a counter.

    In a court on several machines a mark of the machine follows: in containers, process ids are the same on all.
    """
    mark = "" if machine is None else f"-{zlib.crc32(machine.encode()):08x}"
    return f"soldier-{int(now)}-{os.getpid()}{next(_numbers):04d}{mark}"


def build_order(
    task: Task,
    manifest: Manifest,
    system: SystemConfig,
    home: Home,
    *,
    soldier_id: str,
    prompt: str,
    folder: Path,
    session_id: str | None,
    environment: Mapping[str, str],
    options: Mapping[str, Any],
    permit: Permit | None,
    mcp_config: Path | None = None,
) -> Order:
    """Build the order of one run from the manifest, within the limits of ``permit``.

    Only those variables of the environment are passed on that the manifest or the engine's configuration names.
    """
    engine = manifest.engine
    configured = system.engines.get(engine.name)
    given = configured.env if configured else []  # names to pass on, or names with values
    names = [*manifest.env, *(given if isinstance(given, list) else ())]
    values = given if isinstance(given, dict) else {}
    return Order(
        run_id=soldier_id,
        task_id=task.id,
        engine=engine.name,
        prompt=prompt,
        cwd=folder,
        result_path=home.handover(task.id),
        options={**(engine.options if permit is None else permit.options_for(manifest)), **options},
        env={**values, **{name: environment[name] for name in names if name in environment}},
        model=engine.model or (configured.model if configured else None),
        session_id=session_id,
        profile=manifest.profile if permit is None else permit.profile_for(manifest),
        timers=Timers(
            first_output=manifest.timers.first_output,
            silence=manifest.timers.silence,
            total=manifest.timeout_seconds,
        ),
        caps=Caps(turns=manifest.caps.turns, tokens=manifest.caps.tokens, cost_usd=manifest.caps.cost_usd),
        mcp_config=mcp_config,
        labels={"general": manifest.name, "task_type": task.type},
        sandbox="required" if permit is not None and permit.sandbox else manifest.sandbox,
        network=tuple(manifest.network),
    )


def expired_timer_seconds(manifest: Manifest, outcome: Outcome) -> float:
    """Return the limit of the timer that expired."""
    timers = {"first_output": manifest.timers.first_output, "silence": manifest.timers.silence}
    return timers.get(outcome.timer or "total", manifest.timeout_seconds)


def prepare_handover(home: Home, task_id: str) -> None:
    """Create the folder for a soldier's result, and remove the result of a former soldier."""
    path = home.handover(task_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    home.raw_result(task_id).unlink(missing_ok=True)


def remove_handovers(home: Home, task_ids: Iterable[str]) -> None:
    """Remove the folders in which the soldiers of tasks left their results."""
    for task_id in task_ids:
        path = home.handover(task_id)
        try:
            path.unlink(missing_ok=True)
            path.parent.rmdir()
        except OSError:  # gone already, or not empty
            shutil.rmtree(path.parent, ignore_errors=True)


def assignment_file(home: Home, task_id: str, soldier_id: str) -> tuple[Path, str]:
    """Return the path and content of the file that names the soldier of a task."""
    return home.soldier_id(task_id), f"{soldier_id}\n"


def keep_raw_result(home: Home, task_id: str, outcome: Outcome) -> None:
    """Keep the result document that the soldier wrote, if it was valid."""
    if outcome.result is None:
        return
    left, kept = home.handover(task_id), home.raw_result(task_id)
    try:
        found = left.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            kept.hardlink_to(left)  # half the cost of a copy; the other name is removed with the task
            return
    except OSError:  # the result did not come as a file, or the file system has no hard links
        pass
    write_json(kept, dict(outcome.result), durable=False)


def assigned_soldier(home: Home, task_id: str) -> str | None:
    """Return the soldier that the assignment file of a task names, if it is valid."""
    try:
        return check_name("soldier", home.soldier_id(task_id).read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError, InvalidId):
        return None


def session_file(home: Home, task_id: str, session_id: str) -> tuple[Path, str]:
    """Return the path and content of the file that names the session for a resume of the task."""
    return home.session_id(task_id), f"{session_id}\n"


def mcp_servers(manifest: Manifest, environment: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the MCP servers of a manifest with their secrets, which only the environment holds.

    Raises :class:`TaskRefused` when a variable is not set.
    """
    return {name: _server_config(name, server, environment) for name, server in manifest.mcp_servers.items()}


def _server_config(name: str, server: McpServerSection, environment: Mapping[str, str]) -> dict[str, Any]:
    def value(variable: str) -> str:
        if variable not in environment:
            raise TaskRefused(
                f"the MCP server {name} needs the variable {variable}, and the court was started without it: set it "
                "and restart the court"
            )
        return environment[variable]

    if server.url is not None:
        headers = {header: value(variable) for header, variable in server.headers.items()}
        return {"type": "http", "url": server.url, **({"headers": headers} if headers else {})}
    return {
        "command": server.command,
        "args": list(server.args),
        "env": {variable: value(variable) for variable in server.env},
    }


# ── workflows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def workflow_options(
    context: GeneralContext,
    task_context: TaskContext,
    progress: TaskProgress,
    url: str | None,
    pull_request: str | None,
    answer: str | None,
) -> dict[str, Any]:
    """Return the options for the engine ``workflow``. The court knows nothing else of workflows.

    ``pull_request`` is the address of the one that the task is about, or goes on with.
    """
    return {
        "home": str(context.home.workflows),
        "template": context.manifest.template,
        "template_file": str(context.package.workflow_path),
        "key": task_context.history.work_id,  # a resume continues the workflow of its first task
        "repository": None if url is None else {"name": _repository_name(task_context, url), "url": url},
        "issue_key": None if is_request(task_context.type) else task_context.subject,
        "variables": _variables(task_context),
        "engines": {name: section.model_dump(mode="json") for name, section in context.system.engines.items()},
        "sandbox": context.system.sandbox.model_dump(mode="json"),
        "git": context.system.git.model_dump(mode="json"),
        "journal": str(context.home.journal),
        "pull_request": pull_request,
        "merged": task_context.type in PULL_REQUEST_ENDS,
        "land": None if context.manifest.land is None else context.manifest.land.model_dump(mode="json"),
        "retries": progress.retries,
        "answer": None if answer is None else {"task_id": task_context.task.id, "text": answer},
    }


def _pull_request_url(task_context: TaskContext) -> str | None:
    """Return the address of the pull request that an event is about, or None."""
    url = task_context.task.payload.get("url")
    about = isinstance(task_context.type, str) and task_context.type.startswith(PULL_REQUEST_EVENTS)
    return url if about and isinstance(url, str) else None


def _variables(task_context: TaskContext) -> Mapping[str, Any]:
    """Return the variables of queries: ``event``, ``payload``, and the fields of an ``issue`` in the payload."""
    event: Mapping[str, Any] = {**(task_context.event or {}), "repo": task_context.repo}
    payload = task_context.task.payload
    variables: Mapping[str, Any] = clean_tree(
        {
            "event": {name: event.get(name) for name in EVENT_FIELDS},
            "payload": payload,
            "issue": {name: payload[name] for name in _ISSUE_FIELDS if name in payload},
        }
    )
    return variables


def _repository_name(task_context: TaskContext, url: str) -> str:
    repo = task_context.repo
    return repo if isinstance(repo, str) else url.rstrip("/").rpartition("/")[2].removesuffix(".git")


# ── runs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """What a soldier needs to start."""

    place: Workplace
    prompt: str
    session_id: str | None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the engine, in addition to the manifest's
    permit: Permit | None = None  # None: only the manifest sets limits


async def prepare_run(context: GeneralContext, task_context: TaskContext, progress: TaskProgress) -> PreparedRun:
    """Prepare the next run of a task. It can be repeated. Raises :class:`TaskRefused`, :class:`TaskNotReady`."""
    permit = _checked_permit(task_context.task, context.manifest)
    if context.manifest.mode == "workflow":
        return await _prepare_workflow(context, task_context, progress)
    home, manifest, history = context.home, context.manifest, task_context.history
    url = repository_url_of(context, task_context)
    resumed = task_context.task.type == RESUME_TYPE  # it goes on with what its first task saw
    begun = resumed and context.workspace.find(history.work_id) is not None
    place = await _prepare_place(context, task_context, url, fetch=not begun)
    pull = await pull_request_of(context, task_context, place, fetch=not resumed)
    head = pull.head if pull is not None else ""
    _check_needed(task_context, task_context.follow_up, head)
    _check_unanswered(context, task_context, task_context.follow_up, head)
    behind = None
    if task_context.follow_up is not None and place.tree is not None and pull is not None:
        behind = "" if resumed else await context.workspace.bring_up_to_date(place.tree, pull)
    instructions = read_instructions(context.package.instructions_path)
    placed = await write_task_files(place, instructions, task_description(home, task_context.task, context.name, pull))
    # A session is resumed once: when that fails, a new soldier with a complete prompt has better chances.
    session_id = latest_session(home, history) if not progress.errors else None
    waiting = {}
    if manifest.records_hours is not None:
        depths = await context.bus.depth()
        waiting = {stream: depths[stream].pending for stream in (EVENTS, TASKS)}
    data = collect_prompt_data(
        home,
        manifest,
        task_context,
        folder=place.folder,
        pull=pull,
        omitted=await context.workspace.omitted(place),
        behind=behind,
        instructions_text="" if placed else instructions or "",
        resume=session_id is not None and resumed,
        previous_error=progress.errors[-1] if progress.errors else None,
        waiting=waiting,
    )
    path = context.package.prompt_path
    build = partial(build_prompt, read_template(path), data, manifest.prompt_max_bytes, str(path))
    prompt = build() if len(repr(data)) <= _MAX_INLINE_RENDER_CHARS else await asyncio.to_thread(build)
    return PreparedRun(place, prompt, session_id, permit=permit)


async def _prepare_place(
    context: GeneralContext, task_context: TaskContext, url: str | None, *, fetch: bool
) -> Workplace:
    try:
        return await context.workspace.prepare(task_context.history.work_id, url, fetch=fetch)
    except (RepositoryDenied, RepositoryMissing):
        named = task_context.repo
        if not is_request(task_context.type) or not named or _is_known(context, str(named)):
            raise
        raise ask_repository(context, str(named)) from None


def _is_known(context: GeneralContext, repo: str) -> bool:
    return repo.lower() in (known.lower() for known in known_repositories(context.home))


def _check_needed(task_context: TaskContext, opened: OpenedPullRequest | None, head: str) -> None:
    """Raise :class:`TaskNotNeeded` for a failed check of an older commit, or after several in a row.

    What is pushed starts the checks again: a general whose changes do not mend them would go on for ever.
    """
    if opened is None or task_context.type != CHECK_FAILED:
        return
    checked = task_context.task.payload.get("head_sha")
    if head and isinstance(checked, str) and checked != head:
        raise TaskNotNeeded("skipped", f"the check was of {checked:.12}; newer commits are in the pull request")
    reason = f"the checks have failed again, after {_MAX_CHECKS} tasks about them in a row"
    if opened.checks == _MAX_CHECKS:
        raise TaskNotNeeded("failed", f"{reason}. Say in a comment what to do.", counts=opened)
    if opened.checks > _MAX_CHECKS:
        raise TaskNotNeeded("skipped", reason)


def _check_unanswered(
    context: GeneralContext, task_context: TaskContext, opened: OpenedPullRequest | None, head: str
) -> None:
    """Raise :class:`TaskNotNeeded` for a request that an earlier task has answered.

    People ask in several ways at once: they mention an account in a comment and assign the issue to it, or request the
    reviews of a person and of a team. A request without words of its own, made before an earlier task about the same
    ended, asks for what that task did. New commits need no second review if the first has seen them.
    """
    action = str(task_context.task.type).rpartition(".")[2]
    asked_at = epoch_seconds((task_context.event or {}).get("created_at"))
    if asked_at is None or "comment" in task_context.task.payload or action not in (*_REQUESTS, _NEW_COMMITS):
        return
    home, land, subject = context.home, context.manifest.land, task_context.subject
    result: Mapping[str, Any]
    if land is not None and land.how == "review":
        earlier = results_about(home, context.name, subject, task_context.task.id) if head and subject else ()
        result = next((one for one in earlier if one.get(REVIEWED_HEAD) == head), {})
        reason = f"{result.get('task_id')} has reviewed commit {head:.12}"
    elif opened is not None and action in _REQUESTS:
        result = read_object(home.result(opened.task_id))
        reason = f"{opened.task_id} has done it, in {opened.url}"
    else:
        return
    if result.get("status") != "success":
        return
    if action == _NEW_COMMITS:
        raise TaskNotNeeded("skipped", reason)
    if (epoch_seconds(result.get("ended_at")) or 0.0) > asked_at:
        raise TaskNotNeeded("skipped", f"{reason}, since this was asked for")


def _checked_permit(task: Task, manifest: Manifest) -> Permit | None:
    """Return the permit of a task. The manifest may have changed since the king checked it."""
    if (problem := text_hash_problem(task.payload)) is not None:
        raise TaskRefused(f"the payload of {task.id} was changed: {problem}. Repeat the event at its source")
    permit = permit_of(task.model_extra or {})
    if permit is not None and (why := permit.denial_reason(manifest)) is not None:
        raise TaskRefused(f"{permit.by} is of the tier {permit.tier!r} (config/trust.yaml), but {why}")
    return permit


async def _prepare_workflow(context: GeneralContext, task_context: TaskContext, progress: TaskProgress) -> PreparedRun:
    """Prepare a run by a workflow. It creates its own worktrees, so the workplace holds only the task file."""
    known, about = OpenedPullRequests(context.home), _pull_request_url(task_context)
    opened = known.find(about)
    _check_needed(task_context, opened, "")
    if is_about_work(task_context.type):
        opened = known.find_for(task_context.subject)
        if opened is not None and not await has_ended(context, task_context, opened):
            about = opened.url
            _check_unanswered(context, task_context, opened, "")
    place = await context.workspace.prepare(task_context.history.work_id, None)
    description = task_description(context.home, task_context.task, context.name)
    await write_task_files(place, None, description)
    url = repository_url_of(context, task_context)
    options = workflow_options(context, task_context, progress, url, about, description.get("answer"))
    prompt = f"The workflow {context.manifest.template} for {task_context.subject or task_context.task.id}"
    return PreparedRun(place, prompt, latest_session(context.home, task_context.history), options)
