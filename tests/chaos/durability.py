"""What a power cut would find: read from the system calls of a publish, since no test can cut the power.

A process that is killed loses nothing it has written; a machine loses everything that was not synced. So the trace of
an undisturbed publish must show, before it is acknowledged: the contents of each document synced before it gets its
name, and each directory synced after a name in it changed. For SQLite: the log synced after the last write to it.
"""

from __future__ import annotations

import re
from os.path import dirname
from typing import Final

from tests.chaos.faults import SYNCS, WRITES
from tests.chaos.sites import Site
from tests.chaos.strace import Call
from tests.chaos.walk import calls_by_step, undisturbed

_NAMING: Final = ("rename", "renameat", "renameat2", "link", "linkat", "mkdir", "mkdirat")
_PATH: Final = re.compile(r"\d+<(/[^>]*)>")
_QUOTED: Final = re.compile(r'"(/[^"]*)"')
_ACKNOWLEDGED: Final = re.compile(r'iov_base="ok publish')


def undurable(site: Site, events: int) -> tuple[list[str], int]:
    """What of a publish would not survive a power cut just after it returned, and how many syncs were seen."""
    calls = undisturbed(site, "done", events, (*WRITES, *SYNCS, *_NAMING))
    publish = calls_by_step(calls)["publish 1"]
    end = next(number for number, call in enumerate(publish) if _ACKNOWLEDGED.search(call.text))
    return judge_trace(publish[:end]), sum(call.name in SYNCS for call in publish[:end])


def judge_trace(calls: list[Call]) -> list[str]:
    """Complaints about contents and names that were not synced in time. Paths that matter end in .json or -wal."""
    contents: dict[str, int] = {}  # file → where in the trace it was last written, not synced since
    names: dict[str, int] = {}  # directory → where a name in it last changed, not synced since
    wrong = []
    for call in calls:
        if call.name in WRITES and (match := _PATH.search(call.text)) and match.group(1).endswith((".json", "-wal")):
            contents[match.group(1)] = call.ended
        elif call.name == "syncfs":
            contents = {path: at for path, at in contents.items() if at > call.began}
            names = {path: at for path, at in names.items() if at > call.began}
        elif call.name in SYNCS and (match := _PATH.search(call.text)):
            for pending in (contents, names):
                if pending.get(match.group(1), call.began) < call.began:
                    del pending[match.group(1)]
        elif call.name in _NAMING and " = 0" in call.text:
            paths = _QUOTED.findall(call.text)
            if not paths[-1].endswith(".json") and not call.name.startswith("mkdir"):
                continue
            names[dirname(paths[-1].rstrip("/"))] = call.ended
            if len(paths) > 1 and paths[0] in contents:
                wrong.append(f"{paths[0]} got its name before its contents were synced")
                del contents[paths[0]]
    wrong += [f"the contents of {path} were never synced" for path in contents]
    return wrong + [f"a name in {path} was never synced" for path in names]
