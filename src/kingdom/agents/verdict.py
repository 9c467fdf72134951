"""Decide how a run ended: from its events, its result file and the exit of its process. No I/O."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kingdom.agents.contract import check_result
from kingdom.agents.errors import InvalidResult
from kingdom.agents.port import Status, Timer
from kingdom.agents.sandbox.limits import describe
from kingdom.agents.usage import RunUsage

_MAX_SUMMARY_CHARS: Final = 4000  # of the last message, which replaces a missing summary
REPORTED: Final = "reported"  # False in a result that was made of the last text, because the agent left none
_SHELL_SIGNALS: Final = {128 + number: number for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM)}


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why we stopped a run."""

    status: Status | None  # None: it reported its end, but its process did not exit
    reason: str
    timer: Timer | None = None


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How the process of a run ended."""

    seen: bool = True  # False: unknown, because its shim is gone too
    code: int | None = None
    signal: int | None = None
    stopped: str | None = None  # the signal that made the shim stop it, "ceiling", "lease", or the limit it exceeded
    start_error: str | None = None
    errors: str = ""  # the end of its standard error

    @property
    def exit_code(self) -> int | None:
        """The exit code; negative for a signal, as in Python."""
        return -self.signal if self.signal else self.code


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The decision."""

    status: Status
    result: Mapping[str, Any] | None = None
    error: str | None = None
    timer: Timer | None = None
    lease_ended: bool = False


def judge(
    usage: RunUsage,
    ending: ProcessExit,
    stop: StopReason | None,
    result: dict[str, Any] | str | None,
    *,
    exit_code_decides: bool,
) -> RunVerdict:
    """Decide how a run ended. ``result`` is what :func:`kingdom.agents.contract.read_result` returned."""
    document = _document(usage, result)
    refused = result if isinstance(result, str) else None
    finished = usage.finished
    done = finished is not None and finished.ok
    if stop is not None and stop.status == "killed":
        return RunVerdict("killed", document, stop.reason)
    if usage.rejected is not None and not done:
        return RunVerdict("rate_limited", document, _rate_limit(usage))
    if stop is not None and stop.status is not None:
        return RunVerdict(stop.status, document, stop.reason, stop.timer)
    if ending.start_error:
        return RunVerdict("failed", None, f"the program could not be started: {ending.start_error}")
    if ending.stopped is not None and (limit := describe(ending.stopped)) is not None:
        return RunVerdict("failed", document, f"{limit}: it was ended (sandbox.limits in config/system.yaml)")
    if finished is None and (how := _external_end(ending)):
        if ending.stopped == "ceiling":
            return RunVerdict("timeout", document, how, "total")
        return RunVerdict("killed", document, how, lease_ended=ending.stopped == "lease")
    problem = _problem(usage, ending, exit_code_decides=exit_code_decides)
    status = document["status"] if document else None
    if document and status in ("needs_human", "failed"):
        return RunVerdict(status, document, document["error"] or _error_of(status, document, problem))
    if problem or refused:
        return RunVerdict("failed", document, _joined(problem, refused))
    if document and document["error"]:
        return RunVerdict("failed", document, f"the result says {status}, with an error: {document['error']}")
    if document:
        return RunVerdict(document["status"], document)
    said = (finished.text if finished else None) or usage.last_text or ""
    # Only its last words: enough for a workflow's query, not for a task of the court. An exit code is a report.
    unreported = {} if exit_code_decides else {REPORTED: False}
    return RunVerdict("success", check_result({"status": "success", "summary": _clean(said), **unreported}))


def _document(usage: RunUsage, result: dict[str, Any] | str | None) -> dict[str, Any] | None:
    """Return the result file, else the engine's structured output."""
    if isinstance(result, dict):
        return result
    if usage.finished is None or usage.finished.structured is None:
        return None
    try:
        return check_result(dict(usage.finished.structured))
    except InvalidResult:
        return None


def _external_end(ending: ProcessExit) -> str | None:
    """Return how the process was ended from outside, before it reported its end; None if it was not."""
    if not ending.seen:
        return "it ended and nobody saw how: it and its watcher were killed, or the machine went down"
    if ending.stopped == "ceiling":
        return "it ran past twice its total time while no daemon was there"
    if ending.stopped == "lease":
        return "its engine did not renew its lease in time"
    if ending.stopped:
        return f"it was stopped from outside ({ending.stopped} to its watcher)"
    number = ending.signal or _SHELL_SIGNALS.get(ending.code or 0)
    return f"it was ended by {_name(number)}, not by us" if number else None


def _problem(usage: RunUsage, ending: ProcessExit, *, exit_code_decides: bool) -> str | None:
    """Return why the run cannot be a success; None if it can."""
    finished = usage.finished
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


def _rate_limit(usage: RunUsage) -> str:
    rejected = usage.rejected
    if rejected is not None and rejected.reason is not None:
        return rejected.reason
    window = f" ({rejected.window})" if rejected and rejected.window else ""
    return f"the engine's account is over its limit{window}"


def _with_errors(text: str, ending: ProcessExit) -> str:
    return f"{text}: {ending.errors}" if ending.errors else text


def _joined(*texts: str | None) -> str:
    return "; ".join(text for text in texts if text)


def _clean(text: str) -> str:
    kept = text.strip()[:_MAX_SUMMARY_CHARS].replace("\0", "")
    return kept.encode("utf-8", "replace").decode()


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
