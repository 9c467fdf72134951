"""Restore a home from a backup: all of it appears, or nothing."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from kingdom.base.files import sync_directory
from kingdom.court.backup import (
    ABOUT_FILE,
    CHUNK_BYTES,
    DATABASE_FOLDER,
    FORMAT,
    HOME_FOLDER,
    POSTGRESQL_SCHEMES,
    STAGING_PREFIX,
    STORE_VARIABLE,
    WORKFLOWS_FOLDER,
    BackupFailed,
    BackupInfo,
    full_disk_reported,
)
from kingdom.court.config import MACHINE_FILE, load_system
from kingdom.court.errors import UnsetVariable
from kingdom.court.home import MARKER, Home
from kingdom.court.machines.own_lead import forget_holder

if TYPE_CHECKING:
    from kingdom.court.database_backup import DatabaseScope
    from kingdom.court.init_home import DatabaseName


def restore_backup(
    source: Path, root: Path, database: DatabaseName | None = None, workflows: DatabaseScope | None = None
) -> BackupInfo:
    """Unpack a backup to the path it was made at, which must be empty or missing. All of it appears, or nothing.

    Queues that were in a database are restored to the one that the configuration names, or to ``database``; workflows
    to the one that ``KINGDOM_WORKFLOW_STORE`` names.
    """
    root = root.absolute()
    if root.exists() and any(root.iterdir()):
        raise BackupFailed(f"{root} is not empty: move what is there away first (nothing was changed)")
    partial = root.with_name(f".{root.name}.restored")
    if partial.exists():
        shutil.rmtree(partial)
    root.parent.mkdir(parents=True, exist_ok=True)
    try:
        with (
            full_disk_reported(root.parent, lambda: _room_advice(source)),
            source.open("rb") as raw,
            gzip.open(raw) as packed,
        ):
            info = _unpack(packed, partial, root)  # type: ignore[arg-type]
        if (partial / f"{STAGING_PREFIX}{DATABASE_FOLDER}").exists():
            _restore_queues(partial, database)
        elif database is not None:
            raise BackupFailed("its queues were files: leave out the database")
        if (partial / f"{STAGING_PREFIX}{WORKFLOWS_FOLDER}").exists():
            _restore_workflows(partial, workflows)
        if root.exists():
            root.rmdir()
        partial.rename(root)
        sync_directory(root.parent)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, json.JSONDecodeError) as error:
        raise BackupFailed(f"{source} is damaged or no backup of a court: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return info


def _room_advice(source: Path) -> str:
    with gzip.open(source) as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
        size = _about(archive).bytes
    return f"the backup has {size:,} bytes, and repositories beside. Free some space there"


def _about(archive: tarfile.TarFile) -> BackupInfo:
    first = archive.next()
    about = archive.extractfile(first) if first is not None and first.name == ABOUT_FILE else None
    if about is None:
        raise BackupFailed("it is no backup of a court: kingdom backup makes one")
    return _read_info(json.loads(about.read()))


def _unpack(packed: IO[bytes], partial: Path, root: Path) -> BackupInfo:
    with tarfile.open(fileobj=packed, mode="r|") as archive:
        info = _about(archive)
        if Path(info.home) != root:
            raise BackupFailed(
                f"it was made of {info.home}, and its worktrees and records name that path: restore it there"
            )
        partial.mkdir(mode=0o700)
        for entry in archive:
            if entry.name == ABOUT_FILE:
                continue
            name = PurePosixPath(entry.name)
            if name.parts[0] not in (HOME_FOLDER.rstrip("/"), DATABASE_FOLDER, WORKFLOWS_FOLDER) or ".." in name.parts:
                raise BackupFailed(f"it has a file outside of the home: {entry.name!r:.200}")
            if name.parts[0] in (DATABASE_FOLDER, WORKFLOWS_FOLDER):
                entry.name = f"{STAGING_PREFIX}{name}"
                archive.extract(entry, partial, filter="tar")
                continue
            entry.name = str(PurePosixPath(*name.parts[1:])) if len(name.parts) > 1 else "."
            archive.extract(entry, partial, filter="tar")
    while packed.read(CHUNK_BYTES):  # to its end, where its checksum is
        pass
    return info


def _restore_queues(partial: Path, database: DatabaseName | None) -> None:
    """Put the queues into their database. They are there before the home is: an interrupted restore is repeated."""
    from kingdom.court.database_backup import restore_database

    folder = partial / f"{STAGING_PREFIX}{DATABASE_FOLDER}"
    home = Home(partial)
    if database is not None:
        _name_database(home, database)
    forget_holder(home)  # it is another home, which must not hold the lead of the one that was backed up
    try:
        url = load_system(home).queue_url(home)
    except UnsetVariable as error:  # its path is that of a folder that goes again
        raise BackupFailed(
            f"its configuration takes the URL of the database from {load_system(home).queue_variable}, which is not "
            "set: set it to the URL of an empty database, or name another with --database or --database-env"
        ) from error
    restore_database(url, folder)
    shutil.rmtree(folder)


def _restore_workflows(partial: Path, scope: DatabaseScope | None) -> None:
    """Put the workflows into their database, before the home is there, too."""
    from kingdom.court.database_backup import restore_database

    url = os.environ.get(STORE_VARIABLE, "")
    if scope is None or not url.startswith(POSTGRESQL_SCHEMES):
        raise BackupFailed(
            f"its workflows were in a PostgreSQL database: set {STORE_VARIABLE} to the URL of one that has none"
        )
    folder = partial / f"{STAGING_PREFIX}{WORKFLOWS_FOLDER}"
    restore_database(url, folder, scope)
    shutil.rmtree(folder)


def _name_database(home: Home, database: DatabaseName) -> None:
    """Have the restored configuration name another database."""
    system, url = load_system(home), database.address
    variable = system.queue_variable
    old, suffix = (variable, "_env") if variable is not None else (system.queue_url(home), "")
    former = re.compile(rf"""\b(transport|database){suffix}:\s*(['"]?){re.escape(old)}\2""")
    named = f"_env: {database.variable}" if database.url is None else ": '{}'".format(url.replace("'", "''"))
    for path in (home.root / MARKER, home.config / MACHINE_FILE):
        if path.exists():
            path.write_text(former.sub(lambda found: found[1] + named, path.read_text()))
    system = load_system(home)
    if (system.queue_url(home), system.queue_variable) != (url, database.variable):
        raise BackupFailed(f"{MARKER} cannot be changed to name another database: restore it where it was")


def _read_info(document: Any) -> BackupInfo:
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise BackupFailed("it is no backup of a court: kingdom backup makes one")
    if document["format"] > FORMAT:
        raise BackupFailed(
            f"it was made by Kingdom {document.get('version')}: restore it with that version or a later one"
        )
    return BackupInfo(**{name: document[name] for name in BackupInfo.__slots__ if name in document})
