"""Texts to read about one thing: its story, its transcript, its last sign of life."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import TYPE_CHECKING, Final

from rich.text import Text

from kingdom.agents.engines import default_engines
from kingdom.cli.output import Failure
from kingdom.cli.top.plain import line, lines
from kingdom.court.files import read_json
from kingdom.court.soldiers import find_soldier, soldiers_of
from kingdom.court.story import tell
from kingdom.court.transcripts import told_by

if TYPE_CHECKING:
    from kingdom.court.loop import Services
    from kingdom.court.soldiers import Soldier

_MOST: Final = 1_000  # lines: what is longer is read with the command line


async def story(services: Services, traced: str) -> Text:
    """Everything that happened around an id."""
    told = [one.document() for one in await tell(services, traced)]
    if not told:
        raise Failure("NOT_FOUND", f"nothing here knows {traced} any more")
    rows = [
        Text.assemble((f"{one['ts'][11:23]} ", "dim"), (f"{one['who']:<12} ", "cyan"), line(one["what"]))
        for one in told[-_MOST:]
    ]
    return Text("\n").join(rows)


async def transcript(services: Services, task_id: str | None, soldier_id: str | None) -> Text:
    """What a soldier said and did; of the last one on the task when none is named."""
    return await asyncio.to_thread(_transcript, services, task_id, soldier_id)


def _transcript(services: Services, task_id: str | None, soldier_id: str | None) -> Text:
    home = services.home
    found: Soldier | None = None
    if soldier_id is not None:
        found = find_soldier(home, soldier_id)
    elif task_id is not None:
        found = next(reversed(soldiers_of(home, task_id)), None)
    if found is None:
        raise Failure("NOT_FOUND", "no soldier was on it yet, or its files are gone")
    try:
        said = deque(told_by(found, default_engines()), maxlen=_MOST)
    except OSError as error:
        raise Failure("NOT_FOUND", f"the transcript cannot be read: {error}") from error
    return lines("\n".join(said) or "it has said nothing yet")


async def heartbeat(services: Services, role: str) -> Text:
    """What a role told with its last sign of life."""
    found = read_json(services.home.heartbeat(role))
    if not isinstance(found, dict):
        raise Failure("NOT_FOUND", f"{role} has given no sign of life yet")
    return lines(json.dumps(found, ensure_ascii=False, indent=2))
