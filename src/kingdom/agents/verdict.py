"""How a run ended: from what it said, the result it left, and the way its process went. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kingdom.agents.contract import check_result
from kingdom.agents.errors import InvalidResult
from kingdom.agents.port import Status, Timer
from kingdom.agents.usage import RunUsage

_SUMMARY: Final = 4000  # characters of what an agent said last that stand for a summary it did not write
_SHELL_SIGNALS: Final = {128 + number: number for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM)}


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why we ended a run."""

    status: Status | None  # None: it had said that it is done and did not go by itself
    reason: str
    timer: Timer | None = None


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How the process went."""

    seen: bool = True  # False: nobody saw its end, its shim is gone too
    code: int | None = None
    signal: int | None = None
    stopped: str | None = None  # the signal that told the shim to end it, or "ceiling"
    start_error: str | None = None
    errors: str = ""  # the end of what it wrote to standard error

    @property
    def exit_code(self) -> int | None:
        """As Python has it: negative for a signal."""
        return -self.signal if self.signal else self.code


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """What is to be believed."""

    status: Status
    result: Mapping[str, Any] | None = None
    error: str | None = None
    timer: Timer | None = None


def judge(
    account: RunUsage,
    ending: ProcessExit,
    stop: StopReason | None,
    result: dict[str, Any] | str | None,
    *,
    exit_code_decides: bool,
) -> RunVerdict:
    """Decide. ``result`` is what :func:`kingdom.agents.contract.read_result` says of the result file."""
    document = _document(account, result)
    refused = result if isinstance(result, str) else None
    finished = account.finished
    done = finished is not None and finished.ok
    if stop is not None and stop.status == "killed":
        return RunVerdict("killed", document, stop.reason)
    if account.rejected is not None and not done:
        return RunVerdict("rate_limited", document, _rate_limit(account))
    if stop is not None and stop.status is not None:
        return RunVerdict(stop.status, document, stop.reason, stop.timer)
    if ending.start_error:
        return RunVerdict("failed", None, f"the program could not be started: {ending.start_error}")
    if finished is None and (how := _cut_off(ending)):
        if ending.stopped == "ceiling":
            return RunVerdict("timeout", document, how, "total")
        return RunVerdict("killed", document, how)
    problem = _problem(account, ending, exit_code_decides=exit_code_decides)
    status = document["status"] if document else None
    if document and status in ("needs_human", "failed"):
        return RunVerdict(status, document, document["error"] or _error_of(status, document, problem))
    if problem or refused:
        return RunVerdict("failed", document, _joined(problem, refused))
    if document and document["error"]:
        return RunVerdict("failed", document, f"the result says {status}, with an error: {document['error']}")
    if document:
        return RunVerdict(document["status"], document)
    said = (finished.text if finished else None) or account.last_text or ""
    return RunVerdict("success", check_result({"status": "success", "summary": _clean(said)}))


def _document(account: RunUsage, result: dict[str, Any] | str | None) -> dict[str, Any] | None:
    """The result file, else the engine's structured output."""
    if isinstance(result, dict):
        return result
    if account.finished is None or account.finished.structured is None:
        return None
    try:
        return check_result(dict(account.finished.structured))
    except InvalidResult:
        return None


def _cut_off(ending: ProcessExit) -> str | None:
    """Whether it ended before it was done by somebody else's hand, and how."""
    if not ending.seen:
        return "it ended and nobody saw how: it and its watcher were killed, or the machine went down"
    if ending.stopped == "ceiling":
        return "it ran past twice its total time while no daemon was there"
    if ending.stopped:
        return f"it was stopped from outside ({ending.stopped} to its watcher)"
    number = ending.signal or _SHELL_SIGNALS.get(ending.code or 0)
    return f"it was ended by {_name(number)}, not by us" if number else None


def _problem(account: RunUsage, ending: ProcessExit, *, exit_code_decides: bool) -> str | None:
    """Why what it says cannot be a success."""
    finished = account.finished
    if finished is not None:
        return None if finished.ok else finished.error or "the engine says it failed"
    if exit_code_decides and ending.code == 0:
        return None
    how = f"exit code {ending.code}" if ending.code is not None else "no exit code"
    if exit_code_decides:
        return _with_errors(how, ending)
    return _with_errors(f"it ended ({how}) without saying that it was done", ending)


def _error_of(status: Status, document: Mapping[str, Any], problem: str | None) -> str | None:
    return None if status == "needs_human" else problem or document["summary"] or "it says it failed, and not why"


def _rate_limit(account: RunUsage) -> str:
    rejected = account.rejected
    window = f" ({rejected.window})" if rejected and rejected.window else ""
    return f"the engine's account is over its limit{window}"


def _with_errors(text: str, ending: ProcessExit) -> str:
    return f"{text}: {ending.errors}" if ending.errors else text


def _joined(*texts: str | None) -> str:
    return "; ".join(text for text in texts if text)


def _clean(text: str) -> str:
    kept = text.strip()[:_SUMMARY].replace("\0", "")
    return kept.encode("utf-8", "replace").decode()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
