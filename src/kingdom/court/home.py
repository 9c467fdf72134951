"""The home of a court: one folder, and the paths in it."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from kingdom.court.errors import HomeNotFound, InvalidId

MARKER: Final = "config/system.yaml"  # a folder with this file is a home
HOME_VARIABLE: Final = "KINGDOM_HOME"
_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_:@+][A-Za-z0-9._:@+\-]*\Z")


def check_name(what: str, name: str) -> str:
    """Return a name that can be part of a path; raise :class:`InvalidId` for any other."""
    if isinstance(name, str) and len(name) <= 200 and _NAME_PATTERN.match(name):
        return name
    raise InvalidId(
        f"{what} {name!r:.80} cannot be a file name: use A-Z a-z 0-9 . _ : @ + - and no leading dot or dash"
    )


def named_path(folder: Path, what: str, name: str, ending: str = "") -> Path:
    """Return the path of a name in a folder. Raises :class:`InvalidId` for a name that cannot be part of a path."""
    if not isinstance(name, str):  # it may come from an untrusted document
        check_name(what, name)
    return _named_path(folder, what, name, ending)


@lru_cache(maxsize=4096)
def _named_path(folder: Path, what: str, name: str, ending: str) -> Path:
    # Cached: a busy general needs the paths of hundreds of tasks repeatedly, and building one is slow.
    return folder / f"{check_name(what, name)}{ending}"


class Home:
    """The paths of a home. It creates no file and reads none."""

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
        self.landings = self.state / "landings"  # work that was landed after its task had ended
        self.soldiers = self.state / "soldiers"  # one folder for each run, with its identity
        self.ledger = self.state / "ledger"  # tokens and cost, one file for each month
        self.sessions = self.logs / "sessions"
        self.journal = self.logs / "events.log"
        self.clones = self.workspace / ".clones"
        self.handovers = self.workspace / ".handover"

    @classmethod
    def find(cls, start: Path | None = None) -> Home:
        """Return the home around ``start`` (or the working folder), or the one that ``KINGDOM_HOME`` names."""
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
        """Whether the folder is a home."""
        return (self.root / MARKER).is_file()

    @property
    def queue_url(self) -> str:
        """The URL of the queues, unless the configuration names another."""
        return f"files://{self.queue}"

    def role(self, name: str) -> Path:
        """The state folder of a role."""
        return named_path(self.state, "role", name)

    def heartbeat(self, name: str) -> Path:
        """The file that a role rewrites in every loop."""
        return self.role(name) / "heartbeat"

    def result(self, task_id: str) -> Path:
        """The result of a task, as reported by its general."""
        return named_path(self.results, "task", task_id, ".json")

    def landing(self, task_id: str) -> Path:
        """The note for the king that a task was landed after it had ended."""
        return named_path(self.landings, "task", task_id, ".json")

    def raw_result(self, task_id: str) -> Path:
        """The checked result file of the soldier."""
        return named_path(self.results, "task", task_id, "-raw.json")

    def handover(self, task_id: str) -> Path:
        """The file where the soldier leaves its result; its own folder, because a sandbox opens whole folders."""
        return named_path(self.handovers, "task", task_id, "/result.json")

    def soldier_id(self, task_id: str) -> Path:
        """The file with the id of the current or last soldier of a task."""
        return named_path(self.results, "task", task_id, "-soldier-id")

    def session_id(self, task_id: str) -> Path:
        """The file with the id of the conversation that a resume continues."""
        return named_path(self.results, "task", task_id, "-session-id")

    def asked(self, task_id: str) -> Path:
        """The time at which the question of a task was posted on GitHub or Jira, if that was away when it ended."""
        return named_path(self.results, "task", task_id, "-asked")

    def prompt(self, task_id: str) -> Path:
        """The prompt of a task, as it was sent."""
        return named_path(self.prompts, "task", task_id, ".md")

    def work(self, general: str) -> Path:
        """The workspace of a general."""
        return named_path(self.workspace, "general", general)

    def general_memory(self, general: str) -> Path:
        return named_path(self.memories, "general", general)

    def general(self, name: str) -> Path:
        """The folder of an installed general."""
        return named_path(self.generals, "general", name)
