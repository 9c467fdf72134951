"""Browsers that are logged in: ``state/web/sessions.json``. It has no secret: the proof is in the cookie."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from kingdom.base.files import ChangeDetector, read_object, write_json
from kingdom.base.locks import exclusive
from kingdom.base.text import one_line
from kingdom.court.errors import CourtError
from kingdom.court.models import timestamp
from kingdom.web.record import STATE_FOLDER
from kingdom.web.security.credentials import SESSIONS_FILE
from kingdom.web.security.roles import OWNER, Person
from kingdom.web.security.tokens import TokenStore

TOKEN_SESSION_SECONDS: Final = 30 * 24 * 3600
"""How long a browser stays logged in that came with a token."""
_ID_BYTES: Final = 12
_MAX_SESSIONS: Final = 1000  # the oldest is dropped first
_MAX_AGENT_CHARS: Final = 300
_SEEN_SECONDS: Final = 60.0  # the time of the last request is stored at most this often


class UnknownSession(CourtError):
    """There is no such session, or not for this person."""

    code = "NO_SESSION"


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that is logged in."""

    id: str
    key: str
    """That of the person; empty for the home's own token."""
    name: str
    created_at: str
    expires: float
    address: str = ""
    agent: str = ""
    claims: Mapping[str, Any] | None = None
    """What the provider says about the person; None: they came with a token."""
    last_seen_at: str | None = None


EndOfAccess = Literal["changed", "ended", "revoked"]
"""Another role; no session any more; no token any more."""
PersonFinder = Callable[[Session], Person | None]
"""Returns who a session of a provider is now; None: not allowed any more."""


class SessionStore:
    """The sessions of a root. Changes of other processes are seen at the next call."""

    def __init__(self, root: Path, tokens: TokenStore, clock: Callable[[], float] = time.time) -> None:
        self._path = root / STATE_FOLDER / SESSIONS_FILE
        self._seen_path = root / STATE_FOLDER / "sessions-seen.json"
        self._tokens = tokens
        self._clock = clock
        self._changes = ChangeDetector(self._path)
        self._sessions: dict[str, Session] = {}
        self._seen: dict[str, float] = {}  # when the last request was stored, by id
        self.find_account: PersonFinder = lambda _: None
        """Who a session of a provider is. Without a provider: nobody."""

    def add(
        self,
        person: Person,
        seconds: float,
        *,
        address: str = "",
        agent: str = "",
        claims: Mapping[str, Any] | None = None,
    ) -> str:
        """Store that a browser is logged in for some seconds. Returns the id of the session."""
        session_id, now = secrets.token_hex(_ID_BYTES), self._clock()
        entry: dict[str, Any] = {
            "key": person.key,
            "name": person.name,
            "created_at": timestamp(now),
            "expires": now + seconds,
            "address": address[:100],
            "agent": one_line(agent, _MAX_AGENT_CHARS),
        }
        if claims is not None:
            entry["claims"] = dict(claims)

        def change(known: dict[str, Any]) -> None:
            for expired in [one for one, found in known.items() if _expires(found) <= now]:
                del known[expired]
            known[session_id] = entry
            while len(known) > _MAX_SESSIONS:
                del known[next(iter(known))]

        self._change(change)
        return session_id

    def person(self, session_id: str) -> Person | None:
        """Return who is logged in; None if the session ended, or the person has no access any more."""
        session = self._find(session_id)
        return None if session is None else self._person(session)

    def holds(self, person: Person) -> bool:
        """Return whether a person still has their token, role and session."""
        return self.person(person.session) == person if person.session else self._tokens.holds(person)

    def end_of_access(self, person: Person) -> EndOfAccess:
        """Return why a person does not hold their access any more."""
        if (self.person(person.session) if person.session else self._tokens.find_key(person.key)) is not None:
            return "changed"
        return "ended" if person.session else "revoked"

    def list(self) -> list[tuple[Session, Person]]:
        """Return all sessions with the person of each, the newest first."""
        self._reload()
        seen, found = read_object(self._seen_path), []
        for session in list(self._sessions.values()):
            if session.expires > self._clock() and (person := self._person(session)) is not None:
                last = seen.get(session.id)
                found.append((replace(session, last_seen_at=last if isinstance(last, str) else None), person))
        return sorted(found, key=lambda one: one[0].created_at, reverse=True)

    def stored(self) -> tuple[Session, ...]:
        """Return all sessions in the file, also those that have expired or whose person has no access any more."""
        self._reload()
        return tuple(self._sessions.values())

    def end(self, session_id: str) -> None:
        """End a session, if there is one."""
        self._reload()
        if session_id in self._sessions:
            self._change(lambda known: known.pop(session_id, None))

    def seen(self, session_id: str) -> None:
        """Store that a session sent a request, at most once a minute."""
        now = self._clock()
        if not session_id or now - self._seen.get(session_id, 0.0) < _SEEN_SECONDS:
            return
        self._seen[session_id] = now
        self._reload()
        kept = {one: at for one, at in read_object(self._seen_path).items() if one in self._sessions}
        write_json(self._seen_path, {**kept, session_id: timestamp(now)}, durable=False, mode=0o600)

    def _find(self, session_id: str) -> Session | None:
        self._reload()
        found = self._sessions.get(session_id)
        return None if found is None or found.expires <= self._clock() else found

    def _person(self, session: Session) -> Person | None:
        if session.claims is not None:
            found = self.find_account(session)
        else:
            found = self._tokens.find_key(session.key) if session.key else OWNER
        return None if found is None else replace(found, session=session.id)

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(self._path.with_suffix(".lock")):
            known = read_object(self._path)
            change(known)
            write_json(self._path, known, durable=False, mode=0o600)

    def _reload(self) -> None:
        if self._changes.changed():
            found = read_object(self._path)
            self._sessions = {one: session for one, entry in found.items() if (session := _session(one, entry))}


def _expires(entry: Any) -> float:
    found = entry.get("expires") if isinstance(entry, dict) else None
    return float(found) if isinstance(found, int | float) else 0.0


def _session(session_id: str, entry: Any) -> Session | None:
    """Return the session of a stored entry; None if it is malformed."""
    if not isinstance(entry, dict):
        return None
    claims = entry.get("claims")
    texts = [entry.get(name, "") for name in ("key", "name", "created_at", "address", "agent")]
    if not all(isinstance(one, str) for one in texts) or not (claims is None or isinstance(claims, dict)):
        return None
    key, name, created_at, address, agent = texts
    return Session(session_id, key, name, created_at, _expires(entry), address, agent, claims)
