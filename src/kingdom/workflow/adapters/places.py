"""Where a Work is done: its folder, its workspace, and the MCP servers its agent is given.

The agent works in the worktree when the Work has one repository, and in the folder that holds all worktrees of the
workflow when it has several (each is a folder of its own there, and the prompt names them); without any repository it
works in the workspace of the Work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.workflow.adapters.mcp import Servers, merge_servers
from kingdom.workflow.adapters.workspaces import RESULTS, make_folder
from kingdom.workflow.domain.errors import NotFound, WorkflowError
from kingdom.workflow.domain.statuses import WorkTreeStatus
from kingdom.workflow.services.resource import space_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kingdom.workflow.adapters.workspaces import Workspaces
    from kingdom.workflow.domain.resources import WorkTree
    from kingdom.workflow.domain.sources import McpServer, McpServerRef
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.ports import Store, Transaction

_GIVEN_UP: Final = (WorkTreeStatus.PENDING_RELEASE, WorkTreeStatus.RELEASED)


class NoPlace(WorkflowError):
    """A Work that cannot be done anywhere: its worktree is not there."""

    code = "WFL_NO_PLACE"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a Work is done, and with what."""

    cwd: Path
    workspace: Path
    repositories: Mapping[str, str] = field(default_factory=dict)  # name: folder
    servers: Servers = field(default_factory=dict)

    def result_path(self, run_id: str) -> Path:
        """Where a run leaves its result."""
        return self.workspace / RESULTS / f"{run_id}.json"


class Places:
    """The places of works, as the store knows them."""

    def __init__(self, store: Store, workspaces: Workspaces) -> None:
        self._store = store
        self._workspaces = workspaces

    async def of(self, work: Work) -> Place:
        """The place of a Work, with its folders made. Raises :class:`WorkflowError` that says what is missing."""
        async with self._store.transaction() as tx:
            workflow = await tx.workflows.find(work.workflow_id)
            if workflow is None:
                raise NotFound(f"there is no workflow {work.workflow_id}, which work {work.id} is part of")
            trees = _of_work(work, await tx.work_trees.of_workflow(workflow.id))
            names = {tree.git_id: await _name(tx, tree.git_id) for tree in trees}
            levels = (workflow.mcp_server_refs, work.mcp_server_refs)
            servers = merge_servers(await _registered(tx, *levels), *levels)
            space = await tx.work_spaces.find(space_id(work))
        workspace = Path(space.path if space is not None else self._workspaces.path(work))
        make_folder(workspace / RESULTS)
        folders = {names[tree.git_id]: _folder(tree, names[tree.git_id]) for tree in trees}
        return Place(_cwd(list(folders.values()), workspace), workspace, folders, servers)


def _of_work(work: Work, trees: Sequence[WorkTree]) -> list[WorkTree]:
    """Its own worktrees, when others may run beside it; else those of the workflow."""
    owner = work.id if work.apart else None
    return [tree for tree in trees if tree.work_id == owner and tree.status not in _GIVEN_UP]


async def _name(tx: Transaction, git_id: str) -> str:
    git = await tx.gits.find(git_id)
    return git.name if git else git_id


async def _registered(tx: Transaction, *levels: Iterable[McpServerRef]) -> dict[str, McpServer]:
    ids = {ref.mcp_server_id for level in levels for ref in level}
    found = [await tx.mcp_servers.find(server_id) for server_id in sorted(ids)]
    return {server.id: server for server in found if server is not None}


def _folder(tree: WorkTree, name: str) -> str:
    if tree.status is not WorkTreeStatus.READY or not tree.path:
        raise NoPlace(f"the worktree of {name} is {tree.status}: {tree.error or 'it is not ready to be worked in'}")
    if not Path(tree.path).is_dir():
        raise NoPlace(
            f"the worktree of {name} is gone from {tree.path}: resume from a checkpoint, and it is made again"
        )
    return tree.path


def _cwd(folders: list[str], workspace: Path) -> Path:
    if not folders:
        return workspace
    return Path(folders[0]) if len(folders) == 1 else Path(folders[0]).parent
