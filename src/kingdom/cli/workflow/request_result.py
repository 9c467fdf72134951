"""The end of ``kingdom run``: what the agent asks, what it changed, and how that is landed."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kingdom.cli import output
from kingdom.cli.dialog import ask, choose, until_stopped
from kingdom.cli.session import git_settings_of, utc_now
from kingdom.cli.workflow.names import workflow_word
from kingdom.cli.workflow.view import JsonWorkflowView, line_counts, next_steps
from kingdom.cli.workflow.ways import ways_to_land

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from pathlib import Path

    from kingdom.cli.options import LandChoice
    from kingdom.cli.workflow.view import WorkflowView
    from kingdom.workflow.checkpoints import RepositoryChange
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.resources import Git
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.overview import WorkflowOverview

_MAX_SHOWN_FILES: Final = 20


async def ask_person(overview: WorkflowOverview, view: WorkflowView, stop: asyncio.Event) -> str | None:
    """Return what the person at the terminal answers to the agent's question; None: there is none, or later."""
    waiting = next((work for work in overview.works if work.status == "WAITING"), None)
    task = None if waiting is None else waiting.current_task
    if task is None or not _is_dialog(view):
        return None
    output.say(f"the agent asks: {' '.join((task.question or '').split())}")
    if task.choices:
        output.say(f"choices: {', '.join(task.choices)}")
    return await ask("answer (Enter: later)", stop) or None


def _is_dialog(view: WorkflowView) -> bool:
    """Return whether there is a person to ask."""
    return not isinstance(view, JsonWorkflowView) and sys.stdin.isatty() and sys.stdout.isatty()


@dataclass(frozen=True, slots=True)
class RequestResult:
    """What a request left when it came to rest."""

    place: WorkflowHome
    context: WorkflowContext
    overview: WorkflowOverview
    git: Git
    folder: Path | None  # the user's own checkout
    view: WorkflowView

    async def show(self) -> bool:
        """Say what has changed, what it cost and what can be done with it; return whether anything has changed."""
        from kingdom.workflow.agent_records import WorkflowLedger
        from kingdom.workflow.checkpoints import compare_checkpoints, compare_worktrees
        from kingdom.workflow.home import git_service

        store, workflow = self.context.store, self.overview.workflow
        trees = [tree for tree in self.overview.present_trees if tree.path and tree.branch]
        service = git_service(self.place, utc_now)
        points = [point for point in self.overview.checkpoints if point.complete and point.valid]
        if workflow.status == "COMPLETED" and points:  # it has everything: the files need not be read again
            changes = await compare_checkpoints(store, service, points[-1], base=True, patches=False)
        else:
            changes = await compare_worktrees(store, service, workflow.id, base=True, patches=False)
        changed = any(change.files for change in changes)
        spent = WorkflowLedger(self.place.ledger, workflow.id).read_on()
        if isinstance(self.view, JsonWorkflowView):
            output.print_json_line(
                {
                    "kind": "result",
                    "workflowId": workflow.id,
                    "name": workflow.name,
                    "status": workflow.status,
                    "costUsd": round(spent.cost_usd, 6),
                    "tokens": spent.tokens,
                    "branch": trees[0].branch if trees else None,
                    "worktree": trees[0].path if trees else None,
                    "files": [file.path for change in changes for file in change.files],
                }
            )
            return changed
        _print_files(changes)
        cost = f"${spent.cost_usd:,.2f}, {spent.tokens:,} tokens"
        reason = f": {' '.join(workflow.reason.split())}" if workflow.reason else ""
        output.say(f"{workflow.status}{reason} ({_count_text(changes)}, {cost})")
        if workflow.status != "COMPLETED":
            lines = next_steps(self.overview)
        elif changed:
            lines = self._result_lines(await self._ways())
        else:
            lines = []
        for line in lines:
            output.say(line)
        return changed

    async def land(self, chosen: LandChoice | Literal["none"] | None, stop: asyncio.Event) -> None:
        """Land the result as the command line says, or as a person on the terminal says; not if ``stop`` is set."""
        if chosen is None and _is_dialog(self.view):
            if not (choices := await self._ways()):
                return
            answer = await choose("land it as", (*choices, "none"), "none", stop)
            chosen = next((one for one in choices if one == answer), None)
        if chosen is not None and chosen != "none":
            from kingdom.cli.workflow.land import land_result
            from kingdom.workflow.home import lander

            made = lander(self.place, self.context.store, utc_now, git_settings_of(self.place))
            json = isinstance(self.view, JsonWorkflowView)
            landing = land_result(made, self.overview.workflow.id, chosen, self.folder, json=json)
            if not await until_stopped(landing, stop):
                self.view.say(f"not landed: kingdom workflow land {workflow_word(self.overview.workflow)} lands it")

    async def _ways(self) -> tuple[LandChoice, ...]:
        """Return how the result can be landed."""
        return await ways_to_land(self.place, self.git, self.folder)

    def _result_lines(self, ways: Sequence[LandChoice]) -> list[str]:
        """Return how to look at the result and how to bring it home."""
        word = workflow_word(self.overview.workflow)
        (tree, *_) = self.overview.present_trees
        where = shlex.quote(tree.path or "")
        lines = [f"see it      kingdom workflow diff {word} --base", f"try it      cd {where}"]
        if self.folder is not None:
            lines.append(f"bring it    kingdom workflow land {word} --into {shlex.quote(str(self.folder))}")
        if "push" in ways:
            lines.append(f"land it     kingdom workflow land {word}{'' if 'pull-request' in ways else ' --push'}")
        return [*lines, f"change it   kingdom workflow follow-up {word} TEXT"]


def _print_files(changes: Sequence[RepositoryChange]) -> None:
    files = [file for change in changes for file in change.files]
    if not files:
        return
    rows = [(file.path, file.status, line_counts(file)) for file in files[:_MAX_SHOWN_FILES]]
    output.say()
    output.print_table(("file", "change", "lines"), rows, right=("lines",))
    if len(files) > _MAX_SHOWN_FILES:
        output.say(f"… and {len(files) - _MAX_SHOWN_FILES} more")
    output.say()


def _count_text(changes: Sequence[RepositoryChange]) -> str:
    files = [file for change in changes for file in change.files]
    if not files:
        return "nothing changed"
    lines = f"+{sum(file.added or 0 for file in files)} -{sum(file.removed or 0 for file in files)}"
    return f"{len(files)} file{'s' if len(files) > 1 else ''} changed, {lines}"
