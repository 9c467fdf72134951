"""Wiring: everything a workflow engine is made of, put together in one place."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from kingdom.workflow.ids import TimeOrderedIds
from kingdom.workflow.parts import Parts
from kingdom.workflow.ports import AgentClient, Clock, GitService, Ids, QueryTexts, Store, WorkFiles
from kingdom.workflow.store import open_store

MakeOutside: TypeAlias = "Callable[[Store, Clock], Outside]"


def system_clock() -> datetime:
    """Now, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Outside:
    """What is outside of the workflow layer, made for a store that is open."""

    agents: AgentClient
    git: GitService
    files: WorkFiles
    queries: QueryTexts


@asynccontextmanager
async def open_parts(
    url: str, outside: MakeOutside, *, clock: Clock = system_clock, ids: Ids | None = None
) -> AsyncIterator[Parts]:
    """The parts of the workflows at a store's URL, whose tables are made or migrated first."""
    async with open_store(url, clock) as store:
        await store.setup()
        made = outside(store, clock)
        yield Parts(store, made.agents, made.git, made.files, made.queries, clock, ids or TimeOrderedIds())
