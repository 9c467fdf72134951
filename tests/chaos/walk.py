"""Every crash point of one event's life, one after the other."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos import stopper, strace
from tests.chaos.grounds import Ground
from tests.chaos.life import LIVES
from tests.chaos.processes import Violation
from tests.chaos.recovery import Found
from tests.chaos.sites import Site
from tests.chaos.verdicts import complaints
from tests.chaos.zygote import Ended

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
_MOST: Final = 400  # points per call: a walk that does not end is an error


@dataclass
class Walk:
    """What was walked."""

    transport: str
    kind: str
    tool: str
    points: Counter[str] = field(default_factory=Counter)  # per call
    calls: Counter[str] = field(default_factory=Counter)  # made by a life that nobody stops

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {name}" for name, count in sorted(self.points.items()))
        total = self.points.total()
        return f"{self.transport:<11} {self.kind:<12} {total:>4} crash points walked with {self.tool} ({parts})"


def walk(site: Site, kind: str, *, events: int = 1, use_strace: bool | None = None) -> Walk:
    """Stop a life before each of its calls in turn; after each stop a fresh process must find everything right."""
    with_strace = strace.available() if use_strace is None else use_strace
    names = CALLS[site.transport] if with_strace else stopper.CALLS[site.transport]
    result = Walk(site.transport, f"{kind} ×{events}", "strace" if with_strace else "the stopper")
    if with_strace:
        result.calls.update(call.name for call in undisturbed(site, kind, events, names))
        names = tuple(name for name in names if result.calls[name])
    for name in names:
        for when in range(1, _MOST):
            stopped = False
            with site.fresh(events) as (ground, ids):
                ended = _stopped_life(site, ground, kind, ids, name, when, with_strace=with_strace)
                stopped = ended.code == -signal.SIGKILL
                if not stopped and ended.code != 0:
                    raise Violation(f"{result}\nthe life failed by itself:\n{ended.said}{ended.errors}")
                judge(site, ground, ids, ended, f"{kind} ×{events} on {site.transport}, killed at {name} {when}")
            if not stopped:
                break
            result.points[name] += 1
        else:
            raise Violation(f"{name}: still stopping after {_MOST} points")
    return result


def judge(site: Site, ground: Ground, ids: list[str], ended: Ended, where: str) -> Found:
    """Recover in a fresh process and raise when anything is not as promised."""
    recovery = site.zygote.run("tests.chaos.recovery:recover", ground.url, ids)
    if recovery.code != 0:
        raise Violation(f"{where}: recovery failed:\n{recovery.errors}\nthe life had said:\n{ended.said}{ended.errors}")
    found = Found(**json.loads(recovery.said))
    wrong = complaints(ended.said, ids, found) + ground.complaints(set(ids)) + _row_without_event(ground, ids, found)
    if wrong:
        raise Violation("\n".join([f"{where}:", *wrong, "the life had said:", ended.said + ended.errors]))
    return found


def _row_without_event(ground: Ground, ids: list[str], found: Found) -> list[str]:
    """The caller's rows of a transactional publish are there exactly when the events are."""
    rows = {effect.event_id for effect in ground.effects()} & set(ids)
    return (
        [f"the caller's transaction was torn: rows {rows}, events {list(found.after)}"]
        if rows - found.after.keys()
        else []
    )


def _stopped_life(
    site: Site, ground: Ground, kind: str, ids: list[str], name: str, when: int, *, with_strace: bool
) -> Ended:
    life = ("tests.chaos.life:live", kind, ground.url, ids, LEASE[site.transport])
    if not with_strace:
        return site.zygote.run(*life, stop=name, when=when)
    tracer = strace.Strace(site.trace)
    inject = f"{name}:signal=KILL:when={when}"
    ended = site.zygote.run(*life, attach=lambda pid: tracer.attach(pid, [name], inject))
    tracer.finish()
    return ended


def undisturbed(site: Site, kind: str, events: int, names: Sequence[str]) -> list[strace.Call]:
    """The calls of these names in a life that nobody stops."""
    tracer = strace.Strace(site.trace)
    with site.fresh(events) as (ground, ids):
        life = ("tests.chaos.life:live", kind, ground.url, ids, LEASE[site.transport])
        ended = site.zygote.run(*life, attach=lambda pid: tracer.attach(pid, names))
        calls = tracer.finish()
        if ended.code != 0 or "ok close" not in ended.said:
            raise Violation(f"a life failed that nobody disturbed:\n{ended.said}{ended.errors}")
        judge(site, ground, ids, ended, f"{kind} ×{events} on {site.transport}, undisturbed")
    return calls


def lives_of(transport: str) -> list[tuple[str, int]]:
    """The lives there are on a transport, with how many events share one; files have no transactions to join."""
    alone = [(kind, 1) for kind in LIVES if transport != "files" or kind != "transaction"]
    return [*alone, ("done", 3), ("release", 3)]
