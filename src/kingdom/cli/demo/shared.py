"""What both demos share: their folder, what they show while they run, and the proof at the end."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from kingdom.cli import output
from kingdom.cli.output import CommandError, LiveDisplay, View

if TYPE_CHECKING:
    from rich.console import RenderableType

_MAX_LINES: Final = 14  # of what happened that stay on the screen


def prepare_folder(folder: Path | None) -> Path:
    """Return the empty folder of a demo: the one named by ``--dir``, or a new temporary one."""
    place = Path(tempfile.mkdtemp(prefix="kingdom-demo-")) if folder is None else folder.resolve()
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise CommandError("NOT_EMPTY", f"{place} is not empty: give --dir an empty or a new directory")
    return place


class Scene:
    """The state of a demo at one moment."""

    title: str

    def render(self) -> list[RenderableType]:
        """Return the parts of the live display; none as long as there is nothing to show."""
        raise NotImplementedError

    def progress(self) -> str | None:
        """Return a line about new progress, for output without a live display."""
        return None


class DemoView(View):
    """Shows what happens in a demo. The base class shows nothing: it is the view for programs."""

    def step(self, text: str) -> None:
        """Show something the demo did."""

    def reaction(self, text: str) -> None:
        """Show something the system did."""

    def show(self, scene: Scene) -> None:
        """Show the current state."""


def choose_view(*, quiet: bool) -> DemoView:
    """Return the view for the kind of output."""
    if quiet:
        return DemoView()
    live = sys.stdout.isatty() and find_spec("rich") is not None  # an installation of the bus alone has no rich
    return LiveDemoView() if live else PlainDemoView()


class PlainDemoView(DemoView):
    """Prints lines with the seconds since the start."""

    def __init__(self) -> None:
        self._started = monotonic()

    def step(self, text: str) -> None:
        self._print(f"» {text}")

    def reaction(self, text: str) -> None:
        self._print(f"  {text}")

    def show(self, scene: Scene) -> None:
        if line := scene.progress():
            self.reaction(line)

    def _print(self, text: str) -> None:
        output.say(f"{monotonic() - self._started:5.1f}s {text}")


class LiveDemoView(LiveDisplay, DemoView):
    """Draws the current state and the last lines in place."""

    def __init__(self) -> None:
        super().__init__()
        self._started = monotonic()
        self._lines: list[tuple[float, str, str]] = []
        self._scene: Scene | None = None

    def step(self, text: str) -> None:
        self._add(f"» {text}", "bold")

    def reaction(self, text: str) -> None:
        self._add(f"  {text}", "")

    def show(self, scene: Scene) -> None:
        self._scene = scene
        self.draw(self.render(scene))

    def render(self, scene: Scene) -> RenderableType:
        """Return the whole display."""
        from rich.console import Group
        from rich.panel import Panel
        from rich.text import Text

        happened = Text()
        for seconds, text, style in self._lines[-_MAX_LINES:]:
            happened.append(f"{seconds:5.1f}s ", style="dim")
            happened.append(output.sanitize(text) + "\n", style=style)
        happened.rstrip()
        return Panel(Group(*scene.render(), Text(), happened), title=scene.title, padding=(1, 2))

    def _add(self, text: str, style: str) -> None:
        self._lines.append((monotonic() - self._started, text, style))
        if self._scene is not None:
            self.show(self._scene)


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a demo, read from the files it left."""

    claims: tuple[tuple[bool, str], ...]
    facts: dict[str, Any]
    next_steps: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every claim is true."""
        return all(true for true, _ in self.claims)

    @property
    def document(self) -> dict[str, Any]:
        """The proof as a JSON document."""
        return {**self.facts, "holds": self.holds}

    def lines(self) -> list[str]:
        """Return the claims, and what to try next."""
        return ["", *(f"{'✓' if true else '✗'} {text}" for true, text in self.claims), *self.next_steps]
