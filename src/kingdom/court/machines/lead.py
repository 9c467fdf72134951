"""Which machine leads the court: it runs the king, envoy, sentinel, chamberlain and the dashboard.

The lead is a lease in the database, with a *term* that grows by one with each new holder. What the holder writes to the
court's files in the database (:mod:`~kingdom.court.machines.replica`) is refused when its term is over. So a machine
that was frozen or cut off, and comes back after another took over, changes nothing.

What a machine knows about it without asking is in :mod:`~kingdom.court.machines.own_lead`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from kingdom.court.errors import MachineRefused, NotLeading
from kingdom.court.machines.own_lead import LEASE_SECONDS

if TYPE_CHECKING:
    from kingdom.court.machines.database import CourtDatabase

RENEW_SECONDS: Final = 2.0
_LOCK: Final = 0x6C656164  # "lead", of an advisory lock: for writing files, and for taking the lease over

_LOCK_SECONDS: Final = 1.0
_END_WRITERS: Final = """
SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND classid = $1 AND objid = hashtext(current_schema())::bit(32)::bigint::oid AND granted
    AND xact_start < clock_timestamp() - interval '1 second'
"""
FORMAT: Final = 1
"""The version of tables, reports and orders. Machines work together whose versions differ by one at most."""
LEAD_TABLES: Final = """
CREATE TABLE IF NOT EXISTS court_lead (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    holder text NOT NULL DEFAULT '',
    machine text NOT NULL DEFAULT '',
    term bigint NOT NULL DEFAULT 0,
    until timestamptz NOT NULL DEFAULT '-infinity',
    complete boolean NOT NULL DEFAULT false,
    format integer NOT NULL DEFAULT 1
);
INSERT INTO court_lead DEFAULT VALUES ON CONFLICT DO NOTHING;
"""


@dataclass(frozen=True, slots=True)
class Lead:
    """The lease, as the database has it."""

    holder: str
    machine: str
    term: int
    complete: bool
    """Whether the files of the court are in the database: only then can another machine take over."""
    standby: bool
    """Whether there is another machine that could."""


class LeadTable:
    """The lease in the database, for one home."""

    def __init__(self, database: CourtDatabase, machine: str, holder: str) -> None:
        self._database = database
        self._machine = machine
        self.holder = holder

    async def take(self) -> tuple[Lead, Lead]:
        """Renew the lease of this home, or take over one that has ended; return it as it was before and is now."""
        async with self._database.connection() as connection:
            row = await self._read(connection)
            before = _lead(row)
            if before.holder == self.holder:
                return before, await self._renew(connection, before, may_lead=row["may_lead"])
            if not _can_take_over(row):
                return before, before
            try:
                return await self._take_over(connection)
            except asyncpg.LockNotAvailableError:
                # A process of the former holder was frozen, or cut off, while it wrote files.
                await connection.execute(_END_WRITERS, _LOCK)
                return before, before

    async def _read(self, connection: Any) -> Any:
        return await connection.fetchrow(
            "SELECT *, until < clock_timestamp() AS ended, EXISTS (SELECT FROM court_machine "
            "WHERE NOT joined AND state = 'active' AND name <> $1) AS standby, EXISTS (SELECT FROM court_machine "
            "WHERE NOT joined AND state = 'active' AND name = $1) AS may_lead FROM court_lead",
            self._machine,
        )

    async def _renew(self, connection: Any, before: Lead, *, may_lead: bool) -> Lead:
        if not may_lead:  # it was removed, or leaves
            await connection.execute(
                "UPDATE court_lead SET holder = '-', machine = '', until = '-infinity' WHERE holder = $1", self.holder
            )
            return replace(before, holder="-", machine="")
        renewed = await connection.fetchval(
            "UPDATE court_lead SET until = clock_timestamp() + make_interval(secs => $2), format = $3 "
            "WHERE holder = $1 RETURNING true",
            self.holder,
            LEASE_SECONDS,
            FORMAT,
        )
        return before if renewed else _lead(await self._read(connection))

    async def _take_over(self, connection: Any) -> tuple[Lead, Lead]:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = {round(_LOCK_SECONDS * 1000)}")
            await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext(current_schema()))", _LOCK)
            row = await self._read(connection)
            before = _lead(row)
            if not _can_take_over(row):
                return before, before
            await connection.execute(
                "UPDATE court_lead SET holder = $1, machine = $2, term = $3, "
                "until = clock_timestamp() + make_interval(secs => $4)",
                self.holder,
                self._machine,
                before.term + 1,
                LEASE_SECONDS,
            )
        return before, replace(before, holder=self.holder, machine=self._machine, term=before.term + 1)

    async def release(self, term: int) -> None:
        """Give the lease back, so that another machine takes over at once."""
        async with self._database.connection() as connection:
            await connection.execute(
                "UPDATE court_lead SET until = '-infinity' WHERE holder = $1 AND term = $2", self.holder, term
            )


def check_format(leader: str, found: int) -> None:
    """Raise :class:`MachineRefused` when this machine cannot work with the one that leads."""
    if abs(found - FORMAT) <= 1:
        return
    leader = leader or "the machine that leads"
    old, where = ("older", "this machine") if found > FORMAT else ("newer", leader)
    raise MachineRefused(
        f"Kingdom on this machine is {old} by more than one step than on {leader} "
        f"(format {FORMAT} and {found}): update it on {where} first. Until then no task is claimed here"
    )


async def hold(connection: Any, holder: str, term: int) -> None:
    """Keep the lease from being taken over until the end of the transaction.

    Raises :class:`NotLeading` when its term is over.
    """
    await connection.execute("SELECT pg_advisory_xact_lock($1, hashtext(current_schema()))", _LOCK)
    if not await connection.fetchval("SELECT true FROM court_lead WHERE holder = $1 AND term = $2", holder, term):
        raise NotLeading("another machine leads the court now: this one writes nothing more")


def _can_take_over(row: Any) -> bool:
    fits = not row["holder"] or abs(row["format"] - FORMAT) <= 1
    return bool(row["may_lead"] and row["ended"] and fits and (row["complete"] or not row["holder"]))


def _lead(row: Any) -> Lead:
    return Lead(row["holder"], row["machine"], row["term"], row["complete"], row["standby"])
