"""Which workflow is done for which task, on disk: whoever goes on with the task after a crash finds it again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kingdom.agents.files import encode, read_json, write_atomic
from kingdom.agents.port import Tokens


@dataclass(slots=True)
class Record:
    """What is known of a task's workflow beside the workflow itself."""

    path: Path
    workflow_id: str | None = None
    answered_by: str | None = None  # the task whose answer was given last
    answered_after: int = 0  # the number of the workflow's last event before that
    charged_usd: float = 0.0  # what former runs of the task have told of
    charged: Tokens = field(default_factory=Tokens)

    def save(self) -> None:
        """Write it down; it is there on return."""
        document = {name: value for name, value in asdict(self).items() if name != "path"}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, encode(document))
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def load_record(home: Path, key: str) -> Record:
    """The record of a task; an empty one when there is none."""
    path = home / "tasks" / f"{key}.json"
    found: Any = read_json(path)
    known: Mapping[str, Any] = found if isinstance(found, dict) else {}
    return Record(
        path,
        known.get("workflow_id"),
        known.get("answered_by"),
        int(known.get("answered_after") or 0),
        float(known.get("charged_usd") or 0.0),
        Tokens(**known.get("charged") or {}),
    )
