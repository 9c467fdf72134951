"""Several engines on one PostgreSQL store: each has a lease, and each workflow is held by one of them.

An engine is known by its home, the folder with its worktrees. It renews its lease while it runs. When the lease has
ended, another engine may take over what its home holds: it raises the epoch of the lease first, and every transaction
of an engine checks its epoch before the commit. So an engine that was cut off or paused writes nothing afterwards.
All times are those of the database.
"""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from kingdom.base.uptime import uptime
from kingdom.workflow.domain.statuses import WORKFLOW_ACTIVE_STATUSES, WorkflowStatus
from kingdom.workflow.errors import WorkflowError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from kingdom.workflow.store.repositories import DatabaseSession

DEFAULT_LEASE_SECONDS: Final = 60.0
_MAX_ABANDONED: Final = 100  # workflows that one look finds

_TAKE_LEASE: Final = """
    INSERT INTO wf_engine_lease (home, owner, epoch, ends_at)
    VALUES (?, ?, 1, clock_timestamp() + make_interval(secs => ?))
    ON CONFLICT (home) DO UPDATE
        SET owner = excluded.owner, epoch = wf_engine_lease.epoch + 1, ends_at = excluded.ends_at
    RETURNING epoch
"""
_RENEW_LEASE: Final = """
    UPDATE wf_engine_lease SET ends_at = clock_timestamp() + make_interval(secs => ?)
    WHERE home = ? AND epoch = ? RETURNING epoch
"""
# FOR SHARE waits for a transaction that is ending the lease, and then sees the epoch it wrote.
_CHECK_LEASE: Final = "SELECT FROM wf_engine_lease WHERE home = ? AND epoch = ? FOR SHARE"
_END_LEASE: Final = """
    UPDATE wf_engine_lease SET epoch = epoch + 1 WHERE home = ? AND ends_at < clock_timestamp() RETURNING epoch
"""
_CLAIM: Final = """
    INSERT INTO wf_hold (workflow_id, home) SELECT id, ? FROM unnest(?::text[]) AS id
    ON CONFLICT (workflow_id) DO NOTHING
"""
_HOLDERS: Final = """
    SELECT hold.workflow_id, lease.home, lease.owner, lease.ends_at >= clock_timestamp(),
        extract(epoch FROM clock_timestamp() - lease.ends_at)::float
    FROM wf_hold AS hold JOIN wf_engine_lease AS lease ON lease.home = hold.home
    WHERE hold.workflow_id = ANY(?::text[])
"""
_ABANDONED: Final = """
    SELECT workflow.id, hold.home FROM wf_workflow AS workflow
    JOIN wf_hold AS hold ON hold.workflow_id = workflow.id
    JOIN wf_engine_lease AS lease ON lease.home = hold.home
    WHERE workflow.status = ANY(?::text[]) AND hold.home <> ? AND lease.ends_at < clock_timestamp()
    ORDER BY workflow.id LIMIT ?
"""
_TAKE_OVER: Final = "UPDATE wf_hold SET home = ? WHERE workflow_id = ? AND home = ? RETURNING home"
_UNHELD: Final = """
    SELECT id FROM wf_workflow AS workflow WHERE status = ANY(?::text[])
        AND NOT EXISTS (SELECT FROM wf_hold AS hold WHERE hold.workflow_id = workflow.id)
    ORDER BY id
"""


def home_name(folder: Path) -> str:
    """Return the name of a home among all machines."""
    return f"{socket.gethostname()}:{folder}"


class EngineReplaced(WorkflowError):
    """Another engine took over the workflows of this one, which could not renew its lease in time."""

    code = "SYS_ENGINE_REPLACED"


class Holder(NamedTuple):
    """The engine that holds a workflow."""

    home: str
    owner: str
    alive: bool  # whether its lease runs
    ended_seconds: float  # ago; below 0 while it runs


async def find_holder(session: DatabaseSession, workflow_id: str) -> Holder | None:
    """Return the engine that holds a workflow; None if none does."""
    rows = await session.fetch(_HOLDERS, [workflow_id])
    return Holder(*rows[0][1:]) if rows else None


class EngineHolds:
    """The lease of one engine and the workflows it holds."""

    def __init__(
        self,
        session: Callable[[], AbstractAsyncContextManager[DatabaseSession]],
        home: str,
        seconds: float = DEFAULT_LEASE_SECONDS,
    ) -> None:
        self._session = session
        self.home = home
        self.seconds = seconds
        self._epoch = 0
        self._renewed = 0.0
        self._held: set[str] = set()
        self._given_up = False

    # ── the lease ─────────────────────────────────────────────────────────────────────────────────────────────

    async def take(self, owner: str) -> None:
        """Take the lease of this home. The caller knows that no other process of this machine has it."""
        asked = uptime()
        async with self._session() as session:
            ((self._epoch,),) = await session.fetch(_TAKE_LEASE, self.home, owner, self.seconds)
            rows = await session.fetch("SELECT workflow_id FROM wf_hold WHERE home = ?", self.home)
        self._held = {str(workflow_id) for (workflow_id,) in rows}
        self._renewed = asked

    async def renew(self) -> None:
        """Renew the lease; raise :class:`EngineReplaced` if another engine has ended it."""
        asked = uptime()
        async with self._session() as session:
            if not await session.fetch(_RENEW_LEASE, self.seconds, self.home, self._epoch):
                raise self._replaced()
        self._renewed = asked

    @property
    def ends_at(self) -> float:
        """Until when, by :func:`uptime`, the lease surely lasts: it is counted from before it was asked for."""
        return self._renewed + self.seconds

    async def end(self) -> None:
        """Let others take over at once: nothing of this home runs any more."""
        async with self._session() as session:
            await session.fetch(
                "UPDATE wf_engine_lease SET ends_at = clock_timestamp() WHERE home = ? AND epoch = ?",
                self.home, self._epoch,
            )  # fmt: skip

    def give_up(self) -> None:
        """Commit nothing more, also while the lease still lasts: agents are being stopped, and have not failed."""
        self._given_up = True

    async def check(self, session: DatabaseSession) -> None:
        """Raise :class:`EngineReplaced` in a transaction that must not be committed any more."""
        if self._given_up or not await session.fetch(_CHECK_LEASE, self.home, self._epoch):
            raise self._replaced()

    def _replaced(self) -> EngineReplaced:
        return EngineReplaced(
            f"the lease of this engine ({self.home}) has ended, and another engine goes on with its workflows: start "
            "it again to take part"
        )

    # ── workflows ─────────────────────────────────────────────────────────────────────────────────────────────

    def is_mine(self, workflow_id: str) -> bool:
        """Whether this engine holds a workflow."""
        return workflow_id in self._held

    async def claim(self, workflow_ids: Collection[str]) -> dict[str, Holder]:
        """Hold the workflows that no engine holds; return the holders of the others."""
        wanted = [workflow_id for workflow_id in workflow_ids if workflow_id not in self._held]
        if not wanted:
            return {}
        async with self._session() as session:
            await session.fetch(_CLAIM, self.home, wanted)
            await self.check(session)
            rows = await session.fetch(_HOLDERS, wanted)
        holders = {workflow_id: Holder(*rest) for workflow_id, *rest in rows}
        self._held.update(workflow_id for workflow_id, holder in holders.items() if holder.home == self.home)
        return {workflow_id: holder for workflow_id, holder in holders.items() if holder.home != self.home}

    async def others(self, workflow_ids: Collection[str]) -> dict[str, Holder]:
        """Return those of these workflows that another engine holds."""
        async with self._session() as session:
            rows = await session.fetch(_HOLDERS, list(workflow_ids))
        holders = {workflow_id: Holder(*rest) for workflow_id, *rest in rows}
        return {workflow_id: holder for workflow_id, holder in holders.items() if holder.home != self.home}

    async def unheld(self) -> list[str]:
        """Return the workflows that may go on and that nobody has held yet."""
        stopped = [WorkflowStatus.PAUSED.value, WorkflowStatus.FAILED.value]
        async with self._session() as session:
            return [str(workflow_id) for (workflow_id,) in await session.fetch(_UNHELD, [*_active(), *stopped])]

    async def abandoned(self) -> list[tuple[str, str]]:
        """Return the workflows that need an engine and whose holder's lease has ended, with its home."""
        async with self._session() as session:
            rows = await session.fetch(_ABANDONED, _active(), self.home, _MAX_ABANDONED)
        return [(str(workflow_id), str(home)) for workflow_id, home in rows]

    @asynccontextmanager
    async def taking(self, workflow_id: str) -> AsyncIterator[None]:
        """Run :meth:`take_over` and its commit inside the block; if they fail, the workflow is not held."""
        try:
            yield
        except BaseException:
            self._held.discard(workflow_id)
            raise

    async def take_over(self, session: DatabaseSession, workflow_id: str, home: str) -> bool:
        """Take a workflow from a home whose lease has ended; return False if it has not, or somebody was faster."""
        if not await session.fetch(_END_LEASE, home):
            return False
        taken = bool(await session.fetch(_TAKE_OVER, self.home, workflow_id, home))
        if taken:  # before the commit, which hands its events over
            self._held.add(workflow_id)
        return taken

    async def forget(self, workflow_id: str) -> None:
        """Hold a deleted workflow no longer."""
        async with self._session() as session:
            await session.fetch("DELETE FROM wf_hold WHERE workflow_id = ? AND home = ?", workflow_id, self.home)
        self._held.discard(workflow_id)


def _active() -> list[str]:
    return [status.value for status in WORKFLOW_ACTIVE_STATUSES]
