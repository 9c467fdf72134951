"""The screens of ``kingdom top``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.app import App
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, Static

from kingdom.cli.court.tasks import answer_question, request_for_task
from kingdom.cli.output import CommandError
from kingdom.cli.top.tables import (
    LiveTable,
    headline,
    heartbeat_text,
    history_text,
    notes_line,
    one_line,
    printable,
    table_rows,
    text_lines,
    transcript_text,
)
from kingdom.cli.top.watcher import FALLBACK_SECONDS, CourtWatcher, TopSnapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widgets import DataTable

    from kingdom.cli.top.tables import TableRow
    from kingdom.court.home import Home
    from kingdom.court.overview import OpenQuestion

_MAX_SAID_LINES: Final = 6  # lines of the chosen soldier that are shown


class ConfirmScreen(ModalScreen[bool]):
    """Asks for yes or no."""

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
        with Vertical(classes="box"):
            yield Static(text_lines(self._question, "bold"))
            yield Static(Text("y or Enter: yes    n or Esc: no", style="dim"))

    def action_say(self, answer: bool) -> None:
        self.dismiss(answer)


class AnswerScreen(ModalScreen[str | None]):
    """Shows the question of a task, with a line for the answer."""

    AUTO_FOCUS = "Input"
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "leave", "close")]

    def __init__(self, question: OpenQuestion) -> None:
        super().__init__()
        self._asked = question

    def compose(self) -> ComposeResult:
        asked = self._asked
        with Vertical(classes="box"):
            yield Static(one_line(f"{asked.task_id} of {asked.general} asks", "dim"))
            with VerticalScroll(classes="question"):
                yield Static(text_lines(asked.question, "bold"))
            if asked.choices:
                yield Static(one_line("choices: " + " | ".join(asked.choices)))
            yield Input(placeholder="the answer; Enter sends it, Esc closes")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss(None)


class ReadingScreen(ModalScreen[None]):
    """Shows text with several pages, for example a history and a transcript. It reloads when something happens."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "back"),
        ("q", "leave", "back"),
        ("t", "turn", "history or transcript"),
    ]

    def __init__(self, pages: dict[str, Callable[[], Awaitable[Text]]], first: str) -> None:
        super().__init__()
        self._pages = pages
        self._page = first

    def compose(self) -> ComposeResult:
        yield Static(id="title")
        with VerticalScroll(id="text"):
            yield Static(Text("…", style="dim"), id="content")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#text", VerticalScroll).focus()
        self.reload()

    def reload(self) -> None:
        """Load the page again; only one load runs at a time."""
        self.run_worker(self._load(), exclusive=True, exit_on_error=False)

    def action_leave(self) -> None:
        self.dismiss(None)

    def action_turn(self) -> None:
        """Show the next page."""
        names = list(self._pages)
        self._page = names[(names.index(self._page) + 1) % len(names)]
        self.reload()

    async def _load(self) -> None:
        page = self._page
        try:
            text = await self._pages[page]()
        except CommandError as failure:
            text = text_lines(str(failure), "yellow")
        scroll = self.query_one("#text", VerticalScroll)
        at_end = scroll.scroll_offset.y >= scroll.max_scroll_y
        self.query_one("#title", Static).update(one_line(page, "bold reverse"))
        self.query_one("#content", Static).update(text)
        if at_end:
            self.call_after_refresh(scroll.scroll_end, animate=False)


class SnapshotTaken(Message):
    """The watcher has read the court."""

    def __init__(self, snapshot: TopSnapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class WatchFailed(Message):
    """The watcher could not read the court."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class TopApp(App[None]):
    """The main screen. Everything that may take time is done by the watcher."""

    TITLE = "kingdom top"
    CSS_PATH = "top.tcss"
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012 - declared so by its base
    BINDINGS: ClassVar[list[BindingType]] = [
        ("c", "ask('cancel')", "cancel"),
        ("r", "ask('retry')", "retry"),
        ("a", "answer", "answer"),
        ("q", "quit", "quit"),
    ]

    def __init__(self, home: Home, *, fallback: float = FALLBACK_SECONDS) -> None:
        super().__init__()
        self.animation_level = "none"  # movement distracts on a screen that is watched all day
        self._snapshot: TopSnapshot | None = None
        self._watcher = CourtWatcher(
            home,
            lambda snapshot: self._post(SnapshotTaken(snapshot)),
            lambda why: self._post(WatchFailed(why)),
            fallback=fallback,
        )

    def compose(self) -> ComposeResult:
        yield Static(Text("loading …", style="dim"), id="head")
        yield Static(id="notes")
        with VerticalScroll(id="body", can_focus=False):
            with Horizontal(classes="pair"):
                yield LiveTable("roles", "roles")
                yield LiveTable("queues", "queues")
            yield LiveTable("soldiers", "running soldiers")
            yield Static(id="said")
            with Horizontal(classes="pair"):
                yield LiveTable("tasks", "latest tasks")
                yield LiveTable("questions", "questions")
            yield LiveTable("journal", "journal")
        yield Footer()

    def on_mount(self) -> None:
        self._watcher.start()
        self.table("soldiers").focus()

    async def on_unmount(self) -> None:
        await self._watcher.stop()

    def table(self, name: str) -> LiveTable:
        return self.screen_stack[0].query_one(f"#{name}", LiveTable)

    # Messages of the watcher

    def _post(self, message: Message) -> None:
        if self.is_running:
            self.post_message(message)

    def on_snapshot_taken(self, message: SnapshotTaken) -> None:
        if not self.screen_stack:  # the app is closing
            return
        snapshot = self._snapshot = message.snapshot
        main = self.screen_stack[0]
        main.query_one("#head", Static).update(headline(snapshot))
        self._note(notes_line(snapshot))
        for name, rows in table_rows(snapshot).items():
            self.table(name).fill(rows)
        self._show_said()
        if isinstance(self.screen, ReadingScreen):
            self.screen.reload()

    def on_watch_failed(self, message: WatchFailed) -> None:
        self._note(one_line(f"cannot read the court, trying again: {message.why}", "bold red"))

    def _note(self, text: Text) -> None:
        if not self.screen_stack:  # the app is closing
            return
        widget = self.screen_stack[0].query_one("#notes", Static)
        widget.update(text)
        widget.display = bool(text.plain)

    def _show_said(self) -> None:
        """Show the last lines of the selected soldier."""
        if not self.screen_stack:  # the app is closing
            return
        selected = self.table("soldiers").selected
        said = [] if selected is None or self._snapshot is None else self._snapshot.said.get(selected.key, [])
        widget = self.screen_stack[0].query_one("#said", Static)
        widget.update(Text("\n").join(one_line(one, "dim") for one in said[-_MAX_SAID_LINES:]))
        widget.display = bool(said)

    # Actions of the user

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        if event.data_table.id == "soldiers":
            self._show_said()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the texts of a row, on Enter or a click."""
        row = self._selected()
        if row is None:
            return
        pages: dict[str, Callable[[], Awaitable[Text]]] = {}
        if row.soldier_id is not None or row.task_id is not None:
            task, soldier = row.task_id, row.soldier_id
            pages[f"transcript of {soldier or task}"] = lambda: self._watcher.do(
                lambda services: transcript_text(services, task, soldier)
            )
        if (traced := row.traced) is not None:
            pages[f"history of {traced}"] = lambda: self._watcher.do(lambda services: history_text(services, traced))
        if (role := row.role) is not None:
            pages[f"last heartbeat of {role}"] = lambda: self._watcher.do(
                lambda services: heartbeat_text(services, role)
            )
        if pages:
            names = list(pages)
            self.push_screen(ReadingScreen(pages, names[0] if row.soldier_id or len(names) == 1 else names[1]))
        else:
            self._say("there are no more details")

    def action_ask(self, what: str) -> None:
        """Cancel or retry the selected task, after a confirmation."""
        row = self._selected()
        if row is None or (task_id := row.task_id) is None:
            self._say(f"select a task or a soldier to {what}")
            return

        def confirmed(sure: bool | None) -> None:
            if sure:
                self._do(lambda: self._asked(task_id, what))

        self.push_screen(ConfirmScreen(f"{what} {task_id}?"), confirmed)

    def action_answer(self) -> None:
        """Answer the question of the selected task, or else the selected question."""
        asked = self._question()
        if asked is None:
            self._say("there is no question to answer")
            return
        question = asked

        def typed(text: str | None) -> None:
            if text is not None:
                self._do(lambda: self._answered(question.task_id, text))

        self.push_screen(AnswerScreen(question), typed)

    def _selected(self) -> TableRow | None:
        focused = self.focused
        return focused.selected if isinstance(focused, LiveTable) else None

    def _question(self) -> OpenQuestion | None:
        open_ones = {} if self._snapshot is None else {one.task_id: one for one in self._snapshot.overview.questions}
        for row in (self._selected(), self.table("questions").selected):
            if row is not None and row.task_id in open_ones:
                return open_ones[row.task_id]
        return None

    async def _asked(self, task_id: str, what: str) -> str:
        event_id = await self._watcher.do(lambda services: request_for_task(services, task_id, what))
        return f"requested as {event_id}"

    async def _answered(self, task_id: str, text: str) -> str:
        event_id = await self._watcher.do(lambda services: answer_question(services, task_id, text))
        return f"sent as {event_id}"

    def _do(self, action: Callable[[], Awaitable[str]]) -> None:
        async def run() -> None:
            try:
                self._say(await action())
            except CommandError as failure:
                self._say(str(failure), bad=True)

        self.run_worker(run())

    def _say(self, words: str, *, bad: bool = False) -> None:
        self.notify(printable(words), severity="error" if bad else "information", markup=False)
