"""The directories of a stream: paths, options, version, and the lock."""

from __future__ import annotations

import contextlib
import json
import os
import time
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import DISK_FULL_ERRORS, remove_abandoned, sync_directory, write_atomic, write_once
from kingdom.base.locks import is_current, lock, unlock
from kingdom.bus.delivery import DocumentForm, StreamOptions
from kingdom.bus.envelope import check_stream
from kingdom.bus.errors import (
    BusError,
    InvalidName,
    InvalidOption,
    NotSetUp,
    SchemaTooNew,
    StorageFull,
    TransportUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kingdom.bus.delivery import Status


VERSION: Final = 1
MARKER: Final = ".kingdom-bus.json"
SUFFIX: Final = ".json"
REASON: Final = ".reason"  # beside a file that was set aside
STATES: Final[dict[Status, str]] = {"PENDING": "pending", "PROCESSING": "processing", "DONE": "done", "DEAD": "dead"}
ACTIVE: Final[tuple[Status, ...]] = ("PENDING", "PROCESSING", "DEAD")


def bus_error(error: OSError, where: str) -> BusError:
    """Return the error of the bus for an ``OSError``; a worker retries after either kind."""
    if isinstance(error, BusError):
        return error
    place = error.filename or where
    if error.errno in DISK_FULL_ERRORS:
        fault: BusError = StorageFull(f"no room left at {place}: {error.strerror}; nothing was written")
    else:
        fault = TransportUnavailable(f"{place}: {error.strerror or error}")
    fault.__cause__ = error
    return fault


class StreamPaths:
    """The paths of one stream. Those of directories end with a slash."""

    def __init__(self, root: str, stream: str) -> None:
        self.stream = stream
        self.home = f"{root}/{stream}/"
        self.ledger = self.home + ".ledger"
        self.lock = self.home + ".lock"
        self.invalid = self.home + "invalid/"
        self._options = self.home + ".stream.json"
        self.use(StreamOptions())

    def use(self, options: StreamOptions) -> None:
        """Use the state directories that the options name."""
        names = check_states({**STATES, **options.states})
        self.states: dict[Status, str] = {status: f"{self.home}{name}/" for status, name in names.items()}
        self.active = list(dict.fromkeys(self.states[status] for status in ACTIVE))
        self.form = options.document

    def word(self, status: Status, outcome: str | None = None) -> str | None:
        """Return the value of a document's status field in a state; None leaves the field unchanged."""
        if self.form is None or self.form.status is None:
            return None
        if status == "DONE" and outcome is not None:
            return outcome
        return os.path.basename(self.states[status].rstrip("/"))

    def outcome(self, document: Any) -> str | None:
        """Return the outcome of a DONE document, which is in its status field."""
        word = document.get(self.form.status) if self.form is not None and self.form.status is not None else None
        return word if self.form is not None and word in self.form.outcomes else None

    def file(self, status: Status, event_id: str) -> str:
        """Return the path of an event's document in a state."""
        return f"{self.states[status]}{event_id}{SUFFIX}"

    def make(self) -> None:
        """Create the missing directories."""
        if not os.path.isdir(self.home):
            os.makedirs(self.home, exist_ok=True)
            sync_directory(os.path.dirname(self.home.rstrip("/")))
        missing = [path for path in (*self.states.values(), self.invalid) if not os.path.isdir(path)]
        for path in missing:
            os.makedirs(path, exist_ok=True)
        if missing:
            sync_directory(self.home)

    def fingerprint(self) -> bytes:
        """Return a value that changes whenever a file enters or leaves a directory of active events."""
        try:
            return b" ".join(b"%d" % os.stat(path).st_mtime_ns for path in self.active)
        except FileNotFoundError:
            self.make()
            return b""

    # ── options ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def declared(self) -> bool:
        """Whether the stream has options of its own."""
        return os.path.exists(self._options)

    def load_options(self) -> StreamOptions:
        """Read and use the options; finish renames that :meth:`store_options` began. Call it under the lock."""
        options, formerly = self.read_options()
        self._rename_states(formerly)
        return options

    def read_options(self) -> tuple[StreamOptions, dict[Status, str]]:
        """Read and use the options; also return the former names of the states."""
        options, formerly = StreamOptions(), {}
        try:
            with open(self._options, "rb") as file:
                document = json.load(file)
            options = StreamOptions(
                ordered=bool(document["ordered"]),
                dead_head=document["deadHead"],
                states=document["states"],
                document=_form(document.get("document")),
            )
            formerly = dict(document["formerly"])
            self.use(options)
        except FileNotFoundError:
            self.use(options)
        except (ValueError, KeyError, TypeError) as error:
            raise BusError(
                f"{self._options} cannot be read ({error}): repair it, or delete it and declare the stream again"
            ) from None
        return options, formerly

    def store_options(self, options: StreamOptions) -> None:
        """Write the options, and rename the directories of states that have a new name."""
        check_states({**STATES, **options.states})
        # The old names are stored too: if this process dies in between, the next one that reads the options finishes
        # the renames.
        formerly = {status: os.path.basename(path.rstrip("/")) for status, path in self.states.items()}
        document: dict[str, object] = {
            "ordered": options.ordered,
            "deadHead": options.dead_head,
            "states": options.states,
            "formerly": formerly,
        }
        if options.document is not None:
            document["document"] = asdict(options.document)
        write_atomic(self._options, json.dumps(document, indent=1) + "\n", mode=0o666)
        self.load_options()
        self.make()

    def _rename_states(self, formerly: dict[Status, str]) -> None:
        for status, name in formerly.items():
            old, new = f"{self.home}{name}", self.states[status].rstrip("/")
            if old + "/" in self.states.values() or not os.path.isdir(old):
                continue
            if not os.path.isdir(new):
                os.rename(old, new)
                continue
            for entry in os.listdir(old):
                os.rename(f"{old}/{entry}", f"{new}/{entry}")
            os.rmdir(old)


def check_states(names: dict[Status, str]) -> dict[Status, str]:
    """Return the names of states if they can be directories; otherwise raise :class:`InvalidOption`."""
    for status, name in names.items():
        try:
            check_stream(name)
        except InvalidName as error:
            raise InvalidOption(f"states[{status!r}] = {name!r} cannot be a directory: {error}") from None
    # PENDING and PROCESSING may share a directory: the ledger tells them apart. Other states need their own.
    places = [names["PENDING"], names["DONE"], "invalid"]
    if names["PROCESSING"] != names["PENDING"]:
        places.append(names["PROCESSING"])
    if names["DEAD"] != "invalid":  # DEAD may share it: dead events have a .reason file too
        places.append(names["DEAD"])
    if len(set(places)) < len(places):
        raise InvalidOption(
            f"states {names}: each needs a directory of its own (PENDING and PROCESSING may share one; "
            "'invalid' holds files that cannot be read, and DEAD may share it)"
        )
    return names


def _form(fields: dict[str, Any] | None) -> DocumentForm | None:
    return None if fields is None else DocumentForm(**{**fields, "outcomes": tuple(fields["outcomes"])})


def check_version(root: str) -> None:
    """Raise :class:`NotSetUp` if the directory holds no bus, :class:`SchemaTooNew` if it holds a newer one."""
    version = _read_version(root)
    if version is None:
        raise NotSetUp(
            f"there is no bus in {root} yet: await bus.setup(), or run kingdom bus migrate --url files://{root}"
        )
    if version > VERSION:
        raise SchemaTooNew(
            f"the bus in {root} has layout version {version}, this version of kingdom knows {VERSION}: "
            "update kingdom; nothing was changed"
        )


def set_up(root: str) -> list[str]:
    """Create the directory and its marker unless they exist; return the names of what was done."""
    if _read_version(root) is not None:
        check_version(root)
        remove_abandoned(root)
        return []
    os.makedirs(root, exist_ok=True)
    remove_abandoned(root)
    write_once(f"{root}/{MARKER}", json.dumps({"version": VERSION}) + "\n", mode=0o666)
    sync_directory(os.path.dirname(root) or "/")
    return ["001_directories"]


def list_streams(root: str) -> list[str]:
    """Return the names of the streams in the directory."""
    names = []
    for name in sorted(os.listdir(root)):
        with contextlib.suppress(InvalidName):
            check_stream(name)
            if any(os.path.exists(f"{root}/{name}/{sign}") for sign in (".ledger", ".stream.json", "pending")):
                names.append(name)
    return names


def _read_version(root: str) -> int | None:
    try:
        with open(f"{root}/{MARKER}", "rb") as file:
            return int(json.load(file)["version"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise BusError(f'{root}/{MARKER} cannot be read ({error}): it should be {{"version": {VERSION}}}') from None


_NOTE_BYTES: Final = 128
_MIN_WAIT_SECONDS: Final = 0.0002
MAX_WAIT_SECONDS: Final = 0.005


class StreamLock:
    """The lock file of one stream, with a note of its last holder.

    The lock is ``flock``: the kernel releases it when its process dies. A process can die between renames, so it
    writes ``dirty`` into the file before the first rename, and ``clean`` with a fingerprint of the directories after
    the last. The next holder then knows, without reading a directory, whether renames are unfinished and whether files
    were moved by hand.
    """

    def __init__(self, path: str, timeout: float, make_folder: Callable[[], None]) -> None:
        self.path = path
        self._timeout = timeout
        self._make_folder = make_folder
        self._fd: int | None = None

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock. Raises :class:`TransportUnavailable` on timeout."""
        deadline = time.monotonic() + self._timeout
        while True:
            fd = self._open() if self._fd is None else self._fd
            if not lock(fd, deadline - time.monotonic(), (_MIN_WAIT_SECONDS, MAX_WAIT_SECONDS)):
                raise TransportUnavailable(
                    f"{self.path} has been locked by another process for {self._timeout:g} s: "
                    f"it may be stopped (lslocks shows which process it is)"
                )
            if is_current(fd, self.path):
                break
            self.close()  # the file was deleted: other processes now lock a new one
        try:
            yield
        finally:
            unlock(fd)

    def read(self) -> bytes:
        """Return the note: ``clean`` and a fingerprint, ``dirty``, or nothing."""
        assert self._fd is not None
        return os.pread(self._fd, _NOTE_BYTES, 0).rstrip()

    def write(self, note: bytes) -> None:
        """Write the note. Its length is constant, so it needs no space on a full disk."""
        assert self._fd is not None
        os.pwrite(self._fd, note.ljust(_NOTE_BYTES), 0)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            self._fd = os.open(self.path, flags, 0o666)
        except FileNotFoundError:
            self._make_folder()
            self._fd = os.open(self.path, flags, 0o666)
        return self._fd
