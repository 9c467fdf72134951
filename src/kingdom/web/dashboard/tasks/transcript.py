"""What a soldier said and did, followed while it works."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.web.dashboard.building import Lines, cell, empty, line, tag, text
from kingdom.web.dashboard.refreshing import FOLLOWING, SLOW
from kingdom.web.envelope import ApiError
from kingdom.web.views.tasks import read_transcript

if TYPE_CHECKING:
    from nicegui.element import Element

    from kingdom.web.dashboard.refreshing import Pulse
    from kingdom.web.dashboard.visit import Visit

_AT_FIRST: Final = 64 * 1024  # bytes from the end of a long transcript
_SHOWN: Final = 300  # things said
_LONGEST: Final = 4_000  # characters of one of them


@dataclass(frozen=True, slots=True)
class Said:
    """One thing, by its number in what we have read."""

    number: int
    kind: str
    text: str


class TranscriptFollower:
    """The transcript of one soldier of a task: of the named one, else of the last."""

    def __init__(self, visit: Visit, task_id: str, soldier: str | None, pulse: Pulse, inside: Element) -> None:
        self._visit = visit
        self._task_id = task_id
        self._soldier = soldier
        self._pulse = pulse
        self._reading: str | None = None  # the soldier we are at
        self._offset = -_AT_FIRST
        self._said: deque[Said] = deque(maxlen=_SHOWN)
        self._count = 0
        self._is_cut = False
        with inside:
            self._whole = text(visit.words("task.transcript.cut"), "k-muted k-small k-cut", name="p")
            box = tag("div", "k-output k-transcript", tabindex="0", role="log")
            box.props["aria-label"] = visit.words("task.transcript")
            with box:
                self._below = tag("div")
                self._lines = Lines("log", visit.words("task.transcript"), "k-block")
        self._whole.set_visibility(False)

    async def load(self) -> list[Said]:
        """Read what is new."""
        try:
            while True:
                part = await read_transcript(self._visit.context, self._task_id, self._offset, soldier=self._soldier)
                if self._reading not in (None, part.soldier_id):
                    self._begin_again()
                    continue
                self._reading = part.soldier_id
                for item in part.items:
                    self._count += 1
                    self._said.append(Said(self._count, item.kind, _cut(item.text)))
                self._pulse.every = FOLLOWING if part.alive else SLOW
                done = part.next_offset >= part.size or part.next_offset == self._offset
                self._offset = part.next_offset
                self._is_cut = part.size > _AT_FIRST or self._count > _SHOWN
                if done:
                    return list(self._said)
        except ApiError as error:
            if error.status != 404:
                raise
            return []

    def show(self, said: list[Said]) -> None:
        """Show it."""
        self._whole.set_visibility(bool(said) and self._is_cut)
        self._lines.show([line(str(one.number), [cell(one.text, "k-wrap")], _classes(one)) for one in said])
        self._below.clear()
        if not said:
            with self._below:
                empty(self._visit.words("task.transcript.none"), self._visit.words("task.transcript.hint"))

    def _begin_again(self) -> None:
        """Another one took the task up: what is shown is the transcript of the newest."""
        self._reading = None
        self._offset = -_AT_FIRST
        self._said.clear()


def _classes(said: Said) -> str:
    return f"k-said k-said-{said.kind}"


def _cut(said: str) -> str:
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
