"""Before a soldier starts: a place to work in, a prompt, and the conversation it goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.general.briefing import description, gather, instructions_of
from kingdom.court.general.errors import TaskRefused
from kingdom.court.general.lineage import session_of
from kingdom.court.general.prompts import build_prompt, read_template
from kingdom.court.general.pulls import pull_number
from kingdom.court.general.repositories import url_of
from kingdom.court.general.workflows import commission
from kingdom.court.general.workspace import furnish
from kingdom.court.queues import EVENTS, TASKS
from kingdom.court.trust.frozen import thawed
from kingdom.court.trust.permit import permit_of

if TYPE_CHECKING:
    from kingdom.court.general.errand import Errand
    from kingdom.court.general.notes import Note
    from kingdom.court.general.pulls import Pull
    from kingdom.court.general.quarters import Quarters
    from kingdom.court.general.workspace import Workplace
    from kingdom.court.models import Task
    from kingdom.court.packages.manifest import Manifest
    from kingdom.court.trust.permit import Permit

_QUICK: Final = 20_000  # characters that make a prompt in less time than it takes to ask a thread for it


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run needs."""

    place: Workplace
    prompt: str
    session_id: str | None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the engine, beside the manifest's
    permit: Permit | None = None  # what it may use, when that was decided


async def prepare(quarters: Quarters, errand: Errand, note: Note) -> Prepared:
    """Prepare the next run of a task. Safe to repeat. Raises :class:`TaskRefused` for what it may not be done with."""
    permit = _permitted(errand.task, quarters.manifest)
    if quarters.manifest.mode == "workflow":
        return await _prepare_workflow(quarters, errand, note)
    home, manifest, line = quarters.home, quarters.manifest, errand.line
    place = await quarters.workspace.prepare(line.work_id, _url(quarters, errand), fetch=not line.former)
    pull = await _pull(quarters, errand, place)
    instructions = instructions_of(quarters.package.instructions_path)
    placed = await furnish(place, instructions, description(home, errand.task, quarters.name, pull))
    # A conversation is taken up once: when that fails, a fresh soldier with the whole story has better chances.
    session_id = session_of(home, line) if not note.errors else None
    waiting = {}
    if manifest.records_hours is not None:
        depths = await quarters.bus.depth()
        waiting = {stream: depths[stream].pending for stream in (EVENTS, TASKS)}
    briefing = gather(
        home,
        manifest,
        errand,
        folder=place.folder,
        pull=pull,
        instructions_text="" if placed else instructions or "",
        resume=session_id is not None,
        previous_error=note.errors[-1] if note.errors else None,
        waiting=waiting,
    )
    path = quarters.package.prompt_path
    build = partial(build_prompt, read_template(path), briefing, manifest.prompt_max_bytes, str(path))
    prompt = build() if len(repr(briefing)) <= _QUICK else await asyncio.to_thread(build)
    return Prepared(place, prompt, session_id, permit=permit)


def _permitted(task: Task, manifest: Manifest) -> Permit | None:
    """What a task may use. What the king decided may not hold any more: the manifest may be another one."""
    if (problem := thawed(task.payload)) is not None:
        raise TaskRefused(f"{task.id} is not what happened: {problem}. Have it done again from its source")
    permit = permit_of(task.model_extra or {})
    if permit is not None and (why := permit.hindrance(manifest)) is not None:
        raise TaskRefused(f"{permit.by} is of the tier {permit.tier!r} (config/trust.yaml), but {why}")
    return permit


async def _pull(quarters: Quarters, errand: Errand, place: Workplace) -> Pull | None:
    number = pull_number(errand)
    if number is None or place.tree is None:
        return None
    fresh = not errand.line.former  # a conversation that goes on has looked at what is there
    return await quarters.workspace.find_pull(place.tree, number, errand.task.payload.get("base"), fetch=fresh)


async def _prepare_workflow(quarters: Quarters, errand: Errand, note: Note) -> Prepared:
    """A workflow makes worktrees of its own; here is only what describes the task."""
    place = await quarters.workspace.prepare(errand.line.work_id, None)
    told = description(quarters.home, errand.task, quarters.name)
    await furnish(place, None, told)
    options = commission(quarters, errand, note, _url(quarters, errand), told.get("answer"))
    prompt = f"The workflow {quarters.manifest.template} for {errand.subject or errand.task.id}"
    return Prepared(place, prompt, session_of(quarters.home, errand.line), options)


def _url(quarters: Quarters, errand: Errand) -> str | None:
    if not quarters.manifest.fetch_repo:
        return None
    return url_of(errand.repo, quarters.base_url) if errand.repo else quarters.default_url
