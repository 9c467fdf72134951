"""What a case gets: how much to measure, and where."""

from __future__ import annotations

import contextlib
import os
import platform
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, TypeVar

from bench.harness import Contestant, Outcome, race
from bench.peers import installed_versions

T = TypeVar("T")
Mode = Literal["quick", "default", "full"]
_PEER_PACKAGES = (
    "pgqueuer", "procrastinate", "psycopg", "persist-queue", "litequeue", "huey", "dirq", "dbos", "langgraph",
    "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "faststream", "faststream-outbox", "aiokafka",
    "oban", "github.com/riverqueue/river", "github.com/jackc/pgx/v5", "go.temporal.io/server", "go.temporal.io/sdk",
)  # fmt: skip
_PACKAGES = ("kingdom", "asyncpg", "confluent-kafka", *_PEER_PACKAGES)


@dataclass
class Context:
    """The settings of one run, its folder, and its servers (started when first asked for)."""

    mode: Mode
    reps: int
    folder: Path
    _closing: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _postgres: str | None = None
    _kafka: str | None = None

    def pick(self, quick: T, default: T, full: T | None = None) -> T:
        """The value for this run's mode."""
        if self.mode == "quick":
            return quick
        return full if self.mode == "full" and full is not None else default

    def race(self, *contestants: Contestant, reps: int | None = None) -> list[Outcome]:
        """Measure in turns, as often as this run repeats."""
        return race(contestants, reps or self.reps)

    def directory(self, name: str) -> Path:
        """A folder for one case. Nothing in it is deleted before the end of the run: deleting disturbs what follows."""
        path = self.folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def postgres(self) -> str:
        """The URL of the run's own server, with PostgreSQL's defaults (fsync on)."""
        if self._postgres is None:
            from tests.support.postgres import PostgresServer

            self._postgres = self._closing.enter_context(PostgresServer(self.folder / "postgres")).url
        return self._postgres

    @property
    def kafka(self) -> str:
        """The address of the run's own broker (``scripts/kafka-broker`` installs it)."""
        if self._kafka is None:
            from tests.support.kafka import KafkaBroker

            self._kafka = self._closing.enter_context(KafkaBroker(self.folder / "kafka")).servers
        return self._kafka

    def close(self) -> None:
        """Stop the servers."""
        self._closing.close()


def machine(context: Context, arguments: Sequence[str]) -> dict[str, Any]:
    """Where the figures come from."""
    return {
        "arguments": list(arguments),
        "mode": context.mode,
        "repetitions": context.reps,
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "filesystem": file_system(context.folder),
        "load": os.getloadavg()[0],
        "packages": _versions(),
    }


def file_system(folder: Path) -> str:
    """The kind of file system under ``folder``: on tmpfs an fsync costs nothing, and the figures mean little."""
    try:
        done = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    """The versions of what is measured: ours, and those of the peers, each of which has an environment of its own."""
    theirs = dict(installed_versions())
    found = {name: theirs.get(name) if name in _PEER_PACKAGES else _version(name) for name in _PACKAGES}
    return {name: version for name, version in found.items() if version}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
