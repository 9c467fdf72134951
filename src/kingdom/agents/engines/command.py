"""Any program that follows the result contract (:mod:`kingdom.agents.contract`).

``options["argv"]`` is its argument list, never a shell string. An argument equal to ``{prompt_path}``,
``{result_path}`` or ``{cwd}`` is replaced as a whole, so a path never becomes two arguments. The prompt is also on
standard input. Each line of output becomes a ``Text`` event. The exit code decides about success.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kingdom.agents.engine import Confinement, Examined, Launch
from kingdom.agents.engines.programs import CliSettings
from kingdom.agents.errors import EngineNotInstalled, InvalidOrder
from kingdom.agents.port import AgentEvent, Order, Text

_SHALLOW: Final = 3  # "/", "srv" and a name: a folder so near the root has more than one program's files


class CommandEngine:
    """Runs the program that an order names."""

    name = "command"
    exit_code_decides = True

    def __init__(self, settings: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._settings = settings or {}
        self._environ = os.environ if environ is None else environ

    def launch(self, order: Order) -> Launch:
        """Return the order's ``argv`` with its placeholders replaced."""
        argv = order.options.get("argv", self._settings.get("argv"))
        if not isinstance(argv, Sequence) or isinstance(argv, str) or not argv or not all(map(_is_text, argv)):
            raise InvalidOrder(
                f"engine command, task {order.task_id}: options.argv must be a list of arguments, "
                f'such as ["python3", "job.py", "{{prompt_path}}"], not {argv!r:.80}'
            )
        filled = {"{result_path}": str(order.result_path), "{cwd}": str(order.cwd)}
        program = _find(argv[0], order.cwd)
        arguments = [filled.get(str(argument), str(argument)) for argument in argv[1:]]
        settings = CliSettings.read(self.name, self._settings)
        passed = {name: self._environ[name] for name in settings.pass_env if name in self._environ}
        return Launch(
            (program, *arguments), env={**passed, **settings.env}, stdin=order.prompt.encode("utf-8", "replace")
        )

    def reader(self, order: Order) -> CommandReader:
        """Return a reader for the output of one run."""
        return CommandReader()

    def confinement(self, order: Order) -> Confinement:
        """Return what it needs in a sandbox: the files that its arguments name, and the folder of a script."""
        given = [Path(argument) for argument in self.launch(order).argv]
        named = [path for path in given if path.is_absolute() and path.exists()]
        private = (Path(self._environ.get("HOME") or "/"), order.cwd, order.result_path)
        folders = {path.parent for path in named if path.is_file() and len(path.parent.parts) > _SHALLOW}
        narrow = [folder for folder in folders if not any(path.is_relative_to(folder) for path in private)]
        return Confinement(read=(*named, *narrow))

    async def examine(self) -> Examined:
        """Return ok: only an order names the program."""
        return Examined(ok=True)


class CommandReader:
    """Turns each line of output into a ``Text`` event."""

    def feed(self, line: bytes) -> Sequence[AgentEvent]:
        """Return the line as text."""
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        return (Text(text),) if text.strip() else ()


def _is_text(argument: object) -> bool:
    return isinstance(argument, str) and "\0" not in argument


def _find(program: str, cwd: Path) -> str:
    if os.sep in program:
        found = Path(cwd, program)
        if found.is_file() and os.access(found, os.X_OK):
            return str(found)
        raise EngineNotInstalled(f"engine command: {found} is not an executable file")
    found_on_path = shutil.which(program)
    if found_on_path is None:
        raise EngineNotInstalled(
            f"engine command: there is no program {program!r} on the PATH: install it or give its path"
        )
    return found_on_path
