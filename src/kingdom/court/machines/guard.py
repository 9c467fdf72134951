"""What the roles of a machine ask before they act, while another machine could take over."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from kingdom.court.errors import NotLeading
from kingdom.court.machines.database import CourtDatabase
from kingdom.court.machines.own_lead import forget_lead, holder_id, read_lead
from kingdom.court.machines.replica import Replica, shared_files

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home
    from kingdom.court.machines.own_lead import OwnLead


_TERMS_RECALLED: Final = 20  # each holder recalls what the former ones held, so few are needed


class LeadGuard:
    """Checks the lead of this machine, and puts files into the database while it has it.

    Without the role ``link`` nobody has asked for the lead, and nothing is checked.
    """

    def __init__(self, home: Home, url: str, machine: str) -> None:
        self._home = home
        self._database = CourtDatabase(url, keep=True)
        self._replica = Replica(home, self._database, holder_id(home, machine))

    def check(self) -> None:
        """Raise :class:`NotLeading` when another machine may lead the court now."""
        self._own_lead()

    def workers(self, role: str) -> list[str]:
        """Return the name under which a role claims in this term, and those of former terms.

        Raises :class:`NotLeading`: the term that is known here may be that of the machine that leads now.
        """
        lead = self._own_lead()
        if lead is None:
            return [role]
        terms = range(lead.term, max(0, lead.term - _TERMS_RECALLED), -1)
        return [*(f"{role}.{term}" for term in terms), role]

    async def save(self, *paths: Path) -> None:
        """Put files, and those of folders that have changed, into the database. Raises :class:`NotLeading`."""
        lead = self._own_lead()
        if lead is None or not lead.shared:
            return
        wanted: list[str] = []
        for path in paths:
            relative = path.relative_to(self._home.root).as_posix()
            if path.is_dir():
                wanted += [one for one, info in shared_files(self._home, relative) if self._replica.differs(one, info)]
            else:
                wanted.append(relative)
        await self._replica.push(lead.term, wanted)

    async def discard_copy(self) -> None:
        """Remove the files of the court from the database. Raises :class:`NotLeading` if another machine led last."""
        await self._replica.discard()
        forget_lead(self._home)  # this machine led last, and without the copy no other can lead
        shutil.rmtree(self._home.role("link") / "set-aside", ignore_errors=True)  # what was never sent goes too

    async def close(self) -> None:
        """Close the connection."""
        await self._database.close()

    def _own_lead(self) -> OwnLead | None:
        lead = read_lead(self._home)
        if lead is None or lead.sure:
            return lead
        if not lead.leading:
            raise NotLeading(f"{lead.machine or 'another machine'} leads the court: this one stands by")
        raise NotLeading("the lead could not be renewed in time: waiting until it is")
