"""What the agents of a workflow say, read from the transcripts of their runs: by any process, while they run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kingdom.agents.errors import AgentsError
from kingdom.agents.folder import RunFolder
from kingdom.agents.port import AgentEvent, Began, Finished, Usage
from kingdom.agents.transcript import Transcript, words

if TYPE_CHECKING:
    from kingdom.agents.engine import Engine, Player
    from kingdom.agents.port import Order

_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Said:
    """Something an agent said or did."""

    run_id: str
    work: str  # names, for people
    task: str
    text: str


class Listening:
    """The runs of some works, as their files tell of them. The id of a run begins with that of its Work."""

    def __init__(self, soldiers: Path, sessions: Path, engines: Mapping[str, Engine | Player]) -> None:
        self._soldiers = soldiers
        self._sessions = sessions
        self._engines = engines
        self._heard: dict[str, tuple[Order, Transcript]] = {}
        self.usage: dict[str, Usage] = {}  # by run id, as far as each run told

    def read_on(self, work_ids: Iterable[str]) -> list[Said]:
        """What was said since the last time by runs of these works."""
        for run_id in self._runs(tuple(f"{work_id}." for work_id in work_ids)):
            if run_id not in self._heard and (order := self._order(run_id)) is not None:
                path = self._sessions / f"{run_id}{_SUFFIX}"
                self._heard[run_id] = order, Transcript(path, order, self._engines)
        found: list[Said] = []
        for run_id, (order, transcript) in self._heard.items():
            for event in transcript.read_on():
                if isinstance(event, Usage):
                    self.usage[run_id] = event
                if not _is_frame(event) and (text := words(event)):
                    found.append(Said(run_id, order.labels.get("work", ""), order.labels.get("task", ""), text))
        return found

    def _runs(self, prefixes: tuple[str, ...]) -> list[str]:
        try:
            with os.scandir(self._sessions) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:
            return []
        return sorted(
            name.removesuffix(_SUFFIX) for name in names if name.startswith(prefixes) and name.endswith(_SUFFIX)
        )

    def _order(self, run_id: str) -> Order | None:
        try:
            return RunFolder(self._soldiers, run_id).read_order()
        except AgentsError:
            return None


def _is_frame(event: AgentEvent) -> bool:
    """Whether it only says that a run begins or ends well: the events of the workflow tell that."""
    return isinstance(event, Began) or (isinstance(event, Finished) and event.ok)
