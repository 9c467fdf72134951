"""The oldest version whose files and stores this one promises to read, run from its own sources."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import environment
from tests.support.pages import ROOT

TAG = "v0.1.0"
BASELINE = "a5d2d451e7601dad95c55d5d2294db77a3f3c51f"
"""The commit that stands for the release until it is tagged: the last one with version 7 of the workflow store, and
without the migration ``006_relay`` of the bus on PostgreSQL."""


def earlier_commit() -> str | None:
    """Return the tag if there is one, else the baseline; None if this checkout does not have it."""
    for name in (TAG, BASELINE):
        found = subprocess.run(
            ["git", "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode == 0:
            return found.stdout.strip()
    return None


class Earlier:
    """The earlier version: its command, and programs that import it."""

    def __init__(self, sources: Path) -> None:
        self._sources = sources

    def kingdom(self, *arguments: str, **extra: str) -> str:
        """Run its command, which must succeed; return what it prints."""
        return self._run(["-m", "kingdom", *arguments], extra)

    def python(self, program: str, *arguments: str) -> str:
        """Run a program that imports it; return what it prints."""
        return self._run(["-c", program, *arguments], {})

    @contextlib.contextmanager
    def up(self, home: Path) -> Iterator[None]:
        """Have its court at work in the block."""
        with (home / "up-earlier.txt").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "kingdom", "up"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment({"KINGDOM_HOME": str(home)}),
                start_new_session=True,
            )
        with process:
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=60)

    def _run(self, words: list[str], extra: dict[str, str]) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment(extra),
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _environment(self, extra: dict[str, str]) -> dict[str, str]:
        # Its web server would need what this version declares to be installed, and has no part in the test.
        return environment(**extra, PYTHONPATH=str(self._sources), PYTHONSAFEPATH="1", KINGDOM_WEB="off")


def earlier_version(folder: Path) -> Earlier:
    """Unpack the earlier version into a folder. Skips the test, with the reason, where the history lacks it."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout: the earlier version is taken from the history")
    commit = earlier_commit()
    if commit is None:
        pytest.skip(f"this checkout has neither {TAG} nor {BASELINE[:10]}: fetch the whole history (fetch-depth: 0)")
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    made = Earlier(folder / "src")
    where = made.python("import kingdom; print(kingdom.__file__)").strip()
    assert Path(where).is_relative_to(folder), f"{where} is not the earlier version"
    return made
