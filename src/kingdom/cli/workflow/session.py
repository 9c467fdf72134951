"""From ``--home`` and ``--store`` to an open store for the length of one command."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from kingdom.cli import output
from kingdom.cli.workflow.place import engines_of, find_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.parts import Parts
    from kingdom.workflow.ports import Store

T = TypeVar("T")


def in_store(home: Path | None, store: str | None, action: Callable[[Store], Awaitable[T]]) -> T:
    """Run ``action`` with the store that is meant; what can be wrong becomes a :class:`output.Failure`."""
    place = find_place(home, store)

    async def run() -> T:
        async with opened(place) as found:
            return await action(found)

    return told(run)


def in_parts(home: Path | None, store: str | None, action: Callable[[Parts], Awaitable[T]]) -> T:
    """The same with everything a use case needs."""
    place = find_place(home, store)

    async def run() -> T:
        async with opened_parts(place) as parts:
            return await action(parts)

    return told(run)


def told(run: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine, and turn the errors of workflows, git, agents and the bus into a :class:`output.Failure`."""
    import asyncio

    with errors_told():
        return asyncio.run(_awaited(run))


async def _awaited(run: Callable[[], Awaitable[T]]) -> T:
    return await run()


@contextlib.asynccontextmanager
async def opened(place: WorkflowHome) -> AsyncIterator[Store]:
    """The store of a place, with its tables."""
    from kingdom.workflow.store import open_store

    place.root.mkdir(parents=True, exist_ok=True)
    async with open_store(place.store, now) as store:
        await store.setup()
        yield store


@contextlib.asynccontextmanager
async def opened_parts(place: WorkflowHome) -> AsyncIterator[Parts]:
    """Everything a use case needs: the store of a place, its agents, git and files."""
    from kingdom.workflow.home import open_home

    with log_to(place.log):
        async with open_home(place, engines_of(place)) as parts:
            yield parts


@contextlib.contextmanager
def log_to(path: Path) -> Iterator[None]:
    """What our libraries have to say goes into a file: what matters of it is in the state and the events."""
    import logging

    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("kingdom")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


@contextlib.contextmanager
def errors_told() -> Iterator[None]:
    """Errors of the layers below become a :class:`output.Failure`."""
    try:
        yield
    except Exception as error:
        failure = _failure(error)
        if failure is None:
            raise
        raise failure from error


def _failure(error: Exception) -> output.Failure | None:
    """The failure that tells of an error; None for one that is a mistake of ours. Imports only once one is needed."""
    from kingdom.agents.errors import AgentsError
    from kingdom.bus import BusError
    from kingdom.cli.bus.session import failure_of
    from kingdom.gitops import GitError
    from kingdom.workflow.domain.errors import WorkflowError
    from kingdom.yamlfile import YamlProblem

    if isinstance(error, BusError):
        return failure_of(error)
    if isinstance(error, WorkflowError | AgentsError | YamlProblem):
        return output.Failure(error.code, str(error))
    return output.Failure("GIT", str(error)) if isinstance(error, GitError) else None
