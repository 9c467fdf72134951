"""Open a bus, a court or a workflow store for the length of one command.

Errors of the layers below become a :class:`CommandError`: one line for the user instead of a traceback. The layers are
imported inside the functions, so that the help of a command loads none of them.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from kingdom.cli.output import CommandError, note

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.bus import BusError, EventBus
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.gitops.settings import GitSettings
    from kingdom.workflow.context import WorkflowContext
    from kingdom.workflow.home import WorkflowHome
    from kingdom.workflow.ports import WorkflowStore

T = TypeVar("T")

_NOTICE_SECONDS: Final = 1.0  # after which a person is shown what a command waits for


def with_bus(url: str, action: Callable[[EventBus], Awaitable[T]]) -> T:
    """Run ``action`` with the bus at ``url``."""
    from kingdom.bus import connect
    from kingdom.bus.transport import INTERACTIVE_CONNECT_SECONDS

    async def run() -> T:
        async with contextlib.AsyncExitStack() as stack:
            with waiting_shown(url):
                bus = await stack.enter_async_context(connect(url, connect_timeout=INTERACTIVE_CONNECT_SECONDS))
            return await action(bus)

    return run_async(run)


def with_court(home: Path | None, action: Callable[[Services], Awaitable[T]], *, lasting: bool = False) -> T:
    """Run ``action`` with the services of a court, whether it is up or not.

    A ``lasting`` action waits through a longer outage of the database.
    """
    found = find_home(home)

    async def run() -> T:
        async with open_court(found, lasting=lasting) as services:
            return await action(services)

    return run_async(run)


@contextlib.asynccontextmanager
async def open_court(home: Home, *, lasting: bool = False) -> AsyncIterator[Services]:
    """Open the services of a court for a person, who is shown what is waited for."""
    from kingdom.bus.transport import CONNECT_SECONDS, INTERACTIVE_CONNECT_SECONDS
    from kingdom.court.bootstrap import open_services
    from kingdom.court.config import load_system

    timeout = CONNECT_SECONDS if lasting else INTERACTIVE_CONNECT_SECONDS
    async with contextlib.AsyncExitStack() as stack:
        with waiting_shown(load_system(home).queue_url(home)):
            services = await stack.enter_async_context(open_services(home, connect_timeout=timeout))
        yield services


@contextlib.contextmanager
def waiting_shown(url: str) -> Iterator[None]:
    """Say on the terminal which server is waited for, if this takes longer than a second."""
    from kingdom.bus.urls import server_place

    what = {"postgresql": "the database", "postgres": "the database", "kafka": "Kafka"}.get(url.partition(":")[0])
    if what is None or not sys.stderr.isatty():
        yield
        return
    # A thread: what opens a connection may hold up an event loop, or have none.
    timer = threading.Timer(_NOTICE_SECONDS, note, [f"waiting for {what} at {server_place(url)} …"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def with_store(home: Path | None, store: str | None, action: Callable[[WorkflowStore], Awaitable[T]]) -> T:
    """Run ``action`` with the workflow store, for commands that only read it."""
    place = find_workflow_home(home, store)

    async def run() -> T:
        async with open_workflow_store(place) as found:
            return await action(found)

    return run_async(run)


def with_workflows(home: Path | None, store: str | None, action: Callable[[WorkflowContext], Awaitable[T]]) -> T:
    """Run ``action`` with everything a use case needs: the workflow store, agents, git and files.

    If no engine runs, the events that it records are handled here.
    """
    place = find_workflow_home(home, store)

    async def run() -> T:
        from kingdom.workflow.own_events import own_events_handled

        async with open_workflow_context(place) as context, own_events_handled(context):
            return await action(context)

    return run_async(run)


def run_async(run: Callable[[], Awaitable[T]]) -> T:
    """Run a coroutine function, and report errors of all layers as a :class:`CommandError`."""
    from kingdom.base import interrupts

    async def awaited() -> T:
        return await run()

    with errors_reported():
        return interrupts.run(awaited())


# Homes


def find_home(home: Path | None) -> Home:
    """Return the home of the court: the one named by ``--home``, or the one :meth:`Home.find` finds."""
    from kingdom.court.errors import HomeNotFound
    from kingdom.court.home import MARKER, Home

    with errors_reported():
        if home is None:
            return Home.find()
        found = Home(home)
        if not found.exists:
            raise HomeNotFound(f"{found.root} is not the home of a court (it has no {MARKER}): run kingdom init {home}")
        return found


def find_workflow_home(home: Path | None, store: str | None) -> WorkflowHome:
    """Return the folder of the workflows.

    ``--home`` and ``KINGDOM_HOME`` may name any folder: ``workflows/`` is created in it. Without them it is the nearest
    folder, from the working directory up, that has workflows or is the home of a court; otherwise the user's own, if
    ``kingdom run`` has put workflows there.
    """
    folder = _named_folder(home) or _enclosing_folder(Path.cwd())
    if folder is None:
        raise CommandError(
            "NO_HOME",
            f"there are no workflows in {Path.cwd()} or above: name the folder to keep them in with --home DIR or "
            "KINGDOM_HOME, for example --home . for this one",
        )
    return _workflow_home(folder, store)


def find_or_create_workflow_home(home: Path | None, store: str | None) -> WorkflowHome:
    """Return the folder of the workflows; if there is none, create the user's own."""
    folder = _named_folder(home) or _enclosing_folder(Path.cwd()) or _users_folder()
    folder.mkdir(parents=True, exist_ok=True)
    return _workflow_home(folder, store)


def _workflow_home(folder: Path, store: str | None) -> WorkflowHome:
    from kingdom.homes import WORKFLOWS_FOLDER
    from kingdom.workflow.home import WorkflowHome

    return WorkflowHome(folder / WORKFLOWS_FOLDER, store)


def _users_folder() -> Path:
    """Return the folder for workflows of this user that belong to no home."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".local" / "share") / "kingdom"


def engines_of(place: WorkflowHome) -> Mapping[str, Engine | InProcessEngine]:
    """Return the engines that work on the workflows of a folder."""
    from kingdom import homes as places

    with errors_reported():
        return places.engines_of(place)


def sandbox_of(place: WorkflowHome) -> Sandbox:
    """Return the sandbox for the agents of a folder."""
    from kingdom import homes as places

    with errors_reported():
        return places.sandbox_of(place)


def git_settings_of(place: WorkflowHome) -> GitSettings:
    """Return who commits in a folder, and how its remotes are reached."""
    from kingdom import homes as places

    with errors_reported():
        return places.git_settings_of(place)


def user_name() -> str:
    """Return the name of the user who runs the command."""
    from kingdom.court import environment

    return environment.user_name()


def _named_folder(home: Path | None) -> Path | None:
    from kingdom.court.home import HOME_VARIABLE

    given = home if home is not None else Path(named) if (named := os.environ.get(HOME_VARIABLE)) else None
    if given is None:
        return None
    if not given.is_dir():
        raise CommandError("NO_HOME", f"{given} is not a folder: create it first (mkdir -p {given})")
    return given


def _enclosing_folder(start: Path) -> Path | None:
    from kingdom.homes import WORKFLOWS_FOLDER, is_court

    for folder in (start, *start.parents):
        if (folder / WORKFLOWS_FOLDER / "workflows.db").is_file() or is_court(folder):
            return folder
    own = _users_folder()
    return own if (own / WORKFLOWS_FOLDER).is_dir() else None  # its store may be elsewhere


# Workflow stores


@contextlib.asynccontextmanager
async def open_workflow_store(place: WorkflowHome) -> AsyncIterator[WorkflowStore]:
    """Open the store of a folder to read it, migrated if it is older. A folder without one is read as empty."""
    import tempfile

    from kingdom.workflow.store import open_store

    with tempfile.TemporaryDirectory() as empty:
        found = place if place.has_store else type(place)(Path(empty))  # reading creates nothing in the folder
        async with open_store(found.store, utc_now) as store:
            await store.setup()
            yield store


@contextlib.asynccontextmanager
async def open_workflow_context(place: WorkflowHome) -> AsyncIterator[WorkflowContext]:
    """Open the store of a folder with its agents, git and files."""
    from kingdom.homes import journal_of
    from kingdom.workflow.home import open_home

    with log_to(place.log):
        settings, journal = git_settings_of(place), journal_of(place)
        opened = open_home(place, engines_of(place), sandbox=sandbox_of(place), git=settings, journal=journal)
        async with opened as context:
            yield context


@contextlib.contextmanager
def log_to(path: Path) -> Iterator[None]:
    """Write log records to a file instead of the terminal: what matters of them is in the state and the events."""
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
    return datetime.now(UTC)


# Errors


@contextlib.contextmanager
def errors_reported() -> Iterator[None]:
    """Turn errors of the layers below into a :class:`CommandError`."""
    try:
        yield
    except Exception as error:
        found = _command_error(error)
        if found is None:
            raise
        raise found from error


def bus_error(error: BusError) -> CommandError:
    """Return the error of a command for an error of the bus; its code is the class name: ``NOT_SET_UP``."""
    return CommandError(re.sub(r"(?<!^)(?=[A-Z])", "_", type(error).__name__).upper(), str(error))


def _command_error(error: Exception) -> CommandError | None:
    """Return the error for the user, or None for a mistake of ours."""
    from kingdom.bus import BusError

    if isinstance(error, CommandError | ModuleNotFoundError):
        return None
    if isinstance(error, BusError):
        return bus_error(error)
    # An error comes from a layer that is loaded. Where only the bus is installed, the others cannot be imported.
    for module, name, code in _ERRORS_OF_LAYERS:
        layer = sys.modules.get(module)
        if layer is not None and isinstance(error, getattr(layer, name)):
            return CommandError(code or error.code, str(error))
    return None


_ERRORS_OF_LAYERS: Final = (  # module, its base of errors, and the code of those that carry none
    ("kingdom.agents.errors", "AgentsError", None),
    ("kingdom.base.yamlfile", "YamlProblem", None),
    ("kingdom.court.errors", "CourtError", None),
    ("kingdom.workflow.errors", "WorkflowError", None),
    ("kingdom.journal", "JournalError", "JOURNAL"),
    ("kingdom.gitops", "GitError", "GIT"),
)
