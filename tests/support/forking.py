"""Processes for tests that kill many of them: what they need is imported once, and each is a fork of that."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from typing import Any

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        "kingdom.court.envoy.slack.office",
        "tests.support.general_victim",
        "tests.support.gitops_victim",
        "tests.support.listener_process",
    ]
)


def fate(target: Callable[..., object], *arguments: Any, within: float = 60.0) -> int:
    """Call something in a process of its own; how that ended, as ``Process.exitcode``."""
    process = processes.Process(target=_with_environment, args=(dict(os.environ), target, *arguments))
    process.start()
    process.join(within)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
        raise TimeoutError(f"{target.__name__} took longer than {within:.0f} s")
    process.close()
    return code


def _with_environment(environment: dict[str, str], target: Callable[..., object], *arguments: Any) -> None:
    """The server that forks has the environment of its first caller."""
    os.environ.clear()
    os.environ.update(environment)
    target(*arguments)
