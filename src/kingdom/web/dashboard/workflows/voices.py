"""What the agents of a workflow say, while they say it: the last lines, as text."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from nicegui import ui

from kingdom.web.dashboard.building import tag, text
from kingdom.web.envelope import ApiError
from kingdom.web.views.words import read_words

if TYPE_CHECKING:
    from kingdom.web.dashboard.visit import Visit

_MOST: Final = 300  # pieces that stay on the page
_LOOK: Final = 0.5  # seconds between two looks: nobody announces what an agent says
_LONGEST: Final = 4000  # characters of one piece


class Voices:
    """On a page; made where it is to stand. Follows for as long as the page is open."""

    def __init__(self, visit: Visit, workflow_id: str) -> None:
        self._visit = visit
        self._workflow = workflow_id
        self._cursor: str | None = None
        self._speaker = ""
        self._shown: deque[ui.label] = deque()
        self.active = True
        outer = tag("div", "k-output k-voices", role="log", tabindex="0", aria_label=visit.words("workflow.output"))
        with outer:
            self._place = tag("div")
        with self._place:
            self._silence = text(visit.words("workflow.silence"), "k-muted", name="div")
        ui.timer(_LOOK, self._look, immediate=False)

    async def read_on(self) -> None:
        """Show what was said since the last time."""
        if self._place.is_deleted:
            return
        heard = await read_words(self._visit.context, self._workflow, cursor=self._cursor)
        self._cursor = heard.cursor
        if heard.items:
            self._silence.set_visibility(False)
        with self._place:
            for said in heard.items:
                speaker = f"{said.work} / {said.task}"
                if speaker != self._speaker:
                    self._add(speaker, "k-speaker")
                    self._speaker = speaker
                self._add(said.text[:_LONGEST], "k-said")

    def _add(self, words: str, classes: str) -> None:
        self._shown.append(text(words, classes, name="div"))
        if len(self._shown) > _MOST:
            self._shown.popleft().delete()

    async def _look(self) -> None:
        if not self.active:
            return
        try:
            await self.read_on()
        except ApiError:  # the workflow was deleted: the rest of the page says so
            self.active = False
