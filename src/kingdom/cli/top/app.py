"""The screen of ``kingdom top``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.app import App
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import Footer, Static

from kingdom.cli.court.answer import answer_question
from kingdom.cli.court.task import ask_of_task
from kingdom.cli.output import Failure
from kingdom.cli.top.lookout import FALLBACK, Lookout, Snapshot
from kingdom.cli.top.plain import clean, line
from kingdom.cli.top.reading import heartbeat, story, transcript
from kingdom.cli.top.rows import head, notes, tables
from kingdom.cli.top.screens import Answer, Confirm, Reading
from kingdom.cli.top.table import LiveTable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widgets import DataTable

    from kingdom.cli.top.rows import Row
    from kingdom.court.home import Home
    from kingdom.court.overview import QuestionView

_SAID: Final = 6  # lines of the chosen soldier that are shown


class Seen(Message):
    """The lookout has looked."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot


class Trouble(Message):
    """The lookout could not look."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


class TopApp(App[None]):
    """The whole screen. Everything that may take time is done by the lookout."""

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

    def __init__(self, home: Home, *, fallback: float = FALLBACK) -> None:
        super().__init__()
        self.animation_level = "none"  # what moves by itself on a screen that is looked at from afar only disturbs
        self._snapshot: Snapshot | None = None
        self._lookout = Lookout(
            home,
            lambda snapshot: self._post(Seen(snapshot)),
            lambda why: self._post(Trouble(why)),
            fallback=fallback,
        )

    def compose(self) -> ComposeResult:
        """Top to bottom: how it is, who works, what is asked, what happened."""
        yield Static(Text("looking …", style="dim"), id="head")
        yield Static(id="notes")
        with VerticalScroll(id="body", can_focus=False):
            with Horizontal(classes="pair"):
                yield LiveTable("roles", "roles")
                yield LiveTable("queues", "queues")
            yield LiveTable("soldiers", "soldiers at work")
            yield Static(id="said")
            with Horizontal(classes="pair"):
                yield LiveTable("tasks", "latest tasks")
                yield LiveTable("questions", "questions")
            yield LiveTable("journal", "journal")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        self._lookout.start()
        self.table("soldiers").focus()

    async def on_unmount(self) -> None:
        """Stop looking."""
        await self._lookout.stop()

    def table(self, name: str) -> LiveTable:
        """One of the tables."""
        return self.screen_stack[0].query_one(f"#{name}", LiveTable)

    # ── what the lookout says ─────────────────────────────────────────────────────────────────────────────────────

    def _post(self, message: Message) -> None:
        if self.is_running:
            self.post_message(message)

    def on_seen(self, message: Seen) -> None:
        """Show what was seen."""
        snapshot = self._snapshot = message.snapshot
        main = self.screen_stack[0]
        main.query_one("#head", Static).update(head(snapshot))
        self._note(notes(snapshot))
        for name, rows in tables(snapshot).items():
            self.table(name).fill(rows)
        self._show_said()
        if isinstance(self.screen, Reading):
            self.screen.reload()

    def on_trouble(self, message: Trouble) -> None:
        """Say why nothing new is shown."""
        self._note(line(f"cannot look at the court, trying again: {message.why}", "bold red"))

    def _note(self, text: Text) -> None:
        widget = self.screen_stack[0].query_one("#notes", Static)
        widget.update(text)
        widget.display = bool(text.plain)

    def _show_said(self) -> None:
        """The last lines of the chosen soldier."""
        if not self.screen_stack:  # it is being closed
            return
        chosen = self.table("soldiers").chosen
        said = [] if chosen is None or self._snapshot is None else self._snapshot.said.get(chosen.key, [])
        widget = self.screen_stack[0].query_one("#said", Static)
        widget.update(Text("\n").join(line(one, "dim") for one in said[-_SAID:]))
        widget.display = bool(said)

    # ── what the person wants ─────────────────────────────────────────────────────────────────────────────────────

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another row was chosen."""
        if event.data_table.id == "soldiers":
            self._show_said()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Enter, or a click, on a row."""
        row = self._chosen()
        if row is None:
            return
        pages: dict[str, Callable[[], Awaitable[Text]]] = {}
        if row.soldier_id is not None or row.task_id is not None:
            task, soldier = row.task_id, row.soldier_id
            pages[f"transcript of {soldier or task}"] = lambda: self._lookout.do(
                lambda services: transcript(services, task, soldier)
            )
        if (traced := row.traced) is not None:
            pages[f"story of {traced}"] = lambda: self._lookout.do(lambda services: story(services, traced))
        if (role := row.role) is not None:
            pages[f"last sign of life of {role}"] = lambda: self._lookout.do(lambda services: heartbeat(services, role))
        if pages:
            names = list(pages)
            self.push_screen(Reading(pages, names[0] if row.soldier_id or len(names) == 1 else names[1]))
        else:
            self._say("there is nothing more to tell about it")

    def action_ask(self, what: str) -> None:
        """Cancel or retry the chosen task, once it is confirmed."""
        row = self._chosen()
        if row is None or (task_id := row.task_id) is None:
            self._say(f"choose a task or a soldier to {what}")
            return

        def confirmed(sure: bool | None) -> None:
            if sure:
                self._do(lambda: self._asked(task_id, what))

        self.push_screen(Confirm(f"{what} {task_id}?"), confirmed)

    def action_answer(self) -> None:
        """Answer the question of the chosen task; of the chosen question when that one asks nothing."""
        asked = self._question()
        if asked is None:
            self._say("nobody asks anything")
            return
        question = asked

        def typed(text: str | None) -> None:
            if text is not None:
                self._do(lambda: self._answered(question.task_id, text))

        self.push_screen(Answer(question), typed)

    def _chosen(self) -> Row | None:
        focused = self.focused
        return focused.chosen if isinstance(focused, LiveTable) else None

    def _question(self) -> QuestionView | None:
        open_ones = {} if self._snapshot is None else {one.task_id: one for one in self._snapshot.overview.questions}
        for row in (self._chosen(), self.table("questions").chosen):
            if row is not None and row.task_id in open_ones:
                return open_ones[row.task_id]
        return None

    async def _asked(self, task_id: str, what: str) -> str:
        event_id = await self._lookout.do(lambda services: ask_of_task(services, task_id, what))
        return f"asked for as {event_id}"

    async def _answered(self, task_id: str, text: str) -> str:
        event_id = await self._lookout.do(lambda services: answer_question(services, task_id, text))
        return f"passed on as {event_id}"

    def _do(self, action: Callable[[], Awaitable[str]]) -> None:
        async def run() -> None:
            try:
                self._say(await action())
            except Failure as failure:
                self._say(str(failure), bad=True)

        self.run_worker(run())

    def _say(self, words: str, *, bad: bool = False) -> None:
        self.notify(clean(words), severity="error" if bad else "information", markup=False)
