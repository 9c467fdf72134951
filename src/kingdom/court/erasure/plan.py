"""The plan of a removal: stored before anything is removed, deleted at the end."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from kingdom.base.files import read_json, sync_directory, write_json
from kingdom.court.errors import CourtError
from kingdom.court.loop import role_lock
from kingdom.court.supervisor.record import SUPERVISOR

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kingdom.court.erasure.names import SubjectNames
    from kingdom.court.home import Home

REMOVAL_FILE: Final = "removal.json"  # in state/


class RemovalRefused(CourtError):
    """A removal cannot be carried out now; the message says why and what to do."""

    code = "REMOVAL_REFUSED"


@dataclass(slots=True)
class RemovalPlan:
    """What will be removed. Paths are relative to the home."""

    kind: str
    names: list[str]
    ids: list[str] = field(default_factory=list)
    events: dict[str, list[str]] = field(default_factory=dict)
    """The ids to purge from each stream."""
    paths: list[str] = field(default_factory=list)
    mentions: list[str] = field(default_factory=list)
    workflows: list[str] = field(default_factory=list)
    gits: list[str] = field(default_factory=list)

    @property
    def subject(self) -> SubjectNames:
        from kingdom.court.erasure.names import SubjectNames  # a court that starts needs none of it

        return SubjectNames("repository" if self.kind == "repository" else "person", tuple(self.names))


def check_no_removal(home: Home) -> None:
    """Raise if a removal was interrupted: a court must not work with a part of the records."""
    if _plan_path(home).exists():
        raise RemovalRefused("a removal was interrupted: complete it with kingdom forget --resume")


@contextlib.contextmanager
def court_at_rest(home: Home) -> Iterator[None]:
    """Keep every role from starting. Raises :class:`kingdom.court.errors.AlreadyRunning` while one runs."""
    folders = {home.role(SUPERVISOR), *(lock.parent for lock in home.state.glob("*/.lock"))}
    with contextlib.ExitStack() as held:
        for folder in sorted(folders, key=lambda one: (one.name != SUPERVISOR, one.name)):
            folder.mkdir(parents=True, exist_ok=True)
            held.enter_context(role_lock(folder, folder.name))
        yield


def store_plan(home: Home, plan: RemovalPlan) -> None:
    """Store the plan durably. From here on the removal must be completed."""
    write_json(_plan_path(home), asdict(plan), mode=0o600)


def stored_plan(home: Home) -> RemovalPlan | None:
    """Return the plan of an interrupted removal."""
    if not _plan_path(home).exists():
        return None
    try:
        return RemovalPlan(**read_json(_plan_path(home)))
    except TypeError:
        raise RemovalRefused(
            f"{_plan_path(home)} is damaged: remove it, and start the removal again with kingdom forget"
        ) from None


def delete_plan(home: Home) -> None:
    """Delete the plan: all of it is carried out."""
    _plan_path(home).unlink()
    sync_directory(home.state)


def _plan_path(home: Home) -> Path:
    return home.state / REMOVAL_FILE
