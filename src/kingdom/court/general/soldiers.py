"""Soldiers: their ids, their orders, and the files that say which one is on a task."""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from typing import TYPE_CHECKING, Any

from kingdom.agents.port import Caps, Order, Timers
from kingdom.court.errors import InvalidId
from kingdom.court.files import write_json
from kingdom.court.home import checked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kingdom.agents.port import Outcome
    from kingdom.court.config.system import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.models import Task
    from kingdom.court.packages.manifest import Manifest
    from kingdom.court.trust.permit import Permit

_numbers = itertools.count(1)


def new_soldier_id(now: float) -> str:
    """An id that no other soldier of this home has: ``soldier-{unix}-{n}``, n of the process and a count in it."""
    return f"soldier-{int(now)}-{os.getpid()}{next(_numbers):04d}"


def order_for(
    task: Task,
    manifest: Manifest,
    system: SystemConfig,
    home: Home,
    *,
    soldier_id: str,
    prompt: str,
    folder: Path,
    session_id: str | None,
    environment: Mapping[str, str],
    options: Mapping[str, Any],
    permit: Permit | None,
    mcp_config: Path | None = None,
) -> Order:
    """The order of one run, as the manifest has it, or less where ``permit`` takes something away.

    Of our environment only what is named there is passed on.
    """
    engine = manifest.engine
    configured = system.engines.get(engine.name)
    given = configured.env if configured else []  # names to pass on, or names with values
    names = [*manifest.env, *(given if isinstance(given, list) else ())]
    values = given if isinstance(given, dict) else {}
    return Order(
        run_id=soldier_id,
        task_id=task.id,
        engine=engine.name,
        prompt=prompt,
        cwd=folder,
        result_path=home.handover(task.id),
        options={**(engine.options if permit is None else permit.options_for(manifest)), **options},
        env={**values, **{name: environment[name] for name in names if name in environment}},
        model=engine.model or (configured.model if configured else None),
        session_id=session_id,
        profile=manifest.profile if permit is None else permit.profile_for(manifest),
        timers=Timers(
            first_output=manifest.timers.first_output,
            silence=manifest.timers.silence,
            total=manifest.timeout_seconds,
        ),
        caps=Caps(turns=manifest.caps.turns, tokens=manifest.caps.tokens, cost_usd=manifest.caps.cost_usd),
        mcp_config=mcp_config,
        labels={"general": manifest.name, "task_type": task.type},
    )


def time_allowed(manifest: Manifest, outcome: Outcome) -> float:
    """The seconds of the timer that ran out."""
    timers = {"first_output": manifest.timers.first_output, "silence": manifest.timers.silence}
    return timers.get(outcome.timer or "total", manifest.timeout_seconds)


def make_room(home: Home, task_id: str) -> None:
    """Make room for the result of the next soldier on a task. What a former one left must not be taken for it."""
    path = home.handover(task_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    home.raw_result(task_id).unlink(missing_ok=True)


def clear_room(home: Home, task_id: str) -> None:
    """Remove where the soldiers of a task left their results."""
    path = home.handover(task_id)
    try:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
    except OSError:  # gone already, or they left more there
        shutil.rmtree(path.parent, ignore_errors=True)


def assignment(home: Home, task_id: str, soldier_id: str) -> tuple[Path, str]:
    """The file that says which soldier is going to be on a task."""
    return home.soldier_id(task_id), f"{soldier_id}\n"


def keep_raw_result(home: Home, task_id: str, outcome: Outcome) -> None:
    """Keep what the soldier left, if it was found to follow the contract."""
    if outcome.result is None:
        return
    left, kept = home.handover(task_id), home.raw_result(task_id)
    try:
        found = left.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
            kept.hardlink_to(left)  # half the work of another file; the name it was left under goes with the task
            return
    except OSError:  # it said so in another way than by a file, or the file system has no links
        pass
    write_json(kept, dict(outcome.result), durable=False)


def assigned(home: Home, task_id: str) -> str | None:
    """The soldier that was last put on a task, if the file that says so makes sense."""
    try:
        return checked("soldier", home.soldier_id(task_id).read_text("utf-8").strip())
    except (OSError, UnicodeDecodeError, InvalidId):
        return None


def session(home: Home, task_id: str, session_id: str) -> tuple[Path, str]:
    """The file that says which conversation a resume of the task goes on with."""
    return home.session_id(task_id), f"{session_id}\n"
