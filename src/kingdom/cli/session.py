"""Open a bus, a court or a workflow store for the length of one command."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias, TypeVar

import typer

from kingdom.cli import output
from kingdom.cli.output import CommandError
from kingdom.court.home import HOME_VARIABLE
from kingdom.homes import WORKFLOWS_FOLDER, is_court

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.bus import BusError, EventBus
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.ports import WorkflowStore


# From a URL to an open bus for the length of one command.


T = TypeVar("T")

_CONNECT_SECONDS: Final = 5.0  # seconds to try a store that is away: somebody is waiting for the answer


def with_bus(url: str, action: Callable[[EventBus], Awaitable[T]]) -> T:
    """Run ``action`` with the bus at ``url``; an error of the bus becomes a :class:`Failure`."""
    import asyncio

    from kingdom.bus import BusError, connect

    async def run() -> T:
        async with connect(url, connect_timeout=_CONNECT_SECONDS) as bus:
            return await action(bus)

    try:
        return asyncio.run(run())
    except BusError as error:
        raise bus_error(error) from error


def bus_error(error: BusError) -> CommandError:
    """The failure that tells of a bus error; its code is the error's name, as ``NOT_SET_UP``."""
    return CommandError(re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).upper(), str(error))


# What the commands of a court share: which home is meant, and what becomes of the court's errors.


HomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="The home of the court. Else KINGDOM_HOME, else the one around the working folder.",
        show_default=False,
    ),
]


def find_home(named: Path | None) -> Home:
    """The home that is meant: the one named by ``--home``, or the one :meth:`Home.find` finds."""
    from kingdom.court.errors import HomeNotFound
    from kingdom.court.home import MARKER, Home

    with court_errors_reported():
        if named is None:
            return Home.find()
        home = Home(named)
        if not home.exists:
            raise HomeNotFound(f"{home.root} is not the home of a court (no {MARKER} in it): kingdom init {named}")
        return home


@contextlib.contextmanager
def court_errors_reported() -> Iterator[None]:
    """Errors of the court and of the bus become a :class:`Failure`."""
    from kingdom.bus import BusError
    from kingdom.court.errors import CourtError

    try:
        yield
    except CourtError as error:
        raise CommandError(error.code, str(error)) from error
    except BusError as error:
        raise bus_error(error) from error


# From ``--home`` to an open court for the length of one command.


def with_court(named: Path | None, action: Callable[[Services], Awaitable[T]]) -> T:
    """Run ``action`` with the services of a court, whether it is up or not."""
    import asyncio

    from kingdom.court.bootstrap import open_services

    home = find_home(named)

    async def run() -> T:
        async with open_services(home) as services:
            return await action(services)

    with journal_errors_reported():
        return asyncio.run(run())


@contextlib.contextmanager
def journal_errors_reported() -> Iterator[None]:
    """Turn what can be wrong in a court, its bus and its journal into a :class:`Failure`."""
    from kingdom.journal import JournalError

    with court_errors_reported():
        try:
            yield
        except JournalError as error:
            raise CommandError("JOURNAL", str(error)) from error


def user_name() -> str:
    """Who sits here."""
    from kingdom.court import environment

    return environment.user_name()


# Which workflows are meant: the folder they live in, their store, and the engines that work on them.


_DATABASE: Final = Path(WORKFLOWS_FOLDER, "workflows.db")


def find_workflow_home(home: Path | None, store: str | None) -> WorkflowHome:
    """The place that is meant.

    ``--home`` or ``KINGDOM_HOME`` may name any folder: ``workflows/`` is made in it. Without them it is the nearest
    folder, from the working folder up, that has workflows or is the home of a court.
    """
    from kingdom.workflow.home import WorkflowHome

    return WorkflowHome((_named_folder(home) or _enclosing_folder(Path.cwd())) / WORKFLOWS_FOLDER, store)


def engines_of(place: WorkflowHome) -> Mapping[str, Engine | InProcessEngine]:
    """The engines of a place; what is wrong with their settings becomes a :class:`Failure`."""
    from kingdom import homes as places

    with court_errors_reported():
        return places.engines_of(place)


def _named_folder(home: Path | None) -> Path | None:
    given = home if home is not None else Path(named) if (named := os.environ.get(HOME_VARIABLE)) else None
    if given is None:
        return None
    if not given.is_dir():
        raise CommandError("NO_HOME", f"{given} is no folder: make it first (mkdir -p {given})")
    return given


def _enclosing_folder(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / _DATABASE).is_file() or is_court(folder):
            return folder
    raise CommandError(
        "NO_HOME",
        f"there are no workflows in {start} or above: --home DIR (or {HOME_VARIABLE}) names the folder to keep them in, "
        f"as --home . for this one",
    )


# From ``--home`` and ``--store`` to an open store for the length of one command.


def with_store(home: Path | None, store: str | None, action: Callable[[WorkflowStore], Awaitable[T]]) -> T:
    """Run ``action`` with the store that is meant; what can be wrong becomes a :class:`output.Failure`."""
    place = find_workflow_home(home, store)

    async def run() -> T:
        async with open_workflow_store(place) as found:
            return await action(found)

    return run_reporting_errors(run)


def with_parts(home: Path | None, store: str | None, action: Callable[[WorkflowContext], Awaitable[T]]) -> T:
    """The same with everything a use case needs."""
    place = find_workflow_home(home, store)

    async def run() -> T:
        async with open_workflow_parts(place) as parts:
            return await action(parts)

    return run_reporting_errors(run)


def run_reporting_errors(run: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine, and turn the errors of workflows, git, agents and the bus into a :class:`output.Failure`."""
    import asyncio

    with errors_reported():
        return asyncio.run(_await(run))


async def _await(run: Callable[[], Awaitable[T]]) -> T:
    return await run()


@contextlib.asynccontextmanager
async def open_workflow_store(place: WorkflowHome) -> AsyncIterator[WorkflowStore]:
    """The store of a place, with its tables."""
    from kingdom.workflow.store import open_store

    place.root.mkdir(parents=True, exist_ok=True)
    async with open_store(place.store, utc_now) as store:
        await store.setup()
        yield store


@contextlib.asynccontextmanager
async def open_workflow_parts(place: WorkflowHome) -> AsyncIterator[WorkflowContext]:
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


def utc_now() -> datetime:
    """The time."""
    return datetime.now(UTC)


@contextlib.contextmanager
def errors_reported() -> Iterator[None]:
    """Errors of the layers below become a :class:`output.Failure`."""
    try:
        yield
    except Exception as error:
        failure = _command_error(error)
        if failure is None:
            raise
        raise failure from error


def _command_error(error: Exception) -> output.CommandError | None:
    """The failure that tells of an error; None for one that is a mistake of ours. Imports only once one is needed."""
    from kingdom.agents.errors import AgentsError
    from kingdom.base.yamlfile import YamlProblem
    from kingdom.bus import BusError
    from kingdom.gitops import GitError
    from kingdom.workflow.errors import WorkflowError

    if isinstance(error, BusError):
        return bus_error(error)
    if isinstance(error, WorkflowError | AgentsError | YamlProblem):
        return output.CommandError(error.code, str(error))
    return output.CommandError("GIT", str(error)) if isinstance(error, GitError) else None
