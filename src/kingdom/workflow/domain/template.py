"""A WorkflowTemplate: the plan workflows are made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from kingdom.workflow.domain.errors import InvalidPlan
from kingdom.workflow.domain.sources import GitRef, McpServerRef

OnFailure = Literal["pause", "fail"]
START: Final = "start"  # in ``after``: the start of the workflow, where no Work is called so


@dataclass(frozen=True, slots=True)
class TaskDefinition:
    """A task of the plan."""

    name: str
    query: str
    outline: tuple[str, ...] = ()
    retries: int = 1


@dataclass(frozen=True, slots=True)
class WorkDefinition:
    """A Work of the plan."""

    name: str
    tasks: tuple[TaskDefinition, ...]
    engine: str = "claude"
    model: str | None = None
    engine_options: Mapping[str, object] = field(default_factory=dict)
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    after: tuple[str, ...] = ()  # names of works it waits for, or START: nobody; none: all before it
    merge: bool = False
    pause_after: bool = False


@dataclass(slots=True)
class WorkflowTemplate:
    """A plan with a name."""

    id: str
    name: str
    works: tuple[WorkDefinition, ...]
    description: str = ""
    git_refs: tuple[GitRef, ...] = ()
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    on_failure: OnFailure = "pause"
    version: int = 0

    def __post_init__(self) -> None:
        check_plan((work.name, work.after) for work in self.works)
        for work in self.works:
            check_tasks(work.name, work.tasks)

    def remove_git(self, git_id: str) -> bool:
        """Forget a repository that was deleted; False when the template has no such reference."""
        kept = tuple(ref for ref in self.git_refs if ref.git_id != git_id)
        changed, self.git_refs = kept != self.git_refs, kept
        return changed

    def remove_mcp_server(self, server_id: str) -> bool:
        """Forget an MCP server that was unregistered; False when the template has no such reference."""
        before = self.mcp_server_refs, self.works
        self.mcp_server_refs = _without(self.mcp_server_refs, server_id)
        self.works = tuple(_work_without(work, server_id) for work in self.works)
        return (self.mcp_server_refs, self.works) != before


def check_tasks(work: str, tasks: Sequence[object]) -> None:
    """Raise :class:`InvalidPlan` when a Work has nothing to do."""
    if not tasks:
        raise InvalidPlan(f"work {work!r} has no task")


def check_plan(works: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """Raise :class:`InvalidPlan` when names stand twice, ``after`` names no Work, or works wait for each other.

    The works come in their order: one that does not say what it is after waits for all before it, and one that is
    after :data:`START` waits for nobody.
    """
    waits: dict[str, tuple[str, ...]] = {}
    for name, after in works:
        if name in waits:
            raise InvalidPlan(f"two works are called {name!r}: each needs a name of its own")
        waits[name] = after or tuple(waits)
    if not waits:
        raise InvalidPlan("a plan needs at least one work")
    for name, others in waits.items():
        if unknown := [other for other in others if other not in waits and other != START]:
            raise InvalidPlan(f"work {name!r} is after {unknown[0]!r}, and there is none: {', '.join(waits)}")
        waits[name] = tuple(other for other in others if other in waits)
    done: set[str] = set()
    while len(done) < len(waits):
        ready = [name for name, others in waits.items() if name not in done and done.issuperset(others)]
        if not ready:
            stuck = ", ".join(sorted(set(waits) - done))
            raise InvalidPlan(f"these works wait for each other: {stuck}")
        done.update(ready)


def _without(refs: tuple[McpServerRef, ...], server_id: str) -> tuple[McpServerRef, ...]:
    return tuple(ref for ref in refs if ref.mcp_server_id != server_id)


def _work_without(work: WorkDefinition, server_id: str) -> WorkDefinition:
    kept = _without(work.mcp_server_refs, server_id)
    if kept == work.mcp_server_refs:
        return work
    return replace(work, mcp_server_refs=kept)
