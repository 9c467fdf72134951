"""Processes in milliseconds: a zygote imports everything once and forks a fresh process for each life.

The zygote itself never opens a bus. ``python -m tests.chaos.zygote`` reads one JSON request per line and answers with
one JSON line; :class:`Zygote` is its other end.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.chaos.processes import ROOT, die_with_parent

_SET_PTRACER = 0x59616D61  # of prctl; -1 lets any process attach


class Ended(NamedTuple):
    """How a process ended and what it said."""

    code: int  # as subprocess has it: negative for a signal
    said: str
    errors: str


class Zygote:
    """Forks processes on request, one at a time. ``modules`` are imported beforehand."""

    def __init__(self, folder: Path, *modules: str) -> None:
        self._modules = modules
        self.said, self._errors = folder / "said", folder / "errors"

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.zygote", *self._modules],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self, call: str, *arguments: Any, attach: Callable[[int], None] | None = None, **patch: Any) -> Ended:
        """Run ``module:function`` with these arguments in a fresh process.

        Where the process stops itself (SIGSTOP), ``attach`` gets its pid before it goes on.
        """
        self._ask(call=call, arguments=arguments, out=str(self.said), err=str(self._errors), **patch)
        answer = self._answer()
        if "stopped" in answer:
            if attach:
                attach(answer["stopped"])
            self._ask(go=True)
            answer = self._answer()
        return Ended(answer["code"], self.said.read_text(), self._errors.read_text())

    def _ask(self, **request: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the zygote died"
        answer: dict[str, Any] = json.loads(line)
        return answer


def main() -> None:
    die_with_parent()
    for module in sys.argv[1:]:
        importlib.import_module(module)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(request)
        _, status = os.waitpid(pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            answers.write(json.dumps({"stopped": pid}) + "\n")
            sys.stdin.readline()
            os.kill(pid, signal.SIGCONT)
            _, status = os.waitpid(pid, 0)
        answers.write(json.dumps({"code": os.waitstatus_to_exitcode(status)}) + "\n")


def _become(request: dict[str, Any]) -> None:
    """The child: redirect output, make the call, end without a look back."""
    code = 1
    ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(-1))  # strace is no parent of ours
    try:
        for path, number in ((request["out"], 1), (request["err"], 2)):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
            os.dup2(handle, number)
            os.close(handle)
        if "stop" in request:
            from tests.chaos.stopper import install

            install(request["stop"], request["when"])
        module, _, name = request["call"].partition(":")
        result = getattr(importlib.import_module(module), name)(*request["arguments"])
        if result is not None:
            os.writev(1, [json.dumps(result).encode()])
        code = 0
    except BaseException:  # noqa: BLE001 - the child must end here, whatever happened
        os.writev(2, [traceback.format_exc().encode()])
    os._exit(code)


if __name__ == "__main__":
    main()
