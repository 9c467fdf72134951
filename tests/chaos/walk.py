"""Every crash point of one event's life, one after the other."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos import stopper, strace
from tests.chaos.grounds import Ground
from tests.chaos.life import LIVES, TRANSACTIONAL
from tests.chaos.processes import Violation
from tests.chaos.recovery import Found
from tests.chaos.sites import Site
from tests.chaos.verdicts import Story, complaints
from tests.chaos.zygote import Ended

LIFE: Final = "tests.chaos.life:live"
LEASE: Final = {"files": 30.0, "sqlite": 30.0, "postgresql": 0.6}  # PostgreSQL has its own clock: recovery must wait
# writev is how a life announces its steps, so that a stop just before and after each promise is among the points.
CALLS: Final = {
    "files": (
        "openat", "write", "writev", "pwrite64", "fsync", "fdatasync", "syncfs", "rename", "renameat", "renameat2",
        "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat", "flock", "fcntl", "ftruncate",
    ),
    "sqlite": ("openat", "pwrite64", "write", "writev", "fdatasync", "fsync", "unlink", "ftruncate"),
    "postgresql": ("connect", "sendto", "sendmsg", "write", "writev"),
}  # fmt: skip
_BEGIN: Final = re.compile(r'iov_base="begin (\w+)')
_OVER: Final = re.compile(r'iov_base="ok close')
_MOST: Final = 400  # points per call: a walk that does not end is an error
_TRIES: Final = 3  # lives in which a call is not reached before it counts as missed


@dataclass
class Walk:
    """What was walked."""

    transport: str
    kind: str
    tool: str
    points: Counter[str] = field(default_factory=Counter)  # per call
    missed: Counter[str] = field(default_factory=Counter)  # calls of an undisturbed life that no stop fell upon

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {name}" for name, count in sorted(self.points.items()))
        missed = f"; missed {dict(self.missed)}" if self.missed else ""
        total = self.points.total()
        return f"{self.transport:<11} {self.kind:<12} {total:>4} crash points walked with {self.tool} ({parts}){missed}"


def walk(site: Site, kind: str, *, events: int = 1, only: str | None = None, use_strace: bool | None = None) -> Walk:
    """Stop a life before each of its calls in turn; after each stop a fresh process must find everything right.

    ``only`` names the one step to walk (with strace; the stopper always walks the whole life).
    """
    if strace.available() if use_strace is None else use_strace:
        return _walk_with_strace(site, kind, events, only)
    result = Walk(site.transport, f"{kind} ×{events}", "the stopper")
    for name in stopper.CALLS[site.transport]:
        for when in range(1, _MOST):
            with site.fresh(events) as (ground, ids):
                life = (LIFE, kind, ground.url, ids, LEASE[site.transport])
                ended = site.zygote.run(*life, stop=name, when=when)
                if not _judge_stop(site, ground, ids, ended, f"{result.kind}, killed at {name} {when}"):
                    break
            result.points[name] += 1
    return result


def _walk_with_strace(site: Site, kind: str, events: int, only: str | None) -> Walk:
    """Walk step by step: strace counts from where it was attached, and per thread; steps are short enough for that."""
    result = Walk(site.transport, f"{kind} ×{events}", "strace")
    steps = calls_by_step(undisturbed(site, kind, events, CALLS[site.transport]))
    for number, (gate, calls) in enumerate(steps.items(), start=1):
        if only and gate.split()[0] != only:
            continue
        for name, made in Counter(call.name for call in calls).items():
            walked = 0
            while walked < _MOST and any(
                _stop_in_step(site, kind, events, (number, gate), name, walked + 1)
                # A call that is known to be made may be another thread's this time, whose calls strace counts apart.
                for _ in range(_TRIES if walked < made else 1)
            ):
                walked += 1
            result.points[name] += walked
            if walked < made:
                result.missed[f"{gate}: {name}"] = made - walked
    return result


def _stop_in_step(site: Site, kind: str, events: int, step: tuple[int, str], name: str, when: int) -> bool:
    """Stop before call number ``when`` after the gate; returns whether that was before the next step began."""
    number, gate = step
    tracer = strace.Strace(site.trace)
    inject = f"{name}:signal=KILL:when={when}"
    with site.fresh(events) as (ground, ids):
        life = (LIFE, kind, ground.url, ids, LEASE[site.transport], gate)
        ended = site.zygote.run(*life, attach=lambda pid: tracer.attach(pid, [name], inject))
        tracer.finish()
        where = f"{kind} ×{events}, killed at {name} {when} of {gate!r}"
        return _judge_stop(site, ground, ids, ended, where) and len(Story.read(ended.said).begun) <= number


def _judge_stop(site: Site, ground: Ground, ids: list[str], ended: Ended, where: str) -> bool:
    """Judge a life that was to be stopped; returns whether it was."""
    if ended.code not in (0, -signal.SIGKILL):
        raise Violation(f"{where}: the life failed by itself:\n{ended.said}{ended.errors}")
    judge(site, ground, ids, ended, f"{site.transport}, {where}")
    return ended.code != 0


def judge(site: Site, ground: Ground, ids: list[str], ended: Ended, where: str) -> Found:
    """Recover in a fresh process and raise when anything is not as promised."""
    recovery = site.zygote.run("tests.chaos.recovery:recover", ground.url, ids)
    if recovery.code != 0:
        raise Violation(f"{where}: recovery failed:\n{recovery.errors}\nthe life had said:\n{ended.said}{ended.errors}")
    found = Found(**json.loads(recovery.said))
    wrong = complaints(ended.said, ids, found) + ground.complaints(set(ids)) + _torn(ground, ids, ended, found)
    if wrong:
        raise Violation("\n".join([f"{where}:", *wrong, "the life had said:", ended.said + ended.errors]))
    return found


def _torn(ground: Ground, ids: list[str], ended: Ended, found: Found) -> list[str]:
    """The caller's rows of a transactional publish are there exactly when the events are."""
    if TRANSACTIONAL not in ended.said:
        return []
    rows, events = {effect.event_id for effect in ground.effects()} & set(ids), set(found.after)
    return [f"the caller's transaction was torn: {rows=}, {events=}"] if rows != events else []


def undisturbed(site: Site, kind: str, events: int, names: Sequence[str]) -> list[strace.Call]:
    """The calls of these names in a life that nobody stops."""
    tracer = strace.Strace(site.trace)
    with site.fresh(events) as (ground, ids):
        life = (LIFE, kind, ground.url, ids, LEASE[site.transport], "open 1")
        ended = site.zygote.run(*life, attach=lambda pid: tracer.attach(pid, [*names, "writev"]))
        calls = tracer.finish()
        if ended.code != 0 or "ok close" not in ended.said:
            raise Violation(f"a life failed that nobody disturbed:\n{ended.said}{ended.errors}")
        judge(site, ground, ids, ended, f"{kind} ×{events} on {site.transport}, undisturbed")
    return calls


def calls_by_step(calls: list[strace.Call]) -> dict[str, list[strace.Call]]:
    """Part the calls by the step they were made in; the key names the gate before it, such as ``claim 2``."""
    steps: dict[str, list[strace.Call]] = {}
    count: Counter[str] = Counter()
    for call in calls:
        if match := _BEGIN.search(call.text):
            count[match.group(1)] += 1
            steps[f"{match.group(1)} {count[match.group(1)]}"] = []
        if steps:
            next(reversed(steps.values())).append(call)
        if _OVER.search(call.text):  # what follows is the interpreter's own end
            break
    return steps


def lives_of(transport: str) -> list[tuple[str, int]]:
    """The lives there are on a transport, with how many events share one.

    Files have no transactions to join. On PostgreSQL, callers without an event loop go the way of all others, in a loop
    whose own wake-ups a walk would take for calls of ours.
    """
    missing = {"files": {"transaction"}, "postgresql": {"sync"}}.get(transport, set())
    return [*[(kind, 1) for kind in LIVES if kind not in missing], ("done", 3), ("release", 3)]
