"""A sentinel or an envoy in a process of its own, for tests that kill it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kingdom.court.bootstrap import make_role, open_services
from kingdom.court.home import Home
from kingdom.court.loop import run_role
from tests.chaos.processes import die_with_parent


def live(name: str, root: str, environment: dict[str, str]) -> None:
    """Be the role, until killed."""
    die_with_parent()
    os.environ.update(environment)
    asyncio.run(_live(name, Path(root)))


async def _live(name: str, root: Path) -> None:
    async with open_services(Home(root)) as services:
        await run_role(make_role(name, services), services, asyncio.Event())
