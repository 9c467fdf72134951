"""What one sees of the demo: a live picture on a terminal, plain lines elsewhere, nothing for programs."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final

from kingdom.cli import output
from kingdom.cli.picture import Picture, Shown
from kingdom.court.documents import STREAMS
from kingdom.court.queues import TASKS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kingdom.court.documents import Stored
    from kingdom.court.overview import Overview
    from kingdom.journal import Entry

_LINES: Final = 14  # happenings that stay on the screen
_STYLES: Final = {"running": "green", "completed": "green", "in_progress": "yellow", "needs_human": "magenta"}
# What the journal says, as a sentence. Types that are not here are not shown.
_SENTENCES: Final = {
    "task.created": "king: {task_id} for {target_general}, because of {event_type}",
    "task.started": "{actor}: takes up {task_id}",
    "soldier.spawned": "{actor}: sends {soldier_id} to {task_id}",
    "task.completed": "{actor}: {task_id} is done ({status})",
    "task.failed": "{actor}: {task_id} failed: {error}",
    "task.needs_human": "{actor}: {task_id} needs a person",
    "task.resumed": "king: {original_task_id} goes on as {task_id}",
    "message.sent": "envoy: tells people about {task_id}",
}


@dataclass
class Scene:
    """Everything that is on the stage at one moment."""

    title: str
    overview: Overview | None = None
    documents: list[Stored] = field(default_factory=list)


class View(Shown):
    """Shows scenes and what happens between them. By itself it shows nothing."""

    def happened(self, text: str) -> None:
        """Something the play itself did."""

    def journalled(self, entry: Entry) -> None:
        """Something the court wrote down."""

    def show(self, scene: Scene) -> None:
        """How it stands now."""


def choose_view(*, quiet: bool) -> View:
    """The view that suits where the output goes."""
    if quiet:
        return View()
    return LiveView() if sys.stdout.isatty() else PlainView()


class PlainView(View):
    """Lines: what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._started = monotonic()

    def happened(self, text: str) -> None:
        """Print it."""
        self._print(f"» {text}")

    def journalled(self, entry: Entry) -> None:
        """Print it as a sentence."""
        if sentence := sentence_of(entry):
            self._print(f"  {sentence}")

    def _print(self, text: str) -> None:
        output.say(f"{monotonic() - self._started:5.1f}s {output.clean(text)}")


class LiveView(Picture, View):
    """A picture that keeps changing: the roles, the queues, the tasks, and what happened."""

    def __init__(self) -> None:
        super().__init__()
        self._started = monotonic()
        self._happenings: list[tuple[float, str, str]] = []
        self._scene: Scene | None = None

    def happened(self, text: str) -> None:
        """Add it to the picture."""
        self._add(f"» {text}", "bold")

    def journalled(self, entry: Entry) -> None:
        """Add it to the picture, as a sentence."""
        if sentence := sentence_of(entry):
            self._add(f"  {sentence}", "")

    def show(self, scene: Scene) -> None:
        """Draw the picture anew."""
        self._scene = scene
        if scene.overview is not None:
            self.draw(self._picture(scene, scene.overview))

    def _add(self, text: str, style: str) -> None:
        self._happenings.append((monotonic() - self._started, text, style))
        if self._scene is not None:
            self.show(self._scene)

    def _picture(self, scene: Scene, overview: Overview) -> RenderableType:
        from rich.columns import Columns
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        roles = output.table(
            ("role", "pid", "state"),
            [(role.name, role.pid or "–", _coloured(role.state)) for role in overview.roles],
            right=("pid",),
        )
        queues = output.table(
            ("queue", "waiting", "held", "done"),
            [(queue, *_counts(scene, queue)) for queue in STREAMS],
            right=("waiting", "held", "done"),
        )
        tasks = output.table(
            ("task", "general", "type", "status"),
            [
                (item.id, item.document["target_general"], item.document["type"], _coloured(item.document["status"]))
                for item in sorted(scene.documents, key=lambda item: item.id)
                if item.stream == TASKS
            ],
        )
        happenings = Text()
        for seconds, text, style in self._happenings[-_LINES:]:
            happenings.append(f"{seconds:5.1f}s ", style="dim")
            happenings.append(output.clean(text) + "\n", style=style)
        happenings.rstrip()
        board = Group(Columns([roles, queues], padding=(0, 6)), Text(), tasks, Text(), happenings)
        return Panel(board, title=scene.title, padding=(1, 2))


def sentence_of(entry: Entry) -> str | None:
    """What an entry of the journal says, for people who watch; None when it is not worth a line here."""
    sentence = _SENTENCES.get(entry.type)
    return None if sentence is None else sentence.format(actor=entry.actor, **entry.fields)


def _counts(scene: Scene, queue: str) -> tuple[int, int, int]:
    """How many documents of a queue wait, are held, and are done."""
    states = Counter(item.state for item in scene.documents if item.stream == queue)
    return states["pending"], states["dispatched"] + states["in_progress"], states["completed"] + states["sent"]


def _coloured(state: str) -> object:
    return output.styled(state, _STYLES.get(state, "dim"))
