"""Processes for tests that kill many of them: what they need is imported once, and each is a fork of that."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing import reduction
from multiprocessing.forkserver import ensure_running
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_processes = multiprocessing.get_context("forkserver")
PRELOADED = [
    "kingdom.court.envoy.slack",
    "tests.support.cell_victim",
    "tests.support.cells",
    "tests.support.cli_process",
    "tests.support.general_victim",
    "tests.support.gitops_victim",
    "tests.support.listener_process",
    "tests.support.mirror_victim",
    "tests.support.move_victim",
    "tests.support.relay_victim",
]


class Given:
    """An open file that a forked process gets, too: an argument here, there a number of its own."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __reduce__(self) -> tuple[Callable[..., int], tuple[object]]:
        return _given, (reduction.DupFd(self._number),)


def _given(sent: Any) -> int:
    return int(sent.detach())


def forked(
    target: Callable[..., object],
    *arguments: Any,
    daemon: bool = False,
    environment: Mapping[str, str] = os.environ,
) -> BaseProcess:
    """Call something in a process of its own, which runs by now."""
    have_server()
    given = (dict(environment), target, *arguments)
    process = _processes.Process(target=_with_environment, args=given, daemon=daemon)
    process.start()
    return process


def fate(
    target: Callable[..., object],
    *arguments: Any,
    within: float = 110.0,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Call something in a process of its own; how that ended, as ``Process.exitcode``."""
    process = forked(target, *arguments, environment=environment)
    process.join(within)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise TimeoutError(f"{target.__name__} took longer than {within:.0f} s")
    process.close()
    return code


def have_server() -> None:
    """Start the process that is forked, if it does not run: there is one, for everybody who asks in this process.

    It finds what it is to import by its environment only, not by where we found it. What it is to import is said here,
    because the benchmarks say it on import, for the same server.
    """
    _processes.set_forkserver_preload(PRELOADED)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before]))
    try:
        ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _with_environment(environment: dict[str, str], target: Callable[..., object], *arguments: Any) -> None:
    """The server that forks has the environment of its first caller."""
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)
