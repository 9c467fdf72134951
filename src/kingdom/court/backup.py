"""Back up a whole home into one file while the court runs.

The processes of the court are stopped with a signal for the moment in which its files are taken: for what is stored it
is as if they had been killed then, which they survive at every point. Most files are taken as hard links: what is
replaced later keeps its content under the link, and of what grows only the part that was there is stored. Ledgers and
logs of the roles (their names begin with a dot) may be cut, so they are copied; databases are copied by SQLite. The
roll-ups hold a position in the journal: they are copied in that moment, too, for those of a later one would count lines
of which the backup knows nothing. Clones and worktrees are stored after the others, so that they have every commit that
the records name.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom import __version__
from kingdom.agents.processes import is_running
from kingdom.base.files import DISK_FULL_ERRORS, sync_directory
from kingdom.court.config import load_system
from kingdom.court.errors import CourtError
from kingdom.court.home import Home
from kingdom.court.supervisor.record import ProcessHandle, running_supervisor

if TYPE_CHECKING:
    from kingdom.court.database_backup import DatabaseScope, DatabaseSnapshot

FORMAT: Final = 3  # of the archive; a newer one is refused. 1: without a database, 2: with the queues in one
ABOUT_FILE: Final = "kingdom-backup.json"  # the first file of an archive
HOME_FOLDER: Final = "home/"  # the folder of everything else in it
DATABASE_FOLDER: Final = "database"  # the folder of the queues, if they are in a database
WORKFLOWS_FOLDER: Final = "workflow-database"  # the folder of the workflows, if they are
STAGING_PREFIX: Final = ".backup-"
_GIT_FOLDERS: Final = ("workspace", "workflows/clones", "workflows/worktrees", "workflows/workspaces")
POSTGRESQL_SCHEMES: Final = ("postgresql:", "postgres:")
STORE_VARIABLE: Final = "KINGDOM_WORKFLOW_STORE"
_LEFT_OUT: Final = ("state/supervisor/pid.json", "state/web/server.json")  # of processes that will not be there
_TAKEN_AT_ONCE: Final = ("state/chamberlain/rollups.db",)  # databases that must agree with the other files
CHUNK_BYTES: Final = 1 << 20
_SQLITE: Final = b"SQLite format 3\0"
_SQLITE_PARTS: Final = ("-wal", "-shm", "-journal")
_THAW: Final = """
import os, signal, sys
sys.stdin.read()
for pid in sys.argv[1:]:
    try:
        os.kill(int(pid), signal.SIGCONT)
    except OSError:
        pass
"""


class BackupFailed(CourtError):
    """A backup cannot be made or restored; the message says why and what to do."""

    code = "BACKUP"


@dataclass(frozen=True, slots=True)
class BackupInfo:
    """What an archive says about itself."""

    format: int
    version: str
    """The version of Kingdom that made it."""
    made_at: str
    home: str
    """The path of the home; worktrees and records name it."""
    files: int
    bytes: int
    rows: int = 0
    """Of queues and workflows that are in a database."""


@dataclass(frozen=True, slots=True)
class MadeBackup:
    """A backup that was made."""

    path: str
    info: BackupInfo
    sha256: str
    stopped_seconds: float
    """How long the processes of the court were stopped."""


def make_backup(home: Home, target: Path, workflows: DatabaseScope | None = None) -> MadeBackup:
    """Store everything of a home in a file, which appears when it is complete.

    ``workflows`` is what a workflow store in PostgreSQL has (``KINGDOM_WORKFLOW_STORE``).
    """
    urls = _database_urls(home, workflows)
    if target.exists():
        raise BackupFailed(f"{target} exists already: name another file")
    if target.absolute().is_relative_to(home.root):
        raise BackupFailed(f"{target} is in the home itself: name a file outside of it")
    folder = target.absolute().parent
    if not folder.is_dir():
        raise BackupFailed(f"there is no folder {folder}: create it first, or name another file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BackupFailed(f"{folder} cannot be written by this user: name a file in another folder")
    for left in home.root.glob(f"{STAGING_PREFIX}*"):  # by a process that was killed
        if not is_running(int(left.name.split("-")[1]), None):
            shutil.rmtree(left, ignore_errors=True)
    staging = Path(tempfile.mkdtemp(prefix=f"{STAGING_PREFIX}{os.getpid()}-", dir=home.root))
    rows_folder = Path(f"{staging}-rows")
    partial = target.with_name(f".{target.name}.partial")
    try:
        with full_disk_reported(home.root, _copies_advice), contextlib.ExitStack() as stack:
            snapshots = {
                name: stack.enter_context(_snapshot(url, workflows if name == WORKFLOWS_FOLDER else None))
                for name, url in urls.items()
            }
            with _stopped(home) as pause:
                for snapshot in snapshots.values():
                    snapshot.take()
                taken = dict(_take(home.root, staging))
            rows_folder.mkdir()
            rows = sum(snapshot.write(rows_folder / name) for name, snapshot in snapshots.items())
            for name in taken:
                if name in _TAKEN_AT_ONCE:
                    taken[name] = _merge_log(staging / name)
                elif _is_database(staging / name):
                    taken[name] = _copy_database(home.root / name, staging / name)
        with full_disk_reported(folder, lambda: _archive_advice(home.root, taken, rows_folder)):
            info = _write(partial, home, staging, taken, rows_folder, rows)
            with partial.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
            partial.rename(target)
            sync_directory(folder)
    except sqlite3.Error as error:
        raise BackupFailed(f"a database could not be copied: {error}") from error
    finally:
        partial.unlink(missing_ok=True)
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(rows_folder, ignore_errors=True)
    return MadeBackup(str(target), info, digest, pause.seconds)


@contextlib.contextmanager
def full_disk_reported(folder: Path, advice: Callable[[], str]) -> Iterator[None]:
    """Raise :class:`BackupFailed` with ``advice`` when the disk of a folder is full."""
    free = shutil.disk_usage(folder).free
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:
        code = error.errno if isinstance(error, OSError) else error.sqlite_errorcode
        if code not in (DISK_FULL_ERRORS if isinstance(error, OSError) else (sqlite3.SQLITE_FULL,)):
            raise
        raise BackupFailed(
            f"the disk of {folder} is full, of which {free:,} bytes were free: {advice()}; nothing half-written is left"
        ) from error


def _copies_advice() -> str:
    return (
        "a backup first copies databases and logs into the home. Free some space there, for example with kingdom clean"
    )


def _archive_advice(root: Path, taken: Mapping[str, int], rows: Path) -> str:
    sizes = [*taken.values(), *(path.stat().st_size for path in rows.rglob("*"))]
    for name in _GIT_FOLDERS:
        for path in (root / name).rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # others work there
                sizes.append(path.lstat().st_size)
    return f"the backup needs up to {sum(sizes):,} bytes. Free some space there, or name a file on another disk"


def _database_urls(home: Home, workflows: DatabaseScope | None) -> dict[str, str]:
    """Return the URLs of queues and workflows in PostgreSQL, by folder. Raise if a part is not covered."""
    found: dict[str, str] = {}
    queues, store = load_system(home).queue_url(home), os.environ.get(STORE_VARIABLE)
    for what, folder, url in (("queues", DATABASE_FOLDER, queues), ("workflows", WORKFLOWS_FOLDER, store)):
        if not url or url.startswith((f"files://{home.root}/", f"sqlite://{home.root}/")):
            continue
        if not url.startswith(POSTGRESQL_SCHEMES) or (folder == WORKFLOWS_FOLDER and workflows is None):
            kind = url.partition(":")[0]
            raise BackupFailed(
                f"the {what} are in a {kind} database outside of {home.root}: stop the court, and back up that "
                "database and a copy of the home together"
            )
        found[folder] = url
    return found


def _snapshot(url: str, scope: DatabaseScope | None) -> DatabaseSnapshot:
    from kingdom.court.database_backup import COURT_SCOPE, DatabaseSnapshot  # its driver comes with the extra postgres

    return DatabaseSnapshot(url, scope or COURT_SCOPE)


@dataclass(slots=True)
class _Pause:
    seconds: float = 0.0


@contextlib.contextmanager
def _stopped(home: Home) -> Iterator[_Pause]:
    """Stop the processes of a court that is up. They go on at the end, and also when this process is killed."""
    pause, record = _Pause(), running_supervisor(home)
    handles: list[ProcessHandle] = []
    if record is not None:  # the supervisor first: it must not take its roles for dead
        handles = [record.supervisor, *(role.process for role in record.roles.values() if role.process is not None)]
    if not handles:
        yield pause
        return
    pids = [str(handle.pid) for handle in handles]
    command = [sys.executable, "-S", "-c", _THAW, *pids]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
    began = time.monotonic()
    try:
        for handle in handles:
            handle.send(signal.SIGSTOP)
        yield pause
    finally:
        for handle in handles:
            handle.send(signal.SIGCONT)
        pause.seconds = time.monotonic() - began
        guard.communicate()


def _take(root: Path, staging: Path) -> Iterator[tuple[str, int]]:
    """Link every file of the home, but not of its clones and worktrees, into ``staging``; yield name and size."""
    skipped = {root / name for name in _GIT_FOLDERS}
    for folder, names, files in os.walk(root):
        here = Path(folder)
        names[:] = sorted(name for name in names if here / name not in skipped and not name.startswith(STAGING_PREFIX))
        relative = here.relative_to(root)
        (staging / relative).mkdir(exist_ok=True)
        for name in sorted(files):
            path = relative / name
            if str(path) in _LEFT_OUT or name.endswith(_SQLITE_PARTS):
                continue
            with contextlib.suppress(FileNotFoundError):  # another program may remove a file of its own
                state = (here / name).lstat()
                if stat.S_ISREG(state.st_mode):
                    if str(path) in _TAKEN_AT_ONCE:
                        _copy_stopped(here / name, staging / path)
                    else:
                        _take_file(here / name, staging / path)
                    yield str(path), state.st_size


def _take_file(source: Path, target: Path) -> None:
    if not source.name.startswith("."):
        with contextlib.suppress(OSError):  # no hard links here, or another file system
            os.link(source, target)
            return
    shutil.copyfile(source, target)


def _copy_stopped(source: Path, target: Path) -> None:
    """Copy a database whose writer is stopped, with its log: to SQLite, as if the writer had been killed."""
    shutil.copyfile(source, target)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(f"{source}-wal", f"{target}-wal")


def _merge_log(database: Path) -> int:
    """Make one file of a database and its log. Return its size."""
    if database.stat().st_size:
        with contextlib.closing(sqlite3.connect(database)) as merged:
            merged.execute("PRAGMA journal_mode = DELETE")
    return database.stat().st_size


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _copy_database(source: Path, link: Path) -> int:
    """Replace a link by a copy that SQLite makes: a consistent one, also while others write. Return its size."""
    link.unlink()
    with (
        contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True, timeout=60)) as live,
        contextlib.closing(sqlite3.connect(link)) as copy,
    ):
        live.backup(copy)
    return link.stat().st_size


def _write(partial: Path, home: Home, staging: Path, taken: Mapping[str, int], database: Path, rows: int) -> BackupInfo:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    folders = sorted(path.name for path in database.iterdir())
    version = 1 if not folders else FORMAT if WORKFLOWS_FOLDER in folders else 2
    info = BackupInfo(version, __version__, now, str(home.root), len(taken), sum(taken.values()), rows)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it has the tokens of the home
    with (
        os.fdopen(descriptor, "wb") as raw,
        gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=3) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        _add_bytes(archive, ABOUT_FILE, json.dumps(asdict(info), indent=2).encode())
        for file in sorted(path for folder in folders for path in (database / folder).iterdir()):
            _add_file(archive, file, f"{file.parent.name}/{file.name}", file.stat().st_size)
        for folder in sorted({str(path.relative_to(staging)) for path in staging.rglob("*") if path.is_dir()}):
            _add_entry(archive, staging / folder, f"{HOME_FOLDER}{folder}")
        for name, size in taken.items():
            _add_file(archive, staging / name, f"{HOME_FOLDER}{name}", size)
        for name in _GIT_FOLDERS:
            if (home.root / name).is_dir():
                _add_tree(archive, home.root, name, partial.parent)
    return info


def _add_bytes(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o600
    archive.addfile(entry, io.BytesIO(data))


def _add_entry(archive: tarfile.TarFile, path: Path, name: str) -> None:
    entry = archive.gettarinfo(path, name)
    if entry is not None and (entry.isdir() or entry.issym()):
        archive.addfile(entry)


def _add_file(archive: tarfile.TarFile, path: Path, name: str, size: int) -> None:
    """Store the first ``size`` bytes: those that were there when the court was stopped."""
    with path.open("rb") as file:
        state = os.fstat(file.fileno())
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode, entry.mtime = size, stat.S_IMODE(state.st_mode), int(state.st_mtime)
        archive.addfile(entry, file)


def _add_tree(archive: tarfile.TarFile, root: Path, name: str, copies: Path) -> None:
    """Store a folder of git as it is now. What vanishes meanwhile is left out, what grows is stored as it began."""
    for folder, names, files in os.walk(root / name):
        here = Path(folder)
        _add_entry(archive, here, f"{HOME_FOLDER}{here.relative_to(root)}")
        for one in sorted(names):
            if (here / one).is_symlink():
                _add_entry(archive, here / one, f"{HOME_FOLDER}{(here / one).relative_to(root)}")
        for one in sorted(files):
            path = here / one
            with contextlib.suppress(FileNotFoundError):
                state = path.lstat()
                if stat.S_ISLNK(state.st_mode):
                    _add_entry(archive, path, f"{HOME_FOLDER}{path.relative_to(root)}")
                elif stat.S_ISREG(state.st_mode) and not one.endswith(".lock"):
                    _add_steady(archive, path, f"{HOME_FOLDER}{path.relative_to(root)}", copies)


def _add_steady(archive: tarfile.TarFile, path: Path, name: str, copies: Path) -> None:
    """Store a file that others may write: read it first, for its size in the archive must be right."""
    with path.open("rb") as file, tempfile.SpooledTemporaryFile(max_size=16 << 20, dir=str(copies)) as copy:
        shutil.copyfileobj(file, copy)
        entry = tarfile.TarInfo(name)
        state = os.fstat(file.fileno())
        entry.size, entry.mode, entry.mtime = copy.tell(), stat.S_IMODE(state.st_mode), int(state.st_mtime)
        copy.seek(0)
        archive.addfile(entry, copy)
