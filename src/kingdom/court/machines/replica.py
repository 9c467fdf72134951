"""The files of a court in the database, so that another machine can go on with them.

The machine that leads writes them (:meth:`Replica.push`), the others read them (:meth:`Replica.pull`). A file is a row
with its size and a digest, and blocks of 64 KiB. Files that only grow, such as the journal, are sent from their last
block on. Every transaction that writes locks the row of the lease, which refuses a former holder and puts the versions
of files into the order in which they are committed.

Not shared are the queues, which are in the database anyway, clones and worktrees, what describes processes of this
machine, and databases of derived figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import TEMPORARY, read_object, temporary_prefix, write_json
from kingdom.court.errors import NotLeading
from kingdom.court.machines.lead import hold

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kingdom.court.home import Home
    from kingdom.court.machines.database import CourtDatabase

FILE_TABLES: Final = """
CREATE SEQUENCE IF NOT EXISTS court_file_version;
CREATE TABLE IF NOT EXISTS court_file (
    path text PRIMARY KEY,
    epoch bigint NOT NULL,
    size bigint NOT NULL,
    digest bytea NOT NULL,
    mode integer NOT NULL,
    deleted boolean NOT NULL DEFAULT false,
    version bigint NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS court_file_block (
    path text NOT NULL,
    block integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (path, block)
);
"""
FORGET_LEAD: Final = "UPDATE court_lead SET holder = '', machine = '', until = '-infinity'"
REMOVE_FILES: Final = """
UPDATE court_lead SET complete = false;
DELETE FROM court_file_block;
DELETE FROM court_file;
"""
_BLOCK_BYTES: Final = 64 * 1024
_SAMPLE_BYTES: Final = 4096
_BATCH_FILES: Final = 200
_BATCH_BYTES: Final = 8 * 1024 * 1024
_ROOTS: Final = ("config", "memory", "state", "logs")
_LOCAL_FOLDERS: Final = ("config/generals", "state/link", "state/supervisor", "state/slots", "workspace")
_LOCAL_FILES: Final = frozenset(
    {
        "config/machine.yaml",
        "state/web/token",
        "state/web/server.json",
        "state/web/sessions.json",  # of browsers, whose cookies are valid with the token of this machine only
        "state/web/sessions-seen.json",
    }
)
_LOCAL_NAMES: Final = frozenset({"heartbeat", ".lock", "supervisor.log", "system.log"})
_LOCAL_ENDINGS: Final = (".lock", ".db", ".db-wal", ".db-shm", ".sock")


def is_shared(path: str) -> bool:
    """Whether a file of a home, by its path relative to it, belongs to the court and not to this machine."""
    parts = path.split("/")
    if parts[0] not in _ROOTS or len(parts) < 2 or any(part in ("", ".", "..") for part in parts):
        return False
    name = parts[-1]
    if name in _LOCAL_NAMES or name.endswith(_LOCAL_ENDINGS) or any(part.startswith(TEMPORARY) for part in parts):
        return False
    return path not in _LOCAL_FILES and not any(path.startswith(f"{folder}/") for folder in _LOCAL_FOLDERS)


def shared_folders(home: Home) -> Iterator[str]:
    """Yield the folders that may have shared files, without those of single soldiers: there may be thousands."""
    folders = [*_ROOTS]
    while folders:
        folder = folders.pop()
        yield folder
        with contextlib.suppress(OSError):
            inside = [entry.name for entry in os.scandir(home.root / folder) if entry.is_dir(follow_symlinks=False)]
            found = [f"{folder}/{name}" for name in inside if folder != "state/soldiers"]
            folders += [path for path in found if path not in _LOCAL_FOLDERS]


def shared_files(home: Home, below: str | None = None) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the shared files of a home, or of one of its folders. Links are not followed and not shared."""
    folders = [below] if below is not None else [*_ROOTS]
    while folders:
        folder = folders.pop()
        try:
            entries = [*os.scandir(home.root / folder)]
        except OSError:
            continue  # it was removed meanwhile
        for entry in entries:
            path = f"{folder}/{entry.name}"
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif is_shared(path) and entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class _Content:
    """A file as it was read: all of it, or what is behind ``start``."""

    start: int
    size: int
    digest: bytes
    mode: int
    data: bytes


@dataclass(frozen=True, slots=True)
class _Stored:
    epoch: int
    size: int
    digest: bytes
    deleted: bool


class Replica:
    """The files of one home and their copy in the database."""

    def __init__(self, home: Home, database: CourtDatabase, holder: str) -> None:
        self._home = home
        self._database = database
        self._holder = holder
        self._path = home.role("link") / "replica.json"
        self._sent: dict[str, tuple[int, int, int]] = {}  # how files were when they were last sent
        state = read_object(self._path)
        self._version = state["version"] if isinstance(state.get("version"), int) else 0
        self._growing: dict[str, list[int]] = _growing_files(state.get("growing"))

    # ── to the database ───────────────────────────────────────────────────────────────────────────────────────

    async def push(self, term: int, paths: Iterable[str]) -> int:
        """Write files as they are now; return how many have changed. Raises NotLeading when the term is over."""
        wanted, changed = [path for path in dict.fromkeys(paths) if is_shared(path)], 0
        while wanted:
            batch, wanted = wanted[:_BATCH_FILES], wanted[_BATCH_FILES:]
            contents, rest = await self._push_batch(term, batch)
            changed += contents
            wanted = rest + wanted
        return changed

    async def push_all(self, term: int) -> int:
        """Write every file that differs, and mark those as deleted that are gone; return how many there were."""
        found = await asyncio.to_thread(lambda: dict(shared_files(self._home)))
        async with self._database.connection() as connection:
            known = [row["path"] for row in await connection.fetch("SELECT path FROM court_file WHERE NOT deleted")]
        there = set(known)
        changed = [path for path, info in found.items() if path not in there or self.differs(path, info)]
        return await self.push(term, [*changed, *(path for path in known if path not in found)])

    def differs(self, path: str, info: os.stat_result) -> bool:
        """Whether a file may differ from what this process has last sent."""
        return self._sent.get(path) != _version(info)

    async def mark_complete(self, term: int) -> None:
        """Allow other machines to take over: all files are there."""
        async with self._database.transaction() as connection:
            await hold(connection, self._holder, term)
            await connection.execute("UPDATE court_lead SET complete = true")

    async def withdraw(self, term: int) -> None:
        """Remove all files from the database: no other machine could use them."""
        async with self._database.transaction() as connection:
            await hold(connection, self._holder, term)
            await connection.execute(REMOVE_FILES)
        self._sent.clear()

    async def discard(self) -> None:
        """Remove all files from the database while the court is down.

        Raises :class:`NotLeading` when another machine led last: the files of this home are not the court's.
        """
        async with self._database.transaction() as connection:
            lead = await connection.fetchrow("SELECT holder, machine FROM court_lead FOR UPDATE")
            if lead is not None and lead["holder"] not in ("", self._holder):
                raise NotLeading(f"{lead['machine'] or 'another machine'} led the court last: do it there")
            await connection.execute(REMOVE_FILES)

    async def _push_batch(self, term: int, paths: list[str]) -> tuple[int, list[str]]:
        """Write some files; return how many have changed, and those of which there is more to write."""
        async with self._database.transaction() as connection:
            await hold(connection, self._holder, term)
            rows = await connection.fetch(
                "SELECT path, epoch, size, digest, deleted FROM court_file WHERE path = ANY($1)", paths
            )
            stored = {row["path"]: _Stored(row["epoch"], row["size"], row["digest"], row["deleted"]) for row in rows}
            contents, rest = await asyncio.to_thread(self._read_changed, paths, stored)
            for path, content in contents.items():
                if content is None:
                    await connection.execute("DELETE FROM court_file_block WHERE path = $1", path)
                    await connection.execute(
                        "UPDATE court_file SET deleted = true, size = 0, epoch = epoch + 1, "
                        "version = nextval('court_file_version') WHERE path = $1",
                        path,
                    )
                else:
                    await _store(connection, path, content, stored.get(path))
        return len(contents), rest

    def _read_changed(
        self, paths: list[str], stored: dict[str, _Stored]
    ) -> tuple[dict[str, _Content | None], list[str]]:
        contents: dict[str, _Content | None] = {}
        rest: list[str] = []
        room = _BATCH_BYTES
        for number, path in enumerate(paths):
            if room <= 0:
                rest += paths[number:]
                break
            known = stored.get(path)
            try:
                with _open(self._home.root / path) as file:
                    info = os.fstat(file.fileno())
                    content = _read(file, info, known, room)
            except OSError:  # it is gone, or something else has its name
                self._sent.pop(path, None)
                if known is not None and not known.deleted:
                    contents[path] = None
                continue
            if content is not None:
                contents[path] = content
                room -= len(content.data)
            if content is not None and content.size < info.st_size:
                rest.append(path)
            else:
                self._sent[path] = _version(info)
        return contents, rest

    # ── from the database ─────────────────────────────────────────────────────────────────────────────────────

    async def pull(self) -> bool:
        """Bring some files to this home that have changed since the last call; return whether there may be more."""
        async with self._database.transaction("repeatable_read") as connection:
            rows = await connection.fetch(
                "SELECT path, epoch, size, mode, deleted, version FROM court_file WHERE version > $1 "
                "ORDER BY version LIMIT $2",
                self._version,
                _BATCH_FILES,
            )
            for row in rows:
                await self._bring(connection, row)
        if rows:
            self._version = rows[-1]["version"]
            self._save()
        return len(rows) == _BATCH_FILES

    async def pull_all(self, *, keep: bool) -> list[str]:
        """Make the shared files of this home those of the database; return what was here and is not there.

        If this machine has led, that is what it wrote last and could not send: ``keep`` puts it into
        ``state/link/set-aside/``. Otherwise it is removed.
        """
        here = await asyncio.to_thread(lambda: [path for path, _ in shared_files(self._home)])
        async with self._database.transaction("repeatable_read") as connection:
            rows = await connection.fetch("SELECT path, epoch, size, digest, mode, deleted, version FROM court_file")
            for row in rows:
                if row["deleted"] or not await asyncio.to_thread(self._is_same, row):
                    await self._bring(connection, row)
        there = {row["path"] for row in rows if not row["deleted"]}
        extra = [path for path in here if path not in there]
        await asyncio.to_thread(self._remove, extra, keep=keep)
        self._sent.clear()
        self._version = max((row["version"] for row in rows), default=0)
        self._save()
        return extra

    async def _bring(self, connection: Any, row: Any) -> None:
        path, target = row["path"], self._home.root / row["path"]
        if not is_shared(path):
            return  # from another version, or from somebody who should not write there
        if row["deleted"]:
            with contextlib.suppress(FileNotFoundError):
                target.unlink()
            self._growing.pop(path, None)
            return
        epoch, size = self._growing.get(path, [-1, 0])
        grows = epoch == row["epoch"] and size <= row["size"] and _size(target) == size
        first = size // _BLOCK_BYTES if grows else 0
        target.parent.mkdir(parents=True, exist_ok=True)
        written = target if grows else target.with_name(f"{temporary_prefix()}{target.name.lstrip('.')}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(written, flags, row["mode"])
        try:
            blocks = connection.cursor(
                "SELECT block, data FROM court_file_block WHERE path = $1 AND block >= $2 ORDER BY block",
                path,
                first,
                prefetch=16,
            )
            async for block in blocks:
                os.pwrite(descriptor, block["data"], block["block"] * _BLOCK_BYTES)
        except BaseException:
            if not grows:
                written.unlink()
            raise
        finally:
            os.close(descriptor)
        if not grows:
            written.rename(target)
        if row["size"] > _BLOCK_BYTES:
            self._growing[path] = [row["epoch"], row["size"]]

    def _is_same(self, row: Any) -> bool:
        path, size = row["path"], row["size"]
        if size > _BLOCK_BYTES:  # its digest does not tell: what is in the middle may have been changed
            return self._growing.get(path) == [row["epoch"], size] and _size(self._home.root / path) == size
        try:
            with _open(self._home.root / path) as file:
                return os.fstat(file.fileno()).st_size == size and bool(_digest(file, size) == row["digest"])
        except OSError:
            return False

    def _remove(self, paths: list[str], *, keep: bool) -> None:
        for path in paths:
            with contextlib.suppress(OSError):
                if keep:
                    kept = self._home.role("link") / "set-aside" / path
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    (self._home.root / path).rename(kept)
                else:
                    (self._home.root / path).unlink()

    def _save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._path, {"version": self._version, "growing": self._growing})


async def _store(connection: Any, path: str, content: _Content, known: _Stored | None) -> None:
    replaced = content.start == 0
    if replaced and known is not None:
        await connection.execute("DELETE FROM court_file_block WHERE path = $1", path)
    first = content.start // _BLOCK_BYTES
    blocks = [
        (path, first + offset // _BLOCK_BYTES, content.data[offset : offset + _BLOCK_BYTES])
        for offset in range(0, len(content.data), _BLOCK_BYTES)
    ]
    await connection.executemany(
        "INSERT INTO court_file_block (path, block, data) VALUES ($1, $2, $3) "
        "ON CONFLICT (path, block) DO UPDATE SET data = EXCLUDED.data",
        blocks,
    )
    await connection.execute(
        "INSERT INTO court_file (path, epoch, size, digest, mode, version) "
        "SELECT $1, coalesce($2, version), $3, $4, $5, version FROM nextval('court_file_version') AS version "
        "ON CONFLICT (path) DO UPDATE SET epoch = EXCLUDED.epoch, size = EXCLUDED.size, digest = EXCLUDED.digest, "
        "mode = EXCLUDED.mode, deleted = false, version = EXCLUDED.version",
        path,
        None if replaced or known is None else known.epoch,  # a new epoch is never one that another file had
        content.size,
        content.digest,
        content.mode,
    )


def _open(path: Path) -> Any:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    return os.fdopen(descriptor, "rb")


def _read(file: Any, info: os.stat_result, known: _Stored | None, room: int) -> _Content | None:
    """Read what the database lacks of a file, or the first part of that; None when it has all of it."""
    size, start, stored = info.st_size, 0, None if known is None or known.deleted else known
    if stored is not None and stored.size <= size and _digest(file, stored.size) == stored.digest:
        if stored.size == size:
            return None
        # A small file may only begin as its former content did: it is written as a whole.
        start = stored.size // _BLOCK_BYTES * _BLOCK_BYTES
    end = size if size - start <= _BLOCK_BYTES else min(size, start + max(room, _BLOCK_BYTES))
    file.seek(start)
    data = file.read(end - start)
    return _Content(start, end, _digest(file, end), stat.S_IMODE(info.st_mode), data)


def _digest(file: Any, size: int) -> bytes:
    """Return a digest of the first ``size`` bytes: of all of them, or of the first and the last of a large file.

    A large file grows at its end, or is replaced by one that begins in another way.
    """
    file.seek(0)
    if size <= _BLOCK_BYTES:
        return hashlib.sha256(file.read(size)).digest()
    head = file.read(_SAMPLE_BYTES)
    file.seek(size - _SAMPLE_BYTES)
    return hashlib.sha256(head + file.read(_SAMPLE_BYTES)).digest()


def _version(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_mtime_ns, info.st_size, info.st_ino


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return -1


def _growing_files(value: Any) -> dict[str, list[int]]:
    found = value if isinstance(value, dict) else {}
    return {
        path: pair
        for path, pair in found.items()
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(one, int) for one in pair)
    }
