"""The interface of an engine, and the environment that its program gets.

An engine says how its program is started and what its output means. Starting, watching, stopping and adopting processes
is the same for all engines (:mod:`kingdom.agents.runner`).

The environment has a short list of our own variables, and what the engine and the order add. Secrets in the daemon's
environment (tokens of GitHub, Slack, Jira) are not passed on unless a manifest names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from kingdom.agents.errors import InvalidOrder

if TYPE_CHECKING:
    from kingdom.agents.port import AgentEvent, Finished, OnEvent, Order


PROMPT_PATH: Final = "{prompt_path}"
RUN_KEY: Final = "{run_key}"  # in a value of the environment: replaced by the key of a confined run
GATEWAY_URL: Final = "http://127.0.0.1:3128"  # in a confined run; the model is below /model


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start the program of one run: an argument list, never a shell string."""

    argv: tuple[str, ...]  # an argument equal to PROMPT_PATH is replaced by the path of a file with the prompt
    env: Mapping[str, str] = field(default_factory=dict)  # in addition to the allow-listed environment and the order's
    stdin: bytes = b""  # becomes standard input, as a file: it ends and never blocks


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The model's API, for a gateway outside the sandbox: where it is, and the header with the real key."""

    url: str  # without a slash at its end
    header: str
    value: str


@dataclass(frozen=True, slots=True)
class Confinement:
    """What the program of a run needs in its sandbox, besides the system, its working directory and its result."""

    read: tuple[Path, ...] = ()  # files and folders it reads
    write: Mapping[Path, Path] = field(default_factory=dict)  # what it keeps between runs: path inside, path outside
    empty: tuple[Path, ...] = ()  # folders that start empty and end with the run
    hosts: tuple[str, ...] = ()  # that it connects to: "api.example.com", "*.example.com", "127.0.0.1:8080"
    model: ModelAccess | None = None  # None: it brings its own login


class LineReader(Protocol):
    """Parses the output of one run, line by line. A line may be anything: truncated, huge, not JSON."""

    def feed(self, line: bytes) -> Sequence[AgentEvent]:
        """Return the events in a line; none for an unknown line. Never raises because of what a program printed."""


@runtime_checkable
class EndReader(Protocol):
    """An optional method of a reader whose program keeps a record elsewhere, written later than its output."""

    def end(self) -> Sequence[AgentEvent]:
        """Return the events from the record after the program has ended, also when it was stopped."""


@dataclass(frozen=True, slots=True)
class Examined:
    """Whether an engine can be used on this machine."""

    ok: bool
    path: str | None = None
    version: str | None = None
    problem: str | None = None  # what is wrong, and what to do


class Engine(Protocol):
    """An engine with a program.

    If its reader never returns ``Finished``, it has an attribute ``exit_code_decides = True``: exit code 0 then means
    success. For any other engine, exit code 0 without ``Finished`` is a failure.
    """

    name: str

    def launch(self, order: Order) -> Launch:
        """Return how to start it. Raises :class:`kingdom.agents.errors.EngineNotInstalled`."""

    def reader(self, order: Order) -> LineReader:
        """Return a reader for the output of one run."""

    async def examine(self) -> Examined:
        """Check whether it is installed, and which version."""


@runtime_checkable
class ConfinableEngine(Protocol):
    """An optional method of an engine that needs more in its sandbox than its working directory."""

    def confinement(self, order: Order) -> Confinement:
        """Return what a run needs. ``order.confined`` is set, so ``launch`` can use the gateway."""


@runtime_checkable
class InstalledEngine(Protocol):
    """An optional method of an engine whose program has to be installed."""

    def program_path(self) -> str:
        """Return the path of its program, without starting it. Raises ``EngineNotInstalled``."""


class AgentCrashed(Exception):
    """Raised by an engine inside our process whose agent has died. The outcome is ``killed``."""


class InProcessEngine(Protocol):
    """An engine without a program: it runs inside our process (``scripted``, ``workflow``)."""

    name: str

    async def play(self, order: Order, on_event: OnEvent) -> Finished:
        """Do the work, and report events.

        Cancelled when the run is stopped, with the reason as the message. Cancelled without a message when the runner
        closes: the next process may then play the same order again.
        """

    async def examine(self) -> Examined:
        """Check whether it can be used."""


TASK_ID_VARIABLE: Final = "KINGDOM_TASK_ID"
RUN_ID_VARIABLE: Final = "KINGDOM_RUN_ID"  # also identifies the processes of a run
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
    """Return the part of an environment that every agent may see."""
    kept = {name: value for name, value in base.items() if name in _NAMES or name.startswith("LC_")}
    kept.setdefault("PATH", _DEFAULT_PATH)
    return kept


def run_environment(order: Order, base: Mapping[str, str], engine: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of one run: the allow-listed part of ours, the engine's, the order's, and its ids."""
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
                f"the environment of run {order.run_id} has {name!r:.80}: names must not have = or NUL, values no NUL"
            )
    return made
