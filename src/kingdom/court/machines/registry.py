"""The tables of a court on several machines: its machines, and the packages of its generals.

Times are those of the database: the clocks of the machines may differ, and by how much is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import re
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.errors import CourtError, InvalidPackage, MachineRefused
from kingdom.court.machines.database import CONNECT_SECONDS, CourtDatabase
from kingdom.court.machines.lead import LEAD_TABLES, check_format
from kingdom.court.machines.listing import Machine
from kingdom.court.machines.replica import FILE_TABLES
from kingdom.court.packages.installed import general_folders
from kingdom.court.packages.installer import install_package, package_files, remove_package

if TYPE_CHECKING:
    from collections.abc import Collection

    from kingdom.court.home import Home

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS court_machine (
    name text PRIMARY KEY,
    joined boolean NOT NULL,
    joined_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    clock_skew double precision NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'leaving', 'left', 'removed')),
    report jsonb NOT NULL DEFAULT '{}'
);
CREATE TABLE IF NOT EXISTS court_package (
    general text PRIMARY KEY,
    digest text NOT NULL,
    archive bytea NOT NULL,
    published_at timestamptz NOT NULL DEFAULT now()
);
"""
_SETTLED_SECONDS: Final = 2.0  # two changes may have the same time; after so long, there is no second
_TABLE_NAMES: Final = re.findall(r"CREATE TABLE IF NOT EXISTS (\w+)", _TABLES + LEAD_TABLES + FILE_TABLES)


class DamagedPackage(CourtError):
    """A package does not have the digest that stands beside it."""

    code = "DAMAGED_PACKAGE"


class Registry:
    """The tables, each call with a connection of its own: there are few calls."""

    def __init__(self, url: str, *, connect_timeout: float = CONNECT_SECONDS) -> None:
        self._database = CourtDatabase(url, connect_timeout=connect_timeout)
        self._digests = _Digests()

    async def setup(self) -> None:
        """Create the tables that are missing. Several machines may do it at once.

        The role of a joined machine may not create any: it finds them.
        """
        async with self._database.connection() as connection:
            missing = await connection.fetchval(
                "SELECT count(*) FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NULL", list(_TABLE_NAMES)
            )
        if missing:
            await self._database.create_tables(_TABLES + LEAD_TABLES + FILE_TABLES)

    async def register(self, name: str, *, joined: bool) -> None:
        """Add a machine, or one that left. Raises :class:`MachineRefused` for the name of another that is active."""
        async with self._database.connection() as connection:
            added = await connection.fetchval(
                "INSERT INTO court_machine (name, joined) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE "
                "SET joined = $2, joined_at = now(), seen_at = now(), state = 'active', report = '{}' "
                "WHERE court_machine.state = 'left' RETURNING name",
                name,
                joined,
            )
        if added is None:
            raise MachineRefused(
                f"the court has a machine named {name} already: choose another --name, "
                f"or run kingdom machines remove {name} --forget first"
            )

    async def sign(self, name: str, *, joined: bool, report: dict[str, Any]) -> str:
        """Write a sign of life; return the state of the machine: ``active``, ``leaving``, ``left`` or ``removed``.

        Raises :class:`MachineRefused` when its version cannot work with that of the machine that leads.
        """
        async with self._database.connection() as connection:
            before = time.time()
            now = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::double precision")
            skew = (before + time.time()) / 2 - now
            state: str = await connection.fetchval(
                "INSERT INTO court_machine (name, joined, clock_skew, report) VALUES ($1, $2, $3, $4) "
                "ON CONFLICT (name) DO UPDATE SET seen_at = now(), clock_skew = $3, report = $4 RETURNING state",
                name,
                joined,
                skew,
                json.dumps(report),
            )
            lead = await connection.fetchrow("SELECT machine, format FROM court_lead")
        check_format(lead["machine"], lead["format"])
        return state

    async def machines(self) -> list[Machine]:
        """Return all machines but those that left, the one that leads first."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(
                "SELECT *, extract(epoch FROM now() - seen_at)::double precision AS silent, "
                "name = (SELECT machine FROM court_lead) AS leads FROM court_machine "
                "WHERE state <> 'left' ORDER BY leads DESC, joined, name"
            )
        return [
            Machine(
                row["name"],
                row["joined"],
                row["joined_at"],
                row["silent"],
                row["clock_skew"],
                row["state"],
                json.loads(row["report"]),
                leads=row["leads"],
            )
            for row in rows
        ]

    async def set_state(self, name: str, state: str) -> bool:
        """Set the state of a machine; return False when there is none of this name."""
        async with self._database.connection() as connection:
            done: str = await connection.execute("UPDATE court_machine SET state = $2 WHERE name = $1", name, state)
        return done != "UPDATE 0"

    async def publish_packages(self, home: Home) -> None:
        """Publish the packages of this home, and withdraw those that it has no more."""
        here, there = await asyncio.to_thread(self._digests.of_all, home), await self.packages()
        changed = [name for name, digest in here.items() if digest is not None and there.get(name) != digest]
        gone = [name for name in there if name not in here]
        if not changed and not gone:
            return
        packed = await asyncio.to_thread(_pack_each, home, changed)
        async with self._database.transaction() as connection:
            for name, one in packed.items():
                await connection.execute(
                    "INSERT INTO court_package (general, digest, archive) VALUES ($1, $2, $3) "
                    "ON CONFLICT (general) DO UPDATE SET digest = $2, archive = $3, published_at = now()",
                    name,
                    one.digest,
                    one.archive,
                )
            if gone:
                await connection.execute("DELETE FROM court_package WHERE general = ANY($1)", gone)

    async def packages(self) -> dict[str, str]:
        """Return the digest of each general's package."""
        async with self._database.connection() as connection:
            return dict(await connection.fetch("SELECT general, digest FROM court_package ORDER BY general"))

    async def fetch_packages(self, home: Home, only: Collection[str] | None) -> list[str]:
        """Install what is new or has changed, remove what is gone; return the generals that changed.

        Each archive is checked against its digest before it is unpacked, and the package as any other is.
        """
        there = {name: digest for name, digest in (await self.packages()).items() if only is None or name in only}
        here = await asyncio.to_thread(self._digests.of_all, home)
        changed = [name for name, digest in there.items() if here.get(name) != digest]
        for name in changed:
            async with self._database.connection() as connection:
                row = await connection.fetchrow("SELECT digest, archive FROM court_package WHERE general = $1", name)
            if row is not None:
                await asyncio.to_thread(_unpack, home, name, row["digest"], row["archive"])
        gone = [name for name in here if name not in there]
        for name in gone:
            await asyncio.to_thread(remove_package, home, name)
        return [*changed, *gone]


@dataclass(frozen=True, slots=True)
class _PackedGeneral:
    digest: str
    archive: bytes


class _Digests:
    """The digests of the packages of a home. A package that has not changed is not packed again."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[list[object], str]] = {}

    def of_all(self, home: Home) -> dict[str, str | None]:
        """Return the digest of each; None for one that cannot be packed, because somebody is changing it perhaps."""
        found: dict[str, str | None] = {}
        for folder in general_folders(home):
            try:
                found[folder.name] = self._of(folder.resolve())
            except (InvalidPackage, OSError):
                found[folder.name] = None
        return found

    def _of(self, folder: Path) -> str:
        version, changed_at = _version(folder)
        known = self._known.get(folder)
        if known is not None and known[0] == version:
            return known[1]
        digest = _pack(folder).digest
        if abs(time.time() - changed_at) > _SETTLED_SECONDS:
            self._known[folder] = version, digest
        return digest


def _version(folder: Path) -> tuple[list[object], float]:
    """Return what changes with any file of a folder, and when one last changed."""
    version: list[object] = []
    latest = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for path in (f"{parent}/{name}" for name in [".", *sorted(names)]):
            found = os.lstat(path)  # what a link leads to is in the same folder, or the package is refused
            version.append((path, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode))
            latest = max(latest, found.st_ctime_ns)
    return version, latest / 1e9


def _pack_each(home: Home, names: list[str]) -> dict[str, _PackedGeneral]:
    """Pack these generals, without those that cannot be packed any more."""
    packed = {}
    for name in names:
        with contextlib.suppress(InvalidPackage, OSError):
            packed[name] = _pack((home.generals / name).resolve())
    return packed


def _pack(folder: Path) -> _PackedGeneral:
    """Pack a general: the same bytes for the same files, on every machine."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for relative in sorted(package_files(folder)):
            content = (folder / relative).read_bytes()
            member = tarfile.TarInfo(relative.as_posix())
            member.size = len(content)
            member.mode = 0o755 if (folder / relative).stat().st_mode & 0o100 else 0o644
            archive.addfile(member, io.BytesIO(content))
    return _PackedGeneral(hashlib.sha256(made.getvalue()).hexdigest(), made.getvalue())


def _unpack(home: Home, name: str, digest: str, archive: bytes) -> None:
    if hashlib.sha256(archive).hexdigest() != digest:
        raise DamagedPackage(f"the package of {name} in the database is damaged: its digest is not {digest[:12]}…")
    with tempfile.TemporaryDirectory(prefix="kingdom-package-") as folder:
        target = Path(folder) / name
        target.mkdir()
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            opened.extractall(target, filter="data")
        install_package(home, target, replace=home.general(name).exists())
