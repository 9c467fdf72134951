"""The home of a court: one folder, and where everything in it lies."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from kingdom.court.errors import HomeNotFound, InvalidId

MARKER: Final = "config/system.yaml"  # what makes a folder a home
HOME_VARIABLE: Final = "KINGDOM_HOME"
_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_:@+][A-Za-z0-9._:@+\-]*\Z")


def check_name(what: str, name: str) -> str:
    """Return a name that may become part of a path; raise :class:`InvalidId` for any other."""
    if isinstance(name, str) and len(name) <= 200 and _NAME_PATTERN.match(name):
        return name
    raise InvalidId(
        f"{what} {name!r:.80} cannot be a file name: use A-Z a-z 0-9 . _ : @ + - and no leading dot or dash"
    )


def named_path(folder: Path, what: str, name: str, ending: str = "") -> Path:
    """The path of what has this name in a folder. Raises :class:`InvalidId` for a name that cannot be part of one."""
    if not isinstance(name, str):  # it may come from a document that anybody wrote
        check_name(what, name)
    return _named_path(folder, what, name, ending)


@lru_cache(maxsize=4096)
def _named_path(folder: Path, what: str, name: str, ending: str) -> Path:
    # Kept: a busy general asks for the paths of hundreds of tasks again and again, and making one is slow.
    return folder / f"{check_name(what, name)}{ending}"


class Home:
    """Paths, nothing else: it makes no file and reads none."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root).absolute()
        self.queue = self.root / "queue"
        self.state = self.root / "state"
        self.memory = self.root / "memory"
        self.memories = self.memory / "generals"  # a folder for each
        self.logs = self.root / "logs"
        self.workspace = self.root / "workspace"
        self.workflows = self.root / "workflows"
        self.config = self.root / "config"
        self.generals = self.config / "generals"  # one folder for each installed general
        self.results = self.state / "results"
        self.prompts = self.state / "prompts"
        self.soldiers = self.state / "soldiers"  # the identity of each run, for whoever finds it later
        self.ledger = self.state / "ledger"  # tokens and cost, one file for each month
        self.sessions = self.logs / "sessions"
        self.journal = self.logs / "events.log"
        self.clones = self.workspace / ".clones"
        self.handovers = self.workspace / ".handover"

    @classmethod
    def find(cls, start: Path | None = None) -> Home:
        """The home around ``start`` (or the working folder), or the one ``KINGDOM_HOME`` names."""
        if start is None and (named := os.environ.get(HOME_VARIABLE)):
            home = cls(named)
            if home.exists:
                return home
            raise HomeNotFound(f"{HOME_VARIABLE} is {named}, but there is no {MARKER} in it: kingdom init {named}")
        folder = Path(start or Path.cwd()).absolute()
        for candidate in (folder, *folder.parents):
            home = cls(candidate)
            if home.exists:
                return home
        raise HomeNotFound(
            f"{folder} is not in the home of a court (no {MARKER} here or above): "
            f"kingdom init DIR makes one, --home DIR or {HOME_VARIABLE} names one"
        )

    @property
    def exists(self) -> bool:
        """Whether the folder has been made a home."""
        return (self.root / MARKER).is_file()

    @property
    def queue_url(self) -> str:
        """The URL of the bus its queues are on, unless the configuration says otherwise."""
        return f"files://{self.queue}"

    def role(self, name: str) -> Path:
        """The folder of a role's own state."""
        return named_path(self.state, "role", name)

    def heartbeat(self, name: str) -> Path:
        """The file a role renews in every loop."""
        return self.role(name) / "heartbeat"

    def result(self, task_id: str) -> Path:
        """What the general reported of a task."""
        return named_path(self.results, "task", task_id, ".json")

    def raw_result(self, task_id: str) -> Path:
        """What the soldier left, as the general found it."""
        return named_path(self.results, "task", task_id, "-raw.json")

    def handover(self, task_id: str) -> Path:
        """Where the soldier leaves its result: in a folder of its own, for a sandbox that opens whole folders."""
        return named_path(self.handovers, "task", task_id, "/result.json")

    def soldier_id(self, task_id: str) -> Path:
        """Which soldier is on a task, or was last."""
        return named_path(self.results, "task", task_id, "-soldier-id")

    def session_id(self, task_id: str) -> Path:
        """Which conversation a resume goes on with."""
        return named_path(self.results, "task", task_id, "-session-id")

    def prompt(self, task_id: str) -> Path:
        """The prompt of a task, as the soldier got it."""
        return named_path(self.prompts, "task", task_id, ".md")

    def work(self, general: str) -> Path:
        """The workspace of a general."""
        return named_path(self.workspace, "general", general)

    def general_memory(self, general: str) -> Path:
        """What a general remembers."""
        return named_path(self.memories, "general", general)

    def general(self, name: str) -> Path:
        """The folder of an installed general."""
        return named_path(self.generals, "general", name)
