"""The home of workflows: one folder with everything in it, and the services made for it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.agents.sandbox.gateway import OnRefusal
    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.gitops.settings import GitSettings
    from kingdom.workflow.adapters.agent_client import RunnerAgentClient
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.landing import Lander
    from kingdom.workflow.ports import Clock, NotLanded, WorkflowStore

_DATABASE: Final = "workflows.db"


class WorkflowHome:
    """The paths of a home. ``store`` is the URL of a store elsewhere; the default is a SQLite file in the home."""

    def __init__(self, root: Path, store: str | None = None) -> None:
        self.root = root.resolve() if ".." in root.parts else root.absolute()  # paths in it are compared
        self.database = self.root / _DATABASE
        self.store = store or f"sqlite://{self.database}"
        self._elsewhere = store is not None
        self.log = self.root / "engine.log"
        self.lease = self.root / "engine.lease"  # until when agents may go on, if engines share the store
        self.settings = self.root / "settings.yaml"  # outside a court, where system.yaml has them
        self.workspaces = self.root / "workspaces"
        self.agents = self.root / "agents"
        self.runs = self.agents / "runs"  # one folder per run, by which a later process finds it
        self.sessions = self.agents / "sessions"  # transcripts
        self.ledger = self.agents / "ledger"  # tokens and cost, one file per month
        self.mcp = self.agents / "mcp"  # MCP configurations of running runs

    @property
    def has_store(self) -> bool:
        """Whether there may be workflows: the store is elsewhere, or its file exists."""
        return self._elsewhere or self.database.is_file()


def git_service(
    home: WorkflowHome,
    clock: Clock,
    settings: GitSettings | None = None,
    before_checkout: Callable[[], None] | None = None,
) -> GitopsService:
    """Return the git service for the clones and worktrees of a home. See :class:`kingdom.gitops.Worktrees`."""
    from kingdom.gitops.runner import MIB
    from kingdom.gitops.settings import GitSettings
    from kingdom.workflow.adapters.git_service import GitopsService

    settings = settings or GitSettings()
    return GitopsService(
        settings.runner(),
        home.root,
        clock=clock,
        identity=settings.identity,
        max_file_bytes=settings.max_file_mb * MIB,
        checkpoint_remote=settings.checkpoint_remote,
        before_checkout=before_checkout,
    )


def lander(home: WorkflowHome, store: WorkflowStore, clock: Clock, settings: GitSettings | None = None) -> Lander:
    """Return what lands the workflows of a home."""
    from kingdom.workflow.landing import Lander
    from kingdom.workflow.store.holds import home_name

    return Lander(store, git_service(home, clock, settings), clock, home.ledger, home_name(home.root))


@asynccontextmanager
async def open_home(
    home: WorkflowHome,
    engines: Mapping[str, Engine | InProcessEngine],
    *,
    environ: Mapping[str, str] | None = None,
    sandbox: Sandbox | None = None,
    git: GitSettings | None = None,
    journal: Path | None = None,
) -> AsyncIterator[WorkflowContext]:
    """Open the workflow context of a home; create its folders and tables first.

    Agents are confined by ``sandbox``; without one, they are not. What they are refused is written to ``journal``.
    ``git`` says who commits and how remotes are reached. ``KINGDOM_WORKFLOW_AGENTS`` says how many agents may run at
    once (default 8); others wait. Agents with a process of their own survive the end of the block; the next engine
    finds them.
    """
    # Imported here: they take a while, and a process that only reads a home needs none of them.
    from kingdom.workflow.adapters.agent_loading import LoadedAgents
    from kingdom.workflow.adapters.queries import QueryTemplates
    from kingdom.workflow.adapters.slots import AgentSlots, agent_slots_from, lease_seconds_from
    from kingdom.workflow.adapters.workspaces import Workspaces
    from kingdom.workflow.context import ExternalServices, open_context

    home.root.mkdir(parents=True, exist_ok=True)
    environ = os.environ if environ is None else environ
    slots = agent_slots_from(environ)
    made: list[LoadedAgents] = []

    def make_client(store: WorkflowStore, workspaces: Workspaces) -> RunnerAgentClient:
        from kingdom.agents.runner import Runner
        from kingdom.workflow.adapters.agent_client import RunnerAgentClient
        from kingdom.workflow.adapters.environment import WorkMcpFiles
        from kingdom.workflow.adapters.workspaces import RunFiles

        runner = Runner(
            soldiers=home.runs,
            sessions=home.sessions,
            ledger=home.ledger,
            engines=engines,
            environ=environ,
            sandbox=sandbox,
            git_identity=None if git is None else git.agents_identity,
            on_refusal=None if journal is None else _refusals_to(journal),
            lease=home.lease if git is not None and git.checkpoint_remote is not None else None,
        )
        mcp, files = WorkMcpFiles(home.mcp, environ), RunFiles(home.runs, home.sessions)
        return RunnerAgentClient(store, runner, workspaces, mcp, slots=AgentSlots(slots), files=files)

    def before_checkout() -> None:
        made[0].load()
        if sandbox is not None:
            sandbox.preload()

    def outside(store: WorkflowStore, clock: Clock) -> ExternalServices:
        workspaces = Workspaces(home.workspaces)
        made.append(LoadedAgents(lambda: make_client(store, workspaces)))
        repositories = git_service(home, clock, git, before_checkout)
        return ExternalServices(made[0], repositories, workspaces, QueryTemplates(store))

    async with open_context(home.store, outside) as parts:
        if git is not None and git.checkpoint_remote is not None:
            parts.store.share(home.root, lease_seconds_from(environ))
            parts.lease_file = home.lease

        async def land(workflow_id: str, *, patient: bool) -> NotLanded | None:
            made = lander(home, parts.store, parts.clock, git)
            return await made.land_when_completed(workflow_id, patient=patient)

        parts.land = land
        try:
            yield parts
        finally:
            await made[0].close()


def _refusals_to(path: Path) -> OnRefusal:
    from kingdom.agents.sandbox.refusals import refusals_to
    from kingdom.journal import Journal
    from kingdom.journal.catalog import WORKFLOW

    return refusals_to(Journal(path), WORKFLOW)
