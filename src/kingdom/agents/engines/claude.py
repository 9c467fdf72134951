"""Claude Code as an engine: ``claude -p --output-format stream-json --verbose``, with the prompt on standard input.

In a sandbox, the mounts of the profile decide what the agent may do, and the program itself asks nobody. Without one,
the program's own permissions decide, which confine much less:

======  ==============================================================================================================
read    ``dontAsk``: what Claude Code itself considers read-only below the working directory, and the result file
edit    ``acceptEdits``: also edit files below the working directory, and git commands that change only this worktree
full    ``bypassPermissions``: anything our user may do
======  ==============================================================================================================

The option ``allowed_tools`` adds rules (``["Bash(make test)"]``), the option ``args`` adds arguments.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.engine import GATEWAY_URL, RUN_KEY, Confinement, Examined, Launch, ModelAccess
from kingdom.agents.engines.programs import (
    CliProgram,
    CliSettings,
    as_amount,
    as_count,
    as_dict,
    as_epoch,
    as_line,
    as_list,
    as_text,
    dump_json,
    is_torn,
    parse_object,
    read_instructions,
    resumed_session_id,
    string_option,
)
from kingdom.agents.mcp import mcp_servers
from kingdom.agents.outages import outage_of
from kingdom.agents.port import AgentEvent, Began, Finished, Heartbeat, RateLimit, Text, Tokens, ToolUse, Usage

if TYPE_CHECKING:
    from kingdom.agents.port import Order


_LIMIT_WORDS: Final = re.compile(r"usage limit reached|hit your [\w -]{0,40}limit|\(429\)", re.IGNORECASE)
_LIMIT_RESET: Final = re.compile(r"limit reached\|(\d{9,13})")
_DETAILS: Final = ("command", "file_path", "notebook_path", "pattern", "url", "query", "description", "skill", "path")
_CHARACTERS_PER_TOKEN: Final = 4
_DIAGNOSTIC: Final = "[ede_diagnostic]"  # begins what Claude Code notes for its own developers when it is interrupted


@dataclass(slots=True)
class _Message:
    """One message of the model. Several lines can have parts of it, and each repeats its usage."""

    tokens: Tokens = field(default_factory=Tokens)
    characters: int = 0


class ClaudeReader:
    """Parses the output of one run."""

    def __init__(self) -> None:
        self._session_id: str | None = None
        self._messages: dict[str, _Message] = {}
        self._limit: RateLimit | None = None  # the last rate limit event

    def feed(self, line: bytes) -> Sequence[AgentEvent]:
        """Return the events in a line."""
        document = parse_object(line)
        if document is None:
            return () if not line.strip() or is_torn(line) else (Heartbeat(),)
        match document.get("type"):
            case "system" if document.get("subtype") == "init":
                return self._init(document)
            case "system" if document.get("subtype") == "api_retry":
                return self._retry(document)
            case "assistant":
                return self._assistant(document)
            case "rate_limit_event":
                return self._rate_limit(as_dict(document.get("rate_limit_info")))
            case "result":
                return self._result(document)
        return (Heartbeat(),)

    def _init(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        session_id = as_text(document.get("session_id"))
        if session_id is not None and session_id == self._session_id:
            return (Heartbeat(),)  # repeated after it has compacted its context
        self._session_id = session_id
        return (Began(session_id=session_id, model=as_text(document.get("model"))),)

    def _retry(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        """Note what its requests fail with: it tries for so long that a timer may end it before it says so."""
        status = document.get("error_status")
        code = status if isinstance(status, int) and not isinstance(status, bool) else None
        if code == 429:
            return (Heartbeat(),)
        said = as_text(document.get("error")) or "connection error"
        reason = outage_of("claude", code, said if code is not None else f"connection error: {said}")
        return (Heartbeat(),) if reason is None else (RateLimit("rejected", reason=reason),)

    def _assistant(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        if document.get("is_api_error_message") is True:
            return (Heartbeat(),)  # a failed request in words; the result repeats it
        message = as_dict(document.get("message"))
        content = [block for block in as_list(message.get("content")) if isinstance(block, dict)]
        events: list[AgentEvent] = []
        for block in content:
            said = as_text(block.get("text"))
            # Messages of a subagent are for the agent that started it.
            if block.get("type") == "text" and said is not None and document.get("parent_tool_use_id") is None:
                events.append(Text(said))
            elif block.get("type") == "tool_use":
                events.append(_tool_use(block))
        if usage := self._count(message, content):
            events.append(usage)
        return events or (Heartbeat(),)

    def _count(self, message: dict[str, Any], content: list[dict[str, Any]]) -> Usage | None:
        reported = as_dict(message.get("usage"))
        message_id = as_text(message.get("id"))
        if message_id is None or not reported:
            return None
        known = self._messages.setdefault(message_id, _Message())
        known.characters += sum(len(dump_json(block)) for block in content)
        now = _tokens(reported)
        # A line precedes the count of its message and reports 1 output token: the visible text is a better estimate.
        output = max(now.output, known.characters // _CHARACTERS_PER_TOKEN)
        known.tokens = Tokens(now.input, output, now.cache_read, now.cache_write)
        return Usage(tokens=self._streamed(), turns=len(self._messages))

    def _streamed(self) -> Tokens:
        return sum((message.tokens for message in self._messages.values()), Tokens())

    def _rate_limit(self, info: dict[str, Any]) -> Sequence[AgentEvent]:
        resets_at, window = as_epoch(info.get("resetsAt")), as_text(info.get("rateLimitType"))
        match info.get("status"):
            case "rejected" if info.get("isUsingOverage") is not True:
                self._limit = RateLimit("rejected", resets_at, window)
            case "rejected" | "allowed_warning":
                self._limit = RateLimit("warning", resets_at, window)
            case _:
                return (Heartbeat(),)
        return (self._limit,)

    def _result(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        said = as_text(document.get("result"))
        ok = document.get("subtype") == "success" and document.get("is_error") is False
        turns = as_count(document.get("num_turns")) or len(self._messages)
        tokens, cost = self._totals(document)
        events: list[AgentEvent] = [Usage(tokens=tokens, cost_usd=cost, turns=turns)]
        structured = document.get("structured_output")
        if ok:
            return (*events, Finished(ok=True, text=said, structured=structured if _is_object(structured) else None))
        given = [error for one in as_list(document.get("errors")) if (error := as_text(one))]
        errors = "; ".join(error for error in given if not error.startswith(_DIAGNOSTIC))
        error = errors or said or as_text(document.get("subtype")) or "it ended with an error and gave no reason"
        if _is_limit(document, error):
            events.append(self._rejected(error))
        elif (reason := _outage(document, error)) is not None:
            events.append(RateLimit("rejected", reason=reason))
        return (*events, Finished(ok=False, text=said, error=error))

    def _totals(self, document: dict[str, Any]) -> tuple[Tokens, float | None]:
        """Return what this process used.

        After ``--resume``, ``total_cost_usd`` and ``modelUsage`` count the whole conversation; ``usage`` and
        ``model_usage_since_last_result`` (not in older versions) this process only.
        """
        since = document.get("model_usage_since_last_result")
        if isinstance(since, dict):
            by_model = [as_dict(model) for model in since.values()]
            return sum(map(_model_tokens, by_model), Tokens()), sum(
                as_amount(m.get("costUSD")) or 0.0 for m in by_model
            )
        tokens = _tokens(as_dict(document.get("usage")))
        return tokens if tokens.total else self._streamed(), as_amount(document.get("total_cost_usd"))

    def _rejected(self, error: str) -> RateLimit:
        if self._limit is not None:
            return RateLimit("rejected", self._limit.resets_at, self._limit.window)
        found = _LIMIT_RESET.search(error)
        return RateLimit("rejected", as_epoch(int(found.group(1))) if found else None)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_limit(document: dict[str, Any], error: str) -> bool:
    by_status = document.get("api_error_status") == 429 or document.get("api_error_type") == "rate_limit_error"
    return by_status or _LIMIT_WORDS.search(error[:2000]) is not None


def _outage(document: dict[str, Any], error: str) -> str | None:
    status = document.get("api_error_status")
    if document.get("terminal_reason") != "api_error" and not isinstance(status, int):
        return None  # an error of the work, which may quote anything
    return outage_of("claude", status if isinstance(status, int) else None, error)


def _tokens(usage: dict[str, Any]) -> Tokens:
    return Tokens(
        input=as_count(usage.get("input_tokens")),
        output=as_count(usage.get("output_tokens")),
        cache_read=as_count(usage.get("cache_read_input_tokens")),
        cache_write=as_count(usage.get("cache_creation_input_tokens")),
    )


def _model_tokens(usage: dict[str, Any]) -> Tokens:
    return Tokens(
        input=as_count(usage.get("inputTokens")),
        output=as_count(usage.get("outputTokens")),
        cache_read=as_count(usage.get("cacheReadInputTokens")),
        cache_write=as_count(usage.get("cacheCreationInputTokens")),
    )


def _tool_use(block: dict[str, Any]) -> ToolUse:
    given = as_dict(block.get("input"))
    detail = next((found for name in _DETAILS if (found := as_text(given.get(name)))), None)
    if detail is None and given:
        detail = as_text(dump_json(given))
    return ToolUse(name=as_line(as_text(block.get("name")) or "tool", 80), detail=as_line(detail or ""))


_SESSIONS: Final = uuid.UUID("5f0c4a3e-7a0b-5d0e-9a53-2f7f6b1c9d10")  # the namespace of session ids
_INSTRUCTIONS_BYTES: Final = 100_000  # it is passed as an argument, which may have 128 KiB
_OLDEST_TESTED: Final = (2, 1, 325)

_CREDENTIALS: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CONFIG_DIR",
)
_API: Final = "https://api.anthropic.com"
# The variables with a key, in the order in which it uses them, and the header for each.
_KEYS: Final = {
    "ANTHROPIC_AUTH_TOKEN": ("authorization", "Bearer {}"),
    "ANTHROPIC_API_KEY": ("x-api-key", "{}"),
    "CLAUDE_CODE_OAUTH_TOKEN": ("authorization", "Bearer {}"),
}
_LOGIN_HOSTS: Final = ("api.anthropic.com", "platform.claude.com", "console.anthropic.com", "claude.ai")
_SETTINGS: Final = ("settings.json", "CLAUDE.md", "agents", "commands", "skills")  # the user's own, read-only
_NOT_IN_FOLDER: Final = re.compile(r"[^A-Za-z0-9]")  # as it names the folder of a working directory's conversations
_ENV: Final = {
    # Otherwise "@/any/file" in the prompt, which quotes untrusted text, attaches that file, in every profile.
    "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",  # a task must not influence later ones
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",  # a run ends with its result
    "CLAUDE_CODE_DISABLE_CRON": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}
_MODES: Final = {"read": "dontAsk", "edit": "acceptEdits", "full": "bypassPermissions"}
_WITHHELD: Final = ("AskUserQuestion", "EnterWorktree", "ScheduleWakeup")  # there is no user, and cwd is fixed
_GIT_EDITS: Final = ("add", "commit", "mv", "restore", "rm", "switch")


class ClaudeEngine:
    """Runs Claude Code."""

    name = "claude"

    def __init__(self, settings: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._settings = CliSettings.read(self.name, settings or {})
        self._program = CliProgram(
            engine=self.name,
            command="claude",
            package="@anthropic-ai/claude-code",
            credentials=_CREDENTIALS,
            settings=self._settings,
            environ=os.environ if environ is None else environ,
        )

    def launch(self, order: Order) -> Launch:
        """Return how to start a run. The id of a new conversation is derived from the run id, so it is never lost."""
        argv = [self._program.find(), "-p", "--output-format", "stream-json", "--verbose"]
        # Only the user's own settings: those of a repository may have hooks and MCP servers, which start at once.
        argv += ["--setting-sources", "user", "--strict-mcp-config"]
        argv += ["--permission-mode", _MODES["full" if order.confined else order.profile]]
        if allowed := self._allowed(order):
            argv += ["--allowedTools", *allowed]
        if order.folders:
            argv += ["--add-dir", *map(str, order.folders)]
        argv += ["--disallowedTools", *_WITHHELD]
        if order.mcp_config is not None:
            argv += ["--mcp-config", str(order.mcp_config)]
        # CLAUDE.md counts as a project setting and is ignored with them, so it is passed explicitly.
        if instructions := read_instructions(order.cwd, "CLAUDE.md", _INSTRUCTIONS_BYTES):
            argv += ["--append-system-prompt", instructions]
        if model := order.model or self._settings.model:
            argv += ["--model", model]
        argv += [*self._settings.args, *string_option(order, "args")]
        resumed = resumed_session_id(order)
        argv += ["--resume", resumed] if resumed else ["--session-id", str(new_session_id(order.run_id))]
        env = {**_ENV, **self._program.environment(order)}
        if (order.profile == "full" or order.confined) and os.geteuid() == 0:
            env["IS_SANDBOX"] = "1"  # otherwise it refuses bypassPermissions as root
        if order.confined and (name := self._key_name(order)) is not None:
            env |= {"ANTHROPIC_BASE_URL": f"{GATEWAY_URL}/model", name: RUN_KEY}
            for other in _KEYS.keys() - {name}:
                env.pop(other, None)
        return Launch(argv=tuple(argv), env=env, stdin=_as_text(order.prompt))

    def reader(self, order: Order) -> ClaudeReader:
        """Return a reader for the output of one run."""
        return ClaudeReader()

    def confinement(self, order: Order) -> Confinement:
        """Return what it needs in a sandbox: its settings, and the conversations of this working directory.

        With a key, the gateway knows it and the agent does not. Without one, the file of the user's login is shown.
        """
        home = Path(self._program.value("HOME", order) or "/")
        folder = Path(self._program.value("CLAUDE_CONFIG_DIR", order) or home / ".claude")
        conversations = folder / "projects" / _NOT_IN_FOLDER.sub("-", str(order.cwd.resolve()))
        write = {conversations: conversations}
        model, hosts = None, tuple[str, ...]()
        if (name := self._key_name(order)) is not None:
            url = self._program.value("ANTHROPIC_BASE_URL", order) or _API
            header, form = _KEYS[name]
            model = ModelAccess(url.rstrip("/"), header, form.format(self._program.value(name, order)))
        else:
            login = folder / ".credentials.json"
            write |= {login: login} if login.is_file() else {}
            hosts = _LOGIN_HOSTS
        return Confinement(
            read=(*self._program.files(), *(folder / part for part in _SETTINGS)),
            write=write,
            empty=(folder,),
            hosts=hosts,
            model=model,
        )

    def _key_name(self, order: Order) -> str | None:
        return next((name for name in _KEYS if self._program.value(name, order)), None)

    def program_path(self) -> str:
        """Return the path of its program, without starting it. Raises :class:`EngineNotInstalled`."""
        return self._program.find()

    async def examine(self) -> Examined:
        """Check whether it is installed, and which version."""
        found = await self._program.examine()
        if found.ok and found.version and _numbers(found.version) < _OLDEST_TESTED:
            oldest = ".".join(map(str, _OLDEST_TESTED))
            problem = (
                f"{found.path} is {found.version}; {oldest} is the oldest version known to ignore @file mentions in a "
                "prompt: update it before it reads text from outside"
            )
            return Examined(ok=True, path=found.path, version=found.version, problem=problem)
        return found

    def _allowed(self, order: Order) -> list[str]:
        if order.profile == "full" or order.confined:
            return list(string_option(order, "allowed_tools"))
        paths = dict.fromkeys((order.result_path.absolute(), order.result_path.resolve()))
        rules = [f"{tool}(/{path})" for path in paths for tool in ("Edit", "Read")]
        if order.profile == "edit":
            rules += [f"Bash(git {command}:*)" for command in _GIT_EDITS]
        if order.mcp_config is not None:
            rules += [f"mcp__{server}" for server in mcp_servers(order.mcp_config)]
        return [*rules, *string_option(order, "allowed_tools")]


def new_session_id(run_id: str) -> uuid.UUID:
    """Return the id of the conversation that a run starts."""
    return uuid.uuid5(_SESSIONS, run_id)


def _as_text(prompt: str) -> bytes:
    """Encode the prompt. If it begins with a slash, prepend a newline: otherwise it would be a command."""
    return ("\n" + prompt if prompt.startswith("/") else prompt).encode("utf-8", "replace")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
