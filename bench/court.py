"""A court to measure: a home with generals that play a script, ``kingdom up`` on it, and what its processes use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from kingdom.base.inotify import SWITCH
from kingdom.court.home import Home
from kingdom.court.init_home import HomeChoices, SharedQueues, create_home
from kingdom.court.machines.joining import create_first_machine, join_court
from kingdom.court.machines.registry import Registry
from kingdom.court.machines.rights import Rights
from kingdom.court.queues import EVENTS
from kingdom.court.supervisor.record import running_supervisor

EVENT_TYPE: Final = "bench.work"
_SYSTEM: Final = "name: bench\nconcurrency:\n  max_soldiers: {soldiers}\n"
_KINGDOM: Final = (sys.executable, "-m", "kingdom")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def make_home(folder: Path, *, generals: int = 1, concurrency: int = 1, queues: str | None = None) -> Home:
    """Found a court; its generals end each task at once, the first of them takes the events of :func:`event`.

    ``queues``: the URL of a database for its queues.
    """
    home = asyncio.run(create_home(folder, generals=())).home
    system = _SYSTEM.format(soldiers=concurrency)
    if queues is not None:
        system += f"queue:\n  transport: '{queues}'\n"
    (home.config / "system.yaml").write_text(system)
    install_generals(home, generals, concurrency)
    return home


def make_machines(folder: Path, database: str, *, joined: bool, standby: bool, concurrency: int = 1) -> dict[str, Home]:
    """Found a court on several machines, with one general; returns their homes. It runs on a joined machine, if any."""
    return asyncio.run(_make_machines(folder, database, joined=joined, standby=standby, concurrency=concurrency))


async def _make_machines(
    folder: Path, database: str, *, joined: bool, standby: bool, concurrency: int
) -> dict[str, Home]:
    first = SharedQueues("seat", url=database, generals=() if joined else None)
    made = await create_first_machine(folder / "seat", first, HomeChoices(shared=first), (), force=False)
    homes = {"seat": made.home}
    (made.home.config / "system.yaml").write_text(_SYSTEM.format(soldiers=concurrency))
    install_generals(made.home, 1, concurrency)
    await Registry(database).publish_packages(made.home)
    if joined:
        url = await Rights(database).add("builder", None)
        assert url is not None
        url = url.replace(urlsplit(url).password or "", "")  # this server asks for none
        shared = SharedQueues("builder", url=url, joined=True)
        homes["builder"] = (await join_court(folder / "builder", shared, force=False))[0].home
    if standby:
        shared = SharedQueues("spare", url=database, generals=())
        homes["spare"] = (await join_court(folder / "spare", shared, force=False))[0].home
    return homes


def install_generals(home: Home, generals: int, concurrency: int) -> None:
    """Put generals into a home that end each task at once."""
    for number in range(generals):
        name = f"gen-{number}"
        manifest = {
            "name": name,
            "description": "ends at once",
            "engine": {"name": "scripted", "options": {"script": nothing_to_do()}},
            "subscribes": [EVENT_TYPE if number == 0 else f"{EVENT_TYPE}.{number}"],
            "concurrency": concurrency,
        }
        package = home.general(name)
        package.mkdir(parents=True)
        (package / "manifest.yaml").write_text(json.dumps(manifest))
        (package / "prompt.md").write_text("Do nothing about {{ task.id }}.\n")


def nothing_to_do() -> list[dict[str, Any]]:
    """The script of an agent that ends at once."""
    return [{"result": {"status": "success", "summary": "nothing to do"}}]


def event(number: int) -> dict[str, Any]:
    """An event document, as a sentinel or a script would drop it."""
    return {
        "id": f"evt-bench-{number:06d}",
        "type": EVENT_TYPE,
        "source": "bench",
        "repo": None,
        "payload": {"number": number, "title": f"piece of work number {number}"},
        "priority": "normal",
        "created_at": "2026-02-07T10:00:00Z",
        "status": "pending",
    }


def drop(home: Home, number: int) -> str:
    """Write an event file into ``pending/`` as somebody without the bus would; returns its id."""
    document = event(number)
    name = f"{document['id']}.json"
    hidden = home.queue / EVENTS / "pending" / f".{name}"
    hidden.write_text(json.dumps(document))
    hidden.rename(hidden.with_name(name))
    return str(document["id"])


def count(home: Home, stream: str, state: str) -> int:
    """How many documents lie in a state."""
    with os.scandir(home.queue / stream / state) as entries:
        return sum(entry.name.endswith(".json") and entry.name[0] != "." for entry in entries)


def pids(home: Home) -> dict[str, int]:
    """The processes of a court that is up, as its supervisor wrote them down, that of the supervisor too."""
    record = running_supervisor(home)
    if record is None:
        return {}
    roles = {name: role.process.pid for name, role in record.roles.items() if role.process is not None}
    return {**roles, "supervisor": record.supervisor.pid}


@contextlib.contextmanager
def up(home: Home, *options: str, notifications: bool = True) -> Iterator[dict[str, int]]:
    """A court that is up, every role of it at work; gives its processes, and stops them in the end."""
    environment = {**os.environ, "KINGDOM_HOME": str(home.root), SWITCH: "on" if notifications else "off"}
    subprocess.run([*_KINGDOM, "up", "--daemon", *options], env=environment, check=True, capture_output=True)
    try:
        wait_until(lambda: _all_at_work(home), 30.0, "signs of life of every role")
        yield pids(home)
    finally:
        subprocess.run([*_KINGDOM, "down"], env=environment, check=True, capture_output=True)


def wait_until(condition: Callable[[], object], seconds: float, what: str, every: float = 0.02) -> None:
    """Wait for a condition; raises ``TimeoutError`` when it does not come."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(every)


def _all_at_work(home: Home) -> bool:
    processes = pids(home)
    roles = [name for name in processes if name != "supervisor"]
    return bool(roles) and all(_beats(home, name, processes[name]) for name in roles)


def _beats(home: Home, name: str, pid: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return bool(json.loads(home.heartbeat(name).read_text())["pid"] == pid)
    return False


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mib(pid: int) -> float:
    """The most memory a process ever had in use, pages it shares with others included."""
    return _kib(f"/proc/{pid}/status", "VmHWM:") / 1024


def rss_mib(pid: int) -> float:
    """The memory a process has in use, pages it shares with others included."""
    return _kib(f"/proc/{pid}/smaps_rollup", "Rss:") / 1024


def pss_mib(pid: int) -> float:
    """The memory a process has in use, of pages shared by several its part only: these may be added up."""
    return _kib(f"/proc/{pid}/smaps_rollup", "Pss:") / 1024


def _kib(path: str, name: str) -> int:
    line = next(line for line in Path(path).read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])
