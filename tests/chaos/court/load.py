"""What the court is given to do: events emitted and dropped as files, answers, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kingdom.court.bootstrap import open_services
from kingdom.court.commands import inject_event, submit_answer, submit_cancel
from kingdom.court.home import Home
from kingdom.court.loop import Services
from tests.chaos.court.homes import ASK, HAND, PLAY, REPO, TREE, Grounds

# Which general an event is for, out of so many.
_SHARES: Final = ((HAND, 8), (PLAY, 5), (ASK, 2), (TREE, 2))
_CANCELLED: Final = 0.04  # of the events for a program


@dataclass
class Load:
    """Everything that was asked of the court so far."""

    grounds: Grounds
    chance: random.Random
    events: dict[str, str] = field(default_factory=dict)  # the general each event is for
    to_cancel: set[str] = field(default_factory=set)  # events whose task a person wants to end
    commands: set[str] = field(default_factory=set)  # events that are answers, and wishes to cancel
    _answered: set[str] = field(default_factory=set)
    _cancelled: set[str] = field(default_factory=set)

    def feed(self, count: int) -> None:
        """Put new events in: half of them as files by hand, in two ways, half of them as ``kingdom emit`` does.

        Into a database, all of them as that does.
        """
        documents = [self._document() for _ in range(count)]
        half = count // 2 if self.grounds.queues is None else 0
        by_hand, emitted = documents[:half], documents[half:]
        for document in by_hand:
            self._drop(document)
        self._ask(lambda services: _inject(services, emitted))

    def speak(self) -> None:
        """Answer what is asked, and cancel what shall be cancelled and is still under way."""
        asked = [task for task in self._asking() if task not in self._answered]
        unwanted = self._unwanted()

        async def act(services: Services) -> None:
            for task in asked:
                self.commands.add(await submit_answer(services, task, "left", "ann"))
                self._answered.add(task)
            for task in unwanted:
                self.commands.add(await submit_cancel(services, task, "ann"))
                self._cancelled.add(task)

        if asked or unwanted:
            self._ask(act)

    def completed(self) -> set[str]:
        """The events that are completed."""
        return {path.stem for path in (self.grounds.queue() / "events/completed").glob("*.json")}

    @property
    def all(self) -> set[str]:
        """Every event that was put in."""
        return self.events.keys() | self.commands

    def _document(self) -> dict[str, Any]:
        (general,) = self.chance.choices([name for name, _ in _SHARES], [share for _, share in _SHARES])
        number = len(self.events) + 1
        payload: dict[str, Any] = {"title": f"event {number}"}
        if general in (HAND, TREE):
            payload["seconds"] = round(self.chance.choice([0, 0, 0.1, 0.4]), 3)
        event: dict[str, Any] = {
            "id": f"evt-chaos-{number:05d}",
            "type": f"{general.removeprefix('gen-')}.work",
            "source": "chaos",
            "payload": payload,
            "priority": self.chance.choice(["high", "normal", "normal", "low"]),
            "created_at": "2026-02-07T12:00:00Z",
        }
        if general == TREE:
            event["repo"] = REPO
            payload["commit"] = True
        if general == HAND and self.chance.random() < _CANCELLED:
            payload["seconds"] = 5.0
            self.to_cancel.add(event["id"])
        self.events[event["id"]] = general
        return event

    def _drop(self, document: dict[str, Any]) -> None:
        pending = self.grounds.root / "queue/events/pending"
        path = pending / f"{document['id']}.json"
        text = json.dumps({**document, "status": "pending"})
        if self.chance.random() < 0.5:
            path.write_text(text)
            return
        temporary = pending / f".{document['id']}.part"
        temporary.write_text(text)
        temporary.rename(path)

    def _asking(self) -> list[str]:
        asking = self.grounds.court.heartbeat("king").get("asking")
        return [task for task in asking if isinstance(task, str)] if isinstance(asking, list) else []

    def _unwanted(self) -> list[str]:
        tasks = self.grounds.queue() / "tasks"
        found = []
        for path in [*tasks.glob("pending/*.json"), *tasks.glob("in_progress/*.json")]:
            with contextlib.suppress(OSError, ValueError):
                task = json.loads(path.read_text())
                if task["event_id"] in self.to_cancel and path.stem not in self._cancelled:
                    found.append(path.stem)
        return found

    def _ask(self, action: Callable[[Services], Awaitable[None]]) -> None:
        async def run(home: Home) -> None:
            async with open_services(home) as services:
                await action(services)

        asyncio.run(run(Home(self.grounds.root)))


async def _inject(services: Services, documents: list[dict[str, Any]]) -> None:
    for document in documents:
        if not await inject_event(services, document):
            raise AssertionError(f"{document['id']} was refused as known, and it is new")


def read_all(folder: Path) -> dict[str, dict[str, Any]]:
    """The JSON documents in a folder, by name."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("[!.]*.json"))}
