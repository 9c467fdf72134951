"""What the demos show: a live display on a terminal, plain lines elsewhere, nothing for programs."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from kingdom.bus import Depth
from kingdom.cli import output
from kingdom.cli.output import LiveDisplay, View
from kingdom.court.queues import STREAMS, TASKS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kingdom.court.overview import CourtOverview
    from kingdom.court.queues import StoredDocument
    from kingdom.journal import Entry


# What one sees of the demo: a live picture on a terminal, plain lines elsewhere, nothing for programs.


_COURT_LINES: Final = 14  # happenings that stay on the screen
_STATE_STYLES: Final = {"running": "green", "completed": "green", "in_progress": "yellow", "needs_human": "magenta"}
# What the journal says, as a sentence. Types that are not here are not shown.
_JOURNAL_SENTENCES: Final = {
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
class CourtScene:
    """Everything that is on the stage at one moment."""

    title: str
    overview: CourtOverview | None = None
    documents: list[StoredDocument] = field(default_factory=list)


class CourtDemoView(View):
    """Shows scenes and what happens between them. By itself it shows nothing."""

    def happened(self, text: str) -> None:
        """Something the play itself did."""

    def journalled(self, entry: Entry) -> None:
        """Something the court wrote down."""

    def show(self, scene: CourtScene) -> None:
        """How it stands now."""


def choose_court_view(*, quiet: bool) -> CourtDemoView:
    """The view that suits where the output goes."""
    if quiet:
        return CourtDemoView()
    return LiveCourtView() if sys.stdout.isatty() else PlainCourtView()


class PlainCourtView(CourtDemoView):
    """Lines: what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._started = monotonic()

    def happened(self, text: str) -> None:
        """Print it."""
        self._print(f"» {text}")

    def journalled(self, entry: Entry) -> None:
        """Print it as a sentence."""
        if sentence := journal_sentence(entry):
            self._print(f"  {sentence}")

    def _print(self, text: str) -> None:
        output.say(f"{monotonic() - self._started:5.1f}s {output.sanitize(text)}")


class LiveCourtView(LiveDisplay, CourtDemoView):
    """A picture that keeps changing: the roles, the queues, the tasks, and what happened."""

    def __init__(self) -> None:
        super().__init__()
        self._started = monotonic()
        self._happenings: list[tuple[float, str, str]] = []
        self._scene: CourtScene | None = None

    def happened(self, text: str) -> None:
        """Add it to the picture."""
        self._add(f"» {text}", "bold")

    def journalled(self, entry: Entry) -> None:
        """Add it to the picture, as a sentence."""
        if sentence := journal_sentence(entry):
            self._add(f"  {sentence}", "")

    def show(self, scene: CourtScene) -> None:
        """Draw the picture anew."""
        self._scene = scene
        if scene.overview is not None:
            self.draw(self._picture(scene, scene.overview))

    def _add(self, text: str, style: str) -> None:
        self._happenings.append((monotonic() - self._started, text, style))
        if self._scene is not None:
            self.show(self._scene)

    def _picture(self, scene: CourtScene, overview: CourtOverview) -> RenderableType:
        from rich.columns import Columns
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        roles = output.table(
            ("role", "pid", "state"),
            [(role.name, role.pid or "–", _styled_state(role.state)) for role in overview.roles],
            right=("pid",),
        )
        queues = output.table(
            ("queue", "waiting", "held", "done"),
            [(queue, *_queue_counts(scene, queue)) for queue in STREAMS],
            right=("waiting", "held", "done"),
        )
        tasks = output.table(
            ("task", "general", "type", "status"),
            [
                (
                    item.id,
                    item.document["target_general"],
                    item.document["type"],
                    _styled_state(item.document["status"]),
                )
                for item in sorted(scene.documents, key=lambda item: item.id)
                if item.stream == TASKS
            ],
        )
        happenings = Text()
        for seconds, text, style in self._happenings[-_COURT_LINES:]:
            happenings.append(f"{seconds:5.1f}s ", style="dim")
            happenings.append(output.sanitize(text) + "\n", style=style)
        happenings.rstrip()
        board = Group(Columns([roles, queues], padding=(0, 6)), Text(), tasks, Text(), happenings)
        return Panel(board, title=scene.title, padding=(1, 2))


def journal_sentence(entry: Entry) -> str | None:
    """What an entry of the journal says, for people who watch; None when it is not worth a line here."""
    sentence = _JOURNAL_SENTENCES.get(entry.type)
    return None if sentence is None else sentence.format(actor=entry.actor, **entry.fields)


def _queue_counts(scene: CourtScene, queue: str) -> tuple[int, int, int]:
    """How many documents of a queue wait, are held, and are done."""
    states = Counter(item.state for item in scene.documents if item.stream == queue)
    return states["pending"], states["dispatched"] + states["in_progress"], states["completed"] + states["sent"]


def _styled_state(state: str) -> object:
    return output.styled(state, _STATE_STYLES.get(state, "dim"))


# What one sees of the demo: a live picture on a terminal, plain lines elsewhere, nothing for programs.


_BUS_LINES = 10  # happenings that stay on the screen


@dataclass
class WorkerState:
    """A worker process, as the audience sees it."""

    name: str
    pid: int
    state: Literal["working", "killed", "finished"] = "working"
    handled: int = 0


@dataclass
class BusScene:
    """Everything that is on the stage at one moment."""

    title: str
    stream: str
    total: int
    published: int = 0
    depth: Depth = field(default_factory=Depth)
    actors: list[WorkerState] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Events that are finished."""
        return self.published - self.depth.pending - self.depth.processing - self.depth.dead


class BusDemoView(View):
    """Shows scenes and what happens between them. By itself it shows nothing."""

    def happened(self, text: str) -> None:
        """Something worth a line."""

    def show(self, scene: BusScene) -> None:
        """How it stands now."""


def choose_bus_view(*, quiet: bool) -> BusDemoView:
    """The view that suits where the output goes."""
    if quiet:
        return BusDemoView()
    return LiveBusView() if sys.stdout.isatty() else PlainBusView()


class PlainBusView(BusDemoView):
    """Lines: what happens, and the progress in steps of a quarter."""

    def __init__(self) -> None:
        self._started = monotonic()
        self._quarter = 0

    def happened(self, text: str) -> None:
        """Print it with the seconds since the start."""
        output.say(f"{monotonic() - self._started:5.1f}s  {text}")

    def show(self, scene: BusScene) -> None:
        """Print the progress when another quarter is done."""
        quarter = 4 * scene.done // scene.total
        if quarter > self._quarter:
            self._quarter = quarter
            depth = scene.depth
            self.happened(f"{scene.done} of {scene.total} done, {depth.pending} pending, {depth.processing} held")


class LiveBusView(LiveDisplay, BusDemoView):
    """A picture that keeps changing: the stream, the workers, the progress, and what happened."""

    def __init__(self) -> None:
        super().__init__()
        self._started = monotonic()
        self._happenings: list[tuple[float, str]] = []
        self._scene: BusScene | None = None

    def happened(self, text: str) -> None:
        """Add it to the picture."""
        self._happenings.append((monotonic() - self._started, text))
        if self._scene is not None:
            self.show(self._scene)

    def show(self, scene: BusScene) -> None:
        """Draw the picture anew."""
        self._scene = scene
        self.draw(self._picture(scene))

    def _picture(self, scene: BusScene) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        depth = scene.depth
        streams = output.table(
            ("stream", "pending", "processing", "done", "dead"),
            [(scene.stream, depth.pending, depth.processing, output.styled(str(scene.done), "green"), depth.dead)],
            right=("pending", "processing", "done", "dead"),
        )
        styles = {"working": "green", "killed": "bold red", "finished": "dim"}
        workers = output.table(
            ("worker", "pid", "state", "deliveries"),
            [
                (item.name, item.pid, output.styled(item.state, styles[item.state]), item.handled)
                for item in scene.actors
            ],
            right=("pid", "deliveries"),
        )
        happenings = Text()
        for seconds, text in self._happenings[-_BUS_LINES:]:
            happenings.append(f"{seconds:5.1f}s  ", style="dim")
            happenings.append(output.sanitize(text) + "\n")
        happenings.rstrip()
        bar = ProgressBar(total=scene.total, completed=scene.done)
        return Panel(Group(streams, workers, bar, Text(), happenings), title=scene.title, padding=(1, 2))
