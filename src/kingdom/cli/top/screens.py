"""What lies over the main screen for a moment: a question back, a line to type, a story to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from kingdom.cli.output import Failure
from kingdom.cli.top.plain import line, lines

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from kingdom.court.overview import QuestionView


class Confirm(ModalScreen[bool]):
    """Yes or no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "say(True)", "yes"),
        ("enter", "say(True)", "yes"),
        ("n", "say(False)", "no"),
        ("escape", "say(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        """The question and the keys."""
        with Vertical(classes="box"):
            yield Static(lines(self._question, "bold"))
            yield Static(Text("y or Enter: yes    n or Esc: no", style="dim"))

    def action_say(self, answer: bool) -> None:
        """Close with the answer."""
        self.dismiss(answer)


class Answer(ModalScreen[str | None]):
    """A question of a task, and a line to type the answer into."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave", "leave it")]

    def __init__(self, question: QuestionView) -> None:
        super().__init__()
        self._asked = question

    def compose(self) -> ComposeResult:
        """The question, its choices, the line."""
        asked = self._asked
        with Vertical(classes="box"):
            yield Static(line(f"{asked.task_id} of {asked.general} asks", "dim"))
            with VerticalScroll(classes="question"):
                yield Static(lines(asked.question, "bold"))
            if asked.choices:
                yield Static(line("choices: " + " | ".join(asked.choices)))
            yield Input(placeholder="the answer; Enter sends it, Esc leaves")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with what was typed, if it was anything."""
        if event.value.strip():
            self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        """Close without an answer."""
        self.dismiss(None)


class Reading(ModalScreen[None]):
    """Some text to read, one way or another: a story, a transcript. It is loaded anew when something happened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "back"),
        ("q", "leave", "back"),
        ("t", "turn", "story or transcript"),
    ]

    def __init__(self, pages: dict[str, Callable[[], Awaitable[Text]]], first: str) -> None:
        super().__init__()
        self._pages = pages
        self._page = first

    def compose(self) -> ComposeResult:
        """A title, the text, the keys."""
        yield Static(id="title")
        with VerticalScroll(id="text"):
            yield Static(Text("…", style="dim"), id="content")
        yield Footer()

    def on_mount(self) -> None:
        """Load the first page."""
        self.query_one("#text", VerticalScroll).focus()
        self.reload()

    def reload(self) -> None:
        """Load the page again; one load at a time."""
        self.run_worker(self._load(), exclusive=True, exit_on_error=False)

    def action_leave(self) -> None:
        """Close."""
        self.dismiss(None)

    def action_turn(self) -> None:
        """Show the other page."""
        names = list(self._pages)
        self._page = names[(names.index(self._page) + 1) % len(names)]
        self.reload()

    async def _load(self) -> None:
        page = self._page
        try:
            text = await self._pages[page]()
        except Failure as failure:
            text = lines(str(failure), "yellow")
        scroll = self.query_one("#text", VerticalScroll)
        at_end = scroll.scroll_offset.y >= scroll.max_scroll_y
        self.query_one("#title", Static).update(line(page, "bold reverse"))
        self.query_one("#content", Static).update(text)
        if at_end:
            self.call_after_refresh(scroll.scroll_end, animate=False)
