"""Claude Code as an engine: ``claude -p --output-format stream-json --verbose``, the prompt on standard input.

What a profile may do, by the program's own permissions (no sandbox of the operating system):

======  ==============================================================================================================
read    ``dontAsk``: what Claude Code itself knows to be read-only below the work folder, and writing the result file
edit    ``acceptEdits``: also edit files below the work folder, and git commands that change this worktree only
full    ``bypassPermissions``: anything the user we run as may do
======  ==============================================================================================================

Further rules come from the option ``allowed_tools`` (``["Bash(make test)"]``), further arguments from ``args``.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import Examined, Launch
from kingdom.agents.engines.claude_stream import ClaudeReader
from kingdom.agents.engines.mcp import mcp_servers
from kingdom.agents.engines.programs import CliSettings, Program, read_instructions, session_id, strings

if TYPE_CHECKING:
    from kingdom.agents.port import Order

_SESSIONS: Final = uuid.UUID("5f0c4a3e-7a0b-5d0e-9a53-2f7f6b1c9d10")  # the name space of session ids
_INSTRUCTIONS_BYTES: Final = 100_000  # as an argument it may have 128 KiB
_OLDEST_TESTED: Final = (2, 1, 325)

_CREDENTIALS: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
)
_ENV: Final = {
    # Otherwise "@/any/file" in the prompt, which quotes people from outside, attaches that file, in every profile.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",  # a task must not plant what a later one believes
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",  # a run ends with its result
    "CLAUDE_CODE_DISABLE_CRON": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}
_MODES: Final = {"read": "dontAsk", "edit": "acceptEdits", "full": "bypassPermissions"}
_WITHHELD: Final = ("AskUserQuestion", "EnterWorktree", "ScheduleWakeup")  # nobody sits there; the work folder stays
_GIT_EDITS: Final = ("add", "commit", "mv", "restore", "rm", "switch")


class ClaudeEngine:
    """Runs Claude Code."""

    name = "claude"

    def __init__(self, settings: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._settings = CliSettings.read(self.name, settings or {})
        self._program = Program(
            engine=self.name,
            command="claude",
            package="@anthropic-ai/claude-code",
            credentials=_CREDENTIALS,
            settings=self._settings,
            environ=os.environ if environ is None else environ,
        )

    def launch(self, order: Order) -> Launch:
        """The arguments of one run. A new conversation has an id that follows from the run's, so it is never lost."""
        argv = [self._program.find(), "-p", "--output-format", "stream-json", "--verbose"]
        # Only the user's own settings: those of a repository bring hooks and MCP servers that start at once.
        argv += ["--setting-sources", "user", "--strict-mcp-config"]
        argv += ["--permission-mode", _MODES[order.profile]]
        if allowed := self._allowed(order):
            argv += ["--allowedTools", *allowed]
        argv += ["--disallowedTools", *_WITHHELD]
        if order.mcp_config is not None:
            argv += ["--mcp-config", str(order.mcp_config)]
        # The folder's CLAUDE.md is a setting of the project too: left out with them, so it is given by hand.
        if instructions := read_instructions(order.cwd, "CLAUDE.md", _INSTRUCTIONS_BYTES):
            argv += ["--append-system-prompt", instructions]
        if model := order.model or self._settings.model:
            argv += ["--model", model]
        argv += [*self._settings.args, *strings(order, "args")]
        resumed = session_id(order)
        argv += ["--resume", resumed] if resumed else ["--session-id", str(new_session_id(order.run_id))]
        env = {**_ENV, **self._program.environment(order)}
        if order.profile == "full" and os.geteuid() == 0:
            env["IS_SANDBOX"] = "1"  # as root it refuses bypassPermissions otherwise
        return Launch(argv=tuple(argv), env=env, stdin=_as_text(order.prompt))

    def reader(self, order: Order) -> ClaudeReader:
        """A reader for the output of one run."""
        return ClaudeReader()

    async def examine(self) -> Examined:
        """Look whether it is installed, and which version."""
        found = await self._program.examine()
        if found.ok and found.version and _numbers(found.version) < _OLDEST_TESTED:
            oldest = ".".join(map(str, _OLDEST_TESTED))
            problem = (
                f"{found.path} is {found.version}; {oldest} is the oldest version known to leave @file mentions in a "
                "prompt alone: update it before people from outside can write to it"
            )
            return Examined(ok=True, path=found.path, version=found.version, problem=problem)
        return found

    def _allowed(self, order: Order) -> list[str]:
        if order.profile == "full":
            return list(strings(order, "allowed_tools"))
        paths = dict.fromkeys((order.result_path.absolute(), order.result_path.resolve()))
        rules = [f"{tool}(/{path})" for path in paths for tool in ("Edit", "Read")]
        if order.profile == "edit":
            rules += [f"Bash(git {command}:*)" for command in _GIT_EDITS]
        if order.mcp_config is not None:
            rules += [f"mcp__{server}" for server in mcp_servers(order.mcp_config)]
        return [*rules, *strings(order, "allowed_tools")]


def new_session_id(run_id: str) -> uuid.UUID:
    """The id of the conversation that a run begins."""
    return uuid.uuid5(_SESSIONS, run_id)


def _as_text(prompt: str) -> bytes:
    """The prompt as it is given in: one that begins with a slash would be taken as a command."""
    return ("\n" + prompt if prompt.startswith("/") else prompt).encode("utf-8", "replace")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
