"""The folder of a run, ``state/soldiers/<run-id>/``: what is needed to find it again, and how it ended.

================ ================================================================= ==============
file             what                                                              written by
================ ================================================================= ==============
``order.json``   the order, without prompt and without values of the environment   runner
``prompt.md``    the prompt                                                        runner
``stdin``        what the agent reads                                              runner
``spec.json``    what the shim shall do; names of the environment, no values       host
``env.json``     the environment, tmux host only: gone once the shim has read it   host
``identity.json`` pid, start time, boot id: there before the agent runs            shim
``stop.json``    why we ended it                                                   runner
``exit.json``    how it ended                                                      shim
``outcome.json`` what came of it                                                   runner
================ ================================================================= ==============

All of them are readable by us alone (0600).
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kingdom.agents.errors import AlreadyStarted, InvalidOrder, StartFailed
from kingdom.agents.port import Caps, Order, Outcome, Timers, Tokens
from kingdom.agents.verdict import ProcessExit, StopReason
from kingdom.base.files import encode_json, read_json, write_json, write_once

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:@+\-]{0,199}\Z")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Which processes a run has: their numbers, with start times and the boot, so that these are meant and no other."""

    boot_id: str
    pid: int  # of the agent; also its process group and its session
    start: int | None
    shim_pid: int
    shim_start: int | None
    started_at: float


class _Inside:
    """The path of a file in a run's folder. Made when it is asked for: a run has many of them and uses few."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, folder: RunFolder, _: object) -> Path:
        return folder.path / self._name


class RunFolder:
    """Where the files of one run lie."""

    order = _Inside("order.json")
    prompt = _Inside("prompt.md")
    stdin = _Inside("stdin")
    spec = _Inside("spec.json")
    environment = _Inside("env.json")
    identity = _Inside("identity.json")
    stop = _Inside("stop.json")
    exit = _Inside("exit.json")
    outcome = _Inside("outcome.json")
    log = _Inside("shim.log")

    def __init__(self, soldiers: Path, run_id: str) -> None:
        if not isinstance(run_id, str) or not _NAME.match(run_id):
            raise InvalidOrder(
                f"run id {run_id!r:.80} cannot be a file name: use A-Z a-z 0-9 . _ : @ + -, no leading dot"
            )
        self.run_id = run_id
        self.path = soldiers / run_id

    def create(self) -> None:
        """Make it. A run id is used once."""
        try:
            self.path.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            raise AlreadyStarted(
                f"run {self.run_id} was started before ({self.path}): take it over, or use another id"
            ) from None
        except OSError as error:
            raise StartFailed(f"run {self.run_id}: the folder {self.path} cannot be made: {error.strerror}") from error

    def give_up(self) -> bool:
        """Make sure that a run without identity never starts. False when it has just started after all."""
        with contextlib.suppress(FileNotFoundError):
            given_up = encode_json({"run_id": self.run_id, "given_up": True})
            if not write_once(self.identity, given_up, durable=False, mode=0o600):
                return False
        shutil.rmtree(self.path, ignore_errors=True)
        return True

    def write(self, path: Path, document: Mapping[str, Any]) -> None:
        """Write one of its files, readable by us alone."""
        write_json(path, document, durable=False, mode=0o600)

    def write_order(self, order: Order) -> None:
        """Keep what a later process needs to take the run over."""
        self.write(self.order, _order_document(order))

    def read_order(self) -> Order | None:
        """The order as it was kept: with an empty prompt and an empty environment."""
        document = read_json(self.order)
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            mcp_config = document.pop("mcp_config")
            del document["env"]
            return Order(
                **{
                    **document,
                    "prompt": "",
                    "cwd": Path(document["cwd"]),
                    "result_path": Path(document["result_path"]),
                    "timers": Timers(**document["timers"]),
                    "caps": Caps(**document["caps"]),
                    "mcp_config": Path(mcp_config) if mcp_config else None,
                }
            )
        return None

    def write_outcome(self, outcome: Outcome) -> None:
        """Keep what came of the run."""
        self.write(self.outcome, {**_fields(outcome), "tokens": _fields(outcome.tokens)})

    def read_outcome(self) -> Outcome | None:
        """What came of the run, if it has ended and we saw it."""
        document = read_json(self.outcome)
        with contextlib.suppress(KeyError, TypeError):
            return Outcome(**{**document, "tokens": Tokens(**document["tokens"])})
        return None

    def read_identity(self) -> ProcessIdentity | None:
        """Who the agent and its shim are, once the shim has said so."""
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
        """Say why we end the run, for whoever takes over from us."""
        self.write(self.stop, _fields(stop))

    def read_stop(self) -> StopReason | None:
        """Why we ended the run, if we did."""
        document = read_json(self.stop)
        with contextlib.suppress(TypeError):
            return StopReason(**document)
        return None

    def read_ending(self, errors: str) -> tuple[ProcessExit, float | None]:
        """How the shim says it ended, and when."""
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
    """The fields of one of our dataclasses; unlike ``asdict`` without copying what is in them."""
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
    }
