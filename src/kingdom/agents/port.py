"""The port through which the court and the workflow engine run agents.

An :class:`Order` says what to do, where, and within which limits. :meth:`Agents.start` starts it and returns a
:class:`Running`. While it runs, ``on_event`` receives typed events (:data:`AgentEvent`). When it has ended and none of
its processes is alive, :meth:`Running.wait` returns the :class:`Outcome`. A run survives its caller: after a restart,
:meth:`Agents.adopt` continues to watch it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Status = Literal["success", "failed", "needs_human", "skipped", "killed", "timeout", "rate_limited"]
"""How a run ended. The first four come from the agent's result, the last three from the runner."""

Profile = Literal["read", "edit", "full"]
"""What an agent may do: read only, also edit below its working directory, or anything."""

SandboxMode = Literal["off", "auto", "required"]
"""Whether runs are confined by the operating system: never, where this machine can, or not run otherwise."""

Timer = Literal["first_output", "silence", "total"]
"""The timers of a run; see :class:`Timers`."""


@dataclass(frozen=True, slots=True)
class Timers:
    """Time limits of a run, in seconds. A run that exceeds one is stopped, with status ``timeout``."""

    first_output: float = 120.0  # until the first line of output
    silence: float = 600.0  # between two lines of output
    total: float = 1800.0  # in all; a run that keeps printing may take up to twice as long
    after_result: float = 10.0  # from the result to the end of the process, which is then stopped
    stop: float = 5.0  # from the interrupt to SIGTERM, and from SIGTERM to SIGKILL


@dataclass(frozen=True, slots=True)
class Caps:
    """Usage limits of a run, counted by us and not by the agent. None means no limit."""

    turns: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Numbers of tokens by class."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        """The sum of all classes."""
        return self.input + self.output + self.cache_read + self.cache_write

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
        )


@dataclass(frozen=True, slots=True)
class Order:
    """One run of an agent: what to do, where, with which engine, within which limits."""

    run_id: str  # the soldier's id, used once; also the name of its transcript
    task_id: str
    engine: str  # claude, codex, command, scripted, or one of another distribution
    prompt: str
    cwd: Path  # the working directory; it must exist
    result_path: Path  # absolute; the agent writes its result there (kingdom.agents.contract)
    options: Mapping[str, Any] = field(default_factory=dict)  # of the engine (command: argv; scripted: script)
    env: Mapping[str, str] = field(default_factory=dict)  # in addition to the allow-listed environment
    model: str | None = None  # None: the engine's default
    session_id: str | None = None  # a conversation to continue, started in the same cwd
    profile: Profile = "edit"
    timers: Timers = field(default_factory=Timers)
    caps: Caps = field(default_factory=Caps)
    mcp_config: Path | None = None  # a file {"mcpServers": {…}}
    labels: Mapping[str, str] = field(default_factory=dict)  # recorded in the ledger: general, workflow, …
    sandbox: SandboxMode | None = None  # stricter than the runner's setting; None: as the runner is set
    network: tuple[str, ...] = ()  # hosts that a confined run may reach, besides the model's
    folders: tuple[Path, ...] = ()  # in ``cwd``; if any, it may write only in these: it is to keep out of the rest
    confined: bool = False  # set by the runner, never by its caller


# ── events of a run ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Began:
    """The agent has started a conversation."""

    session_id: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """A message of the agent."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The agent uses a tool. ``detail`` is one line for people, such as the command or the path."""

    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Output without further meaning: the agent is alive."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the run has used since it started."""

    tokens: Tokens
    cost_usd: float | None = None
    turns: int = 0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The engine's account is near its rate limit (``warning``) or over it (``rejected``).

    ``rejected`` also when the service is away, overloaded, or refuses the account: ``reason`` says which.
    """

    status: Literal["warning", "rejected"]
    resets_at: float | None = None  # seconds since the epoch
    window: str | None = None
    reason: str | None = None  # None: the limit of the account


@dataclass(frozen=True, slots=True)
class Finished:
    """The agent reports that it has finished. Its process may still run."""

    ok: bool
    text: str | None = None
    structured: Mapping[str, Any] | None = None  # a result document, if the engine provides one
    error: str | None = None


AgentEvent = Began | Text | ToolUse | Heartbeat | Usage | RateLimit | Finished
"""Everything a run reports while it runs."""

OnEvent = Callable[[AgentEvent], None]
"""A listener. An exception that it raises is logged and does not affect the run."""


# ── the outcome ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, and what it used."""

    status: Status
    result: Mapping[str, Any] | None = None  # the checked result document (kingdom.agents.contract)
    error: str | None = None  # why it did not succeed, for people
    session_id: str | None = None
    model: str | None = None
    tokens: Tokens = field(default_factory=Tokens)
    cost_usd: float | None = None
    cost_source: Literal["result", "stream", "estimate", "none"] = "none"
    turns: int = 0
    exit_code: int | None = None  # negative for a signal; None when nobody saw its end
    timer: Timer | None = None  # for status timeout: which one expired
    resets_at: float | None = None  # for status rate_limited: when to try again, if known
    started_at: float = 0.0  # seconds since the epoch, as ended_at
    ended_at: float = 0.0
    lease_ended: bool = False  # for status killed: the lease of its engine was not renewed in time


class Running(Protocol):
    """A run that was started or adopted."""

    run_id: str
    pid: int | None  # of its process group; None for a run inside our process

    async def wait(self) -> Outcome:
        """Wait until the run has ended and none of its processes is alive. May be called more than once."""

    async def stop(self, reason: str) -> None:
        """Stop the run: interrupt, then SIGTERM, then SIGKILL to every process it started.

        Returns at once. ``wait`` then returns an outcome with status ``killed`` and this reason.
        """


class Agents(Protocol):
    """Starts runs, and adopts runs that an earlier process started."""

    async def start(self, order: Order, on_event: OnEvent | None = None) -> Running:
        """Start a run. Raises an error of :mod:`kingdom.agents.errors`, such as ``EngineNotInstalled``."""

    async def adopt(self, run_id: str, on_event: OnEvent | None = None) -> Running | None:
        """Take over a run that an earlier process started, whether it still runs or has ended since.

        Of the events before the adoption, only ``Began`` is repeated. Returns None when there is no such run, or when
        it was interrupted before its program started.
        """

    async def close(self) -> None:
        """Stop watching all runs. Those with a process of their own continue. Safe to call twice."""
