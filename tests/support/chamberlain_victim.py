"""A chamberlain that is killed before each of its file operations in turn, and its successor.

``python -m tests.support.chamberlain_victim FOLDER`` makes a home in which a report, a rotation, a cleaning and an
alert are due, and for n = 1, 2, … has a copy of it looked after by a process that dies before its n-th operation, then
by one that lives. Prints one JSON line for each n: the operation, and what was found in the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kingdom.court.chamberlain import retention
from kingdom.journal import Reader
from tests.support.chamberlains import START, Watched

OPERATIONS = ("open", "write", "rename", "replace", "unlink", "fsync", "mkdir")
DAY = 86400.0
LINES = 300
EXPIRED = 4


class Deadly:
    """Counts the operations of this process and ends it before one of them, as SIGKILL would."""

    def __init__(self, step: int, told: int) -> None:
        self._left = step
        self._told = told

    def install(self) -> None:
        for name in OPERATIONS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        retention.shutil.rmtree = self._counted("rmtree", shutil.rmtree)  # type: ignore[assignment]

    def _counted(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if name != "open" or (len(args) > 1 and args[1] & (os.O_WRONLY | os.O_RDWR)):
                self._left -= 1
            if self._left == 0:
                os.pwrite(self._told, f"{name} {args[0]}".encode(), 0)
                os._exit(9)
            return original(*args, **options)

        return call


def prepare(folder: Path) -> float:
    """A home as it is on the morning of the next day, when everything is due at once."""

    async def first_day() -> float:
        async with Watched(folder).open() as court:
            await court.tick()
            for number in range(LINES):
                court.emit("task.started", "gen-pr", task_id=f"t{number}")
            court.now += DAY
            for number in range(EXPIRED):
                court.old(f"state/prompts/task-20260101-{number:03d}.md", 3.1)
                court.old(f"state/prompts/task-20260102-{number:03d}.md", 2.9)
            court.old("logs/system.log", 0, "x" * 2_000_000)
            court.configure("retention: {log_max_mb: 1}")
            return court.now

    return asyncio.run(first_day())


def look_after(folder: Path, now: float, looks: int) -> None:
    """A chamberlain for some looks."""

    async def run() -> None:
        court = Watched(folder)
        court.now = now
        court.machine.memory = 99.0
        async with court.open():
            for _ in range(looks):
                await court.tick(30)

    asyncio.run(run())


def forked(action: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def found(folder: Path) -> dict[str, Any]:
    """What is there in the end."""
    court = Watched(folder)
    names = [name for name in os.listdir(court.home.prompts) if not name.startswith(".")]
    memory = json.loads((court.home.role("chamberlain") / "memory.json").read_text())
    days = memory["tally"]["days"].values()
    with Reader(court.home.journal) as reader:
        lines = [entry.fields["task_id"] for entry in reader.read() if entry.type == "task.started"]
    messages = court.messages()
    return {
        "lines": lines == [f"t{number}" for number in range(LINES)],
        "counted": sum(day["types"].get("task.started", 0) for day in days),
        "reports": [item["context"]["report"]["date"] for item in messages if item["type"] == "report"],
        "alerts": court.alerts(),
        "report_files": sorted(path.name for path in (court.home.logs / "analysis").glob("report-*")),
        "expired_left": sum("20260101" in name for name in names),
        "kept": sum("20260102" in name for name in names),
        "old_log": sorted(path.name for path in court.home.logs.glob("system.log*")),
        "closed": len(list(court.home.logs.glob("events-*.log"))),
    }


def main(folder: Path) -> None:
    """Every point, until the victim comes to its end."""
    template = folder / "template"
    now = START + DAY
    assert forked(lambda: None if prepare(template) == now else os._exit(3)) == 0
    told = os.open(folder / "told", os.O_RDWR | os.O_CREAT, 0o600)
    step, code = 0, 9
    while code == 9:
        step += 1
        copy = folder / "copy"
        shutil.copytree(template, copy)
        os.ftruncate(told, 0)

        def victim(step: int = step, copy: Path = copy) -> None:
            Deadly(step, told).install()
            look_after(copy, now, 1)

        code = forked(victim)
        assert code in (0, 9), f"the victim failed by itself at {step}"
        assert forked(lambda copy=copy: look_after(copy, now + 600, 1)) == 0, f"the successor failed after {step}"
        operation = os.pread(told, 400, 0).decode().replace(str(copy), "")
        print(json.dumps({"step": step, "killed": code == 9, "operation": operation, **found(copy)}), flush=True)
        shutil.rmtree(copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
