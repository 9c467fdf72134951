"""Temporal, an engine of workflows in Go: the program beside this module works, on a database made here.

Its server runs in one process with its worker and the caller, which favours it: usually they are processes of their
own. So does that its list of workflows is in memory. The one process uses all cores.
"""

from __future__ import annotations

from bench import pg
from bench.harness import Figures
from bench.peers import GoPeer


async def activities(server: str, count: int) -> Figures:
    """One workflow of activities that do nothing, each durable before the next begins."""
    return await _measure("activities", server, count)


async def local_activities(server: str, count: int) -> Figures:
    """The same with local activities, its faster kind. They are recorded together: a crash repeats many of them."""
    return await _measure("local-activities", server, count)


async def _measure(command: str, server: str, count: int) -> Figures:
    async with pg.fresh_database(server) as database, GoPeer("temporal").running() as program:
        return await program.ask(command, database=database, count=count)
