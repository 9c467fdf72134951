"""Stopping or failing a process at one chosen system call, with strace."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)")


class Call(NamedTuple):
    """One traced system call."""

    thread: int
    name: str
    text: str  # its arguments and result as strace shows them, descriptors with their paths
    injected: bool
    began: int = 0  # the line of the trace it began on
    ended: int = 0  # and the one it ended on


@cache
def available() -> bool:
    """Whether strace is installed and may trace processes here (containers often forbid it)."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-e", "trace=none", "true"], capture_output=True, check=False).returncode == 0


class Strace:
    """Follows one process (and its threads) from the moment it is attached."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._process: subprocess.Popen[str] | None = None

    def attach(self, pid: int, calls: Sequence[str], inject: str | None = None, paths: Sequence[str] = ()) -> None:
        """Follow ``calls`` of the process, or only those that concern ``paths``.

        ``inject`` is an expression such as ``write:signal=KILL:when=3``; calls are counted per thread, from now on.
        """
        command = ["strace", "-f", "-y", "-s", "120", "-p", str(pid), "-o", str(self._output)]
        command += ["-e", f"trace={','.join(calls)}", "-e", "signal=none"]
        command += [part for path in paths for part in ("-P", path)]
        if inject:
            command += [f"--inject={inject}"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self._process.stderr
        line = self._process.stderr.readline()
        if "attached" not in line:
            self._process.kill()
            raise RuntimeError(f"strace could not attach: {line}{self._process.communicate()[1]}")

    def finish(self) -> list[Call]:
        """The calls that were made, once the process has ended."""
        assert self._process is not None
        self._process.communicate(timeout=30)
        return read_trace(self._output)


def read_trace(path: Path) -> list[Call]:
    """The calls in what ``strace -f -o`` has written."""
    calls: list[Call] = []
    begun: dict[int, int] = {}  # thread → index of a call whose end stands on a later line
    for number, line in enumerate(path.read_text(errors="replace").splitlines()):
        if not (match := _LINE.match(line)):
            continue
        thread, name, text = int(match.group(1)), match.group(2), match.group(3)
        injected = "(INJECTED)" in text
        if f"<... {name} resumed>" in line:
            index = begun.pop(thread)
            first = calls[index]
            calls[index] = first._replace(text=first.text + text, injected=injected, ended=number)
            continue
        if text.endswith("<unfinished ...>"):
            begun[thread] = len(calls)
        calls.append(Call(thread, name, text, injected, number, number))
    return calls
