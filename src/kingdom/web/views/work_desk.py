"""What the views of workflows keep between two looks."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kingdom.place import engines_of
from kingdom.web.views.summaries import Summaries
from kingdom.web.views.voices import Voices
from kingdom.workflow.home import git_service
from kingdom.workflow.spending import Ledgers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.agents.engine import Engine, Player
    from kingdom.web.context import WebContext
    from kingdom.workflow.adapters.git_service import GitopsService
    from kingdom.workflow.spending import Spent

_VOICES: Final = 32  # workflows whose words are kept
_FRESH: Final = 1.0  # seconds for which what was spent counts: lists are asked for often


class WorkDesk:
    """For the views of the workflows of one place."""

    def __init__(self, context: WebContext) -> None:
        self._place = context.place
        self._clock = context.parts.clock
        self._ledgers = Ledgers(context.place.ledger)
        self._reading = asyncio.Lock()
        self._read_again = 0.0
        self._voices: OrderedDict[str, Voices] = OrderedDict()
        self.summaries = Summaries()
        self.naming = asyncio.Lock()
        """Held from the look whether a name is taken until it is: two who ask at once must not both get it."""

    @cached_property
    def engines(self) -> Mapping[str, Engine | Player]:
        """The engines agents run on."""
        return engines_of(self._place)

    @cached_property
    def git(self) -> GitopsService:
        """The clones and worktrees."""
        return git_service(self._place, self._clock)

    async def spent(self, *, fresh: bool = False) -> Mapping[str, Spent]:
        """What each workflow has spent; a second ago, or (``fresh``) now."""
        async with self._reading:
            if fresh or time.monotonic() >= self._read_again:
                await asyncio.to_thread(self._ledgers.read_on)  # the first time it reads months
                self._read_again = time.monotonic() + _FRESH
        return self._ledgers.by_workflow

    def voices(self, workflow_id: str) -> Voices:
        """What the agents of a workflow say."""
        found = self._voices.pop(workflow_id, None)
        if found is None:
            found = Voices(self._place.runs, self._place.sessions, self.engines)
        self._voices[workflow_id] = found
        while len(self._voices) > _VOICES:
            self._voices.popitem(last=False)
        return found


def work_desk(context: WebContext) -> WorkDesk:
    """The desk of the workflows of a context."""
    return context.keep(WorkDesk, lambda: WorkDesk(context))
