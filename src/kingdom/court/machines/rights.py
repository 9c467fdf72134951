"""A role of the database for each joined machine, with only the rights that it needs.

A machine that somebody has taken over can then claim and report the tasks of its own generals, and nothing more: the
database refuses the rest (``sql/rights.sql``), and what it reports is checked when it is taken in
(:mod:`~kingdom.court.machines.intake`). Machines that may lead use the role that owns the tables.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from kingdom.bus import NotPermitted
from kingdom.court.errors import MachineRefused
from kingdom.court.machines.database import CONNECT_SECONDS, CourtDatabase
from kingdom.court.machines.exchange import declare_exchange
from kingdom.court.queues import declare_queues, open_queues

if TYPE_CHECKING:
    from collections.abc import Sequence

RIGHT_TABLES: Final = """
CREATE TABLE IF NOT EXISTS court_right (
    role name PRIMARY KEY,
    machine text NOT NULL UNIQUE,
    generals text[],
    own boolean NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
"""
_RELEASE_SECONDS: Final = 60.0  # after which others may take the tasks of a machine that is removed
_SCRAM_ROUNDS: Final = 4096  # what PostgreSQL itself uses
# A claim, a renewal and a verdict change these. A machine cannot change what a task says, or whose it is.
_CLAIM_COLUMNS: Final = (
    "status, finished, dead, held_key, attempt_count, locked_by, locked_until, last_attempt_at, updated_at, "
    "processed_at, next_retry_at, last_error_code, last_error_message, outcome"
)
_PUBLISH_COLUMNS: Final = (
    "event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, attempt_count, ordering_key, "
    "next_retry_at"
)


@dataclass(frozen=True, slots=True)
class MachineRight:
    """What the role of a machine may do."""

    machine: str
    role: str
    generals: tuple[str, ...] | None
    """The generals whose tasks it may claim. None: all of them."""

    def covers(self, general: Any) -> bool:
        """Whether the machine may run a general."""
        return isinstance(general, str) and (self.generals is None or general in self.generals)


class Rights:
    """The roles of machines, in the database of a court. Used by a machine that may lead."""

    def __init__(self, url: str, *, connect_timeout: float = CONNECT_SECONDS) -> None:
        self._url = url
        self._connect_timeout = connect_timeout
        self._database = CourtDatabase(url, connect_timeout=connect_timeout)

    async def add(self, machine: str, generals: Sequence[str] | None, *, role: str | None = None) -> str | None:
        """Give a machine a role; return the URL with which it connects, or None for a ``role`` that exists already.

        For a machine that has one, the generals and the password are changed. Raises :class:`MachineRefused`.
        """
        async with open_queues(
            self._url, self._connect_timeout
        ) as bus:  # the machine finds all streams: it may declare none
            await declare_queues(bus)
            await declare_exchange(bus)
        password = secrets.token_urlsafe(24)
        try:
            async with self._database.transaction() as connection:
                await connection.execute(RIGHT_TABLES)
                schema = await connection.fetchval("SELECT current_schema()")
                database = await connection.fetchval("SELECT current_database()")
                await _refuse_unknown(connection, generals)
                known = await _row_of(connection, machine)
                former = known["role"] if known is not None and known["own"] else None
                name = role or former or role_name(machine, database, schema)
                if role is None:
                    await _create_role(connection, name, password)
                else:
                    await _refuse_powerful(connection, role)
                await connection.execute(
                    "INSERT INTO court_right (role, machine, generals, own) VALUES ($1, $2, $3, $4) "
                    "ON CONFLICT (machine) DO UPDATE SET role = $1, generals = $3, own = $4",
                    name,
                    machine,
                    None if generals is None else list(generals),
                    role is None,
                )
                await connection.execute(_statements(schema))
                for statement in _grants(_quoted(name), _quoted(schema), _quoted(database)):
                    await connection.execute(statement)
        except asyncpg.UndefinedObjectError:
            raise MachineRefused(f"the database has no role {role!r}: create it first, with a login") from None
        except NotPermitted as error:
            raise MachineRefused(
                f"the court's role may not create a role for {machine} ({error.__cause__}): give it CREATEROLE, or "
                f"let an administrator create one with a login, and run kingdom machines add {machine} --role ITS_NAME"
            ) from None
        return None if role is not None else url_of_role(self._url, name, password)

    async def remove(self, machine: str) -> bool:
        """Take the rights of a machine away, and end its connections; tell whether it had a role.

        The tasks that it holds are free after a minute, whatever it had claimed.
        """
        async with self._database.transaction() as connection:
            right = await _row_of(connection, machine)
            if right is None:
                return False
            name, own = _quoted(right["role"]), right["own"]
            schema = _quoted(await connection.fetchval("SELECT current_schema()"))
            exists = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", right["role"]) is not None
            if exists:
                await connection.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name}")
                if own:
                    await connection.execute(f"ALTER ROLE {name} NOLOGIN")
            await connection.execute(
                "UPDATE outbox_event SET locked_until = least(locked_until, now() + make_interval(secs => $2)) "
                "WHERE stream = 'tasks' AND NOT finished AND status = 'PROCESSING' "
                "AND split_part(split_part(locked_by, '/', 1), '@', 2) = $1",
                machine,
                _RELEASE_SECONDS,
            )
        # It is shut out. Its row goes last: until then the policies know whose role it is.
        async with self._database.connection() as connection:
            with contextlib.suppress(asyncpg.InsufficientPrivilegeError):  # not for a role that somebody else created
                await connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", right["role"]
                )
        async with self._database.transaction() as connection:
            if exists and own:
                await connection.execute(f"DROP OWNED BY {name}")
                await connection.execute(f"DROP ROLE {name}")
            await connection.execute("DELETE FROM court_right WHERE machine = $1", machine)
        return True

    async def all(self) -> dict[str, MachineRight]:
        """Return the rights of the machines that have a role of their own."""
        async with self._database.connection() as connection:
            if await connection.fetchval("SELECT to_regclass('court_right')") is None:
                return {}
            rows = await connection.fetch("SELECT machine, role, generals FROM court_right")
        return {row["machine"]: _right(row) for row in rows}

    async def own(self) -> MachineRight | None:
        """Return the right of the role that this process connects with; None when it is not one of a machine."""
        async with self._database.connection() as connection:
            if await connection.fetchval("SELECT to_regprocedure('court_own_machine()')") is None:
                return None
            row = await connection.fetchrow(
                "SELECT court_own_machine() AS machine, session_user AS role, court_own_generals() AS generals"
            )
        return None if row["machine"] is None else _right(row)


def role_name(machine: str, database: str, schema: str) -> str:
    """Return the name of a machine's role. Roles are those of the whole server, which may have several courts."""
    court = hashlib.sha256(f"{database}\0{schema}".encode()).hexdigest()[:8]
    return f"kingdom_{re.sub(r'[^a-z0-9]', '_', machine)[:40]}_{court}"


def url_of_role(url: str, role: str, password: str) -> str:
    """Return the URL of a database for another role."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, f"{quote(role)}:{quote(password)}@{place}", parts.path, parts.query, ""))


def scram_verifier(password: str, salt: bytes) -> str:
    """Return what PostgreSQL stores for a password, so that the password itself is in no statement and no log."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _SCRAM_ROUNDS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    encoded = [base64.b64encode(one).decode() for one in (salt, stored, server)]
    return f"SCRAM-SHA-256${_SCRAM_ROUNDS}:{encoded[0]}${encoded[1]}:{encoded[2]}"


async def _refuse_unknown(connection: Any, generals: Sequence[str] | None) -> None:
    known = [row["general"] for row in await connection.fetch("SELECT general FROM court_package ORDER BY general")]
    if unknown := [name for name in generals or () if name not in known]:
        raise MachineRefused(f"the court has no general {unknown[0]!r}: it has {', '.join(known) or 'none yet'}")


async def _refuse_powerful(connection: Any, role: str) -> None:
    """Raise :class:`MachineRefused` for a role that policies do not bind."""
    powerful = await connection.fetchval(
        "SELECT rolsuper OR rolbypassrls OR pg_has_role(rolname, current_user, 'MEMBER') FROM pg_roles "
        "WHERE rolname = $1",
        role,
    )
    if powerful:
        raise MachineRefused(f"the role {role} may do everything in the court: create one for this machine alone")


async def _row_of(connection: Any, machine: str) -> Any:
    if await connection.fetchval("SELECT to_regclass('court_right')") is None:
        return None
    return await connection.fetchrow("SELECT role, own FROM court_right WHERE machine = $1", machine)


async def _create_role(connection: Any, name: str, password: str) -> None:
    """Create a role, or change its password. The court's own role becomes a member, to end its connections."""
    known = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", name)
    verifier = scram_verifier(password, secrets.token_bytes(16))
    await connection.execute(f"{'ALTER' if known else 'CREATE'} ROLE {_quoted(name)} LOGIN PASSWORD '{verifier}'")
    if not known:
        await connection.execute(f"GRANT {_quoted(name)} TO CURRENT_USER")


def _statements(schema: str) -> str:
    return (files("kingdom.court.machines") / "sql" / "rights.sql").read_text("utf-8").format(schema=_quoted(schema))


def _grants(role: str, schema: str, database: str) -> list[str]:
    return [
        f"GRANT CONNECT ON DATABASE {database} TO {role}",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT ON kingdom_migration, outbox_stream, outbox_event TO {role}",
        f"GRANT SELECT ON court_machine, court_package, court_lead TO {role}",
        f"GRANT INSERT ({_PUBLISH_COLUMNS}) ON outbox_event TO {role}",
        f"GRANT UPDATE ({_CLAIM_COLUMNS}) ON outbox_event TO {role}",
        f"GRANT INSERT, UPDATE ON court_machine TO {role}",
    ]


def _right(row: Any) -> MachineRight:
    return MachineRight(row["machine"], row["role"], None if row["generals"] is None else tuple(row["generals"]))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
