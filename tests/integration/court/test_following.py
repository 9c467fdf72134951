"""``kingdom task attach``: a person watches a task at work."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from kingdom.court.commands import cancel_task
from kingdom.court.errors import CourtError
from kingdom.court.following import TaskEnd, follow_task, terminal_command
from kingdom.court.home import Home
from kingdom.court.queues import all_documents
from tests.support.living_court import SLOW, LivingCourt, living


async def task_of(court: LivingCourt, event_id: str) -> str:
    """The task that the king made of an event."""
    async with asyncio.timeout(60):
        while True:
            for stored in await all_documents(court.services, ("tasks",)):
                if stored.document.get("event_id") == event_id:
                    return stored.id
            await asyncio.sleep(0.02)


async def test_what_a_soldier_says_is_shown_while_it_works_and_the_end_is_told(tmp_path: Path) -> None:
    said: asyncio.Queue[str] = asyncio.Queue()
    async with living(tmp_path) as court, asyncio.timeout(120):
        task_id = await task_of(court, await court.emit(SLOW))
        following = asyncio.create_task(follow_task(court.services, task_id, said.put_nowait))
        lines = []
        while "This takes long" not in "".join(lines):
            lines.append(await said.get())
        assert not following.done(), "it is still at work"
        assert any(line.startswith("# soldier-") and line.endswith(", command") for line in lines)
        await cancel_task(court.services, task_id, "ann")
        assert (await following).status == "cancelled"


async def test_a_question_ends_the_watching(tmp_path: Path) -> None:
    said: list[str] = []
    async with living(tmp_path) as court, asyncio.timeout(120):
        task_id = await task_of(court, await court.emit("gen-release", version="v2"))
        end = await follow_task(court.services, task_id, said.append)
    assert (end.status, end.summary) == ("needs_human", "v2 changes the price table. Release it?")
    assert "Comparing v2 with the last release" in said


async def test_a_failure_is_told_with_its_reason_also_afterwards(tmp_path: Path) -> None:
    async with living(tmp_path) as court, asyncio.timeout(120):
        task_id = await task_of(court, await court.emit("gen-broken"))
        for _ in range(2):
            said: list[str] = []
            end = await follow_task(court.services, task_id, said.append)
            assert (end.status, end.summary) == ("failed", "the build is red")
            assert "I try" in said
        with pytest.raises(CourtError, match="kingdom task ls"):
            await follow_task(court.services, "task-20260101-999", print)


async def test_a_soldier_in_tmux_is_shown_in_its_terminal(tmp_path: Path) -> None:
    async with living(tmp_path) as court, asyncio.timeout(120):
        task_id = await task_of(court, await court.emit(SLOW))
        home = Home(tmp_path)
        while not (found := list(home.soldiers.glob("*/identity.json"))):
            await asyncio.sleep(0.02)
        assert terminal_command(home, task_id) is None, "it runs in a process"
        spec = found[0].parent / "spec.json"
        spec.write_text(spec.read_text().replace("{", '{"show": true, ', 1))
        assert terminal_command(home, task_id) == [
            *("tmux", "-L", "kingdom", "attach-session", "-r", "-t"),
            f"={found[0].parent.name}",
        ]
        await cancel_task(court.services, task_id, "ann")
        await follow_task(court.services, task_id, lambda _: None)
        assert terminal_command(home, task_id) is None, "it has ended"


def test_the_command_opens_the_terminal_only_for_a_person_at_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kingdom.cli.court import tasks

    opened: list[list[str]] = []
    monkeypatch.setattr(tasks, "with_court", lambda *_, **__: TaskEnd("success", ""))
    monkeypatch.setattr("kingdom.court.following.terminal_command", lambda *_: [sys.executable, "-V"])
    monkeypatch.setattr(tasks, "find_home", lambda _: Home(tmp_path))
    monkeypatch.setattr(os, "execvp", lambda _, argv: opened.append(argv))
    assert tasks.attach.callback is not None
    for tty, plain in ((True, False), (True, True), (False, False)):
        monkeypatch.setattr(sys.stdout, "isatty", lambda tty=tty: tty)
        tasks.attach.callback("task-20260207-001", plain, None)
    assert opened == [[sys.executable, "-V"]]
