"""Export and remove the workflows that name a person or a repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.workflow.commands import COMMAND_STREAM
from kingdom.workflow.errors import NotFound
from kingdom.workflow.store.documents import encode
from kingdom.workflow.store.transactions import STREAM
from kingdom.workflow.usecases import delete_git, delete_workflow
from kingdom.workflow.usecases.lifecycle import BUSY_STATUSES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import WorkflowStore
    from kingdom.workflow.store.transactions import WorkflowTransaction

IsNamed = Callable[[str], bool]
"""Tells whether a text names what is searched for."""
Hide = Callable[[str], str]
"""Returns a text without these names."""
_PAGE: Final = 500
_MAX_CATALOG: Final = 10_000
_KEPT_WORDS: Final = ("Id", "id", "status", "type", "attempt")  # ends of keys whose texts say nothing about a person


@dataclass(slots=True)
class KnownWorkflows:
    """The workflows and repositories that were found."""

    workflows: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By id: the workflow, its works, reports, checkpoints, landings and events."""
    works: list[str] = field(default_factory=list)
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Events of other workflows that name it, such as those of what a person did. The workflows stay."""
    gits: dict[str, dict[str, Any]] = field(default_factory=dict)
    running: list[str] = field(default_factory=list)
    """The workflows that cannot be removed now."""
    left: list[str] = field(default_factory=list)
    """Templates and MCP servers that name it: they stay."""


async def find_workflows(store: WorkflowStore, is_named: IsNamed, *, repository: bool) -> KnownWorkflows:
    """Find the workflows that name a person; of a repository, also those that use it."""
    found = KnownWorkflows()
    async with store.reading() as tx:
        if repository:
            for git in await tx.gits.list(limit=_MAX_CATALOG):
                if is_named(git.url):
                    found.gits[git.id] = json.loads(encode(git))
        for template in await tx.templates.list(limit=_MAX_CATALOG):
            if is_named(encode(template)):
                found.left.append(f"the template {template.name}")
        for server in await tx.mcp_servers.list(limit=_MAX_CATALOG):
            if is_named(encode(server)):
                found.left.append(f"the MCP server {server.name}")
        async for workflow in _all_workflows(tx):
            document, events = await _document(tx, workflow), await _events(tx, workflow.id)
            uses = {ref.git_id for ref in workflow.git_refs}
            if not (uses & found.gits.keys() or is_named(json.dumps(document, ensure_ascii=False))):
                if named := [event for event in events if is_named(json.dumps(event, ensure_ascii=False))]:
                    found.events[workflow.id] = named
                continue
            found.workflows[workflow.id] = {**document, "events": events}
            found.works += [work["id"] for work in document["works"]]
            if workflow.status in BUSY_STATUSES:
                found.running.append(workflow.id)
    return found


async def remove_workflows(
    context: WorkflowContext, workflow_ids: Collection[str], git_ids: Collection[str], hide: Hide
) -> None:
    """Delete workflows and repositories, the texts of their events, and names in all other events. May be repeated."""
    for workflow_id in workflow_ids:
        with suppress(NotFound):
            await delete_workflow(context, workflow_id)
    for git_id in git_ids:
        with suppress(NotFound):
            await delete_git(context, git_id)
    await _redact_events(context, frozenset((*workflow_ids, *git_ids)), hide)
    for stream in (STREAM, COMMAND_STREAM):  # what was handled; nobody reads it again
        if stream in await context.store.bus.depth():
            await context.store.bus.purge(0, stream=stream)


async def _all_workflows(tx: WorkflowTransaction) -> AsyncIterator[Workflow]:
    after = None
    while page := await tx.workflows.list(limit=_PAGE, after=after):
        for workflow in page:
            yield workflow
        after = page[-1].id


async def _document(tx: WorkflowTransaction, workflow: Workflow) -> dict[str, Any]:
    parts: dict[str, Any] = {"workflow": json.loads(encode(workflow))}
    for name, rows in (
        ("works", tx.works), ("reports", tx.reports), ("checkpoints", tx.checkpoints), ("landings", tx.landings),
    ):  # fmt: skip
        parts[name] = [json.loads(encode(item)) for item in await rows.of_workflow(workflow.id)]
    return parts


async def _events(tx: WorkflowTransaction, workflow_id: str) -> list[dict[str, Any]]:
    rows = await tx.session.fetch(
        "SELECT type, occurred_at, payload FROM wf_event WHERE aggregate_id = ? ORDER BY sequence", workflow_id
    )
    return [{"type": kind, "at": at, "payload": json.loads(payload)} for kind, at, payload in rows]


async def _redact_events(context: WorkflowContext, removed: frozenset[str], hide: Hide) -> None:
    """Take texts out of events. The events stay: their numbers have no gap, and interfaces rely on that."""
    position = 0
    while True:
        async with context.store.transaction() as tx:
            rows = await tx.session.fetch(
                "SELECT position, aggregate_id, payload FROM wf_event WHERE position > ? ORDER BY position LIMIT ?",
                position, _PAGE,
            )  # fmt: skip
            for position, aggregate_id, payload in rows:
                made = json.dumps(_without_texts(json.loads(payload))) if aggregate_id in removed else hide(payload)
                if made != payload:
                    await tx.session.fetch("UPDATE wf_event SET payload = ? WHERE position = ?", made, position)
        if len(rows) < _PAGE:
            return


def _without_texts(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _without_texts(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [_without_texts(one, key) for one in value]
    return "" if isinstance(value, str) and not key.endswith(_KEPT_WORDS) else value
