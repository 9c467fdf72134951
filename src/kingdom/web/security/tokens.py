"""Named access tokens of people: ``state/web/tokens.json``. Only hashes of the tokens are stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kingdom.base.files import ChangeDetector, read_object, write_json
from kingdom.base.locks import exclusive
from kingdom.court.errors import CourtError
from kingdom.court.home import Home
from kingdom.court.machines.capacity import require_lead
from kingdom.court.models import timestamp
from kingdom.web.record import STATE_FOLDER
from kingdom.web.security.roles import OWNER_NAME, ROLES, Person, Role

NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._@+\-]{0,59}$"
"""Names of people: also an e-mail address."""
_RESERVED_NAMES: Final = frozenset({OWNER_NAME, "web", "mcp", "console", "slack", "king"})  # they sign other acts
_TOKEN_BYTES: Final = 32
_KEY_CHARS: Final = 16  # of the hash; enough to tell tokens apart
_USED_SECONDS: Final = 60.0  # the time of the last use is stored at most this often


class InvalidTokenName(CourtError):
    """A name that no person may have."""

    code = "TOKEN_NAME"


class TokenExists(CourtError):
    """There is already a token of this name."""

    code = "TOKEN_EXISTS"


class UnknownToken(CourtError):
    """There is no token of this name."""

    code = "NO_TOKEN"


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, without its value."""

    name: str
    role: Role
    created_at: str
    last_used_at: str | None


def is_reserved_name(name: str) -> bool:
    """Return whether a name signs acts of the court, and can be that of no person."""
    return name.lower() in _RESERVED_NAMES


class TokenStore:
    """The named tokens of a root. Changes of other processes are seen at the next call."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self._home = Home(root)
        self._path = root / STATE_FOLDER / "tokens.json"
        self._used_path = root / STATE_FOLDER / "tokens-used.json"
        self._clock = clock
        self._changes = ChangeDetector(self._path)
        self._people: dict[str, Person] = {}  # by hash
        self._used: dict[str, float] = {}  # when the last use was stored, by key

    def people(self) -> list[Person]:
        """Return the people who have a token, by name."""
        self._reload()
        return sorted(self._people.values(), key=lambda person: person.name)

    def granters(self) -> list[str]:
        """Return the names of those who can give out tokens."""
        return [OWNER_NAME, *(person.name for person in self.people() if person.role == "own")]

    def list(self) -> list[AccessToken]:
        """Return all tokens, by name."""
        found, used = read_object(self._path), read_object(self._used_path)
        tokens = []
        for name, entry in sorted(found.items()):
            if (person := _person(name, entry)) is not None:
                last = used.get(person.key)
                created = str(entry.get("created_at") or "")
                tokens.append(AccessToken(name, person.role, created, last if isinstance(last, str) else None))
        return tokens

    def find(self, value: str) -> Person | None:
        """Return the person whose token this is."""
        self._reload()
        if not self._people:
            return None
        given = _hash(value)
        return next((person for known, person in self._people.items() if hmac.compare_digest(known, given)), None)

    def find_key(self, key: str) -> Person | None:
        """Return the person with the token of this key."""
        self._reload()
        return next((person for person in self._people.values() if person.key == key), None)

    def named(self, name: str) -> Person:
        """Return the person of this name. Raises :class:`UnknownToken`."""
        for person in self.people():
            if person.name == name:
                return person
        raise _unknown(name)

    def holds(self, person: Person) -> bool:
        """Return whether a person still has this token and role. The home's own token is not stored here."""
        return person.is_owner or self.find_key(person.key) == person

    def add(self, name: str, role: Role) -> str:
        """Create a token. Returns its value, which is not stored. Raises a :class:`CourtError`."""
        if re.fullmatch(NAME_PATTERN, name) is None:
            raise InvalidTokenName(
                f"{name!r:.80} is not a name: use up to 60 letters, digits and . _ @ + -, a letter or digit first"
            )
        if is_reserved_name(name):
            raise InvalidTokenName(f"{name} is the name of a part of the court: choose the name of a person")
        value = secrets.token_urlsafe(_TOKEN_BYTES)

        def change(known: dict[str, Any]) -> None:
            if name in known:
                raise TokenExists(f"{name} has a token already: kingdom token rm {name} revokes it first")
            known[name] = {"role": role, "created_at": timestamp(self._clock()), "hash": _hash(value)}

        self._change(change)
        return value

    def change_role(self, name: str, role: Role) -> None:
        """Give a token another role. Its value stays. Raises :class:`UnknownToken`."""

        def change(known: dict[str, Any]) -> None:
            if not isinstance(known.get(name), dict):
                raise _unknown(name)
            known[name]["role"] = role

        self._change(change)

    def remove(self, name: str) -> None:
        """Revoke a token. Raises :class:`UnknownToken`."""

        def change(known: dict[str, Any]) -> None:
            if known.pop(name, None) is None:
                raise _unknown(name)

        self._change(change)

    def used(self, person: Person) -> None:
        """Store that a token was used, at most once a minute."""
        now = self._clock()
        if person.is_owner or now - self._used.get(person.key, 0.0) < _USED_SECONDS:
            return
        self._used[person.key] = now
        known = {one.key for one in self.people()}
        kept = {key: at for key, at in read_object(self._used_path).items() if key in known}
        write_json(self._used_path, {**kept, person.key: timestamp(now)}, durable=False, mode=0o600)

    def _change(self, change: Callable[[dict[str, Any]], None]) -> None:
        require_lead(self._home)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with exclusive(self._path.with_suffix(".lock")):
            known = read_object(self._path)
            change(known)
            write_json(self._path, known, mode=0o600)

    def _reload(self) -> None:
        if not self._changes.changed():
            return
        found = read_object(self._path)
        self._people = {
            entry["hash"]: person for name, entry in found.items() if (person := _person(name, entry)) is not None
        }


def _unknown(name: str) -> UnknownToken:
    return UnknownToken(f"there is no token of {name!r:.80}: kingdom token ls lists them")


def _person(name: str, entry: Any) -> Person | None:
    """Return the person of a stored entry; None if it is malformed."""
    if not isinstance(entry, dict) or entry.get("role") not in ROLES or not isinstance(entry.get("hash"), str):
        return None
    return Person(name, entry["role"], entry["hash"][:_KEY_CHARS])


def _hash(value: str) -> str:
    """Return the hash of a token. Tokens are random and long, so that a plain hash cannot be reversed."""
    return hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()
