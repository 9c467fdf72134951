"""The ``kingdom`` command in a fork of a process that has imported what commands need.

Importing this module imports all that; it is for the process that is forked.
"""

from __future__ import annotations

import fcntl
import gc
import io
import os
import pkgutil
import runpy
import sys
import termios
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import asyncpg  # noqa: F401 - imported for the forks
import httpx  # noqa: F401
import rich.console
import rich.live
import rich.table  # noqa: F401
from pydantic import BaseModel

import kingdom.cli.app
import kingdom.cli.session
import kingdom.workflow.context  # noqa: F401
from kingdom.cli import main

_PACKAGES = (
    "kingdom.bus.transports.files",
    "kingdom.bus.transports.postgresql",
    "kingdom.bus.transports.sqlite",
    "kingdom.cli.bus",
    "kingdom.cli.court",
    "kingdom.cli.workflow",
    "kingdom.court",
)


def _deferred(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for part in model.__subclasses__():
        yield from _deferred(part)
        if not part.__pydantic_complete__:
            yield part


for _package in map(import_module, _PACKAGES):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        import_module(_module.name)
for _model in _deferred(BaseModel):  # those that are built when they are first used: each fork would do it
    _model.model_rebuild()
gc.freeze()  # the collector of a fork would copy all this


def run(folder: Path, working: str, arguments: list[str]) -> None:
    """Run a command whose output goes into two files."""
    _begin(_new_file(folder / "out"), _new_file(folder / "err"), working, arguments)


def run_apart(output: int, working: str, arguments: list[str]) -> None:
    """Run a command in a session of its own, on a terminal if that is where it is to print."""
    os.setsid()
    terminal = os.isatty(output)
    if terminal:
        fcntl.ioctl(output, termios.TIOCSCTTY, 0)
    _begin(output, os.dup(output), working, arguments, os.dup(output) if terminal else None)


def run_script(folder: Path, working: str, script: str, arguments: list[str]) -> None:
    """Run a Python script whose output goes into two files."""
    _stream(_new_file(folder / "out"), _new_file(folder / "err"), working, None)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


def _begin(out: int, err: int, working: str, arguments: list[str], typed: int | None = None) -> None:
    _stream(out, err, working, typed)
    sys.argv = ["kingdom", *arguments]
    main()


def _stream(out: int, err: int, working: str, typed: int | None) -> None:
    os.chdir(working)
    for number, source in ((0, os.open(os.devnull, os.O_RDONLY) if typed is None else typed), (1, out), (2, err)):
        os.dup2(source, number)
        os.close(source)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process lives
    lines = os.isatty(1)
    sys.stdout = io.TextIOWrapper(open(1, "wb", closefd=False), encoding="utf-8", line_buffering=lines)  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(  # as Python makes it
        open(2, "wb", closefd=False), encoding="utf-8", errors="backslashreplace", line_buffering=True  # noqa: SIM115
    )  # fmt: skip


def _new_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
