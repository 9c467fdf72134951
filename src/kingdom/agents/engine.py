"""What an engine is: how its program is started, and what its lines mean.

An engine is one module behind :class:`Engine`. Starting, watching, stopping and adopting processes is the host's work,
the same for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from kingdom.agents.port import AgentEvent, Finished, OnEvent, Order


PROMPT_PATH: Final = "{prompt_path}"


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start the program of one run: an argument list, never a shell string."""

    argv: tuple[str, ...]  # an argument that is exactly PROMPT_PATH becomes the path of a file with the prompt
    env: Mapping[str, str] = field(default_factory=dict)  # beside the allow-listed environment and the order's
    stdin: bytes = b""  # written to a file that becomes standard input: it ends, it never blocks


class LineReader(Protocol):
    """Understands the output of one run, line by line. A line may be anything: torn, huge, not JSON."""

    def feed(self, line: bytes) -> Sequence[AgentEvent]:
        """What a line says; nothing, when it says nothing we know. Never raises for what a program printed."""


@runtime_checkable
class EndReader(Protocol):
    """What a reader can do besides whose program keeps a record elsewhere, which may be behind its output."""

    def end(self) -> Sequence[AgentEvent]:
        """What the record tells now that the program is gone, also if it was ended half-way."""


@dataclass(frozen=True, slots=True)
class Examined:
    """Whether an engine can be used here."""

    ok: bool
    path: str | None = None
    version: str | None = None
    problem: str | None = None  # what is wrong, and what to do about it


class Engine(Protocol):
    """A program that does work.

    One whose reader never says ``Finished`` has an attribute ``exit_code_decides = True``: an exit code of 0 is then
    its word for being done. For any other, an exit code of 0 without ``Finished`` is a failure.
    """

    name: str

    def launch(self, order: Order) -> Launch:
        """How to start it. Raises :class:`kingdom.agents.errors.EngineNotInstalled` when there is no such program."""

    def reader(self, order: Order) -> LineReader:
        """A reader for the output of one run."""

    async def examine(self) -> Examined:
        """Look whether it is installed, and which version."""


class Player(Protocol):
    """An engine without a process: it plays its part inside ours (``scripted``)."""

    name: str

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        """Do the work, telling what happens.

        Cancelled when the run is stopped, with the reason as the message; without one when it is only let go of, and
        the same order may be played again by the next process.
        """

    async def examine(self) -> Examined:
        """Always usable."""
