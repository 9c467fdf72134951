"""Running git: an argument list, never a shell; a time limit, a size limit, and an error that says what happened."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.gitops.errors import CommandFailed, CommandTimedOut, GitNotUsable, OutputTooLarge, RemoteFailed
from kingdom.gitops.hardening import (
    SETTINGS,
    RemoteAccess,
    as_options,
    local_environment,
    remote_environment,
    remote_settings,
)
from kingdom.gitops.locks import held

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Collection, Mapping, Sequence

MIB: Final = 1024 * 1024
OLDEST_GIT: Final = (2, 38)  # the first with ``merge-tree --write-tree``
_CHUNK: Final = 64 * 1024
_MAX_WORDS: Final = 64 * 1024  # of what git says on stderr
_AFTER_KILL: Final = 5.0


@dataclass(frozen=True)
class Result:
    """What a command printed. ``truncated`` when it was stopped because it had printed as much as was asked for."""

    code: int
    out: bytes
    said: str = ""
    truncated: bool = False

    @property
    def text(self) -> str:
        """What it printed, as text without the last line break."""
        return self.out.decode("utf-8", "surrogateescape").rstrip("\n")

    @property
    def fields(self) -> list[str]:
        """What it printed with ``-z``: the strings between NUL bytes."""
        return self.out.decode("utf-8", "surrogateescape").split("\0")[:-1] if self.out else []


@dataclass(frozen=True)
class Place:
    """Where a command works: the git directory, and for some the work tree, the index and open locks.

    ``locks`` are file descriptors that git inherits. A lock (``flock``) is then held until the last process that works
    under it has ended, also when this process is killed and git goes on alone.
    """

    git_dir: Path
    work_tree: Path | None = None
    index: Path | None = None
    locks: tuple[int, ...] = ()
    protocol: str | None = None
    """The protocol over which the command may reach a remote (a partial clone fetches what it lacks)."""

    def options(self) -> list[str]:
        """The options that name the git directory and the work tree, so that git searches for neither."""
        named = [f"--git-dir={self.git_dir}"]
        return named if self.work_tree is None else [*named, f"--work-tree={self.work_tree}"]


class Git:
    """Calls the git program. One object serves any number of repositories and concurrent calls."""

    def __init__(
        self,
        program: str = "git",
        *,
        timeout: float = 120.0,
        max_output: int = 256 * MIB,
        access: RemoteAccess | None = None,
        path: str | None = None,
    ) -> None:
        self.program = program
        self.timeout = timeout
        self.max_output = max_output
        self.access = access or RemoteAccess()
        self._path = path

    async def run(
        self,
        place: Place,
        *words: str,
        stdin: bytes | None = None,
        ok: Collection[int] = (0,),
        environment: Mapping[str, str] | None = None,
        limit: float | None = None,
        truncate_at: int | None = None,
    ) -> Result:
        """Run one command. Raises :class:`CommandFailed` when its exit code is not in ``ok``.

        It is ended after ``limit`` seconds, or when it has printed ``truncate_at`` bytes.
        """
        settings: Sequence[str] = SETTINGS
        if place.protocol is None:
            given = local_environment(self._path)
        else:
            given = remote_environment(place.protocol, self.access, self._path)
            settings = (*SETTINGS, *remote_settings(self.access))
        given |= environment or {}
        return await self._run(place, settings, words, given, stdin, ok, limit, truncate_at)

    async def run_remote(self, place: Place, *words: str, limit: float | None = None) -> Result:
        """Run one command whose purpose is to reach a remote. Raises :class:`RemoteFailed`."""
        try:
            return await self.run(place, *words, limit=limit)
        except (CommandTimedOut, OutputTooLarge):
            raise
        except CommandFailed as error:
            advice = "check the URL, the network, and that access needs no question to be answered"
            raise RemoteFailed(error.command, error.code, error.said, advice) from None

    async def check_version(self) -> tuple[int, ...]:
        """The version of git. Raises :class:`GitNotUsable` when it is missing or too old."""
        result = await self.run(Place(Path("/")), "version")
        found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", result.text)
        version = tuple(int(number) for number in found.groups(default="0")) if found else ()
        if version < OLDEST_GIT:
            oldest = ".".join(map(str, OLDEST_GIT))
            raise GitNotUsable(f"{self.program} is {result.text!r}: version {oldest} or later is needed")
        return version

    async def _run(
        self,
        place: Place,
        settings: Sequence[str],
        words: Sequence[str],
        environment: dict[str, str],
        stdin: bytes | None,
        ok: Collection[int],
        limit: float | None,
        truncate_at: int | None,
    ) -> Result:
        shown = ["git", *words]
        limit = self.timeout if limit is None else limit
        if place.index is not None:
            environment["GIT_INDEX_FILE"] = str(place.index)
        process = await self._start([*as_options(settings), *place.options(), *words], place, environment, stdin)
        room = self.max_output if truncate_at is None else truncate_at
        said = bytearray()
        try:
            async with asyncio.timeout(limit):
                out, truncated = await _talk(process, stdin, room, said)
                if truncated and truncate_at is None:
                    raise OutputTooLarge(shown, None, f"more than {room} bytes")
                if not truncated:
                    await process.wait()
        except TimeoutError:
            words_said = said.decode("utf-8", "replace")
            raise CommandTimedOut(shown, None, words_said, f"no end within {limit:g} s") from None
        finally:
            await _end(process)
        code = 0 if truncated else process.returncode or 0
        result = Result(code, out, said.decode("utf-8", "replace").strip(), truncated)
        if code not in ok:
            raise CommandFailed(shown, code, result.said)
        return result

    async def _start(
        self, arguments: list[str], place: Place, environment: dict[str, str], stdin: bytes | None
    ) -> Process:
        folder = place.work_tree or Path("/")
        try:
            return await asyncio.create_subprocess_exec(
                self.program,
                *arguments,
                stdin=DEVNULL if stdin is None else PIPE,
                stdout=PIPE,
                stderr=PIPE,
                cwd=folder,
                env=environment,
                pass_fds=tuple({*place.locks, *held.get()}),
                start_new_session=True,  # so that its helpers can be ended with it, and no terminal is asked
            )
        except FileNotFoundError:
            if not folder.is_dir():
                raise GitNotUsable(f"the folder {folder} is gone: git cannot be run there") from None
            raise GitNotUsable(f"{self.program} was not found: install git {OLDEST_GIT[0]}.{OLDEST_GIT[1]}+") from None


async def _talk(process: Process, stdin: bytes | None, room: int, said: bytearray) -> tuple[bytes, bool]:
    """Feed and read until git has ended its output, or has printed more than there is room for."""
    assert process.stdout is not None
    assert process.stderr is not None
    feeding = asyncio.create_task(_feed(process, stdin))
    listening = asyncio.create_task(_listen(process.stderr, said))
    out = bytearray()
    try:
        while len(out) <= room:
            chunk = await process.stdout.read(_CHUNK)
            if not chunk:
                await feeding
                await listening
                return bytes(out), False
            out += chunk
        return bytes(out[:room]), True
    finally:
        for task in (feeding, listening):
            task.cancel()
        await asyncio.gather(feeding, listening, return_exceptions=True)


async def _feed(process: Process, stdin: bytes | None) -> None:
    if stdin is None:
        return
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # git ended early: its exit code says why
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _listen(stream: asyncio.StreamReader, said: bytearray) -> None:
    while chunk := await stream.read(_CHUNK):
        said += chunk[: _MAX_WORDS - len(said)]


async def _end(process: Process) -> None:
    """Make sure that nothing of the process group is left, and that its pipes are closed."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None and not stream.at_eof()]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_AFTER_KILL):
            for stream in streams:
                while await stream.read(_CHUNK):
                    pass
            await process.wait()
