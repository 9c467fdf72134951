"""What there is when a story is over, and what must hold of it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any, Final

from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.statuses import WorkTreeStatus
from kingdom.workflow.store.transactions import STREAM
from tests.chaos.workflow.stories import Site
from tests.support.repositories import plain_git

# What happens once for its task, Work, checkpoint or workflow in each attempt, however often the engine is killed.
_ONCE: Final = (
    "WorkflowCreated", "WorkflowStarted", "WorkflowResumed", "WorkflowPaused", "WorkflowCompleted", "WorkTreeCreated",
    "WorkStarted", "TaskStarted", "QuerySent", "QueryResponded", "ReportGenerationStarted", "ReportGenerated",
    "TaskCompleted", "WorkCompleted", "CheckpointCreated",
)  # fmt: skip


async def reckon(parts: WorkflowContext, workflow_id: str) -> dict[str, Any]:
    """The state that must be the same whatever happened on the way, and what is wrong in any case."""
    async with parts.store.transaction() as tx:
        workflow = await tx.workflows.get(workflow_id)
        works = await tx.works.of_workflow(workflow_id)
        reports = await tx.reports.of_workflow(workflow_id)
        points = await tx.checkpoints.of_workflow(workflow_id)
        trees = await tx.work_trees.of_workflow(workflow_id)
        gits = {git.id: git for git in await tx.gits.list()}
    names = {work.id: work.name for work in works}
    tasks = {task.id: f"{names[work.id]}/{task.name}" for work in works for task in work.tasks}
    events = await parts.store.events(workflow_id, 0, 100_000)
    told = Counter(event.type for event in events)
    own = [tree for tree in trees if tree.status is WorkTreeStatus.READY]
    state = {
        "workflow": [workflow.status, workflow.reason],
        "works": [[work.name, work.status, work.agent_status, work.attempt] for work in works],
        "known": {names[work_id]: status for work_id, status in workflow.work_statuses.items()},
        "tasks": [[tasks[task.id], task.status, task.response] for work in works for task in work.tasks],
        "reports": {tasks[report.task_id]: Path(str(report.file_path)).read_text() for report in reports},
        "checkpoints": sorted([names[point.work_id], point.valid, *point.trees.values()] for point in points),
        "branches": sorted([names.get(str(tree.work_id), "workflow"), _head(tree.path, "HEAD^{tree}")] for tree in own),
        "commits": sorted(_head(tree.path, "HEAD", "--count") for tree in own),
        "dirty": [plain_git(Path(str(tree.path)), "status", "--porcelain") for tree in own],
        "told": {kind: told[kind] for kind in _ONCE},
    }
    wrong = [] if [event.sequence for event in events] == list(range(1, len(events) + 1)) else ["a gap in the events"]
    wrong += [f"{git.id} is still used" for git in gits.values() if workflow_id in git.used_by]
    wrong += [f"checkpoint {point.id} was never finished" for point in points if not point.complete]
    problems = await parts.git.verify(gits, points, deep=True)  # type: ignore[attr-defined]
    wrong += [f"verify: {problem.what}" for problem in problems]
    wrong += [] if points and all(point.trees for point in points) else ["a checkpoint has no tree"]
    return {"state": state, "wrong": wrong, "runs": {task.id: tasks[task.id] for work in works for task in work.tasks}}


async def left_over(parts: WorkflowContext, site: Site) -> list[str]:
    """Events nobody handled, worktrees nobody knows of, locks, and refs of checkpoints that are under way."""
    async with parts.store.transaction() as tx:
        known = {str(tree.path) for tree in await tx.work_trees.with_status(WorkTreeStatus.READY)}
    depth = (await parts.store.bus.depth())[STREAM]
    wrong = [f"events were left: {depth}"] if depth.pending or depth.processing or depth.dead else []
    for clone in (site.home / "clones").glob("*/repo/.git"):
        listed = plain_git(clone, "worktree", "list", "--porcelain").splitlines()
        found = {line.removeprefix("worktree ") for line in listed if line.startswith("worktree ")}
        found.discard(str(clone.parent))
        found.discard(str(clone))
        if found != known:
            wrong.append(f"worktrees of {clone}: {sorted(found ^ known)} are not where they should be")
        if pending := plain_git(clone, "for-each-ref", "--format=%(refname)", "refs/kingdom/pending"):
            wrong.append(f"refs were left: {pending}")
        wrong += [f"a lock was left: {path}" for path in clone.rglob("*.lock")]
    folders = {str(path) for path in (site.home / "worktrees").glob("*/*")}
    if folders != known:
        wrong.append(f"folders of worktrees: {sorted(folders ^ known)}")
    return wrong


def left_at_all(site: Site) -> list[str]:
    """Folders that are left of workflows that were all deleted; their branches stay."""
    return [f"{path} was left" for name in ("worktrees", "workspaces") for path in (site.home / name).glob("*/*")]


def complaints(expected: dict[str, Any], found: dict[str, Any], asked: list[str], *, at_once: int) -> list[str]:
    """What is not as it should be after one kill. ``at_once``: how many agents die with an engine at most."""
    wrong = list(found["wrong"])
    for part, value in expected["state"].items():
        if found["state"][part] != value:
            wrong.append(f"{part}: {found['state'][part]}\n  instead of {value}")
    count = Counter(sent_as(run, found["runs"]) for run in asked)
    again = {name: times - 1 for name, times in count.items() if times > 1}
    if any(times > 1 for times in again.values()) or sum(again.values()) > at_once:
        wrong.append(f"asked more often than needed: {again}")
    return wrong


def sent_as(run: str, tasks: dict[str, str]) -> str:
    """Which query or report a run is of, with its attempt: the same when it is sent again."""
    _, task, attempt, *_ = run.split(".")
    return f"{tasks.get(task, task)} {attempt}"


def alive(site: Site) -> list[str]:
    """Processes that have to do with a site: agents, shims, git."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
            inside = Path(os.readlink(f"/proc/{name}/cwd")).is_relative_to(site.root)
        except OSError:  # it ended, or is not ours to look at
            continue
        if words and (inside or os.fsencode(site.root) in words):
            shown = words.replace(b"\0", b" ").decode(errors="replace").strip()[:160]
            found.append(f"{name} ({shown})")
    return found


def _head(path: str | None, what: str, *options: str) -> str:
    command = ("rev-list", *options, what) if options else ("rev-parse", what)
    return plain_git(Path(str(path)), *command)
