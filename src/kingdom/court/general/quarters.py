"""What all campaigns of one general share."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kingdom.agents.mcp_files import McpFiles
from kingdom.court.general.notes import Notes
from kingdom.court.general.repositories import configured_url
from kingdom.court.general.results import Teller
from kingdom.court.general.workspace import Workspace, allows_local
from kingdom.court.scribe import Scribe

if TYPE_CHECKING:
    from kingdom.agents.port import Agents
    from kingdom.bus import EventBus
    from kingdom.court.config.system import SystemConfig
    from kingdom.court.home import Home
    from kingdom.court.loop import Services
    from kingdom.court.packages.loading import General as Package
    from kingdom.court.packages.manifest import Manifest

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Habits:
    """What a general reaches for outside the court; tests bring their own."""

    sleep: Sleep = asyncio.sleep
    random: Callable[[], float] = random.random
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    monotonic: Callable[[], float] = time.monotonic


class Quarters:
    """The services, the package and the places of one general."""

    def __init__(
        self, services: Services, package: Package, system: SystemConfig, agents: Agents, habits: Habits
    ) -> None:
        self.home: Home = services.home
        self.bus: EventBus = services.bus
        self.clock = services.clock
        self.package = package
        self.manifest: Manifest = package.manifest
        self.name = package.manifest.name
        self.system = system
        self.agents = agents
        self.habits = habits
        self.base_url = system.repos.base_url
        self.tell = Teller(services.journal, self.name)
        self.notes = Notes(services.home.role(self.name))
        self.scribe = Scribe()
        self.mcp = McpFiles(services.home.role(self.name) / "mcp")
        self.workspace = Workspace(
            services.home, self.name, local=allows_local(self.base_url, self.manifest.default_repo)
        )

    @property
    def default_url(self) -> str | None:
        """Where to clone from when an event names no repository."""
        repo = self.manifest.default_repo
        return None if repo is None else configured_url(repo, self.base_url)
