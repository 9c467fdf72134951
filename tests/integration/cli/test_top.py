"""``kingdom top`` on a real home, with its keys pressed by a pilot instead of a person."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from kingdom.cli.top import watcher
from kingdom.cli.top.app import AnswerScreen, ConfirmScreen, ReadingScreen, TopApp
from kingdom.court.queues import declare_queues, open_queues
from tests.support.seen_court import ASKING, FAILED, HOSTILE, RUNNING, SOLDIER, WAITING, SeenCourt

FOREVER = 3600.0  # seconds between two looks when nobody wakes the lookout


class Screen:
    """What a person would see, and the keys they would press."""

    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app = app
        self._pilot = pilot

    async def until(self, condition: Callable[[], Any], what: str) -> None:
        end = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < end, f"waited in vain for: {what}\n{self.everything()}"
            await self._pilot.pause(0.01)

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def resize(self, width: int, height: int) -> None:
        await self._pilot.resize_terminal(width, height)
        await self._pilot.pause()

    async def choose(self, table: str, key: str) -> None:
        """Have the cursor on a row."""
        await self.until(lambda: key in self.keys(table), f"{key} among the {table}")
        self.app.table(table).focus()
        self.app.table(table).move_cursor(row=self.keys(table).index(key))
        await self.until(lambda: self.app.focused is self.app.table(table), "the focus")

    def keys(self, table: str) -> list[str]:
        return [str(key.value) for key in self.app.table(table).rows]

    def row(self, table: str, key: str) -> str:
        return " ".join(cell.plain for cell in self.app.table(table).get_row(key))

    def text(self, widget: str) -> str:
        found = self.app.screen.query_one(widget, Static)
        return str(found.content)

    def everything(self) -> str:
        """All that stands in the tables and lines of the main screen."""
        main = self.app.screen_stack[0]
        words = [str(main.query_one(f"#{name}", Static).content) for name in ("head", "notes", "said")]
        for name in ("roles", "queues", "soldiers", "tasks", "questions", "journal"):
            words += [self.row(name, key) for key in self.keys(name)]
        return "\n".join(words)

    def notices(self) -> str:
        return "\n".join(notice.message for notice in self.app._notifications)


@pytest.fixture
async def court(tmp_path: Path) -> SeenCourt:
    court = SeenCourt(tmp_path)
    await court.fill()
    return court


@contextlib.asynccontextmanager
async def shown(court: SeenCourt, size: tuple[int, int] = (140, 50)) -> AsyncIterator[Screen]:
    app = TopApp(court.home, fallback=FOREVER)
    async with app.run_test(size=size, notifications=True) as pilot:
        screen = Screen(app, pilot)
        yield screen


async def test_the_whole_court_is_on_one_screen(tmp_path: Path) -> None:
    court, before = SeenCourt(tmp_path), time.time()
    await court.fill()
    async with shown(court) as screen:
        await screen.until(lambda: SOLDIER in screen.keys("soldiers"), "the soldier")
        await screen.until(lambda: screen.keys("journal"), "the journal")
        seen = screen.everything()
        assert "not up" in seen
        assert "health green" in seen
        assert "daily budget $2.50 of $10.00" in seen
        assert screen.row("roles", "king").startswith("king ")
        assert "gen-pr" in screen.keys("roles")
        assert screen.row("queues", "tasks").split()[:4] == ["tasks", "1", "1", "0"]
        shown_age = re.search(r" (\d+)m (\d+)s reading the change$", screen.row("soldiers", SOLDIER))
        assert shown_age
        age = int(shown_age[1]) * 60 + int(shown_age[2])
        assert 90 <= age <= 90 + time.time() - before + 1  # it is as old as the look at it
        assert "reading the change" in screen.text("#said")
        assert "Which one? a | b" in screen.row("questions", ASKING)
        assert screen.keys("tasks") == [FAILED, ASKING, RUNNING, WAITING]
        assert "failed gen-pr github.pr.opened" in screen.row("tasks", FAILED)
        assert "no such file" in screen.row("tasks", FAILED)
        newest = screen.keys("journal")[0]
        assert "task.failed gen-pr" in screen.row("journal", newest)


async def test_it_is_woken_by_the_journal_the_queues_and_what_soldiers_say(court: SeenCourt) -> None:
    async with shown(court) as screen:
        await screen.until(lambda: screen.keys("journal"), "the first look")
        court.emit("task.started", "gen-pr", task_id=WAITING)
        await screen.until(lambda: "in progress" in screen.row("tasks", WAITING), "the line of the journal")
        court.say("writing the review")
        await screen.until(lambda: "writing the review" in screen.row("soldiers", SOLDIER), "what the soldier says")
        async with open_queues(court.home.queue_url) as bus:
            await declare_queues(bus)
            await court.put(bus, "task-20260207-009")
        await screen.until(lambda: screen.row("queues", "tasks").split()[1] == "2", "the new task")


async def test_lines_that_were_there_and_lines_that_come_are_each_shown_once(court: SeenCourt) -> None:
    for number in range(300):
        court.emit("task.started", "gen-pr", task_id=f"task-20260208-{number:03}")
    async with shown(court) as screen:
        for number in range(300, 310):
            court.emit("task.started", "gen-pr", task_id=f"task-20260208-{number:03}")
        await screen.until(
            lambda: screen.keys("journal") and "task-20260208-309" in screen.row("journal", screen.keys("journal")[0]),
            "the last line",
        )
        said = [screen.row("journal", key).split("task_id=")[1] for key in screen.keys("journal")]
        assert said == [f"task-20260208-{number:03}" for number in range(309, 109, -1)]


async def test_tab_and_arrows_choose(court: SeenCourt) -> None:
    async with shown(court) as screen:
        await screen.until(lambda: len(screen.keys("tasks")) == 4, "the tasks")
        await screen.press("tab", "down", "down")
        assert screen.app.focused is screen.app.table("tasks")
        assert screen.app.table("tasks").selected.key == screen.keys("tasks")[2]
        await screen.press("up", "shift+tab")
        assert screen.app.focused is screen.app.table("soldiers")
        assert screen.app.table("tasks").selected.key == screen.keys("tasks")[1]


async def test_cancel_asks_back_and_becomes_an_event(court: SeenCourt) -> None:
    async with shown(court) as screen:
        await screen.choose("soldiers", SOLDIER)
        await screen.press("c")
        assert isinstance(screen.app.screen, ConfirmScreen)
        await screen.press("n")
        await screen.press("c", "y")
        await screen.until(lambda: "requested as" in screen.notices(), "that it was passed on")
        (event,) = court.events("console.task_cancel")
        assert event["payload"]["task_id"] == RUNNING


async def test_retry_of_a_failed_task_becomes_an_event(court: SeenCourt) -> None:
    async with shown(court) as screen:
        await screen.choose("tasks", FAILED)
        await screen.press("r", "enter")
        await screen.until(lambda: court.events("console.task_retry"), "the event")
        (event,) = court.events("console.task_retry")
        assert event["payload"]["task_id"] == FAILED


@pytest.mark.parametrize(("key", "task"), [("c", FAILED), ("r", WAITING)])
async def test_what_makes_no_sense_is_refused_in_words(court: SeenCourt, key: str, task: str) -> None:
    async with shown(court) as screen:
        await screen.choose("tasks", task)
        await screen.press(key, "y")
        await screen.until(lambda: task in screen.notices(), "why not")
        assert not [*court.events("console.task_cancel"), *court.events("console.task_retry")]
        await screen.choose("queues", "tasks")
        await screen.press(key)
        await screen.until(lambda: "select a task" in screen.notices(), "what to choose")


async def test_a_question_is_answered_in_a_box(court: SeenCourt) -> None:
    async with shown(court) as screen:
        await screen.choose("questions", ASKING)
        await screen.press("a", "escape", "a")
        assert isinstance(screen.app.screen, AnswerScreen)
        # Nothing is no answer; letters that are keys elsewhere are text here.
        await screen.press("enter", *"cq", "space", *"ra", "enter")
        await screen.until(lambda: court.events("console.human_response"), "the event")
        (event,) = court.events("console.human_response")
        assert event["payload"]["task_id"] == ASKING
        assert event["payload"]["text"] == "cq ra"
        await screen.until(lambda: not screen.keys("questions"), "the question to go")
        await screen.press("a")
        await screen.until(lambda: "no question to answer" in screen.notices(), "that nothing is left")


async def test_enter_tells_the_story_the_transcript_and_the_last_sign_of_life(court: SeenCourt) -> None:
    async with shown(court) as screen:
        await screen.choose("tasks", RUNNING)
        await screen.press("enter")
        await screen.until(lambda: "task.started" in screen.text("#content"), "the story")
        await screen.press("t")
        await screen.until(lambda: "reading the change" in screen.text("#content"), "the transcript")
        court.say("still at it")
        await screen.until(lambda: "still at it" in screen.text("#content"), "what is said meanwhile")
        await screen.press("escape")
        await screen.choose("soldiers", SOLDIER)
        await screen.press("enter")
        await screen.until(lambda: "still at it" in screen.text("#content"), "the transcript at once")
        await screen.press("q")
        await screen.choose("tasks", WAITING)
        await screen.press("enter", "t")
        await screen.until(lambda: "no soldier has worked on it" in screen.text("#content"), "that there is none")
        await screen.press("escape")
        await screen.choose("roles", "king")
        await screen.press("enter")
        await screen.until(lambda: '"asking"' in screen.text("#content"), "the heartbeat")
        assert isinstance(screen.app.screen, ReadingScreen)


async def test_text_from_outside_neither_steers_the_terminal_nor_is_it_markup(tmp_path: Path) -> None:
    court = SeenCourt(tmp_path)
    await court.fill(question=HOSTILE)
    court.say(HOSTILE)
    court.emit("task.failed", "gen-pr", task_id=FAILED, error=HOSTILE.replace("\ud800", ""), retry_count=2)
    async with shown(court) as screen:
        await screen.until(lambda: screen.keys("questions"), "the question")
        await screen.until(lambda: "end" in screen.row("soldiers", SOLDIER), "the line")
        await screen.until(lambda: "end" in screen.row("tasks", FAILED), "the error")
        seen = screen.everything()
        assert seen.count("[red]no[/red]") >= 4
        assert not set(seen) & set("\x1b\x07\u202e\ud800")
        await screen.choose("questions", ASKING)
        await screen.press("a")
        asked = " ".join(str(widget.content) for widget in screen.app.screen.query(Static))
        assert "[red]no[/red]" in asked
        assert not set(asked) & set("\x1b\x07\u202e\ud800")
        assert screen.app.screen.query_one(Input).has_focus
        screen.app.export_screenshot()  # everything can be drawn


async def test_the_chosen_row_stays_chosen_while_rows_come_and_go(court: SeenCourt) -> None:
    async with shown(court) as screen:
        await screen.choose("tasks", RUNNING)
        court.emit("task.started", "gen-pr", task_id=WAITING)
        await screen.until(lambda: screen.keys("tasks")[0] == WAITING, "another order")
        assert screen.app.table("tasks").selected.key == RUNNING


async def test_it_follows_the_size_of_the_terminal(court: SeenCourt) -> None:
    async with shown(court) as screen:
        await screen.until(lambda: screen.keys("soldiers"), "the first look")
        roles, queues = screen.app.table("roles"), screen.app.table("queues")
        assert roles.region.y == queues.region.y, "side by side"
        await screen.resize(60, 20)
        await screen.until(lambda: roles.region.y < queues.region.y, "one below the other")
        assert roles.region.width <= 60
        await screen.resize(10, 4)
        await screen.resize(200, 60)
        await screen.until(lambda: roles.region.y == queues.region.y, "side by side again")


async def test_the_screen_goes_on_while_the_lookout_hangs(court: SeenCourt, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, release = threading.Event(), threading.Event()

    async def stuck(*given: Any) -> Any:
        hangs.set()
        release.wait(60)
        raise OSError("the disk is gone")

    monkeypatch.setattr(watcher, "read_overview", stuck)
    async with shown(court) as screen:
        await asyncio.to_thread(hangs.wait, 30)
        before = screen.app.focused
        await screen.press("tab")
        assert screen.app.focused is not before
        release.set()
        await screen.until(lambda: "the disk is gone" in screen.text("#notes"), "why there is nothing")


async def test_a_court_that_cannot_be_opened_is_told_and_tried_again(court: SeenCourt) -> None:
    config = court.home.config / "system.yaml"
    sound = config.read_text()
    config.write_text("nonsense: [")
    app = TopApp(court.home, fallback=0.05)
    async with app.run_test(size=(140, 50)) as pilot:
        screen = Screen(app, pilot)
        await screen.until(lambda: "system.yaml" in screen.text("#notes"), "what is wrong")
        config.write_text(sound)
        await screen.until(lambda: screen.keys("soldiers"), "the first look")
        assert "system.yaml" not in screen.text("#notes")
