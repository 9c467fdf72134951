"""An I/O error, or a full disk, at each write and each sync of one event's life.

The call fails once; the life goes on. ``publish`` must say so, nothing half-written may be seen meanwhile, and
everything works again afterwards, in the same process and in the next one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.chaos.life import TRANSACTIONAL
from tests.chaos.processes import Violation
from tests.chaos.sites import Site
from tests.chaos.strace import Call, Strace
from tests.chaos.walk import LEASE, LIFE, calls_by_step, judge, undisturbed
from tests.chaos.zygote import Ended

WRITES: Final = ("write", "pwrite64", "pwritev")
SYNCS: Final = ("fsync", "fdatasync", "syncfs", "sync_file_range")
DATA: Final = (*WRITES, *SYNCS, "ftruncate", "fallocate")
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
_PATH: Final = re.compile(r"\d+<(/[^>]*)>")
_ANNOUNCED: Final = re.compile(r'iov_base="(begin|ok|raised) (\w+)')


class Fault(NamedTuple):
    """Which call fails: number ``when`` of its name after the gate, counting those on ``path`` only if one is given."""

    gate: str
    name: str
    when: int
    path: str | None = None

    def __str__(self) -> str:
        return f"{self.name} {self.when}{f' on {self.path}' if self.path else ''} of {self.gate!r}"


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
        for fault in _faults_of(site, gate, calls):
            _one_fault(site, kind, events, result, fault)
    return result


def _faults_of(site: Site, gate: str, calls: list[Call]) -> Iterator[Fault]:
    """A fault for each call of a step.

    strace counts per thread: where several threads make the same call, the first of each fail together. The calls on
    files that keep their names are then also struck one path at a time.
    """
    for name in sorted({call.name for call in calls} - {"writev"}):
        made = [call for call in calls if call.name == name]
        yield from (Fault(gate, name, when) for when in range(1, len(made) + 1))
        if len({call.thread for call in made}) > 1:
            paths = Counter(match.group(1) for call in made if (match := _PATH.search(call.text)))
            for path, count in paths.items():
                if path.startswith(str(site.folder)) and not Path(path).name.startswith(".tmp-"):
                    yield from (Fault(gate, name, when, path) for when in range(1, count + 1))


def _one_fault(site: Site, kind: str, events: int, result: Faults, fault: Fault) -> None:
    """Let one call fail, and hear what the life and its recovery say."""
    where = f"{kind} ×{events} on {site.transport}, {result.error} at {fault}"
    with site.fresh(events) as (ground, ids):
        tracer = Strace(site.trace)
        inject = f"{fault.name}:error={result.error}:when={fault.when}"
        paths = [fault.path, str(site.zygote.said)] if fault.path else []
        ended = site.zygote.run(
            LIFE,
            kind,
            ground.url,
            ids,
            LEASE[site.transport],
            fault.gate,
            attach=lambda pid: tracer.attach(pid, [fault.name, "writev"], inject, paths),
        )
        calls = tracer.finish()
        struck = [number for number, call in enumerate(calls) if call.injected]
        result.points[fault.name] += len(struck)
        result.raised.update(re.findall(r"^raised \w+ (\w+)", ended.said, re.MULTILINE))
        ours = [number for number in struck if _is_ours(calls[number], site)]
        if ours and ended.code != 0:
            raise Violation(f"{where}: not an error of the bus:\n{ended.said}{ended.errors}")
        judge(site, ground, ids, ended, where)
        wrong = _half_visible(ended, events)
        for number in ours:
            wrong += _silence(site, calls, number, ended, result.error)
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


def _silence(site: Site, calls: list[Call], struck: int, ended: Ended, error: str) -> list[str]:
    """A fault in a write or sync of ``publish`` that nobody was told about; a caller's own transaction tells itself."""
    if TRANSACTIONAL in ended.said:
        return []
    step = None
    for call in calls[:struck]:
        if match := _ANNOUNCED.search(call.text):
            step = match.group(2) if match.group(1) == "begin" else None
    call = calls[struck]
    if step != "publish" or call.name not in WRITES + SYNCS or not _decides(call, site):
        return []
    raised = re.findall(r"^raised publish (\w+)", ended.said, re.MULTILINE)
    if not raised:
        return [f"publish returned although {call.name}({call.text} failed"]
    if error == "ENOSPC" and call.name in WRITES and "StorageFull" not in raised:
        return [f"publish on a full disk raised {raised}, not StorageFull"]
    return []


def _decides(call: Call, site: Site) -> bool:
    """Whether durability hangs on this call. In SQLite it hangs on the log alone: copying it into the database, its
    index and the sync of the directory may fail without anything being lost, and SQLite then keeps silent. On files
    the note that all is clean says nothing new: without it, the next one to come looks and finds nothing to finish."""
    if site.transport == "files":
        return '"clean ' not in call.text
    return site.transport != "sqlite" or "-wal>" in call.text
