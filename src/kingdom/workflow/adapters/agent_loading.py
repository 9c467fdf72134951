"""Agents that are loaded while git writes files: their modules take longer to import than the rest of a command."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from kingdom.workflow.adapters.agent_client import RunnerAgentClient
    from kingdom.workflow.domain.work import Report, Task, Work

_LOADED_WITHIN_SECONDS: Final = 1.0  # of the start of an engine that makes no worktree


class LoadedAgents:
    """An :class:`kingdom.workflow.ports.AgentClient` that makes its client, in a thread, when git writes a worktree.

    Not earlier: until git runs, the command would share its processor time with the thread. With works to recover the
    engine waits for it; otherwise the first call does. A process without an engine makes it when it is first used.
    """

    def __init__(self, make: Callable[[], RunnerAgentClient]) -> None:
        self._make = make
        self._loading: asyncio.Task[RunnerAgentClient] | None = None
        self._later: asyncio.TimerHandle | None = None  # set: an engine has started, and there was nothing to recover

    def load(self) -> None:
        """Begin to make the client, if an engine has started that will need it."""
        if self._later is not None and self._loading is None:
            self._loading = asyncio.create_task(self._load(), name="load-agents")

    async def start(self, work: Work) -> None:
        """Prepare for the queries of a Work."""
        await (await self._client()).start(work)

    async def send_query(self, work: Work, task: Task, text: str) -> None:
        """Send a query and return at once."""
        await (await self._client()).send_query(work, task, text)

    async def write_report(self, work: Work, task: Task, report: Report) -> None:
        """Start the report of a task and return at once."""
        await (await self._client()).write_report(work, task, report)

    async def stop(self, work_id: str, *, record: bool = True) -> None:
        """Stop the agent of a Work."""
        await (await self._client()).stop(work_id, record=record)

    async def recover(self, works: Sequence[Work]) -> None:
        """Find the runs of these works; see :meth:`RunnerAgentClient.recover`."""
        if self._loading is not None or works:
            await (await self._client()).recover(works)
        else:
            self._later = asyncio.get_running_loop().call_later(_LOADED_WITHIN_SECONDS, self.load)

    async def forget(self, work_id: str) -> None:
        """Delete the files of a Work's runs."""
        await (await self._client()).forget(work_id)

    async def works_here(self) -> set[str]:
        """Return the ids of the works that have runs on this machine."""
        return await (await self._client()).works_here()

    async def stop_others(self, work_ids: Container[str], reason: str) -> None:
        """Stop every run on this machine that is of none of these works."""
        await (await self._client()).stop_others(work_ids, reason)

    async def close(self) -> None:
        """Detach from all runs."""
        if self._later is not None:
            self._later.cancel()
        if self._later is not None or self._loading is not None:
            await (await self._client()).close()

    async def _client(self) -> RunnerAgentClient:
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(), name="load-agents")
        return await asyncio.shield(self._loading)

    async def _load(self) -> RunnerAgentClient:
        client = await asyncio.to_thread(self._make)
        if self._later is not None:
            await client.recover(())
        return client
