"""An I/O error, or a full disk, at each write and each sync of one event's life.

The call fails once; the life goes on. ``publish`` must say so, nothing half-written may be seen meanwhile, and
everything works again afterwards, in the same process and in the next one.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.processes import Violation
from tests.chaos.sites import Site
from tests.chaos.strace import Call, Strace
from tests.chaos.walk import LEASE, LIFE, calls_by_step, judge, undisturbed
from tests.chaos.zygote import Ended

DATA: Final = (
    "write",
    "pwrite64",
    "pwritev",
    "fsync",
    "fdatasync",
    "syncfs",
    "sync_file_range",
    "ftruncate",
    "fallocate",
)
NAMES: Final = ("openat", "rename", "renameat", "renameat2", "link", "linkat", "mkdir", "mkdirat")
# Names need room too, but only a full disk refuses them while reading goes on.
CALLS: Final = {
    ("files", "EIO"): DATA,
    ("files", "ENOSPC"): DATA + NAMES,
    ("sqlite", "EIO"): DATA,
    ("sqlite", "ENOSPC"): DATA,
    ("postgresql", "EIO"): ("sendto", "sendmsg", "recvfrom"),
    ("postgresql", "ECONNRESET"): ("sendto", "sendmsg", "recvfrom"),
}
_SHM: Final = re.compile(
    r"\.db-shm>"
)  # the index of its log: no room for it is an I/O error to SQLite
_SQLITE_DIRECTORY: Final = re.compile(r"\d+<[^>]*/point>\)")
_ANNOUNCED: Final = re.compile(r'iov_base="(begin|ok|raised) (\w+)')


@dataclass
class Faults:
    """What was made to fail."""

    transport: str
    kind: str
    error: str
    points: Counter[str] = field(default_factory=Counter)  # faults that struck, per call
    raised: Counter[str] = field(default_factory=Counter)  # what the caller got to see

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {name}" for name, count in sorted(self.points.items()))
        seen = ", ".join(f"{count} {name}" for name, count in sorted(self.raised.items())) or "nothing"
        return f"{self.transport:<11} {self.kind:<12} {self.points.total():>4} × {self.error} ({parts}); raised: {seen}"


def walk_faults(site: Site, kind: str, error: str, *, events: int = 1, only: str | None = None) -> Faults:
    """Let each call of a life that writes or syncs fail in turn; ``only`` names the one step to do it in."""
    result = Faults(site.transport, f"{kind} ×{events}", error)
    steps = calls_by_step(undisturbed(site, kind, events, CALLS[site.transport, error]))
    for gate, calls in steps.items():
        if only and gate.split()[0] != only:
            continue
        for name, made in Counter(call.name for call in calls if call.name != "writev").items():
            for when in range(1, made + 1):
                _one_fault(site, kind, events, result, gate, name, when)
    return result


def _one_fault(site: Site, kind: str, events: int, result: Faults, gate: str, name: str, when: int) -> None:
    """Fail call number ``when`` after the gate."""
    where = f"{kind} ×{events} on {site.transport}, {result.error} at {name} {when} of {gate!r}"
    with site.fresh(events) as (ground, ids):
        tracer = Strace(site.trace)
        inject = f"{name}:error={result.error}:when={when}"
        ended = site.zygote.run(
            LIFE,
            kind,
            ground.url,
            ids,
            LEASE[site.transport],
            gate,
            attach=lambda pid: tracer.attach(pid, [name, "writev"], inject),
        )
        calls = tracer.finish()
        struck = [number for number, call in enumerate(calls) if call.injected]
        result.points[name] += len(struck)
        result.raised.update(re.findall(r"^raised \w+ (\w+)", ended.said, re.MULTILINE))
        ours = [number for number in struck if _is_ours(calls[number], site)]
        if ours and ended.code != 0:
            raise Violation(f"{where}: not an error of the bus:\n{ended.said}{ended.errors}")
        judge(site, ground, ids, ended, where)
        wrong = _half_visible(ended, events)
        for number in ours:
            wrong += _silence(calls, number, ended, result.error)
        if wrong:
            raise Violation("\n".join([f"{where}:", *wrong, "the life had said:", ended.said]))


def _is_ours(call: Call, site: Site) -> bool:
    """Whether the call was made on the store: the interpreter opens files of its own."""
    return site.transport == "postgresql" or str(site.folder) in call.text


def _half_visible(ended: Ended, events: int) -> list[str]:
    seen = [int(number) for number in re.findall(r"^seen publish (\d+)", ended.said, re.MULTILINE)]
    return [
        f"after a failed publish of {events}, {number} could be seen" for number in seen if number not in (0, events)
    ]


def _silence(calls: list[Call], struck: int, ended: Ended, error: str) -> list[str]:
    """A fault in a write or sync of ``publish`` that nobody was told about."""
    step = None
    for call in calls[:struck]:
        if match := _ANNOUNCED.search(call.text):
            step = match.group(2) if match.group(1) == "begin" else None
    call = calls[struck]
    if step != "publish" or call.name not in DATA or _nobody_hears(call):
        return []
    raised = re.findall(r"^raised publish (\w+)", ended.said, re.MULTILINE)
    if not raised:
        return [f"publish returned although {call.name}({call.text} failed"]
    if error == "ENOSPC" and "write" in call.name and not _SHM.search(call.text) and "StorageFull" not in raised:
        return [f"publish on a full disk raised {raised}, not StorageFull"]
    return []


def _nobody_hears(call: Call) -> bool:
    """SQLite syncs the directory after it made its log, and by its own decision ignores what comes of it."""
    return bool(_SQLITE_DIRECTORY.match(call.text))
