"""What an engine is, and the environment that its program gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from kingdom.agents.errors import InvalidOrder

if TYPE_CHECKING:
    from kingdom.agents.port import AgentEvent, Finished, OnEvent, Order


# What an engine is: how its program is started, and what its lines mean.
#
# An engine is one module behind :class:`Engine`. Starting, watching, stopping and adopting processes is the host's work,
# the same for all of them.


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


class InProcessEngine(Protocol):
    """An engine without a process: it plays its part inside ours (``scripted``)."""

    name: str

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        """Do the work, telling what happens.

        Cancelled when the run is stopped, with the reason as the message; without one when it is only let go of, and
        the same order may be played again by the next process.
        """

    async def examine(self) -> Examined:
        """Always usable."""


# The environment of an agent: a short list of names from ours, and what the order and the engine add. Nothing else.
#
# What the daemon knows by environment (tokens of GitHub, Slack, Jira) stays with the daemon unless a manifest names it.


TASK_ID_VARIABLE: Final = "KINGDOM_TASK_ID"
RUN_ID_VARIABLE: Final = "KINGDOM_RUN_ID"  # also the mark by which the processes of a run are found again
RESULT_PATH_VARIABLE: Final = "KINGDOM_RESULT_PATH"

_NAMES: Final = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TZ", "TMPDIR"),
        *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "PIP_CERT", "CARGO_HTTP_CAINFO"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    )
)
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


def inherited_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that every agent may see."""
    kept = {name: value for name, value in base.items() if name in _NAMES or name.startswith("LC_")}
    kept.setdefault("PATH", _DEFAULT_PATH)
    return kept


def run_environment(order: Order, base: Mapping[str, str], engine: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of one run: ours as far as it is listed, the engine's, the order's, and who it is."""
    made = {
        **inherited_environment(base),
        **(engine or {}),
        **order.env,
        TASK_ID_VARIABLE: order.task_id,
        RUN_ID_VARIABLE: order.run_id,
        RESULT_PATH_VARIABLE: str(order.result_path),
    }
    for name, value in made.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise InvalidOrder(
                f"the environment of run {order.run_id} has {name!r:.80}: no =, no NUL in names or values"
            )
    return made
