"""What was meant to be posted, and what became of it: one small file for each message.

It is written before the post goes out, and once more when all is done. So whoever finds it without a time stamp knows
that the post may be there, and looks for it before posting again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kingdom.court.files import read_json, sync_folder, write_atomic, write_json
from kingdom.court.home import checked
from kingdom.court.leftovers import sweep

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.home import Home

_KEPT: Final = 30 * 86400.0  # seconds: as long as a message that failed may be put back into the queue


@dataclass(slots=True)
class Post:
    """A message on its way to Slack."""

    channel: str
    thread_ts: str | None
    at: float  # when it was first meant to go out
    ts: str | None = None  # under which Slack has it, as soon as that is known
    edits: str | None = None  # it is added to the post ``ts`` instead of being one of its own: the whole text then
    answered: bool = False  # the question in it was answered
    done: bool = False  # all that follows from it was done, too
    intents: list[str] = field(default_factory=list)  # the messages that are in the post


class Posts:
    """The files below ``state/envoy/posts/``."""

    def __init__(self, home: Home) -> None:
        self._folder = home.role("envoy") / "posts"
        self._folder.mkdir(parents=True, exist_ok=True)
        sweep(self._folder)
        self.court = _own_name(home.role("envoy") / "court-id")
        """What tells our posts from those of another court in the same workspace."""

    def read(self, message_id: str) -> Post | None:
        """What is known of a message."""
        found = read_json(self._path(message_id))
        names = {one.name for one in fields(Post)}
        if not isinstance(found, dict) or not {"channel", "at"} <= found.keys():
            return None
        return Post(**{"thread_ts": None, **{key: value for key, value in found.items() if key in names}})

    def write(self, message_id: str, post: Post) -> None:
        """Note it, durably."""
        write_json(self._path(message_id), asdict(post))

    def forget(self, message_id: str) -> None:
        """It certainly did not go out."""
        self._path(message_id).unlink(missing_ok=True)
        sync_folder(self._folder)

    def prune(self, now: float) -> None:
        """Remove what is too old to matter, by the day in the id of its message."""
        oldest = datetime.fromtimestamp(now - _KEPT, UTC).strftime("msg-%Y%m%d")
        for path in self._folder.glob("msg-*.json"):
            if path.name < oldest:
                path.unlink(missing_ok=True)

    def _path(self, message_id: str) -> Path:
        return self._folder / f"{checked('message', message_id)}.json"


def _own_name(path: Path) -> str:
    """A name that no other court has, made when it is first asked for."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        write_atomic(path, f"{uuid4()}\n")
        return _own_name(path)
