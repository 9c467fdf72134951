"""What one sees of the demo: a live picture on a terminal, plain lines elsewhere, nothing for programs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Literal

from kingdom.bus import Depth
from kingdom.cli import output
from kingdom.cli.picture import Picture, Shown

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINES = 10  # happenings that stay on the screen


@dataclass
class Actor:
    """A worker process, as the audience sees it."""

    name: str
    pid: int
    state: Literal["working", "killed", "finished"] = "working"
    handled: int = 0


@dataclass
class Scene:
    """Everything that is on the stage at one moment."""

    title: str
    stream: str
    total: int
    published: int = 0
    depth: Depth = field(default_factory=Depth)
    actors: list[Actor] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Events that are finished."""
        return self.published - self.depth.pending - self.depth.processing - self.depth.dead


class View(Shown):
    """Shows scenes and what happens between them. By itself it shows nothing."""

    def happened(self, text: str) -> None:
        """Something worth a line."""

    def show(self, scene: Scene) -> None:
        """How it stands now."""


def choose_view(*, quiet: bool) -> View:
    """The view that suits where the output goes."""
    if quiet:
        return View()
    return LiveView() if sys.stdout.isatty() else PlainView()


class PlainView(View):
    """Lines: what happens, and the progress in steps of a quarter."""

    def __init__(self) -> None:
        self._started = monotonic()
        self._quarter = 0

    def happened(self, text: str) -> None:
        """Print it with the seconds since the start."""
        output.say(f"{monotonic() - self._started:5.1f}s  {text}")

    def show(self, scene: Scene) -> None:
        """Print the progress when another quarter is done."""
        quarter = 4 * scene.done // scene.total
        if quarter > self._quarter:
            self._quarter = quarter
            depth = scene.depth
            self.happened(f"{scene.done} of {scene.total} done, {depth.pending} pending, {depth.processing} held")


class LiveView(Picture, View):
    """A picture that keeps changing: the stream, the workers, the progress, and what happened."""

    def __init__(self) -> None:
        super().__init__()
        self._started = monotonic()
        self._happenings: list[tuple[float, str]] = []
        self._scene: Scene | None = None

    def happened(self, text: str) -> None:
        """Add it to the picture."""
        self._happenings.append((monotonic() - self._started, text))
        if self._scene is not None:
            self.show(self._scene)

    def show(self, scene: Scene) -> None:
        """Draw the picture anew."""
        self._scene = scene
        self.draw(self._picture(scene))

    def _picture(self, scene: Scene) -> RenderableType:
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
        for seconds, text in self._happenings[-_LINES:]:
            happenings.append(f"{seconds:5.1f}s  ", style="dim")
            happenings.append(output.clean(text) + "\n")
        happenings.rstrip()
        bar = ProgressBar(total=scene.total, completed=scene.done)
        return Panel(Group(streams, workers, bar, Text(), happenings), title=scene.title, padding=(1, 2))
