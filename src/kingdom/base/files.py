"""Durable files: a reader, and a crash, finds the old content of a file or the new, never a part of it.

Every write takes the same steps: write a temporary file beside the target, sync it, rename it into place, sync the
directory. ``durable=False`` leaves out both syncs: after a power cut the file has its old or its new content.
"""
# os.*, not pathlib: the shim imports this module with every run, and a general writes a dozen files for each task.

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import stat
import time
import zlib
from functools import cache, lru_cache

from kingdom.base.jsontext import pretty

TYPE_CHECKING = False  # not the one of typing: importing that would take a fifth of the start of a shim
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, BinaryIO, Final

    AnyPath = str | os.PathLike[str]
    FileVersion = tuple[int, int, int]

TEMPORARY: Final = ".tmp-"
"""How the name of every temporary file begins."""

DISK_FULL_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The numbers of the errors of a full disk, a quota that is used up, or a limit on the size of a file."""

_MAX_AGE_SECONDS: Final = 3600.0  # of a temporary file, after which it is abandoned: no write takes that long
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_encode_readable: Final = json.JSONEncoder(ensure_ascii=False).encode
_encode_ascii: Final = json.JSONEncoder().encode


def write_atomic(path: AnyPath, data: bytes | str, *, durable: bool = True, mode: int = 0o644) -> None:
    """Replace the content of ``path``, or create it with ``mode``.

    With ``durable`` the new content survives a power cut after the return.
    """
    temporary = _temporary_path(path)
    try:
        create_file(temporary, data, durable=durable, mode=mode)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        sync_directory(os.path.dirname(path))


def write_once(path: AnyPath, data: bytes | str, *, durable: bool = True, mode: int = 0o644) -> bool:
    """Create ``path`` with this content unless it exists. Of several callers at once, exactly one gets True."""
    temporary = _temporary_path(path)
    try:
        create_file(temporary, data, durable=durable, mode=mode)
        os.link(temporary, path)
        created = True
    except FileExistsError:
        created = False
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
    if durable:  # also when it exists: its writer may have been killed before it synced the name
        sync_directory(os.path.dirname(path))
    return created


def write_json(path: AnyPath, document: Mapping[str, Any], *, durable: bool = True, mode: int = 0o644) -> None:
    """Replace the content of ``path`` with a JSON document, formatted for people."""
    write_atomic(path, encode_json(document), durable=durable, mode=mode)


def encode_json(document: Mapping[str, Any]) -> bytes:
    """Encode a document as people write JSON."""
    try:
        return pretty(document, _encode_readable).encode()
    except UnicodeEncodeError:  # a lone surrogate: JSON can escape it, UTF-8 cannot encode it
        return pretty(document, _encode_ascii, _encode_ascii).encode()


def open_untrusted(path: AnyPath) -> BinaryIO:
    """Open a regular file for reading, in a folder where an agent may have made anything: a link, a pipe, a device.

    Raises OSError for anything but a regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))  # noqa: TRY301
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read_json(path: AnyPath) -> Any:
    """Return the document in a file, or None when the file is missing, unreadable or not JSON."""
    try:
        with open(path, "rb") as file:
            return json.loads(file.read())
    except (OSError, ValueError):
        return None


def read_object(path: AnyPath) -> dict[str, Any]:
    """Return the JSON object in a file, or an empty one when the file has none."""
    document = read_json(path)
    return document if isinstance(document, dict) else {}


def create_file(path: AnyPath, data: bytes | str, *, durable: bool = True, mode: int = 0o644) -> None:
    """Write a file that must not exist yet. With ``durable`` its content is synced; its name is not."""
    descriptor = os.open(path, _NEW_FILE, mode)
    try:
        write_all(descriptor, data.encode() if isinstance(data, str) else data)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of ``data``; ``os.write`` alone may write less."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written:])


def sync_directory(path: AnyPath) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_version(path: AnyPath) -> FileVersion:
    """Return what changes whenever a file is written: modification time, size, inode. Raises ``OSError``."""
    found = os.stat(path)
    return found.st_mtime_ns, found.st_size, found.st_ino


class ChangeDetector:
    """Detects that a file was written, created or removed since the last look."""

    def __init__(self, path: AnyPath) -> None:
        self._path = path
        self._seen: FileVersion | int | None = None

    def changed(self) -> bool:
        """Return True on the first call, and whenever the file differs from the previous call."""
        before, self._seen = self._seen, self._version()
        return self._seen != before

    @property
    def found(self) -> bool:
        """Whether the file was there at the last look."""
        return isinstance(self._seen, tuple)

    @property
    def missing(self) -> bool:
        """Whether there was no file at the last look. A file that may not be looked at is not missing."""
        return self._seen == errno.ENOENT

    def accept(self) -> None:
        """Take the file as it is now as seen: the caller has just written it."""
        self._seen = self._version()

    def _version(self) -> FileVersion | int:
        try:
            return file_version(self._path)
        except OSError as error:
            return error.errno or -1


def read_cached(path: AnyPath, errors: str = "strict") -> str:
    """Return the text of a file that is read often and rarely changes. Raises what reading it raises."""
    return _read_text(os.fspath(path), errors, file_version(path))


@lru_cache(maxsize=16)
def _read_text(path: str, errors: str, _version: FileVersion) -> str:
    with open(path, encoding="utf-8", errors=errors) as file:
        return file.read()


def temporary_prefix() -> str:
    """Return the beginning of a temporary name that nobody else uses: machine, process, its start, and a number."""
    pid = os.getpid()
    return f"{TEMPORARY}{_machine()}-{pid}-{_start(pid)}-{next(_numbers)}-"


def abandoned(folder: str) -> list[str]:
    """Return the paths of temporary files in a folder whose writer is dead."""
    found = []
    for name in os.listdir(folder):
        if name.startswith(TEMPORARY):
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if _writer_is_dead(name) or time.time() - os.lstat(path).st_mtime > _MAX_AGE_SECONDS:
                    found.append(path)
    return found


def remove_abandoned(folder: str) -> int:
    """Remove the temporary files whose writer is dead. Return how many there were."""
    removed = 0
    for path in abandoned(folder):
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += 1
    return removed


_numbers = itertools.count(1)


def _temporary_path(path: AnyPath) -> str:
    folder, name = os.path.split(os.fspath(path))
    return os.path.join(folder, f"{temporary_prefix()}{name.lstrip('.')}")


def _writer_is_dead(name: str) -> bool:
    machine, pid, start, *_ = [*name.removeprefix(TEMPORARY).split("-"), "", ""]
    if machine != _machine() or not pid.isdigit():
        return False  # of another machine or container, whose processes we cannot see
    if int(pid) == os.getpid():
        return start != _start(int(pid))
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] in b"ZX"
    except FileNotFoundError:
        pass
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return os.path.exists("/proc/self/stat")  # there is a /proc, and the process is not in it


@cache
def _start(pid: int) -> str:
    """Distinguish this process from an earlier one with the same id: in a container the first always has id 1."""
    return f"{zlib.crc32(os.urandom(8)):08x}"


@cache
def _machine() -> str:
    """Identify where process ids mean the same: this boot of this machine, in this process namespace."""
    parts = [os.uname().nodename]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        parts.append(file.read())
    with contextlib.suppress(OSError):
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return f"{zlib.crc32(' '.join(parts).encode()):08x}"
