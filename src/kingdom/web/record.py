"""``state/web/server.json``: the server that runs for a root, and its URL. Imports no web framework."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_json, write_json
from kingdom.court.home import Home
from kingdom.court.supervisor.record import ProcessHandle, own_process, running_supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STATE_FOLDER: Final = "state/web"
"""The folder of the server's own files, relative to its root."""
START_SECONDS: Final = 30.0
"""How long a server may take to start."""
_LOOK_SECONDS: Final = 0.1  # between two looks for its record
_WEB_ROLE: Final = "web"


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """A running server: its URL and process."""

    url: str
    process: ProcessHandle

    def document(self) -> dict[str, Any]:
        return {"url": self.url, **self.process.document()}


def record_path(root: Path) -> Path:
    return root / STATE_FOLDER / "server.json"


def running_server(root: Path) -> ServerRecord | None:
    """Return the server that runs for a root, or None."""
    document = read_json(record_path(root))
    process = ProcessHandle.read(document)
    if document is None or process is None or not isinstance(document.get("url"), str) or not process.alive:
        return None
    return ServerRecord(document["url"], process)


def starting_server(root: Path, seconds: float = START_SECONDS) -> ServerRecord | None:
    """Return the server of a root. If a court is up there whose web role starts, wait for its server."""
    until = time.monotonic() + seconds
    while (found := running_server(root)) is None:
        court = running_supervisor(Home(root))
        if court is None or _WEB_ROLE not in court.roles or time.monotonic() > until:
            return None
        time.sleep(_LOOK_SECONDS)
    return found


@contextlib.contextmanager
def record_server(root: Path, url: str) -> Iterator[None]:
    """Record a server of this process while the block runs, so that others find it."""
    own = ServerRecord(url, own_process())
    path = record_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, own.document(), durable=False)
    try:
        yield
    finally:
        if running_server(root) == own:  # another server of this root may have replaced the record
            path.unlink(missing_ok=True)


def url_of(host: str, port: int) -> str:
    """Return the URL at which a browser on this machine reaches a server that listens on this address."""
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - not bound to
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
