"""From what a person types to what is meant: an id, the beginning or end of one, or a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from kingdom.cli.output import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.workflow.domain.resources import Checkpoint
    from kingdom.workflow.domain.sources import Git, McpServer
    from kingdom.workflow.domain.template import WorkflowTemplate
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import Transaction

_MOST: Final = 100_000  # of one kind; names are compared with all of them
_SHORTEST: Final = 4  # characters of an id that stand for it
T = TypeVar("T")


def choose(items: Sequence[T], word: str, what: str, listing: str, name: Callable[[T], str]) -> T:
    """The one that is meant, or a :class:`Failure` that says why none is."""
    exact = [item for item in items if _id(item) == word]
    named = [item for item in items if name(item) == word]
    short = [item for item in items if len(word) >= _SHORTEST and _id(item).startswith(word)]
    ends = [item for item in items if len(word) >= _SHORTEST and _id(item).endswith(word)]
    for found in (exact, named, short, ends):
        if len(found) == 1:
            return found[0]
        if found:
            some = ", ".join(_id(item) for item in found[:3])
            kind = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
            raise Failure("AMBIGUOUS", f"{len(found)} {kind} are called {word}: give an id ({some}, …)")
    raise Failure("NOT_FOUND", f"there is no {what} {word} here: {listing} lists those there are")


async def find_workflow(tx: Transaction, word: str) -> Workflow:
    """The workflow that is meant."""
    exact = await tx.workflows.find(word)
    return exact or choose(
        await tx.workflows.list(limit=_MOST), word, "workflow", "kingdom workflow ls", lambda item: item.name
    )


async def find_template(tx: Transaction, word: str) -> WorkflowTemplate:
    """The template that is meant."""
    items = await tx.templates.list(limit=_MOST)
    return choose(items, word, "template", "kingdom template ls", lambda item: item.name)


async def find_git(tx: Transaction, word: str) -> Git:
    """The repository that is meant."""
    items = await tx.gits.list(limit=_MOST)
    return choose(items, word, "repository", "kingdom git ls", lambda item: item.name)


async def find_mcp_server(tx: Transaction, word: str) -> McpServer:
    """The MCP server that is meant."""
    items = await tx.mcp_servers.list(limit=_MOST)
    return choose(items, word, "MCP server", "kingdom mcp ls", lambda item: item.name)


async def find_checkpoint(tx: Transaction, workflow: Workflow, word: str) -> Checkpoint:
    """The checkpoint of a workflow that is meant; the name of a Work is its last valid one."""
    names = {work.id: work.name for work in await tx.works.of_workflow(workflow.id)}
    points = [point for point in await tx.checkpoints.of_workflow(workflow.id) if point.complete]
    current = {point.work_id: point for point in points if point.valid}
    return choose(
        points, word, "checkpoint", f"kingdom workflow show {workflow.id}",
        lambda point: names.get(point.work_id, "") if current.get(point.work_id) is point else "",
    )  # fmt: skip


def _id(item: Any) -> str:
    return str(item.id)
