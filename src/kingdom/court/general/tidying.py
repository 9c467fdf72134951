"""Removing places that nobody works in any more.

A place stays for some days after it was last prepared: people look at it, and an answer may come. Then the folder goes;
the branch stays, and what was not committed is kept under a ref (:meth:`kingdom.gitops.Worktrees.release`), so that a
late answer still finds its way.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kingdom.court.general.errors import TaskRefused
from kingdom.court.general.lineage import lineage
from kingdom.court.general.workspace import TASK_FILE
from kingdom.gitops import GitError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from kingdom.court.general.quarters import Quarters
    from kingdom.court.models import Task

KEPT: Final = 14 * 86400.0
log = logging.getLogger("kingdom.court")


async def tidy(quarters: Quarters, held: Callable[[], Iterable[Task]]) -> list[str]:
    """Remove old places; return whose they were. ``held`` tells the tasks that are worked on at that moment."""
    removed: list[str] = []
    for work_id, folder in quarters.workspace.places():
        if quarters.clock() - _last_used(folder) < KEPT or work_id in _in_use(quarters, held()):
            continue
        try:
            await quarters.workspace.remove(work_id)
        except (GitError, OSError) as error:
            log.warning("%s: the place of %s could not be removed: %s", quarters.name, work_id, error)
        else:
            removed.append(work_id)
        await asyncio.sleep(0)
    if removed:
        log.info("%s: removed the places of %s", quarters.name, ", ".join(removed))
    return removed


def _last_used(folder: Path) -> float:
    """When a place was last prepared for a soldier; a place without our file there was never used."""
    try:
        return (folder / TASK_FILE).lstat().st_mtime
    except OSError:
        try:
            return folder.lstat().st_mtime
        except OSError:
            return 0.0


def _in_use(quarters: Quarters, tasks: Iterable[Task]) -> set[str]:
    used: set[str] = set()
    for task in tasks:
        try:
            used.add(lineage(quarters.home, task).work_id)
        except TaskRefused:
            continue
    return used
