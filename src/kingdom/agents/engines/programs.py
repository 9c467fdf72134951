"""What engines with a program of their own share: finding it, its settings, and reading what it prints."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import shutil
import signal
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import Examined
from kingdom.agents.errors import EngineNotInstalled, InvalidOrder

if TYPE_CHECKING:
    from kingdom.agents.port import Order


# What the engines with a program of their own share: finding it, asking its version, what it is given to work with.


_VERSION_SECONDS: Final = 30.0
_SESSION_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\Z")  # never a flag, a path or a glob


@dataclass(frozen=True, slots=True)
class CliSettings:
    """How an engine's program is used on this machine (``engines.<name>`` in config/system.yaml)."""

    path: str | None = None  # the program; none: by its name on the PATH
    env: Mapping[str, str] = field(default_factory=dict)  # given to it (a base URL, say)
    pass_env: tuple[str, ...] = ()  # names of our own variables passed on to it (a key, say)
    args: tuple[str, ...] = ()  # further arguments, before those of the order's options
    model: str | None = None  # for orders that name none

    @classmethod
    def read(cls, engine: str, settings: Mapping[str, Any]) -> CliSettings:
        """From the configuration: ``path``, ``model``, ``args``, ``env`` (names to pass on, or names with values)."""
        env = settings.get("env") or ()
        values = env if isinstance(env, Mapping) else {}
        names = () if isinstance(env, Mapping) else env
        args = settings.get("args") or ()
        for key, given in (("env", (*names, *values, *values.values())), ("args", args)):
            if isinstance(given, str) or not all(isinstance(item, str) for item in given):
                raise InvalidOrder(f"engines.{engine}.{key} in config/system.yaml: every entry must be a text")
        return cls(settings.get("path"), dict(values), tuple(names), tuple(args), settings.get("model"))


@dataclass(frozen=True, slots=True)
class CliProgram:
    """A program on this machine: what it is called, how it is installed, and which of our variables it needs."""

    engine: str
    command: str
    package: str
    credentials: tuple[str, ...]  # its own variables; passed on wherever they are set, for it cannot work without
    settings: CliSettings
    environ: Mapping[str, str]

    def find(self) -> str:
        """Its path. Raises :class:`EngineNotInstalled`."""
        path = self._look()
        if path is None:
            raise EngineNotInstalled(self._missing())
        return path

    def environment(self, order: Order) -> dict[str, str]:
        """The variables it gets beside those every agent gets; the order's own win."""
        passed = (*self.credentials, *self.settings.pass_env)
        return {
            **{name: self.environ[name] for name in passed if name in self.environ},
            **self.settings.env,
            **order.env,
        }

    async def examine(self) -> Examined:
        """Whether it is there and says its version."""
        path = self._look()
        if path is None:
            return Examined(ok=False, problem=self._missing())
        try:
            output, code = await _version(path, self.environ)
        except TimeoutError:
            problem = f"{path} --version said nothing for {_VERSION_SECONDS:.0f} s: try it by hand, or install it anew"
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
        return str(Path(found).absolute()) if found else None  # it is started in another folder than ours

    def _missing(self) -> str:
        key = f"engines.{self.engine}.path in config/system.yaml"
        if self.settings.path is not None:
            return f"engine {self.engine}: {self.settings.path} is no program (set by {key}): correct or remove it"
        return (
            f"engine {self.engine}: there is no program {self.command} on the PATH: "
            f"install it (npm install -g {self.package}) or name it by {key}"
        )


def resumed_session_id(order: Order) -> str | None:
    """The conversation the order goes on with, checked: it becomes an argument and a part of a file name."""
    if order.session_id is not None and not _SESSION_ID.match(order.session_id):
        raise InvalidOrder(f"run {order.run_id}: {order.session_id!r:.80} is not a session id")
    return order.session_id


def string_option(order: Order, option: str) -> tuple[str, ...]:
    """An option of the order that is a list of texts."""
    value = order.options.get(option, [])
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise InvalidOrder(f"run {order.run_id}: option {option} of engine {order.engine} must be a list of texts")
    return tuple(value)


def read_instructions(cwd: Path, name: str, limit: int) -> str | None:
    """The standing instructions in a work folder, cut to ``limit`` bytes.

    A repository can hold anything under that name: a link out of the folder, or a pipe, is not read.
    """
    try:
        descriptor = os.open(cwd / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(limit)
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
        output, _ = await asyncio.wait_for(process.communicate(), _VERSION_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # whatever it left behind
        await process.wait()
    return output.decode("utf-8", "replace"), process.returncode or 0


# Reading lines that a program printed: anything may stand there, so nothing here raises for it.


def parse_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object in a line; None for everything else."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def dump_json(value: Any) -> str:
    """The JSON text of something that came out of one; empty when it is nested too deep to be written."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return ""


def is_torn(line: bytes) -> bool:
    """Whether a line that is no JSON object looks like a part of one: its rest went with the process."""
    return line.lstrip().startswith(b"{")


def as_dict(value: Any) -> dict[str, Any]:
    """The object it should be, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The list it should be, or an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """The text it should be, fit to be written anywhere (half a surrogate pair is replaced); None for no text."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def as_count(value: Any) -> int:
    """A number of things: 0 for anything that is not one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def as_amount(value: Any) -> float | None:
    """A finite number that is not negative; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def as_epoch(value: Any) -> float | None:
    """A time in seconds since the epoch; one in milliseconds is seen as such."""
    number = as_amount(value)
    if not number:
        return None
    return number / 1000 if number > 1e11 else number


def as_line(value: str, limit: int = 200) -> str:
    """Text as one line for people, cut with an ellipsis."""
    line = " ".join(value[: limit * 8].split())
    line = "".join(character if character.isprintable() else " " for character in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
