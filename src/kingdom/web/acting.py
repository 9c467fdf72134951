"""Who acts: the person behind the current request, page or tool call, and the record of what they did."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.journal import JournalError
from kingdom.journal.catalog import SystemPersonActed
from kingdom.web.envelope import ApiError
from kingdom.web.security.roles import OWNER, UNRECORDED_OPERATIONS, Person, role_of, role_refusal
from kingdom.workflow.usecases import record_person

if TYPE_CHECKING:
    from kingdom.web.context import WebContext

log = logging.getLogger("kingdom.web")


@dataclass(slots=True)
class Act:
    """Something that a person does."""

    person: Person
    name: str = ""
    """How it is signed; empty: with the person's name."""
    subject: str = ""
    """The id of what it is done to."""
    workflow_id: str = ""


_NOBODY: Final = Act(OWNER)
_current: Final = ContextVar[Act]("kingdom_act", default=_NOBODY)


@contextlib.contextmanager
def acting(act: Act) -> Iterator[Act]:
    """Make ``act`` the current one inside the block."""
    before = _current.set(act)
    try:
        yield act
    finally:
        _current.reset(before)


def signature(given: str | None = None) -> str:
    """Return the name to sign the current act with.

    ``given`` is a name in the request. Only the home's own token may sign with another name. Raises :class:`ApiError`.
    """
    act = _current.get()
    if given is None or given == act.person.name:
        return act.person.name
    if not act.person.is_owner:
        raise ApiError(
            403, "SYS_SIGNATURE", f"your token is that of {act.person.name}: leave out user, or give your own name"
        )
    if act is not _NOBODY:
        act.name = given
    return given


def acting_person() -> Person:
    """Return the person of the current act; the owner if there is none."""
    return _current.get().person


def acts_on(subject: str, *, workflow: bool = False) -> None:
    """Name what the current act is done to, where its path does not: an event or workflow that was created."""
    if (act := _current.get()) is not _NOBODY:
        act.subject = subject
        if workflow:
            act.workflow_id = subject


def check_may(context: WebContext, person: Person, operation: str) -> None:
    """Raise :class:`ApiError` if the access of a person ended, or their role does not allow an operation."""
    if not context.sessions.holds(person):
        raise ApiError(401, "SYS_UNAUTHORIZED", _end_of_access(context, person))
    if not person.may(operation):
        raise role_refusal(person, role_of(operation), context.tokens.granters())


def _end_of_access(context: WebContext, person: Person) -> str:
    return {
        "changed": f"the access of {person.name} changed: connect again, or reload the page",
        "ended": f"this browser is not logged in as {person.name} any more: log in again",
        "revoked": f"the token of {person.name} was revoked",
    }[context.sessions.end_of_access(person)]


async def record_act(context: WebContext, act: Act, operation: str) -> None:
    """Record an act that was done: in the journal of the court, and in the events of the workflow it changed."""
    if operation in UNRECORDED_OPERATIONS:
        return
    name = act.name or act.person.name
    if context.services is not None:
        try:
            context.services.journal.emit(SystemPersonActed(name, operation, act.subject or act.workflow_id), "envoy")
        except JournalError as error:
            log.warning("cannot record %s of %s: %s", operation, name, error)
    if act.workflow_id and operation != "deleteWorkflow":
        await record_person(context.parts, act.workflow_id, name, operation)
