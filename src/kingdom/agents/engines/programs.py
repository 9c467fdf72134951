"""Shared by engines with a program: find it, read its settings, and parse its output.

The output of a program may be anything, so the parsing functions never raise because of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import Examined
from kingdom.agents.errors import EngineNotInstalled, InvalidOrder
from kingdom.base.files import open_untrusted

if TYPE_CHECKING:
    from kingdom.agents.port import Order


_VERSION_SECONDS: Final = 30.0
_SESSION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")  # never a flag, a path or a glob


@dataclass(frozen=True, slots=True)
class CliSettings:
    """The settings of an engine's program (``engines.<name>`` in config/system.yaml)."""

    path: str | None = None  # the program; None: its name, found on the PATH
    env: Mapping[str, str] = field(default_factory=dict)  # added to its environment, such as a base URL
    pass_env: tuple[str, ...] = ()  # names of our variables passed on to it, such as a key
    args: tuple[str, ...] = ()  # further arguments, before those of the order's options
    model: str | None = None  # for orders without a model

    @classmethod
    def read(cls, engine: str, settings: Mapping[str, Any]) -> CliSettings:
        """Read ``path``, ``model``, ``args`` and ``env`` (names to pass on, or names with values)."""
        env = settings.get("env") or ()
        values = env if isinstance(env, Mapping) else {}
        names = () if isinstance(env, Mapping) else env
        args = settings.get("args") or ()
        for key, given in (("env", (*names, *values, *values.values())), ("args", args)):
            if isinstance(given, str) or not all(isinstance(item, str) for item in given):
                raise InvalidOrder(f"engines.{engine}.{key} in config/system.yaml: every entry must be a string")
        return cls(settings.get("path"), dict(values), tuple(names), tuple(args), settings.get("model"))


@dataclass(frozen=True, slots=True)
class CliProgram:
    """The program of an engine: its name, how to install it, and which of our variables it needs."""

    engine: str
    command: str
    package: str
    credentials: tuple[str, ...]  # variables that it needs; passed on if they are set
    settings: CliSettings
    environ: Mapping[str, str]

    def find(self) -> str:
        """Return its path. Raises :class:`EngineNotInstalled`."""
        path = self._look()
        if path is None:
            raise EngineNotInstalled(self._missing())
        return path

    def environment(self, order: Order) -> dict[str, str]:
        """Return its variables in addition to those of every agent. The order's own have precedence."""
        passed = (*self.credentials, *self.settings.pass_env)
        return {
            **{name: self.environ[name] for name in passed if name in self.environ},
            **self.settings.env,
            **order.env,
        }

    def value(self, name: str, order: Order) -> str | None:
        """Return one of its variables; None when it is not set or empty."""
        return self.environment(order).get(name) or self.environ.get(name) or None

    def files(self) -> tuple[Path, ...]:
        """Return what has to be readable for it to start: its file, and the package that a link leads to."""
        path = Path(self.find())
        real = path.resolve()
        modules = [folder for folder in real.parents if folder.name == "node_modules"]
        return (path, modules[-1] if modules else real)

    async def examine(self) -> Examined:
        """Check whether it is installed, and which version."""
        path = self._look()
        if path is None:
            return Examined(ok=False, problem=self._missing())
        try:
            output, code = await _version(path, self.environ)
        except TimeoutError:
            problem = f"{path} --version printed nothing for {_VERSION_SECONDS:.0f} s: try it by hand, or reinstall it"
            return Examined(ok=False, path=path, problem=problem)
        except OSError as error:
            return Examined(ok=False, path=path, problem=f"{path} cannot be started: {error}")
        if code != 0:
            said = " ".join(output.split())[:200] or "nothing"
            return Examined(ok=False, path=path, problem=f"{path} --version failed ({code}) and said: {said}")
        version = re.search(r"\d+(?:\.\d+)+", output)
        return Examined(ok=True, path=path, version=version.group() if version else output.strip()[:80] or None)

    def _look(self) -> str | None:
        wanted = Path(self.settings.path or self.command).expanduser()
        found = shutil.which(str(wanted), path=self.environ.get("PATH"))
        return str(Path(found).absolute()) if found else None  # absolute: it is started in another directory

    def _missing(self) -> str:
        key = f"engines.{self.engine}.path in config/system.yaml"
        if self.settings.path is not None:
            return f"engine {self.engine}: {self.settings.path} is not a program (set by {key}): correct or remove it"
        return (
            f"engine {self.engine}: there is no program {self.command} on the PATH: "
            f"install it (npm install -g {self.package}) or set {key}"
        )


def resumed_session_id(order: Order) -> str | None:
    """Return the conversation to continue. It is checked: it becomes an argument and part of a file name."""
    if order.session_id is not None and not _SESSION_ID.match(order.session_id):
        raise InvalidOrder(f"run {order.run_id}: {order.session_id!r:.80} is not a session id")
    return order.session_id


def string_option(order: Order, option: str) -> tuple[str, ...]:
    """Return an option of the order that is a list of strings."""
    value = order.options.get(option, [])
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise InvalidOrder(f"run {order.run_id}: option {option} of engine {order.engine} must be a list of strings")
    return tuple(value)


def read_instructions(cwd: Path, name: str, limit: int) -> str | None:
    """Return the instructions file of a working directory, cut to ``limit`` bytes.

    A repository can have anything under that name: a link or a pipe is not read.
    """
    try:
        with open_untrusted(cwd / name) as file:
            data = file.read(limit)
    except OSError:
        return None
    return data.decode("utf-8", "ignore").replace("\0", "").strip() or None


async def _version(path: str, environ: Mapping[str, str]) -> tuple[str, int]:
    process = await asyncio.create_subprocess_exec(
        path,
        "--version",
        env=dict(environ),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(_VERSION_SECONDS):
            output, _ = await process.communicate()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # and what it started
        await process.wait()
    return output.decode("utf-8", "replace"), process.returncode or 0


def parse_object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a line; None for anything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def dump_json(value: Any) -> str:
    """Encode a decoded JSON value; empty when it is nested too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


def is_torn(line: bytes) -> bool:
    """Tell whether a line looks like the beginning of a JSON object that the process did not finish."""
    return line.lstrip().startswith(b"{")


def as_dict(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return a list, or an empty one for any other value."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """Return a non-empty string with lone surrogates replaced; None for any other value."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def as_count(value: Any) -> int:
    """Return a non-negative integer, or 0 for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def as_amount(value: Any) -> float | None:
    """Return a finite non-negative number, or None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def as_epoch(value: Any) -> float | None:
    """Return a time in seconds since the epoch, also if it is given in milliseconds; None for any other value."""
    number = as_amount(value)
    if not number:
        return None
    return number / 1000 if number > 1e11 else number


def as_line(value: str, limit: int = 200) -> str:
    """Join a text to one line for people, cut with an ellipsis."""
    line = " ".join(value[: limit * 8].split())
    line = "".join(character if character.isprintable() else " " for character in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
