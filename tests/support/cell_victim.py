"""A daemon with one confined run. It, its shim or the shim's child is killed at a chosen point.

:func:`run` is for a process of its own. A point is right before a file is written, moved or removed, a process is
started or signalled, and a socket is made, bound, connected or accepted, in the process that ``WHO`` names: ``daemon``,
``shim``, or ``child``, which makes the namespaces and then executes the program. Each point adds a line to
``ROOT/points``. As the program of a shim: ``python cell_victim.py SPEC``.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

_NAMES = ("os.", "socket.", "subprocess.", "signal.", "fcntl.", "resource.", "ctypes.call_function")
_SETTINGS = ("os.listdir", "os.scandir", "os.putenv", "os.unsetenv", "os.walk", "os.fwalk")


def arm(folder: Path, point: int, *, child: bool) -> None:
    """Kill this process, or the children that it forks, at a point."""
    points = folder / "points"  # opened each time: the shim closes what it inherits
    armed, counted, counting = os.getpid(), 0, False

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal counted, counting
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if counting or (not writes and (not event.startswith(_NAMES) or event in _SETTINGS)):
            return
        if (os.getpid() != armed) != child:
            return
        counted += 1
        counting = True
        with points.open("a") as file:
            file.write(f"{event}\n")
        if counted == point:
            os.kill(os.getpid(), signal.SIGKILL)
        counting = False

    sys.addaudithook(watch)


def run(root: Path, port: int, who: str, point: int) -> None:
    """Run a command that asks its model, and wait for its end."""
    asyncio.run(_run(root, port, who, point))


async def _run(root: Path, port: int, who: str, point: int) -> None:
    from kingdom.agents import hosts
    from kingdom.agents.errors import StartFailed
    from tests.support.cells import ModelEngine, ask, bare_order, bare_runner

    if who == "daemon":
        arm(root, point, child=False)
    else:
        (root / "armed").write_text(f"{who} {point}")
        hosts.SHIM_COMMAND = (sys.executable, "-I", "-S", __file__)  # type: ignore[misc]
    runner = bare_runner(root, ModelEngine(port))
    script = ask(100) + 'echo \'{"status": "success"}\' > $KINGDOM_RESULT_PATH'
    try:
        running = await runner.start(bare_order(root, script))
    except StartFailed:
        if who == "daemon":
            raise
        sys.exit(1)  # its shim was killed: no reason for a traceback
    await running.wait()
    await runner.close()


if __name__ == "__main__":
    place = Path(sys.argv[1]).parents[2]
    whom, when = (place / "armed").read_text().split()
    sys.path.append(str(Path(__file__).resolve().parents[2] / "src"))
    arm(place, int(when), child=whom == "child")
    from kingdom.agents.shim import main

    sys.exit(main())
