"""Every point of a story, one after the other: an engine is killed there, and the next one comes to the same end."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.chaos.processes import Violation
from tests.chaos.workflow.reckoning import alive, complaints
from tests.chaos.workflow.stories import Site
from tests.chaos.zygote import Ended, Zygote
from tests.support.court_processes import wait_for

LIFE: Final = "tests.chaos.workflow.life"
_WORKFLOW: Final = "wf-0001"
_GONE: Final = 20.0  # seconds for the last processes to end
_AT_ONCE: Final = {"beside": 2}  # agents that may die with an engine; one in the other stories


@dataclass
class Walk:
    """What was walked."""

    story: str
    points: Counter[str] = field(default_factory=Counter)
    again: int = 0  # queries that were asked twice, because their agent died with its engine

    def __str__(self) -> str:
        parts = ", ".join(f"{count} {name}" for name, count in sorted(self.points.items()))
        return f"workflow    {self.story:<8} {self.points.total():>4} kills, {self.again} queries asked again ({parts})"


class Walker:
    """Walks the points of a story."""

    def __init__(self, folder: Path, zygote: Zygote, story: str) -> None:
        self._folder = folder
        self._zygote = zygote
        self._story = story
        self._expected: dict[str, Any] = {}
        self._needed = 0  # queries and reports that are asked when nobody is killed

    def walk(self, chosen: Callable[[int], bool] = lambda _: True) -> Walk:
        """Kill at each chosen point (from 1) in turn, until a life comes to its end by itself."""
        result = Walk(self._story)
        with self._site("undisturbed") as site:
            ended = self._live(site, None)
            self._expected = self._told(ended, "undisturbed")
            self._needed = len(site.asked())
            self._judge(site, self._expected, "undisturbed", at_once=0)
        last = len(_points(ended))
        for number in range(1, 2 * last):
            if not chosen(number):
                continue
            name = self._kill_at(result, number)
            if name is None:
                break
            result.points[name] += 1
        return result

    def _kill_at(self, result: Walk, number: int) -> str | None:
        """Kill at one point, and have the next engine finish; returns where that was, None: there is no such point."""
        with self._site(f"{number}") as site:
            first = self._live(site, number)
            if first.code == 0:
                return None
            name = _points(first)[-1]
            where = f"{self._story}, killed at {number} ({name})"
            if first.code != -signal.SIGKILL:
                raise Violation(f"{where}: the life failed by itself:\n{first.said[-2000:]}{first.errors[-4000:]}")
            found = self._told(self._live(site, None), where)
            self._judge(site, found, where, at_once=_AT_ONCE.get(self._story, 1))
            result.again += max(0, len(site.asked()) - self._needed)
            return name

    @contextmanager
    def _site(self, name: str) -> Iterator[Site]:
        site = Site(self._folder / self._story / name)
        site.make()
        yield site
        shutil.rmtree(site.root)  # what failed stays

    def _live(self, site: Site, die_at: int | None) -> Ended:
        return self._zygote.run(f"{LIFE}:live", str(site.root), self._story, _WORKFLOW, die_at)

    def _told(self, ended: Ended, where: str) -> dict[str, Any]:
        if ended.code != 0:
            raise Violation(f"{where}: the next life failed:\n{ended.said[-2000:]}{ended.errors[-4000:]}")
        told: dict[str, Any] = json.loads(ended.said.splitlines()[-1])
        return told

    def _judge(self, site: Site, found: dict[str, Any], where: str, *, at_once: int) -> None:
        wrong = complaints(self._expected, found, site.asked(), at_once=at_once)
        if not wait_for(lambda: not alive(site), _GONE):
            wrong += [f"still there: {one}" for one in alive(site)]
        if wrong:
            raise Violation("\n".join([f"{where}:", *wrong]))


def _points(ended: Ended) -> list[str]:
    """The names of the points a life came by."""
    lines = [line.split(" ", 1) for line in ended.said.splitlines()]
    return [words[1] for words in lines if len(words) == 2 and words[0].isdigit()]
