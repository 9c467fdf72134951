"""The port between those who have work done and the agents who do it.

An :class:`Order` says what to do, where, and how long it may take. :class:`Agents` starts it and returns a
:class:`Running`; while it runs, typed events reach ``on_event``; when it has ended, nothing of it is alive any more and
``wait`` returns the :class:`Outcome`. A run survives its caller: after a restart :meth:`Agents.adopt` finds it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Status = Literal["success", "failed", "needs_human", "skipped", "killed", "timeout", "rate_limited"]
Profile = Literal["read", "edit", "full"]
Timer = Literal["first_output", "silence", "total"]


@dataclass(frozen=True, slots=True)
class Timers:
    """How long a run may take, in seconds."""

    first_output: float = 120.0  # until the first line
    silence: float = 600.0  # between two lines
    total: float = 1800.0  # altogether; lines that keep coming extend it, up to twice
    after_result: float = 10.0  # from the result to the end of the process; then it is ended
    stop: float = 5.0  # from the interrupt to SIGTERM, and from SIGTERM to SIGKILL


@dataclass(frozen=True, slots=True)
class Caps:
    """What a run may use, counted here, not by the agent. None: no limit."""

    turns: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens by class."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        """All of them."""
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
    """One run of an agent: what to do, where, as whom, within which limits."""

    run_id: str  # the soldier's id; also the name of its transcript
    task_id: str
    engine: str  # claude, codex, command, scripted, or another distribution's
    prompt: str
    cwd: Path
    result_path: Path  # where the agent leaves its result (kingdom.agents.contract)
    options: Mapping[str, Any] = field(default_factory=dict)  # the engine's own (command: argv; scripted: script)
    env: Mapping[str, str] = field(default_factory=dict)  # beside the allow-listed environment
    model: str | None = None
    session_id: str | None = None  # a conversation to go on with, begun in the same cwd
    profile: Profile = "edit"  # read only, may edit below cwd, may do anything
    timers: Timers = field(default_factory=Timers)
    caps: Caps = field(default_factory=Caps)
    mcp_config: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)  # general, workflow, … as they go into the ledger


# ── what happens meanwhile ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Began:
    """The agent speaks for the first time."""

    session_id: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """The agent says something."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The agent uses a tool; ``detail`` is one line for people."""

    name: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life that says nothing else."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the run has used so far, altogether."""

    tokens: Tokens
    cost_usd: float | None = None
    turns: int = 0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The engine's account is near its limit (``warning``) or over it (``rejected``)."""

    status: Literal["warning", "rejected"]
    resets_at: float | None = None  # seconds since the epoch
    window: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The agent says it is done. The process may still run, or hang."""

    ok: bool
    text: str | None = None
    structured: Mapping[str, Any] | None = None  # a result document, where the engine gives one
    error: str | None = None


AgentEvent = Began | Text | ToolUse | Heartbeat | Usage | RateLimit | Finished
OnEvent = Callable[[AgentEvent], None]


# ── what came of it ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended."""

    status: Status
    result: Mapping[str, Any] | None = None  # the result document, checked (kingdom.agents.contract)
    error: str | None = None  # why it is not a success, for people
    session_id: str | None = None
    model: str | None = None
    tokens: Tokens = field(default_factory=Tokens)
    cost_usd: float | None = None
    cost_source: Literal["result", "stream", "estimate", "none"] = "none"
    turns: int = 0
    exit_code: int | None = None  # None when it was adopted and nobody saw its end
    timer: Timer | None = None  # which one ran out, for status timeout
    resets_at: float | None = None  # for status rate_limited
    started_at: float = 0.0
    ended_at: float = 0.0


class Running(Protocol):
    """A run under way."""

    run_id: str
    pid: int | None  # of the process group; None for one that has no process

    async def wait(self) -> Outcome:
        """Return when it has ended and nothing of it is alive. May be called more than once."""

    async def stop(self, reason: str) -> None:
        """End it: interrupt, then SIGTERM, then SIGKILL for everything it started. ``wait`` then says ``killed``."""


class Agents(Protocol):
    """Starts runs, and finds them again."""

    async def start(self, order: Order, on_event: OnEvent | None = None) -> Running:
        """Start a run. Raises :class:`kingdom.agents.errors.EngineNotInstalled` and others of that module."""

    async def adopt(self, run_id: str, on_event: OnEvent | None = None) -> Running | None:
        """Take over a run that another process of ours began: it goes on, or its end is told now.

        Returns None when there is no such run, or it began and never got to running.
        """

    async def close(self) -> None:
        """Let go of all runs: nobody watches them any more, and those with a process go on. Safe to repeat."""
