"""What ``kingdom doctor`` looks at: everything that tends to be wrong with a court and the machine it lives on."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
from typing import TYPE_CHECKING, Final

from kingdom.bus import BusError, Check
from kingdom.court.bootstrap import engines_of
from kingdom.court.config.system import load_system
from kingdom.court.configured import check_files
from kingdom.court.documents import find_document
from kingdom.court.errors import CourtError
from kingdom.court.loop import Services
from kingdom.court.packages.checking import check_package
from kingdom.court.packages.loading import load_generals
from kingdom.court.queues import declare_queues, open_queues
from kingdom.court.soldiers import all_soldiers
from kingdom.court.supervisor.record import read_record
from kingdom.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from kingdom.court.config.system import SystemConfig
    from kingdom.court.home import Home

_ENOUGH: Final = 1 << 30  # bytes free below which work may soon fail
_TOO_LITTLE: Final = 100 << 20
_GIT_SECONDS: Final = 10.0


async def examine(home: Home, clock: Callable[[], float]) -> list[Check]:
    """Look at everything; what cannot be looked at is a finding too."""
    checks = [*_folders(home), _disk(home), await _git()]
    try:
        system = load_system(home)
        url = system.queue_url(home)
    except CourtError as error:
        return checks + [Check("config", "error", problem, "mend that line") for problem in str(error).split("\n")]
    checks.append(Check("config", "ok", "config/system.yaml can be used"))
    checks += check_files(home)
    checks += await _generals(home, system)
    checks += _processes(home)
    try:
        async with open_queues(url) as bus:
            await declare_queues(bus)
            checks += [check._replace(name=f"queues: {check.name}") for check in await bus.doctor()]
            checks += await _soldiers(Services(home, bus, Journal(home.journal), clock))
    except BusError as error:
        checks.append(Check("queues", "error", str(error)))
    return checks


def _folders(home: Home) -> list[Check]:
    found = []
    for folder in (home.queue, home.state, home.logs, home.memory, home.workspace, home.config):
        name = folder.name + "/"
        if not folder.is_dir():
            found.append(
                Check(name, "error", f"{folder} is missing", f"kingdom init {home.root} makes what is missing")
            )
        elif not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
            found.append(Check(name, "error", f"{folder} cannot be written by this user", "chown or chmod it"))
        elif folder.stat().st_mode & stat.S_IWOTH:
            hint = f"chmod o-w {folder}: whoever can write here can have agents run as you"
            found.append(Check(name, "error", f"{folder} can be written by anybody on this machine", hint))
    return found or [Check("folders", "ok", f"all folders of {home.root} are there and can be written")]


def _disk(home: Home) -> Check:
    free = shutil.disk_usage(home.root).free
    message = f"{free / (1 << 30):.1f} GiB free"
    if free < _TOO_LITTLE:
        return Check("disk", "error", message, "events and results cannot be written when it is full: make room")
    return Check("disk", "warning" if free < _ENOUGH else "ok", message, "make room before it is full")


async def _git() -> Check:
    path = shutil.which("git")
    if path is None:
        return Check("git", "error", "no git on the PATH", "install git: worktrees and evidence need it")
    process = await asyncio.create_subprocess_exec(
        path, "--version", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), _GIT_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()
        return Check("git", "error", f"{path} does not answer", "run it by hand to see why")
    return Check("git", "ok", f"{said.decode(errors='replace').strip()} ({path})")


async def _generals(home: Home, system: SystemConfig) -> list[Check]:
    engines = engines_of(system)
    generals = load_generals(home)
    found = []
    for name in sorted({*generals.by_name, *generals.broken}):
        problems = check_package(home.general(name), list(engines))
        found += [Check(f"general {name}", "error", problem) for problem in problems]
        if not problems:
            found.append(Check(f"general {name}", "ok", "its files are in order"))
    used = {general.manifest.engine.name for general in generals.by_name.values()}
    for name in sorted(used & set(engines)):
        state = await engines[name].examine()
        users = ", ".join(one for one, general in generals.by_name.items() if general.manifest.engine.name == name)
        if state.ok:
            version = " ".join(part for part in (state.version, f"({state.path})" if state.path else "") if part)
            found.append(Check(f"engine {name}", "ok", version or "always there"))
        else:
            found.append(Check(f"engine {name}", "error", state.problem or "cannot be used", f"used by {users}"))
    return found or [Check("generals", "warning", "no general is installed", "kingdom general install DIR")]


def _processes(home: Home) -> list[Check]:
    record = read_record(home)
    if record is None:
        return [Check("court", "ok", "not up")]
    if record.supervisor.alive:
        failed = [
            Check(f"role {name}", "error", f"died {role.deaths} times in a row: {role.reason}")
            for name, role in record.roles.items()
            if role.state == "failed"
        ]
        return [Check("court", "ok", f"up (pid {record.supervisor.pid})"), *failed]
    strays = [
        Check(
            f"role {name}",
            "error",
            f"runs on without its supervisor (pid {role.process.pid})",
            "kingdom up ends it and starts another",
        )
        for name, role in record.roles.items()
        if role.process is not None and role.process.alive
    ]
    return [Check("court", "ok", "not up"), *strays]


async def _soldiers(services: Services) -> list[Check]:
    """Soldiers whose task has ended: nobody will take their result."""
    found = []
    for soldier in all_soldiers(services.home):
        if not soldier.alive:
            continue
        task = await find_document(services, soldier.task_id)
        state = None if task is None else task.document.get("status")
        if state not in ("pending", "in_progress"):
            found.append(
                Check(
                    f"soldier {soldier.id}",
                    "warning",
                    f"runs (pid {soldier.pid}), but its task {soldier.task_id} is {state or 'gone'}",
                    "kingdom down --soldiers ends all soldiers",
                )
            )
    return found
