"""Whether what recovery found agrees with what a life had promised when it was cut short."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.chaos.recovery import Found

_BEGIN_OR_OK = re.compile(r"(begin|ok) (\w+)$")
_VERDICTS = ("done", "retry", "dead", "release")


@dataclass(frozen=True)
class Story:
    """How far a life got, read from its announcements."""

    begun: list[str]  # steps begun, in order
    finished: list[str]  # steps acknowledged, in order

    @classmethod
    def read(cls, said: str) -> Story:
        words = [match.groups() for line in said.splitlines() if (match := _BEGIN_OR_OK.match(line))]
        return cls([name for word, name in words if word == "begin"], [name for word, name in words if word == "ok"])

    def under_way(self, step: str) -> bool:
        """Whether the step was begun (again) and never acknowledged since."""
        return self.begun.count(step) > self.finished.count(step)

    @property
    def last(self) -> str | None:
        """The last acknowledged step that decides the event's state."""
        return next((name for name in reversed(self.finished) if name not in ("open", "close", "extend")), None)


def complaints(said: str, ids: list[str], found: Found) -> list[str]:
    """Everything that is not as it must be after recovery."""
    story = Story.read(said)
    wrong = _presence(story, ids, found)
    for event_id in found.after:
        wrong += [f"{event_id}: {text}" for text in _state(story, event_id, found)]
    if found.accepted_again:
        wrong.append(f"published again and accepted, though present: {found.accepted_again}")
    dead = sum(status == "DEAD" for status in found.after.values())
    if found.depth[:2] != [0, 0] or found.depth[2] < dead:
        wrong.append(f"depth after recovery: pending, processing, dead = {found.depth}, with {dead} of ours dead")
    return wrong + [f"doctor: {text}" for text in found.errors]


def _presence(story: Story, ids: list[str], found: Found) -> list[str]:
    wrong = []
    if found.before.keys() != found.after.keys():
        wrong.append(f"recovery changed what is there: {found.before} became {found.after}")
    there = len(found.after)
    if "purge" in story.begun:
        if "purge" in story.finished and there:
            wrong.append(f"purged, yet {there} are there")
    elif "publish" in story.finished and there != len(ids):
        wrong.append(f"publish returned for {len(ids)} events, {there} are there")
    elif "publish" not in story.begun and there:
        wrong.append(f"nothing was published, yet {there} are there")
    elif there not in (0, len(ids)):
        wrong.append(f"half of a publish is visible: {there} of {len(ids)}")
    return wrong


def _state(story: Story, event_id: str, found: Found) -> list[str]:
    status, handled = found.after[event_id], found.handled.get(event_id, 0)
    allowed = _outcomes(story)
    if (status, handled) in allowed:
        return []
    expected = " or ".join(f"{state} handled {times}×" for state, times in sorted(allowed))
    return [f"{status}, handled {handled}× by recovery; expected {expected} (before: {found.before.get(event_id)})"]


def _outcomes(story: Story) -> set[tuple[str, int]]:
    """The final states possible, with how often recovery had to handle the event."""
    settled_done, settled_dead, open_still = ("DONE", 0), ("DEAD", 0), ("DONE", 1)
    allowed = {"done": {settled_done}, "purge": {settled_done}, "dead": {settled_dead}}.get(
        story.last or "", {open_still}
    )
    if story.under_way("done"):
        allowed = allowed | {settled_done}
    if story.under_way("dead"):
        allowed = allowed | {settled_dead}
    if story.under_way("requeue"):
        allowed = allowed | {open_still}
    return allowed
