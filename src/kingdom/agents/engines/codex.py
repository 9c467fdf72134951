"""Codex as an engine: ``codex exec --json``, the prompt on standard input.

What a profile may do, by codex's sandbox (of the operating system; commands have no network in the first two):

======  ==============================================================================================================
read    read everything, write only in the folder of the result file
edit    ``workspace-write``: also below the work folder and in /tmp, and what a commit in its worktree writes
full    ``danger-full-access``: anything the user we run as may do
======  ==============================================================================================================

Further arguments come from the option ``args``. Conversations lie in ``CODEX_HOME``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import Examined, Launch
from kingdom.agents.engines.codex_rollout import Rollout
from kingdom.agents.engines.codex_stream import CodexReader
from kingdom.agents.engines.mcp import CodexServers, codex_servers
from kingdom.agents.engines.programs import CliSettings, Program, read_instructions, session_id, strings
from kingdom.agents.engines.toml import to_toml

if TYPE_CHECKING:
    from kingdom.agents.port import Order

_INSTRUCTIONS_BYTES: Final = 32 * 1024  # as much as codex itself reads of it
_KEYS: Final = ("OPENAI_API_KEY", "CODEX_API_KEY")
_CREDENTIALS: Final = (*_KEYS, "OPENAI_BASE_URL", "CODEX_HOME")


class CodexEngine:
    """Runs Codex."""

    name = "codex"

    def __init__(self, settings: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._settings = CliSettings.read(self.name, settings or {})
        self._environ = os.environ if environ is None else environ
        self._program = Program(
            engine=self.name,
            command="codex",
            package="@openai/codex",
            credentials=_CREDENTIALS,
            settings=self._settings,
            environ=self._environ,
        )

    def launch(self, order: Order) -> Launch:
        """The arguments of one run: every flag before ``resume``, which would not take some of them after it."""
        argv = [self._program.find(), "exec", "--json", "--skip-git-repo-check", *_sandbox(order)]
        if model := order.model or self._settings.model:
            argv += ["-m", model]
        servers = codex_servers(order.mcp_config) if order.mcp_config is not None else CodexServers()
        for key, value in self._configuration(order, servers).items():
            argv += ["-c", f"{key}={to_toml(value)}"]
        argv += [*self._settings.args, *strings(order, "args")]
        if resumed := session_id(order):
            argv += ["resume", resumed]
        env = {**servers.env, **self._program.environment(order)}
        return Launch(argv=(*argv, "-"), env=env, stdin=order.prompt.encode("utf-8", "replace"))

    def reader(self, order: Order) -> CodexReader:
        """A reader for the output of one run."""
        home = self._home(order)
        return CodexReader(lambda thread_id: Rollout(home, thread_id), model=order.model or self._settings.model)

    async def examine(self) -> Examined:
        """Look whether it is installed, and which version."""
        return await self._program.examine()

    def _configuration(self, order: Order, servers: CodexServers) -> dict[str, Any]:
        made: dict[str, Any] = {
            # Otherwise the repository's .codex/config.toml applies, and its MCP servers are started at once.
            "projects": {str(folder): {"trust_level": "untrusted"} for folder in (order.cwd, order.cwd.resolve())},
            # Its own key is for codex, not for the commands it runs.
            "shell_environment_policy.exclude": [*_KEYS, *sorted(servers.env)],
        }
        # An untrusted folder's AGENTS.md is not read either, so it is given by hand.
        if instructions := read_instructions(order.cwd, "AGENTS.md", _INSTRUCTIONS_BYTES):
            made["developer_instructions"] = instructions
        for name, table in servers.tables.items():
            made[f"mcp_servers.{name}"] = table
        return made

    def _home(self, order: Order) -> Path:
        env = {**self._environ, **self._program.environment(order)}
        return Path(env.get("CODEX_HOME") or Path(env.get("HOME") or "/") / ".codex")


def _sandbox(order: Order) -> list[str]:
    results = order.result_path.parent
    match order.profile:
        case "full":
            return ["-s", "danger-full-access"]
        case "edit":
            writable = [results, *(folder for folder in _commit_folders(order.cwd) if folder.is_dir())]
            return ["-s", "workspace-write", *(word for folder in writable for word in ("--add-dir", str(folder)))]
    # Not "-s read-only": under it no result could be written at all.
    permissions = {"filesystem": {":root": "read", str(results): "write"}}
    return ["-c", 'default_permissions="kingdom"', "-c", f"permissions.kingdom={to_toml(permissions)}"]


def _commit_folders(cwd: Path) -> list[Path]:
    """What a commit in a worktree writes outside of it; not the clone's configuration nor its hooks.

    ``.git`` of the worktree is a file an agent could have changed, so git's own layout and the way back must agree.
    """
    pointer = cwd / ".git"
    try:
        kind, _, target = pointer.read_text("utf-8").strip().partition(": ")
        own = Path(target)
        back = Path((own / "gitdir").read_text("utf-8").strip())
        agree = kind == "gitdir" and own.is_absolute() and own.parent.name == "worktrees" and back.samefile(pointer)
    except (OSError, ValueError):
        return []
    clone = own.parent.parent
    return [own, clone / "objects", clone / "refs", clone / "logs"] if agree else []
