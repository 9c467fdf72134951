"""The folder of a run, ``state/soldiers/<run-id>/``: what is needed to adopt the run, and how it ended.

================ ================================================================= ==============
file             what                                                              written by
================ ================================================================= ==============
``order.json``   the order, without prompt and without values of the environment   runner
``prompt.md``    the prompt                                                        runner
``stdin``        the agent's standard input                                        runner
``spec.json``    instructions for the shim; names of the environment, no values    host
``env.json``     the environment, tmux host only; the shim removes it              host
``identity.json`` pid, start time, boot id; written before the agent runs          shim
``stop.json``    why we stopped it                                                 runner
``net.json``     hosts, ports and the hash of the key of a confined run            runner
``spent.json``   what a confined run has used of its caps, as the gateway counts   runner
``net.sock``     where the gateway of a confined run waits for the shim            runner
``exit.json``    how the process ended                                             shim
``outcome.json`` the outcome                                                       runner
================ ================================================================= ==============

Only our user can read them (0600).
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kingdom.agents.errors import AlreadyStarted, InvalidOrder, StartFailed
from kingdom.agents.port import Caps, Order, Outcome, Timers, Tokens
from kingdom.agents.verdict import ProcessExit, StopReason
from kingdom.base.files import encode_json, read_json, write_atomic, write_once

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@+\-]{0,199}\Z")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The processes of a run: ids with start times and boot id, which together identify a process uniquely."""

    boot_id: str
    pid: int  # of the agent; also the id of its process group and session
    start: int | None
    shim_pid: int
    shim_start: int | None
    started_at: float


class _FilePath:
    """The path of a file in a run's folder, computed on access: most runs use few of them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, _: object) -> Path:
        return folder.path / self._name


class RunFolder:
    """The files of one run."""

    order = _FilePath("order.json")
    prompt = _FilePath("prompt.md")
    stdin = _FilePath("stdin")
    spec = _FilePath("spec.json")
    environment = _FilePath("env.json")
    identity = _FilePath("identity.json")
    stop = _FilePath("stop.json")
    exit = _FilePath("exit.json")
    network = _FilePath("net.json")
    spent = _FilePath("spent.json")
    outcome = _FilePath("outcome.json")
    log = _FilePath("shim.log")

    def __init__(self, soldiers: Path, run_id: str) -> None:
        if not isinstance(run_id, str) or not _NAME.match(run_id):
            raise InvalidOrder(
                f"run id {run_id!r:.80} cannot be a file name: use A-Z a-z 0-9 . _ : @ + -, no leading dot"
            )
        self.run_id = run_id
        self.path = soldiers / run_id

    def create(self) -> None:
        """Create it. Raises :class:`AlreadyStarted` when it exists: a run id is used once."""
        try:
            self.path.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            raise AlreadyStarted(
                f"run {self.run_id} was started before ({self.path}): adopt it, or use another id"
            ) from None
        except OSError as error:
            raise StartFailed(
                f"run {self.run_id}: the folder {self.path} cannot be created: {error.strerror}"
            ) from error

    def give_up(self) -> bool:
        """Ensure that a run without an identity never starts. Returns False when it has just started."""
        with contextlib.suppress(FileNotFoundError):
            given_up = encode_json({"run_id": self.run_id, "given_up": True})
            if not write_once(self.identity, given_up, durable=False, mode=0o600):
                return False
        shutil.rmtree(self.path, ignore_errors=True)
        return True

    def write(self, path: Path, document: Mapping[str, Any]) -> None:
        """Write one of its files, readable only by our user. On one line: formatting takes four times as long."""
        write_atomic(path, json.dumps(document), durable=False, mode=0o600)

    def write_order(self, order: Order) -> None:
        """Save what a later process needs to adopt the run."""
        self.write(self.order, _order_document(order))

    def read_order(self, environ: Mapping[str, str] | None = None) -> Order | None:
        """Load the saved order, which has no prompt. The values of its environment are taken from ``environ``."""
        document = read_json(self.order)
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            mcp_config = document.pop("mcp_config")
            names = document.pop("env")
            return Order(
                **{
                    **document,
                    "prompt": "",
                    "cwd": Path(document["cwd"]),
                    "result_path": Path(document["result_path"]),
                    "timers": Timers(**document["timers"]),
                    "caps": Caps(**document["caps"]),
                    "mcp_config": Path(mcp_config) if mcp_config else None,
                    "env": {name: environ[name] for name in names if name in environ} if environ else {},
                    "network": tuple(document.get("network", ())),
                    "folders": tuple(map(Path, document.get("folders", ()))),
                }
            )
        return None

    def write_outcome(self, outcome: Outcome) -> None:
        """Save the outcome."""
        self.write(self.outcome, {**_fields(outcome), "tokens": _fields(outcome.tokens)})

    def read_outcome(self) -> Outcome | None:
        """Load the outcome; None when none was recorded."""
        document = read_json(self.outcome)
        with contextlib.suppress(KeyError, TypeError):
            return Outcome(**{**document, "tokens": Tokens(**document["tokens"])})
        return None

    def read_identity(self) -> ProcessIdentity | None:
        """Load the identity; None until the shim has written it."""
        document = read_json(self.identity)
        with contextlib.suppress(KeyError, TypeError, ValueError):
            return ProcessIdentity(
                boot_id=str(document["boot_id"]),
                pid=int(document["pid"]),
                start=_number(document["start"]),
                shim_pid=int(document["shim_pid"]),
                shim_start=_number(document["shim_start"]),
                started_at=float(document["started_at"]),
            )
        return None

    def write_stop(self, stop: StopReason) -> None:
        """Save why we stop the run, for a process that adopts it."""
        self.write(self.stop, _fields(stop))

    def read_stop(self) -> StopReason | None:
        """Load why we stopped the run; None if we did not."""
        document = read_json(self.stop)
        with contextlib.suppress(TypeError):
            return StopReason(**document)
        return None

    def read_ending(self, errors: str) -> tuple[ProcessExit, float | None]:
        """Load how and when the process ended, as recorded by the shim."""
        document = read_json(self.exit)
        with contextlib.suppress(KeyError, TypeError, ValueError):
            ending = ProcessExit(
                code=_number(document["code"]),
                signal=_number(document["signal"]),
                stopped=document["stopped"],
                start_error=document["error"],
                errors=errors,
            )
            return ending, float(document["ended_at"])
        return ProcessExit(seen=False, errors=errors), None


def _fields(one: Outcome | Tokens | Timers | Caps | StopReason) -> dict[str, Any]:
    """Return the fields of a dataclass, unlike ``asdict`` without copying their values."""
    return {name: getattr(one, name) for name in one.__slots__}


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _order_document(order: Order) -> dict[str, Any]:
    return {
        "run_id": order.run_id,
        "task_id": order.task_id,
        "engine": order.engine,
        "cwd": str(order.cwd),
        "result_path": str(order.result_path),
        "options": dict(order.options),
        "env": sorted(order.env),
        "model": order.model,
        "session_id": order.session_id,
        "profile": order.profile,
        "timers": _fields(order.timers),
        "caps": _fields(order.caps),
        "mcp_config": str(order.mcp_config) if order.mcp_config else None,
        "labels": dict(order.labels),
        "sandbox": order.sandbox,
        "network": list(order.network),
        "folders": [str(folder) for folder in order.folders],
        "confined": order.confined,
    }
