"""Showing something for as long as a context lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from kingdom.cli import output

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType


class Shown:
    """A view that is entered and left. By itself it leaves the terminal alone."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """The end: leave the terminal as it was."""


class Picture(Shown):
    """One picture on the terminal that keeps changing."""

    def __init__(self, overflow: Literal["ellipsis", "crop"] = "ellipsis") -> None:
        from rich.live import Live

        self._live = Live(console=output.console(), auto_refresh=False, vertical_overflow=overflow)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def leave(self) -> None:
        """Stop drawing; the last picture stays."""
        self._live.stop()

    def draw(self, picture: RenderableType) -> None:
        """Show this instead of what was shown."""
        self._live.update(picture, refresh=True)
