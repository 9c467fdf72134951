"""A court at work in this event loop: king and generals really run, their soldiers play scripts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kingdom.court.bootstrap import make_role, open_services
from kingdom.court.commands import inject_event
from kingdom.court.home import MARKER, Home
from kingdom.court.init_home import create_home
from kingdom.court.loop import Services, run_role

PROMPT = "{% if resume %}Go on.{% else %}Do this:\n{{ data }}{% endif %}\n{{ report }}"
SCRIPTS: dict[str, Any] = {
    "gen-release": {
        "steps": [
            {"say": "Comparing {version} with the last release"},
            {"usage": {"input": 5100, "output": 200, "cost_usd": 0.018, "turns": 1}},
            {"ask": {"question": "{version} changes the price table. Release it?", "choices": ["release", "wait"]}},
        ],
        "on_resume": [
            {"say": "The answer was: {answer}"},
            {"result": {"status": "success", "summary": "{version} is prepared: {answer}"}},
        ],
    },
    "gen-broken": {"steps": [{"say": "I try"}, {"fail": "the build is red"}]},
}
"""What the soldiers of each general do with an event ``<name>.work``, as ``release.work``."""
SLOW = "gen-slow"
"""Its soldiers are processes that say something and then work until they are stopped."""
_SLOW_ARGV = ["/bin/sh", "-c", "echo 'This takes long: <b>bold</b>'; exec sleep 600"]


class LivingCourt:
    """The court; made by :func:`living`."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._number = 0

    async def emit(self, general: str, **payload: Any) -> str:
        """Give a general something to do; returns the id of the event."""
        self._number += 1
        event_id = f"evt-test-{self._number}"
        kind = f"{general.removeprefix('gen-')}.work"
        await inject_event(self.services, {"id": event_id, "type": kind, "source": "test", "payload": payload})
        return event_id


def _install(home: Home, name: str, engine: str, **options: Any) -> None:
    folder = home.general(name)
    folder.mkdir(parents=True)
    (folder / "prompt.md").write_text(PROMPT)
    manifest = {
        "name": name,
        "description": "For tests.",
        "engine": {"name": engine, "options": options},
        "subscribes": [f"{name.removeprefix('gen-')}.work"],
        "retries": 0,
    }
    (folder / "manifest.yaml").write_text(json.dumps(manifest))


@contextlib.asynccontextmanager
async def living(root: Path, queues: str | None = None) -> AsyncIterator[LivingCourt]:
    """Found a court and have it work for the length of the block; ``queues``: the URL of a database for its queues."""
    await create_home(root, (), force=True)
    home = Home(root)
    if queues is not None:
        (root / MARKER).write_text(f"queue: {{transport: '{queues}'}}\n")
    for name, script in SCRIPTS.items():
        _install(home, name, "scripted", script=script)
    _install(home, SLOW, "command", argv=_SLOW_ARGV)
    stop = asyncio.Event()
    async with open_services(home) as services:
        roles = [make_role(name, services) for name in ("king", *SCRIPTS, SLOW)]
        running = [asyncio.create_task(run_role(role, services, stop)) for role in roles]
        try:
            yield LivingCourt(services)
        finally:
            stop.set()
            await asyncio.gather(*running)
