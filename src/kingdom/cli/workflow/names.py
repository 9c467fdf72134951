"""Names, ids and ``NAME=VALUE`` pairs on the command line.

Users may write an id, its start (with or without its kind, ``wf-``) or its end, or a name.
"""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kingdom.cli import output
from kingdom.cli.output import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kingdom.workflow.domain.resources import Checkpoint, Git, McpServer
    from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
    from kingdom.workflow.store.transactions import WorkflowTransaction

_MAX_ITEMS: Final = 100_000  # of one kind; a name is compared with all of them
_MIN_ID_CHARS: Final = 4  # of an id, to identify it by its start or end
_MAX_CANDIDATES: Final = 5  # named in an error
T = TypeVar("T")


def choose(items: Sequence[T], word: str, what: str, listing: str, name: Callable[[T], str]) -> T:
    """Return the item that ``word`` identifies; raise a :class:`CommandError` if there is none, or several."""
    exact = [item for item in items if _id(item) == word]
    named = [item for item in items if name(item) == word]
    short = [item for item in items if len(word) >= _MIN_ID_CHARS and _starts(_id(item), word)]
    ends = [item for item in items if len(word) >= _MIN_ID_CHARS and _id(item).endswith(word)]
    for found in (exact, named, short, ends):
        if len(found) == 1:
            return found[0]
        if found:
            kind = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
            some = _candidates([f"{_id(item)} {name(item)}".strip() for item in found])
            raise CommandError("AMBIGUOUS", f"{len(found)} {kind} match {word}: use more of the id of one of {some}")
    names = [name(item) for item in items if name(item)]
    close = [one for one in names if one.startswith(word)] or get_close_matches(word, names, _MAX_CANDIDATES)
    there = f" (similar: {_candidates(close)})" if close else f" (there are {_candidates(names)})" if names else ""
    raise CommandError("NOT_FOUND", f"there is no {what} {word} here{there}: {listing} lists them")


def _starts(item_id: str, word: str) -> bool:
    return item_id.startswith(word) or item_id.partition("-")[2].startswith(word)


def _candidates(texts: Sequence[str]) -> str:
    more = ", …" if len(texts) > _MAX_CANDIDATES else ""
    return ", ".join(dict.fromkeys(texts[:_MAX_CANDIDATES])) + more


def workflow_word(workflow: Workflow) -> str:
    """Return how a workflow is named in a command that is shown to a user."""
    return shlex.quote(workflow.name)


async def find_workflow(tx: WorkflowTransaction, word: str) -> Workflow:
    exact = await tx.workflows.find(word)
    return exact or choose(
        await tx.workflows.list(limit=_MAX_ITEMS), word, "workflow", "kingdom workflow ls", lambda item: item.name
    )


async def find_template(tx: WorkflowTransaction, word: str) -> WorkflowTemplate:
    items = await tx.templates.list(limit=_MAX_ITEMS)
    return choose(items, word, "template", "kingdom template ls", lambda item: item.name)


async def find_git(tx: WorkflowTransaction, word: str) -> Git:
    items = await tx.gits.list(limit=_MAX_ITEMS)
    return choose(items, word, "repository", "kingdom git ls", lambda item: item.name)


async def find_mcp_server(tx: WorkflowTransaction, word: str) -> McpServer:
    items = await tx.mcp_servers.list(limit=_MAX_ITEMS)
    return choose(items, word, "MCP server", "kingdom mcp ls", lambda item: item.name)


async def find_checkpoint(tx: WorkflowTransaction, workflow: Workflow, word: str) -> Checkpoint:
    """Return a checkpoint of a workflow. The name of a Work identifies its last valid checkpoint."""
    names = {work.id: work.name for work in await tx.works.of_workflow(workflow.id)}
    points = [point for point in await tx.checkpoints.of_workflow(workflow.id) if point.complete]
    current = {point.work_id: point for point in points if point.valid}
    return choose(
        points, word, "checkpoint", f"kingdom workflow show {workflow_word(workflow)}",
        lambda point: names.get(point.work_id, "") if current.get(point.work_id) is point else "",
    )  # fmt: skip


async def find_point(tx: WorkflowTransaction, workflow: Workflow, word: str) -> str:
    """Return the id of a checkpoint of a workflow to go back to, or ``start``: before its first Work."""
    from kingdom.workflow.usecases.lifecycle import FIRST_POINT

    names = [work.name for work in await tx.works.of_workflow(workflow.id)]
    if word == FIRST_POINT and word not in names:
        return FIRST_POINT
    return (await find_checkpoint(tx, workflow, word)).id


def _id(item: Any) -> str:
    return str(item.id)


def parse_assignments(given: Sequence[str], option: str, *, nested: bool) -> dict[str, Any]:
    """Return the values by name. With ``nested``, ``issue.title=TEXT`` sets the ``title`` of ``issue``."""
    made: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        parts = name.split(".") if nested else [name]
        if not sign or not all(parts):
            raise output.usage_error(f"{option} {one!r} is not NAME=VALUE")
        place = made
        for part in parts[:-1]:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise output.usage_error(f"{option} {one!r}: {part} already has a value and cannot have parts")
        if isinstance(place.get(parts[-1]), dict):
            raise output.usage_error(f"{option} {one!r}: {name} already has parts and cannot have a value")
        place[parts[-1]] = value
    return made


def check_new_name(name: str, taken: Sequence[str], what: str) -> None:
    """Raise an error for a name that is invalid or taken: users and templates identify things by name."""
    from kingdom.workflow.plan_model import checked_name

    try:
        checked_name(name)
    except ValueError as error:
        raise output.usage_error(str(error)) from None
    if "@" in name:
        raise output.usage_error(f"{name!r:.80} is not a valid name: @ separates a branch, as in NAME@BRANCH")
    if name in taken:
        raise output.CommandError("ALREADY_THERE", f"there is already {what} called {name}: choose another name")
