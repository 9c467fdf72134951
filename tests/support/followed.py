"""Pages that are followed to the letter: files written, commands given to a shell, real courts started and stopped."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.support.pages import Block, blocks, same

DAY = "20260207"  # the day on which it is in the pages
PATIENCE = 30.0  # seconds until what a page says must be so
_EVERY = 0.2
# These only look, and what they see may take a moment to come true.
LOOKING = ("kingdom status", "kingdom task ls", "kingdom task show", "kingdom trace", "kingdom logs", "cat ", "ls ")


class Shell:
    """The shell of somebody who follows a page."""

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        """Start in a folder, with the programs of an environment; without one, those of the one that runs this."""
        self._start = self._folder = folder
        path = f"{programs or Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ours = ("KINGDOM_",) if programs is None else ("KINGDOM_", "PYTHON")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self._environment = {**kept, "PATH": path, "NO_COLOR": "1", "TZ": "UTC", "KINGDOM_WEB": "off"}

    def write(self, name: str, text: str) -> None:
        path = self._start / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def follow_page(self, page: Path) -> list[Path]:
        """Do all that a page says, and stop what it started; return the homes of its courts."""
        try:
            for block in blocks(page):
                if block.mark == "follow":
                    self.follow(block)
                elif block.mark.startswith("file:"):
                    self.write(block.mark.partition(":")[2].strip(), block.text)
        finally:
            homes = [path.parent.parent for path in self._start.glob("**/config/system.yaml")]
            for home in homes:
                self.run(f"kingdom down --soldiers --home {home}")
        return homes

    def follow(self, block: Block) -> None:
        for command, output in block.commands:
            self._give(block, command, "\n".join(output))

    def _give(self, block: Block, command: str, expected: str) -> None:
        words = command.split()
        if words[0] == "cd":
            self._folder /= words[1]
            return
        end = time.monotonic() + (PATIENCE if command.startswith(LOOKING) else 0.0)
        while True:
            day = self._day()
            code, printed = self.run(command.replace(DAY, day))
            right = code == (1 if expected.startswith("error:") else 0)
            right = right and (not expected.strip() or same(expected.replace(DAY, day), printed))
            if right or time.monotonic() >= end:
                break
            time.sleep(_EVERY)
        assert right, f"{block.place}: {command} ended with {code} and printed\n{printed}"

    def run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        return done.returncode, done.stdout

    def _day(self) -> str:
        """The day that the ids of tasks bear: that of the last one, or today."""
        sequence = self._folder / "state" / "king" / "task-seq"
        return sequence.read_text()[:8] if sequence.exists() else datetime.now(UTC).strftime("%Y%m%d")
