"""Composition root of a court: home, configuration, queues, journal, roles.

Modules that only one role needs are imported when that role is made, so that a process loads only its own. Roles that
depend on more than the court, such as the web server, are found by the entry point group :data:`ROLES_GROUP`. Each
entry point names a function that makes the role from :class:`~kingdom.court.loop.Services`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import sys
import time
from functools import lru_cache
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import TYPE_CHECKING, Final

from kingdom.base.installation import install_command
from kingdom.bus.transport import CONNECT_SECONDS
from kingdom.court.config import load_system
from kingdom.court.errors import CourtError, InvalidConfig
from kingdom.court.loop import LINK, Services
from kingdom.court.machines.capacity import load_machine
from kingdom.court.queues import declare_queues, open_queues
from kingdom.journal import Journal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from kingdom.agents.engine import Engine, InProcessEngine
    from kingdom.agents.sandbox.sandbox import Sandbox
    from kingdom.court.config import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.loop import LeadCheck, Role

# The fixed roles in the order in which they stop: first the one that brings in work, then the one that dispatches it.
# The generals stop between king and envoy, so that the envoy still sends their last reports.
FIXED_ROLES: Final = ("sentinel", "king", "envoy", "chamberlain")
_ROLES_BEFORE_GENERALS: Final = 2
_ROLE_MODULES: Final = {
    "sentinel": "kingdom.court.sentinel",
    "king": "kingdom.court.king.king",
    "envoy": "kingdom.court.envoy.role",
    "chamberlain": "kingdom.court.chamberlain",
}
ROLES_GROUP: Final = "kingdom.court.roles"
_OFF_VALUES: Final = ("off", "no", "false", "0")


class UnknownRole(CourtError):
    """There is no role of this name."""

    code = "UNKNOWN_ROLE"


@contextlib.asynccontextmanager
async def open_services(
    home: Home, clock: Callable[[], float] = time.time, *, connect_timeout: float = CONNECT_SECONDS
) -> AsyncIterator[Services]:
    """Open the services that every role gets, and declare the queues. Close the services on exit."""
    system = load_system(home)
    url = system.queue_url(home)
    home.logs.mkdir(parents=True, exist_ok=True)
    journal = Journal(home.journal, clock)
    try:
        async with open_queues(url, connect_timeout) as bus, _lead_check(home, url, system) as lead:
            await declare_queues(bus)
            yield Services(home, bus, journal, clock, lead)
    finally:
        journal.close()


@contextlib.asynccontextmanager
async def _lead_check(home: Home, url: str, system: SystemConfig) -> AsyncIterator[LeadCheck | None]:
    if system.machine is None or system.machine.joined:
        yield None
        return
    from kingdom.court.machines.guard import LeadGuard

    guard = LeadGuard(home, url, system.machine.name)
    try:
        yield guard
    finally:
        await guard.close()


def available_roles(home: Home | None = None) -> list[str]:
    """Return the installed roles that are not generals; with a ``home``, only those that it does not disable.

    A plugin role is disabled by ``enabled: false`` in its section of ``config/system.yaml``, or by an environment
    variable such as ``KINGDOM_WEB=off``.
    """
    fixed = [name for name in FIXED_ROLES if _module_exists(_ROLE_MODULES[name])]
    further = sorted(_plugin_roles())
    if home is None:
        return fixed + further
    machine = load_machine(home)
    if machine is not None and machine.joined:
        return [LINK]
    linked = [] if machine is None else [LINK]
    return fixed + linked + [name for name in further if _is_enabled(name, home)]


@lru_cache(maxsize=1)
def _plugin_roles() -> dict[str, EntryPoint]:
    found = entry_points(group=ROLES_GROUP)
    return {point.name: point for point in found if point.name not in FIXED_ROLES and _extras_installed(point)}


def _extras_installed(point: EntryPoint) -> bool:
    """Return whether the extras that an entry point names, as in ``module:attribute [web]``, are installed."""
    requires = (point.dist.requires or ()) if point.extras and point.dist is not None else ()
    for requirement in requires:
        package, _, marker = requirement.partition(";")
        if any(re.search(rf"""extra == ['"]{extra}['"]""", marker) for extra in point.extras):
            try:
                distribution(re.split(r"[^\w.-]", package.strip(), maxsplit=1)[0])
            except PackageNotFoundError:
                return False
    return True


def _is_enabled(name: str, home: Home) -> bool:
    if os.environ.get(f"KINGDOM_{name.upper()}", "").lower() in _OFF_VALUES:
        return False
    section = getattr(load_system(home), name, None)
    return bool(getattr(section, "enabled", True))


def _module_exists(module: str) -> bool:
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # its package is missing too
        return False
    return found is not None and found.origin is not None  # a folder without code has no origin


def stop_order(name: str) -> int:
    """Return the position of a role in the stop order: lower numbers stop first."""
    if name in _plugin_roles():
        return 0
    if name == LINK:  # the last: it reports what the others did
        return len(FIXED_ROLES) + 1
    if name not in FIXED_ROLES:
        return _ROLES_BEFORE_GENERALS
    place = FIXED_ROLES.index(name)
    return place if place < _ROLES_BEFORE_GENERALS else place + 1


def make_role(name: str, services: Services, *, foreground: bool = False) -> Role:
    """Make a role by its name: one of :func:`available_roles`, or an installed general.

    With ``foreground`` the envoy reads typed answers from the terminal. Raises :class:`UnknownRole` when there is no
    such role, and :class:`~kingdom.court.errors.InvalidConfig` when its configuration is invalid.
    """
    system = load_system(services.home)
    if name == "king":
        return _make_king(services, system)
    if name == "envoy":
        return _make_envoy(services, system, foreground=foreground)
    if name == LINK and system.machine is not None:
        from kingdom.court.machines.role import Link

        return Link(services, system.queue_url(services.home), system.machine)
    if (further := _plugin_roles().get(name)) is not None:
        made: Role = further.load()(services)
        return made
    if name not in FIXED_ROLES:
        return _make_general(name, services, system)
    if name not in available_roles():
        raise UnknownRole(f"this version has no {name}: its roles are {', '.join(available_roles())} and the generals")
    role: Role = importlib.import_module(_ROLE_MODULES[name]).make(services)
    return role


def preload_modules() -> None:
    """Import the modules of the roles in a process that will fork them, so that they share the memory."""
    fixed = [module for module in _ROLE_MODULES.values() if _module_exists(module)]
    for module in ("kingdom.bus.transports.files", "kingdom.court.general", *fixed):
        importlib.import_module(module)


def _make_king(services: Services, system: SystemConfig) -> Role:
    from kingdom.court.budget import Budget
    from kingdom.court.king.king import King
    from kingdom.court.packages.disabled import DisabledGenerals
    from kingdom.court.packages.installed import GeneralsCache

    generals = GeneralsCache(services.home)
    budget = Budget(services.home, system, lambda: generals.latest().by_name)  # as the king's tick found them
    return King(services, system, load_generals=generals.current, gates=[DisabledGenerals(services.home), budget])


def _make_envoy(services: Services, system: SystemConfig, *, foreground: bool) -> Role:
    from kingdom.court.envoy.config import load_envoy, slack_tokens
    from kingdom.court.envoy.console import ConsoleListener, ConsoleSender
    from kingdom.court.envoy.role import Envoy

    config = load_envoy(services.home)
    console = ConsoleSender(services.home, shown=sys.stdout.isatty())
    typed = [ConsoleListener(services)] if foreground else []
    tokens = slack_tokens(config.slack)
    if tokens is None:
        return Envoy(services, console, *typed)
    try:
        from kingdom.court.envoy.slack import SLACK_RETRY_POLICY, open_slack
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            f"Slack needs the package {error.name}, which is missing: {install_command('court')}"
        ) from None
    from kingdom.court.envoy.port import MultiListener, MultiSender

    voice, ears = open_slack(services, config.slack, system, tokens)
    both = MultiSender(voice, console) if config.console else voice
    return Envoy(services, both, MultiListener(ears, *typed), retries=SLACK_RETRY_POLICY)


def _make_general(name: str, services: Services, system: SystemConfig) -> Role:
    from kingdom.court.packages.installed import load_generals

    generals = load_generals(services.home)
    if name in generals.broken:
        raise InvalidConfig("\n".join(generals.problems))
    if name not in generals.by_name:
        known = ", ".join((*available_roles(), *generals.by_name))
        raise UnknownRole(f"no role {name!r:.80} here: there are {known} (kingdom general ls shows the generals)")
    from kingdom.agents.hosts import ProcessHost, TmuxHost
    from kingdom.agents.runner import Runner
    from kingdom.agents.sandbox.refusals import refusals_to
    from kingdom.court.general import General
    from kingdom.court.general.context import GeneralDeps
    from kingdom.journal.catalog import general_actor

    home = services.home
    sandbox = configured_sandbox(system)
    agents = Runner(
        soldiers=home.soldiers,
        sessions=home.sessions,
        ledger=home.ledger,
        engines=configured_engines(system),
        host=TmuxHost() if system.host == "tmux" else ProcessHost(),
        clock=services.clock,
        sandbox=sandbox,
        on_refusal=refusals_to(services.journal, general_actor(name)),
        git_identity=system.git.settings().agents_identity,
    )
    return General(services, generals.by_name[name], system, agents, GeneralDeps(sandbox=sandbox))


def configured_sandbox(system: SystemConfig) -> Sandbox:
    """Return the sandbox with its settings from ``system.yaml``."""
    from kingdom.agents.sandbox.sandbox import Sandbox

    return Sandbox.read(system.sandbox.model_dump())


def configured_engines(system: SystemConfig) -> Mapping[str, Engine | InProcessEngine]:
    """Return the engines with their settings from ``system.yaml``."""
    from kingdom.agents.engines import default_engines

    return default_engines({name: section.model_dump() for name, section in system.engines.items()})
