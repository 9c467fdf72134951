"""A fresh store for each life, made in milliseconds."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kingdom.bus import connect
from tests.chaos.grounds import Ground, grounds
from tests.chaos.zygote import Zygote


class Site:
    """Where lives of one transport are lived, and the zygote that brings them forth."""

    def __init__(self, template: Ground, folder: Path, zygote: Zygote) -> None:
        self.transport = template.transport
        self.zygote = zygote
        self.folder = folder
        self.trace = folder / "trace"
        self._template = template
        self._make: Callable[[Path], Ground] = type(template)  # type: ignore[assignment] # of a folder, but for PostgreSQL
        self._numbers = itertools.count(1)

    @contextmanager
    def fresh(self, events: int) -> Iterator[tuple[Ground, list[str]]]:
        """A store that was set up and in which nothing has happened yet, and ids for so many events.

        Directories are copies of a template; PostgreSQL is shared, and the ids are new each time.
        """
        ids = [f"life-{next(self._numbers):05d}" for _ in range(events)]
        if self.transport == "postgresql":
            yield self._template, ids
            return
        copy = self.folder / "point"
        shutil.copytree(self.folder / "template", copy, copy_function=shutil.copyfile)
        try:
            yield self._make(copy), ids
        finally:
            shutil.rmtree(copy)


@contextmanager
def open_site(transport: str, folder: Path) -> Iterator[Site]:
    """A site of this transport, with its template set up and its zygote running."""
    (folder / "template").mkdir()
    modules = ["tests.chaos.life", "tests.chaos.recovery", "tests.chaos.stopper"]
    with (
        grounds(transport, folder / "template") as ground,
        Zygote(folder, *modules, f"kingdom.bus.transports.{ground.transport}") as zygote,
    ):
        asyncio.run(_set_up(ground.url))
        ground.prepare()
        yield Site(ground, folder, zygote)


async def _set_up(url: str) -> None:
    async with connect(url) as bus:
        await bus.setup()
