"""``kingdom workflow ls``: which workflows there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kingdom.cli import output
from kingdom.cli.bus.options import Json
from kingdom.cli.workflow.options import HomeOption, StoreOption
from kingdom.cli.workflow.session import in_store

if TYPE_CHECKING:
    from datetime import datetime

    from kingdom.workflow.domain.workflow import Workflow
    from kingdom.workflow.ports import Store


def ls(
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="WORD", help="Only those that are RUNNING, PAUSED, …; may be repeated."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many, the newest.")] = 50,
    home: HomeOption = None,
    store: StoreOption = None,
    json: Json = False,
) -> None:
    """List the workflows, the newest first."""
    from kingdom.cli.workflow.overview import brief, coloured
    from kingdom.workflow.overview import summary

    words = _statuses(status or [])
    found = in_store(home, store, lambda opened: _read(opened, words, limit + 1))
    shown = found[:limit]
    if json:
        output.emit({"workflows": [summary(one) | {"reason": one.reason} for one in shown]})
    elif shown:
        rows = [
            (
                one.id,
                one.name,
                coloured(one.status),
                one.issue_key or "",
                _when(one.created_at),
                brief(one.reason or ""),
            )
            for one in shown
        ]
        output.print_table(("workflow", "name", "status", "issue", "created", "why"), rows)
        if len(found) > limit:
            output.say("… and older ones (--limit)")
    else:
        output.say("no workflows: kingdom workflow create TEMPLATE makes one")


def _when(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _statuses(words: list[str]) -> list[str]:
    from kingdom.workflow.domain.statuses import WorkflowStatus

    given = [word.upper() for word in words]
    if unknown := [word for word in given if word not in list(WorkflowStatus)]:
        raise output.misuse(f"--status {unknown[0]}: use {', '.join(WorkflowStatus)}")
    return given


async def _read(store: Store, statuses: list[str], limit: int) -> list[Workflow]:
    async with store.reading() as tx:
        if statuses:
            return list(reversed(await tx.workflows.with_status(*statuses)))[:limit]
        return await tx.workflows.list(limit=limit)
