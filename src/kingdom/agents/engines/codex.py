"""Codex as an engine: ``codex exec --json``, with the prompt on standard input.

In our sandbox, the mounts of the profile decide what the agent may do, and codex's own is switched off. Without ours,
codex's sandbox for its commands decides (no network for them in the first two profiles):

======  ==============================================================================================================
read    read everything, write only in the folder of the result file
edit    ``workspace-write``: also below the working directory and in /tmp, and what a commit in its worktree writes
full    ``danger-full-access``: anything our user may do
======  ==============================================================================================================

The option ``args`` adds arguments. Conversations are stored in ``CODEX_HOME``; those of confined runs in a folder for
each working directory, so that none can read or change another's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kingdom.agents.engine import GATEWAY_URL, RUN_KEY, Confinement, Examined, Launch, ModelAccess
from kingdom.agents.engines.programs import (
    CliProgram,
    CliSettings,
    as_count,
    as_dict,
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
from kingdom.agents.mcp import CodexServers, codex_servers
from kingdom.agents.outages import outage_of
from kingdom.agents.port import AgentEvent, Began, Finished, Heartbeat, RateLimit, Text, Tokens, ToolUse, Usage
from kingdom.agents.sandbox.view import find_clone
from kingdom.base.files import open_untrusted

if TYPE_CHECKING:
    from kingdom.agents.port import Order


_THREAD_ID: Final = re.compile(r"[0-9A-Za-z-]{1,100}\Z")
_MARKERS: Final = (b'"token_count"', b'"task_started"')
_MAX_ROLLOUT_BYTES: Final = 64 * 1024**2  # that are read at once: a confined agent can write this file too


class Rollout:
    """Follows codex's record of a conversation (``CODEX_HOME/sessions/…/rollout-…-<thread>.jsonl``).

    ``codex exec`` prints the usage once, at the end, and for the whole conversation including earlier runs. The record
    has a line for every answer of the model, and a mark where each run starts.
    """

    def __init__(self, sessions: Path, thread_id: str) -> None:
        self._sessions = sessions
        self._thread_id = thread_id
        self._path: Path | None = None
        self._offset = 0
        self._total = Tokens()
        self.before = Tokens()  # usage of the conversation when its last run started
        self.turns = 0  # answers of the model in the last run

    @property
    def used(self) -> Tokens:
        """The usage of the last run."""
        return token_difference(self._total, self.before)

    def follow(self) -> None:
        """Read new lines."""
        path = self._find()
        if path is None:
            return
        try:
            with open_untrusted(path) as file:
                end = file.seek(self._offset) + _MAX_ROLLOUT_BYTES
                while self._offset < end and (line := file.readline(_MAX_ROLLOUT_BYTES)):
                    if not line.endswith(b"\n"):
                        break  # still being written, or not a record
                    self._offset += len(line)
                    if any(word in line for word in _MARKERS):
                        self._take(line)
        except OSError:
            return  # the run does not depend on it

    def _find(self) -> Path | None:
        if self._path is None and _THREAD_ID.match(self._thread_id):
            found = self._sessions.glob(f"*/*/*/rollout-*-{self._thread_id}.jsonl")
            self._path = next(found, None)
        return self._path

    def _take(self, line: bytes) -> None:
        payload = as_dict(as_dict(parse_object(line)).get("payload"))
        if payload.get("type") == "task_started":
            self.before, self.turns = self._total, 0
        elif payload.get("type") == "token_count" and (info := as_dict(payload.get("info"))):
            self._total = token_counts(as_dict(info.get("total_token_usage")))
            self.turns += 1


def token_counts(usage: dict[str, Any]) -> Tokens:
    """Convert codex's counts to our classes: its input includes tokens read from and written to the cache."""
    read, written = as_count(usage.get("cached_input_tokens")), as_count(usage.get("cache_write_input_tokens"))
    return Tokens(
        input=max(0, as_count(usage.get("input_tokens")) - read - written),
        output=as_count(usage.get("output_tokens")),
        cache_read=read,
        cache_write=written,
    )


def token_difference(now: Tokens, before: Tokens) -> Tokens:
    """Return the increase of each class, at least 0."""
    return Tokens(
        max(0, now.input - before.input),
        max(0, now.output - before.output),
        max(0, now.cache_read - before.cache_read),
        max(0, now.cache_write - before.cache_write),
    )


_LIMIT: Final = re.compile(r"usage limit|rate limit|\b429 Too Many Requests", re.IGNORECASE)
_AT: Final = re.compile(
    r"try again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th)?, (\d{4}),? )?(\d{1,2}):(\d{2}) ?([AP]M)", re.IGNORECASE
)
_IN: Final = re.compile(r"try again in ((?:\d+(?:\.\d+)?\s*(?:days?|hours?|minutes?|seconds?|ms|[dhms])[\s,]*)+)")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|d|h|m|s)")
_SECONDS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def is_limit(message: str) -> bool:
    """Tell whether an error is a rate limit, which resets by itself; a used-up quota does not."""
    return _LIMIT.search(message[:4000]) is not None


def resets_at(message: str, now: float) -> float | None:
    """Return when a limit resets, in seconds since the epoch, if the message says so. Times of day are local."""
    message = message[:4000]
    if found := _IN.search(message):
        return now + sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(found.group(1)))
    if found := _AT.search(message):
        try:
            return _at(found, now)
        except ValueError:  # the 31st of a short month, hour 25
            return None
    return None


def _at(found: re.Match[str], now: float) -> float:
    month, day, year, hour, minute, half = found.groups()
    here = datetime.fromtimestamp(now).astimezone()
    twelve = int(hour)
    if not 1 <= twelve <= 12:
        raise ValueError(f"no hour {hour} on a twelve-hour clock")
    when = here.replace(hour=twelve % 12 + (12 if half.upper() == "PM" else 0), minute=int(minute), second=0)
    if month is not None:
        when = when.replace(year=int(year), month=_MONTHS.index(month.lower()) + 1, day=int(day))
    elif when <= here - timedelta(minutes=1):
        when += timedelta(days=1)  # a time of day that has passed is tomorrow's
    return when.timestamp()


_TOOLS: Final = {
    "command_execution": "exec",
    "file_change": "edit",
    "mcp_tool_call": "mcp",
    "web_search": "web_search",
    "collab_tool_call": "agent",
}


class CodexReader:
    """Parses the output of one run."""

    def __init__(
        self,
        rollout: Callable[[str], Rollout],
        *,
        model: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_rollout = rollout
        self._rollout: Rollout | None = None
        self._ended = False
        self._model = model
        self._clock = clock
        self._tools: set[str] = set()  # ids of tool calls already reported
        self._last_text: str | None = None

    def feed(self, line: bytes) -> Sequence[AgentEvent]:
        """Return the events in a line."""
        document = parse_object(line)
        if document is None:
            return () if not line.strip() or is_torn(line) else (Heartbeat(),)
        match document.get("type"):
            case "thread.started":
                return self._started(document)
            case "item.started" | "item.updated" | "item.completed":
                return self._item(as_dict(document.get("item")), done=document["type"] == "item.completed")
            case "turn.completed":
                self._ended = True
                return (*self._total(as_dict(document.get("usage"))), Finished(ok=True, text=self._last_text))
            case "turn.failed":
                return self._failed(document)
        return (Heartbeat(),)  # also for "error": codex tries again, or turn.failed follows

    def end(self) -> Sequence[AgentEvent]:
        """Return the usage of a run that was stopped: the record is written later than the output."""
        return () if self._ended else self._so_far()

    def _started(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        thread_id = as_text(document.get("thread_id"))
        if thread_id is not None:
            self._rollout = self._open_rollout(thread_id)
        return (Began(session_id=thread_id, model=self._model),)

    def _item(self, item: dict[str, Any], *, done: bool) -> Sequence[AgentEvent]:
        kind = as_text(item.get("type")) or ""
        events: list[AgentEvent] = []
        if kind == "agent_message":
            said = as_text(item.get("text"))
            if done and said is not None:
                self._last_text = said
                events.append(Text(said))
        elif kind in _TOOLS and (item_id := str(item.get("id"))[:200]) not in self._tools:
            self._tools.add(item_id)
            events.append(_tool_use(kind, item))
        # After a message or a tool call the model has answered, so the record has the start of this run.
        if done and (kind == "agent_message" or kind in _TOOLS):
            events += self._so_far()
        return events or (Heartbeat(),)

    def _so_far(self) -> Sequence[AgentEvent]:
        if self._rollout is None:
            return ()
        self._rollout.follow()
        used = self._rollout.used
        return (Usage(tokens=used, turns=self._rollout.turns),) if used.total else ()

    def _total(self, usage: dict[str, Any]) -> Sequence[AgentEvent]:
        whole = token_counts(usage)
        if not whole.total or self._rollout is None:
            return (Usage(tokens=whole),) if whole.total else ()
        self._rollout.follow()
        return (Usage(tokens=token_difference(whole, self._rollout.before), turns=self._rollout.turns),)

    def _failed(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        error = as_text(as_dict(document.get("error")).get("message")) or "it ended with an error and gave no reason"
        events = [*self._so_far()]
        if is_limit(error):
            events.append(RateLimit("rejected", resets_at(error, self._clock())))
        elif (reason := outage_of("codex", None, error)) is not None:
            events.append(RateLimit("rejected", reason=reason))
        return (*events, Finished(ok=False, text=self._last_text, error=error))


def _tool_use(kind: str, item: dict[str, Any]) -> ToolUse:
    match kind:
        case "command_execution":
            detail = as_text(item.get("command"))
        case "file_change":
            detail = ", ".join(
                filter(None, (as_text(as_dict(change).get("path")) for change in as_list(item.get("changes"))))
            )
        case "mcp_tool_call":
            detail = ".".join(filter(None, (as_text(item.get("server")), as_text(item.get("tool")))))
        case _:
            detail = as_text(item.get("query")) or as_text(item.get("tool")) or as_text(dump_json(item))
    return ToolUse(name=_TOOLS[kind], detail=as_line(detail or ""))


def to_toml(value: Any) -> str:
    """Return a string, number, boolean, list or mapping as an inline TOML value, for ``codex -c key=value``."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case str():
            # JSON escapes are valid in TOML; only DEL must be escaped in addition.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            return "{" + ",".join(f"{to_toml(str(key))}={to_toml(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(to_toml, value)) + "]"
    raise TypeError(f"{value!r:.80} has no form in TOML here")


_INSTRUCTIONS_BYTES: Final = 32 * 1024  # as much as codex itself reads
_KEYS: Final = ("OPENAI_API_KEY", "CODEX_API_KEY")
_API: Final = "https://api.openai.com/v1"
_LOGIN_HOSTS: Final = ("api.openai.com", "chatgpt.com", "auth.openai.com")
_SETTINGS: Final = ("config.toml", "AGENTS.md", "rules", "skills", "prompts")  # the user's own, read-only
_BASE_URL: Final = re.compile(r"""base_url["']?\s*=\s*["'](https?://[^"'\s]+)["']""")
_CREDENTIALS: Final = (*_KEYS, "OPENAI_BASE_URL", "CODEX_HOME")


class CodexEngine:
    """Runs Codex."""

    name = "codex"

    def __init__(self, settings: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> None:
        self._settings = CliSettings.read(self.name, settings or {})
        self._environ = os.environ if environ is None else environ
        self._program = CliProgram(self.name, "codex", "@openai/codex", _CREDENTIALS, self._settings, self._environ)

    def launch(self, order: Order) -> Launch:
        """Return how to start a run. All flags go before ``resume``, which does not accept some of them after it."""
        argv = [self._program.find(), "exec", "--json", "--skip-git-repo-check", *_sandbox(order)]
        if model := order.model or self._settings.model:
            argv += ["-m", model]
        servers = codex_servers(order.mcp_config) if order.mcp_config is not None else CodexServers()
        for key, value in self._configuration(order, servers).items():
            argv += ["-c", f"{key}={to_toml(value)}"]
        argv += [*self._settings.args, *string_option(order, "args")]
        if resumed := resumed_session_id(order):
            argv += ["resume", resumed]
        env = {**servers.env, **self._program.environment(order)}
        if order.confined and self._uses_gateway(order):
            env |= {"OPENAI_API_KEY": RUN_KEY, "OPENAI_BASE_URL": f"{GATEWAY_URL}/model"}
            env.pop("CODEX_API_KEY", None)
        return Launch(argv=(*argv, "-"), env=env, stdin=order.prompt.encode("utf-8", "replace"))

    def reader(self, order: Order) -> CodexReader:
        """Return a reader for the output of one run."""
        sessions = self._sessions(order)
        return CodexReader(lambda thread_id: Rollout(sessions, thread_id), model=order.model or self._settings.model)

    def confinement(self, order: Order) -> Confinement:
        """Return what it needs in a sandbox: its configuration, and the conversations of this working directory.

        With a key and no provider of the operator's own, the gateway knows the key and the agent does not. Hosts in
        ``base_url`` of a provider may be reached.
        """
        home = self._home(order)
        write = {home / "sessions": self._sessions(order)}
        model, hosts = None, (*_LOGIN_HOSTS, *self._provider_hosts(order))
        if self._uses_gateway(order):
            url = self._program.value("OPENAI_BASE_URL", order) or _API
            model = ModelAccess(url.rstrip("/"), "authorization", f"Bearer {self._key(order)}")
        else:
            login = home / "auth.json"
            write |= {login: login} if login.is_file() else {}
        return Confinement(
            read=(*self._program.files(), *(home / part for part in _SETTINGS)),
            write=write,
            empty=(home,),
            hosts=() if model else hosts,
            model=model,
        )

    def _key(self, order: Order) -> str | None:
        return next(filter(None, (self._program.value(name, order) for name in reversed(_KEYS))), None)

    def _uses_gateway(self, order: Order) -> bool:
        return self._key(order) is not None and "model_provider" not in self._provider_text(order)

    def _provider_text(self, order: Order) -> str:
        """Return where an operator can set another provider: the arguments and the configuration file."""
        try:
            written = (self._home(order) / "config.toml").read_text("utf-8", "replace")
        except OSError:
            written = ""
        return "\n".join((*self._settings.args, *string_option(order, "args"), written))

    def _provider_hosts(self, order: Order) -> list[str]:
        found = []
        for url in _BASE_URL.findall(self._provider_text(order)):
            parts = urlsplit(url)
            if parts.hostname:
                port = parts.port or (443 if parts.scheme == "https" else 80)
                found.append(f"{parts.hostname}:{port}")
        return found

    def _sessions(self, order: Order) -> Path:
        home = self._home(order)
        if not order.confined:
            return home / "sessions"
        return home / "kingdom" / hashlib.sha256(str(order.cwd.resolve()).encode()).hexdigest()[:20]

    def program_path(self) -> str:
        """Return the path of its program, without starting it. Raises :class:`EngineNotInstalled`."""
        return self._program.find()

    async def examine(self) -> Examined:
        """Check whether it is installed, and which version."""
        return await self._program.examine()

    def _configuration(self, order: Order, servers: CodexServers) -> dict[str, Any]:
        made: dict[str, Any] = {
            # Otherwise the repository's .codex/config.toml applies, and its MCP servers start at once.
            "projects": {str(folder): {"trust_level": "untrusted"} for folder in (order.cwd, order.cwd.resolve())},
            # The key is for codex, not for the commands it runs.
            "shell_environment_policy.exclude": [*_KEYS, *sorted(servers.env)],
        }
        # AGENTS.md of an untrusted folder is ignored, so it is passed explicitly.
        if instructions := read_instructions(order.cwd, "AGENTS.md", _INSTRUCTIONS_BYTES):
            made["developer_instructions"] = instructions
        for name, table in servers.tables.items():
            made[f"mcp_servers.{name}"] = table
        if order.confined:  # neither can be reached, and the attempts would be reported as those of the agent
            made |= {"analytics.enabled": False, "features.plugins": False}
        if order.confined and self._uses_gateway(order):
            provider = {"name": "OpenAI", "base_url": f"{GATEWAY_URL}/model", "env_key": "OPENAI_API_KEY"}
            made |= {"model_provider": "kingdom", "model_providers.kingdom": {**provider, "wire_api": "responses"}}
        return made

    def _home(self, order: Order) -> Path:
        env = {**self._environ, **self._program.environment(order)}
        return Path(env.get("CODEX_HOME") or Path(env.get("HOME") or "/") / ".codex")


def _sandbox(order: Order) -> list[str]:
    results = order.result_path.parent
    match "full" if order.confined else order.profile:
        case "full":
            return ["-s", "danger-full-access"]
        case "edit":
            admin = (folder for place in (order.folders or (order.cwd,)) for folder in _commit_folders(place))
            writable = [results, *(folder for folder in admin if folder.is_dir())]
            return ["-s", "workspace-write", *(word for folder in writable for word in ("--add-dir", str(folder)))]
    # Not "-s read-only": it would forbid writing the result.
    permissions = {"filesystem": {":root": "read", str(results): "write"}}
    return ["-c", 'default_permissions="kingdom"', "-c", f"permissions.kingdom={to_toml(permissions)}"]


def _commit_folders(cwd: Path) -> list[Path]:
    """Return the folders outside a worktree that a commit in it writes to: not the clone's configuration or hooks."""
    found = find_clone(cwd)
    if found is None:
        return []
    admin, clone = found
    return [admin, clone / "objects", clone / "refs", clone / "logs"]
