"""Where the agent of a Work runs: its folders and its MCP servers.

The agent works in the worktree if the Work has one repository, in the folder above all worktrees if it has several, and
in the workspace of the Work if it has none. What it leaves beside several worktrees would be in no checkpoint: the
prompt says so, a confined agent cannot write there, and a checkpoint refuses it.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents import mcp
from kingdom.workflow.adapters.workspaces import RESULTS_FOLDER, make_folder
from kingdom.workflow.domain.statuses import WorkTreeStatus
from kingdom.workflow.errors import NotFound, WorkflowError
from kingdom.workflow.usecases.resources import space_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kingdom.workflow.adapters.workspaces import Workspaces
    from kingdom.workflow.domain.resources import McpServer, McpServerRef, WorkTree
    from kingdom.workflow.domain.work import Work
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.store.transactions import WorkflowTransaction


# ── MCP servers ──────────────────────────────────────────────────────────────────────────────────────────────────────
# The template, the workflow and the Work refer to servers; a later level overrides the environment of an earlier one.
# Values may be references, ``${NAME}``, which are resolved from the environment when a run starts. Resolved values are
# stored nowhere but in one file (0600), which is deleted when the run ends. A server with a URL gets its ``env`` as
# headers: ``{"Authorization": "Bearer ${TOKEN}"}``.


McpServerConfigs = dict[str, dict[str, Any]]  # by name, with unresolved references
_REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NOT_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")


class McpInvalid(WorkflowError):
    """An MCP server that an agent cannot use."""

    code = "MCP_INVALID"


def merge_servers(registered: Mapping[str, McpServer], *levels: Iterable[McpServerRef]) -> McpServerConfigs:
    """Return the servers these levels refer to, the weakest level first; raise :class:`McpInvalid`."""
    env: dict[str, dict[str, str]] = {}
    for level in levels:
        for ref in level:
            if ref.mcp_server_id not in registered:
                raise McpInvalid(
                    f"the MCP server {ref.mcp_server_id} is not registered (any more): take it out of the "
                    "workflow, or put another one in its place (kingdom workflow modify)"
                )
            env.setdefault(ref.mcp_server_id, {}).update(ref.env)
    merged: McpServerConfigs = {}
    for server_id, overrides in env.items():
        server = registered[server_id]
        name = _NOT_IN_NAME.sub("-", server.name)[:64]
        if not name or name in merged:
            raise McpInvalid(f"the MCP server {server.name!r} ({server_id}) needs a name that no other has here")
        merged[name] = _described(server, {**server.env, **overrides})
    return merged


def resolve_servers(servers: Mapping[str, Mapping[str, Any]], environ: Mapping[str, str]) -> McpServerConfigs:
    """Return the servers with all references resolved; raise :class:`McpInvalid` for an unknown variable."""
    return {name: _resolved(server, name, environ) for name, server in servers.items()}


class WorkMcpFiles(mcp.McpConfigFiles):
    """The MCP configuration files of runs."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        super().__init__(folder)
        self._environ = environ

    def check(self, servers: McpServerConfigs) -> None:
        """Raise :class:`McpInvalid` if a reference cannot be resolved or a program is missing."""
        for name, server in resolve_servers(servers, self._environ).items():
            program = server.get("command")
            relative = program and os.sep in program and not program.startswith(os.sep)
            if program and not relative and shutil.which(program, path=self._environ.get("PATH")) is None:
                raise McpInvalid(f"the MCP server {name} cannot start: there is no program {program!r} on the PATH")

    def write(self, run_id: str, servers: Mapping[str, Mapping[str, Any]]) -> Path | None:
        """Write the file of a run, with resolved references; return None if it has no server."""
        return super().write(run_id, resolve_servers(servers, self._environ))


def _described(server: McpServer, env: dict[str, str]) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "http", "url": server.url, "headers": env}
    if not server.command:
        raise McpInvalid(f"the MCP server {server.name!r} ({server.id}) has neither a command nor a URL")
    return {"command": server.command[0], "args": list(server.command[1:]), "env": env}


def _resolved(value: Any, server: str, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _resolved(item, server, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, server, environ) for item in value]

    def look_up(match: re.Match[str]) -> str:
        name = match[1]
        if not _VARIABLE_NAME.match(name):
            raise McpInvalid(f"the MCP server {server} refers to {match[0]!r:.80}: a reference is ${{NAME}}")
        if name not in environ:
            raise McpInvalid(
                f"the MCP server {server} needs the variable {name}, and the environment has none: set it and resume"
            )
        return environ[name]

    return _REFERENCE.sub(look_up, value) if isinstance(value, str) else value


# ── environments ─────────────────────────────────────────────────────────────────────────────────────────────────────


_RELEASED_STATUSES: Final = (WorkTreeStatus.PENDING_RELEASE, WorkTreeStatus.RELEASED)


class EnvironmentMissing(WorkflowError):
    """A Work whose worktree is missing."""

    code = "WFL_NO_PLACE"


@dataclass(frozen=True, slots=True)
class WorkEnvironment:
    """The folders and MCP servers of a Work."""

    cwd: Path
    workspace: Path
    repositories: Mapping[str, str] = field(default_factory=dict)  # folder by name
    servers: McpServerConfigs = field(default_factory=dict)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The only folders to write in, if there are several repositories."""
        found = tuple(map(Path, self.repositories.values()))
        return found if len(found) > 1 else ()

    def result_path(self, run_id: str) -> Path:
        """Return where a run writes its result."""
        return self.workspace / RESULTS_FOLDER / f"{run_id}.json"


class WorkEnvironments:
    """Reads the environments of works from the store."""

    def __init__(self, store: WorkflowStore, workspaces: Workspaces) -> None:
        self._store = store
        self._workspaces = workspaces

    async def of(self, work: Work) -> WorkEnvironment:
        """Return the environment of a Work and create its folders; raise :class:`WorkflowError` if one is missing."""
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
        make_folder(workspace / RESULTS_FOLDER)
        folders = {names[tree.git_id]: _folder(tree, names[tree.git_id]) for tree in trees}
        return WorkEnvironment(_cwd(list(folders.values()), workspace), workspace, folders, servers)


def _of_work(work: Work, trees: Sequence[WorkTree]) -> list[WorkTree]:
    """Return its own worktrees if other works may run beside it, otherwise those of the workflow."""
    owner = work.id if work.apart else None
    return [tree for tree in trees if tree.work_id == owner and tree.status not in _RELEASED_STATUSES]


async def _name(tx: WorkflowTransaction, git_id: str) -> str:
    git = await tx.gits.find(git_id)
    return git.name if git else git_id


async def _registered(tx: WorkflowTransaction, *levels: Iterable[McpServerRef]) -> dict[str, McpServer]:
    ids = {ref.mcp_server_id for level in levels for ref in level}
    found = [await tx.mcp_servers.find(server_id) for server_id in sorted(ids)]
    return {server.id: server for server in found if server is not None}


def _folder(tree: WorkTree, name: str) -> str:
    if tree.status is not WorkTreeStatus.READY or not tree.path:
        raise EnvironmentMissing(
            f"the worktree of {name} is {tree.status}: {tree.error or 'it is not ready to be worked in'}"
        )
    if not Path(tree.path).is_dir():
        raise EnvironmentMissing(
            f"the worktree of {name} is gone from {tree.path}: resume from a checkpoint to create it again"
        )
    return tree.path


def _cwd(folders: list[str], workspace: Path) -> Path:
    if not folders:
        return workspace
    return Path(folders[0]) if len(folders) == 1 else Path(folders[0]).parent
