"""Run git with an argument list, a clean environment, a time limit and a size limit.

git runs programs that its configuration, its environment or the repository name: hooks, the fsmonitor, filters, diff
and merge drivers, ssh, credential helpers, editors, pagers. An agent can write all of a repository and parts of its
configuration. So git gets an environment made from scratch and no configuration of the system or the user, and every
setting that could run a program is overridden on the command line. Settings with free names (``filter.<name>.clean``)
cannot be overridden one by one; for these, git gets a configuration file that no agent writes (``repository``).
"""

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

from kingdom.gitops.credentials import credential_environment, hide_credential
from kingdom.gitops.errors import CommandFailed, CommandTimedOut, GitNotUsable, InvalidInput, OutputTooLarge
from kingdom.gitops.locks import held
from kingdom.gitops.remotes import RemoteAccess, remote_failure

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kingdom.gitops.names import RepositoryUrl


# ── settings and environment ─────────────────────────────────────────────────────────────────────────────────────────


SAFE_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=false",
    "diff.ignoreSubmodules=all",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "protocol.allow=never",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "log.showSignature=false",
    "gpg.program=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "color.ui=false",
    "advice.detachedHead=false",
)
"""Overrides of every call."""

_BASE_ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_FLUSH": "1",
    "LC_ALL": "C",
    "TZ": "UTC",
}


def local_environment(path: str | None = None) -> dict[str, str]:
    """Return the environment of a call that reaches no remote."""
    return {**_BASE_ENVIRONMENT, "PATH": path or os.environ.get("PATH", os.defpath), "GIT_ALLOW_PROTOCOL": "none"}


def as_options(settings: Iterable[str]) -> list[str]:
    """Return settings as ``-c`` options."""
    return [word for setting in settings for word in ("-c", setting)]


# ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────────


MIB: Final = 1024 * 1024
OLDEST_GIT: Final = (2, 38)  # the first with ``merge-tree --write-tree``
_CHUNK_BYTES: Final = 64 * 1024
_MAX_STDERR_BYTES: Final = 64 * 1024
_AFTER_KILL_SECONDS: Final = 5.0


@dataclass(frozen=True)
class GitResult:
    """The output of a command. ``truncated``: it was stopped at the requested size."""

    code: int
    out: bytes
    said: str = ""
    truncated: bool = False

    @property
    def text(self) -> str:
        """The output as text, without the last line break."""
        return self.out.decode("utf-8", "surrogateescape").rstrip("\n")

    @property
    def fields(self) -> list[str]:
        """The output of a command with ``-z``: the strings between NUL bytes."""
        return self.out.decode("utf-8", "surrogateescape").split("\0")[:-1] if self.out else []


@dataclass(frozen=True)
class GitLocation:
    """Where a command works: the git directory, and optionally the work tree, the index and open locks.

    ``locks`` are file descriptors that git inherits. So a lock (``flock``) is held until the last process under it has
    ended, even if this process is killed and git goes on alone.
    """

    git_dir: Path
    work_tree: Path | None = None
    index: Path | None = None
    locks: tuple[int, ...] = ()
    remote: RepositoryUrl | None = None
    """The remote the command may reach, over its protocol only (a partial clone fetches missing objects)."""

    def options(self) -> list[str]:
        """Return the options that name the git directory and the work tree, so that git does not search for them."""
        named = [f"--git-dir={self.git_dir}"]
        return named if self.work_tree is None else [*named, f"--work-tree={self.work_tree}"]


class GitRunner:
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
        place: GitLocation,
        *words: str,
        stdin: bytes | None = None,
        ok: Collection[int] = (0,),
        environment: Mapping[str, str] | None = None,
        limit: float | None = None,
        truncate_at: int | None = None,
    ) -> GitResult:
        """Run one command; raise :class:`CommandFailed` if its exit code is not in ``ok``.

        It is stopped after ``limit`` seconds, or when it has printed ``truncate_at`` bytes.
        """
        given = local_environment(self._path)
        if place.remote is None:
            given |= credential_environment(None, None)
        else:
            given |= self.access.variables(place.remote, await self.access.find(place.remote))
        return await self._run(place, words, given | dict(environment or {}), stdin, ok, limit, truncate_at)

    async def run_remote(self, place: GitLocation, *words: str, limit: float | None = None) -> GitResult:
        """Run a command that reaches the remote of ``place``, with its token; raise :class:`RemoteFailed`."""
        if place.remote is None:
            raise InvalidInput(f"git {words[0]}: no remote is named")
        found = await self.access.find(place.remote)
        given = local_environment(self._path) | self.access.variables(place.remote, found)
        try:
            return await self._run(place, words, given, None, (0,), limit, None)
        except (CommandTimedOut, OutputTooLarge):
            raise
        except CommandFailed as error:
            said = hide_credential(error.said, found.credential)
            raise remote_failure(error.command, error.code, said, place.remote, found) from None

    async def check_version(self) -> tuple[int, ...]:
        """Return the version of git; raise :class:`GitNotUsable` if it is missing or too old."""
        result = await self.run(GitLocation(Path("/")), "version")
        found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", result.text)
        version = tuple(int(number) for number in found.groups(default="0")) if found else ()
        if version < OLDEST_GIT:
            oldest = ".".join(map(str, OLDEST_GIT))
            raise GitNotUsable(f"{self.program} is {result.text!r}: version {oldest} or later is needed")
        return version

    async def _run(
        self,
        place: GitLocation,
        words: Sequence[str],
        environment: dict[str, str],
        stdin: bytes | None,
        ok: Collection[int],
        limit: float | None,
        truncate_at: int | None,
    ) -> GitResult:
        shown = ["git", *words]
        limit = self.timeout if limit is None else limit
        if place.index is not None:
            environment["GIT_INDEX_FILE"] = str(place.index)
        process = await self._start([*as_options(SAFE_SETTINGS), *place.options(), *words], place, environment, stdin)
        room = self.max_output if truncate_at is None else truncate_at
        said = bytearray()
        try:
            async with asyncio.timeout(limit):
                out, truncated = await _communicate(process, stdin, room, said)
                if truncated and truncate_at is None:
                    raise OutputTooLarge(shown, None, f"more than {room} bytes")
                if not truncated:
                    await process.wait()
        except TimeoutError:
            words_said = said.decode("utf-8", "replace")
            raise CommandTimedOut(shown, None, words_said, f"no end within {limit:g} s") from None
        finally:
            await _kill(process)
        code = 0 if truncated else process.returncode or 0
        result = GitResult(code, out, said.decode("utf-8", "replace").strip(), truncated)
        if code not in ok:
            raise CommandFailed(shown, code, result.said)
        return result

    async def _start(
        self, arguments: list[str], place: GitLocation, environment: dict[str, str], stdin: bytes | None
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
                start_new_session=True,  # its helpers can be killed with it, and it has no terminal to ask
            )
        except FileNotFoundError:
            if not folder.is_dir():
                raise GitNotUsable(f"the folder {folder} is gone: git cannot be run there") from None
            raise GitNotUsable(f"{self.program} was not found: install git {OLDEST_GIT[0]}.{OLDEST_GIT[1]}+") from None


async def _communicate(process: Process, stdin: bytes | None, room: int, said: bytearray) -> tuple[bytes, bool]:
    """Write stdin and read stdout until git closes it, or has printed more than ``room`` bytes."""
    assert process.stdout is not None
    assert process.stderr is not None
    feeding = asyncio.create_task(_feed(process, stdin))
    listening = asyncio.create_task(_read_stderr(process.stderr, said))
    out = bytearray()
    try:
        while len(out) <= room:
            chunk = await process.stdout.read(_CHUNK_BYTES)
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
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # git ended early; its exit code says why
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _read_stderr(stream: asyncio.StreamReader, said: bytearray) -> None:
    while chunk := await stream.read(_CHUNK_BYTES):
        said += chunk[: _MAX_STDERR_BYTES - len(said)]


async def _kill(process: Process) -> None:
    """Kill what is left of the process group and close its pipes."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    streams = [stream for stream in (process.stdout, process.stderr) if stream is not None and not stream.at_eof()]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_AFTER_KILL_SECONDS):
            for stream in streams:
                while await stream.read(_CHUNK_BYTES):
                    pass
            await process.wait()
