"""A king who dies between any two things he does: his successor ends up exactly where he would have.

`make walks` tries every point, `make test` some: between any two changes of a queue or writes of a state file, in the
middle of a line of the book, and once more while the successor is finding his way.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.files import write_json
from kingdom.court.cancellations import cancel_requests, drop_request
from kingdom.court.king.king import King
from kingdom.court.pull_requests import OpenedPullRequests
from tests.support.kings import NOON, Realm, looks
from tests.support.stopping import StoppableBus, Stopped, Stopper, stoppable_files

Scene = Callable[["Play"], Awaitable[None]]


class Play:
    """A realm in which the king may be stopped; what others do to it is done once, and in any case."""

    def __init__(self, realm: Realm, stopper: Stopper) -> None:
        self.realm = realm
        self._stopper = stopper
        self._king: King | None = None
        self._undo: Callable[[], None] = lambda: None

    async def reign(self) -> None:
        """The king looks until there is nothing to do. If he is stopped, the next one does."""
        with stoppable_files(self._stopper):
            while True:
                try:
                    if self._king is None:
                        self._king = self.realm.king(bus=StoppableBus(self.realm.bus, self._stopper))
                        self._undo = self._king.subscribe(lambda: None)
                        await self._king.start()
                    await looks(self._king)
                    break
                except Stopped:
                    assert self._king is not None
                    self._undo()
                    await self._king.stop()
                    self._king = None

    async def end(self) -> dict[str, Any]:
        """How everything lies in the end."""
        await self.reign()
        assert self._king is not None
        assert self._king.report()["active"] == 0
        self._undo()
        await self._king.stop()
        realm = self.realm
        tasks = [
            (_plain(task.event_id), task.type, task.status, task.payload.get("answer"), task.payload.get("slot"), state)
            for state in ("pending", "in_progress", "completed")
            for task in realm.tasks(state)
        ]
        messages = [(message.type, message.content.split("\n")[0], message.urgency) for message in realm.messages()]
        sent = realm.home.role("king") / "schedule-sent.json"
        assert {message.context["task_id"] for message in realm.messages()} <= {
            task.id for task in realm.tasks("completed")
        }
        return {
            "events": {
                state: {_plain(document["id"]): document["status"] for document in realm.documents("events", state)}
                for state in ("pending", "dispatched", "completed")
            },
            "tasks": Counter(tasks),
            "messages": Counter(messages),
            "schedules": json.loads(sent.read_text()) if sent.exists() else None,
            "journal": {line for line, _ in realm.journal()},
        }


def _plain(event_id: str) -> str:
    """An id without the number of the task in it: a number that was drawn before the stop is not used again."""
    return re.sub(r"task-\d+-\d+", "task", event_id)


async def an_event_is_done(play: Play) -> None:
    for number in (1, 2):
        await play.realm.event(number)
    await play.realm.event("nobody", "jira.ticket.created")
    await play.reign()
    await play.realm.work(limit=1)
    await play.reign()
    await play.realm.work(status="failed", error="no")


async def a_question_is_answered_twice(play: Play) -> None:
    await play.realm.event()
    await play.reign()
    (task,) = await play.realm.work(status="needs_human", question={"text": "red or blue?"})
    await play.reign()
    await play.realm.answer(task.id, "red", 1)
    await play.realm.answer(task.id, "blue", 2)
    await play.reign()
    await play.realm.work()


async def nobody_answers(play: Play) -> None:
    await play.realm.event(1)
    await play.realm.event(2)
    await play.reign()
    await play.realm.work(status="needs_human", question={"text": "red?", "default": "blue"}, limit=1)
    await play.realm.work(status="needs_human", question={"text": "red?"}, limit=1)
    await play.reign()
    play.realm.clock.now += 25 * 3600
    await play.reign()
    await play.realm.work()
    await play.reign()
    asked = play.realm.tasks("completed")[1]
    await play.realm.answer(asked.id, "late")
    await play.reign()
    await play.realm.work()


async def a_schedule_comes_due(play: Play) -> None:
    play.realm.install("gen-briefing", schedules=[{"name": "noon", "cron": "1 12 * * *"}])
    await play.reign()
    play.realm.clock.now = NOON + 60
    await play.reign()
    await play.realm.work("gen-briefing")


async def a_waiting_task_is_cancelled(play: Play) -> None:
    await play.realm.event()
    await play.reign()
    (task,) = play.realm.tasks()
    await play.realm.command("cancel", task.id)
    await play.reign()


async def a_running_task_is_cancelled(play: Play) -> None:
    await play.realm.event()
    await play.reign()
    (delivery,) = await play.realm.bus.claim("tasks", worker="gen-pr", types=["gen-pr"])
    await play.realm.command("cancel", delivery.event_id)
    await play.reign()
    assert cancel_requests(play.realm.home, "gen-pr") == {delivery.event_id: ("cancelled by ann", "")}
    drop_request(play.realm.home, "gen-pr", delivery.event_id)
    play.realm.result(delivery.event_id, status="cancelled", error="cancelled by ann")
    await play.realm.bus.settle(done=[(delivery, "cancelled")])


async def a_killed_run_and_a_second_try(play: Play) -> None:
    await play.realm.event()
    await play.reign()
    await play.realm.work(status="killed")
    await play.reign()
    await play.realm.work(status="failed", error="no")
    await play.reign()
    last = max(play.realm.tasks("completed"), key=lambda task: task.id)
    await play.realm.command("retry", last.id)
    await play.reign()
    await play.realm.work()


async def a_review_comes_back(play: Play) -> None:
    play.realm.install("gen-fix", subscribes=["test.asked", {"type": "github.pr.commented", "own": True}])
    await play.realm.event(1, "test.asked")
    await play.reign()
    url = "https://github.example/acme/app/pull/12"
    opened = {"pull_requests": [{"url": url, "branch": "kingdom/x"}], "work_id": "task-20260207-001"}
    await play.realm.work("gen-fix", **opened)
    await play.reign()
    for number in (2, 3):
        payload = {"url": url, "number": 12, "comment": {"body": f"{number}"}}
        await play.realm.event(number, "github.pr.commented", payload=payload, repo="acme/app")
    await play.reign()
    (task,) = await play.realm.work("gen-fix", **opened)
    assert task.document()["follow_up"]["branch"] == "kingdom/x"
    assert [one["comment"]["body"] for one in task.payload["further"]] == ["3"]


async def a_comment_answers(play: Play) -> None:
    play.realm.install("gen-fix", subscribes=["github.issue.*"])
    about = {"repo": "acme/app", "payload": {"number": 5}}
    await play.realm.event(1, "github.issue.assigned", **about)
    await play.reign()
    question = {"question": {"text": "red or blue?"}, "asked_at": "2026-02-07T12:00:00Z"}
    await play.realm.work("gen-fix", status="needs_human", **question)
    await play.reign()
    for number, text in ((2, "red"), (3, "no, blue")):
        about["payload"] = {"number": 5, "actor": "ann", "comment": {"body": text}}
        await play.realm.event(number, "github.issue.mentioned", **about)
    await play.reign()
    (task,) = await play.realm.work("gen-fix")
    assert task.payload["answer"] == "red"
    await play.reign()
    (task,) = await play.realm.work("gen-fix")
    assert (task.type, task.event_id) == ("github.issue.mentioned", "evt-github-3")


async def a_mention_waits_for_the_pull_request(play: Play) -> None:
    play.realm.install("gen-fix", subscribes=["github.issue.*"])
    about: dict[str, Any] = {"repo": "acme/app", "payload": {"number": 5}}
    for number, kind in ((1, "assigned"), (2, "mentioned")):
        await play.realm.event(number, f"github.issue.{kind}", **about)
        await play.reign()
    url = "https://github.example/acme/app/pull/12"
    opened = {"url": url, "branch": "kingdom/acme-app-5", "opened_for": "acme/app#5"}
    (first,) = await play.realm.work("gen-fix", pull_requests=[opened], work_id="task-20260207-001")
    await play.reign()
    (task,) = await play.realm.work("gen-fix")
    assert (first.event_id, task.event_id) == ("evt-github-1", "evt-github-2")
    assert task.document()["follow_up"]["task_id"] == first.id


async def an_issue_is_closed(play: Play) -> None:
    play.realm.install("gen-fix", subscribes=["github.issue.assigned"], cancel_on=["github.issue.closed"])
    for number, kind, issue in ((1, "assigned", 5), (2, "assigned", 5), (3, "assigned", 6), (4, "closed", 5)):
        about: dict[str, Any] = {"repo": "acme/app", "payload": {"number": issue, "actor": "ann"}}
        await play.realm.event(number, f"github.issue.{kind}", **about)
        await play.reign()
    (task,) = await play.realm.work("gen-fix")
    assert task.event_id == "evt-github-3"


async def an_issue_is_closed_while_its_task_runs(play: Play) -> None:
    play.realm.install("gen-fix", subscribes=["github.issue.assigned"], cancel_on=["github.issue.closed"])
    about: dict[str, Any] = {"repo": "acme/app", "payload": {"number": 5, "actor": "ann"}}
    await play.realm.event(1, "github.issue.assigned", **about)
    await play.reign()
    (delivery,) = await play.realm.bus.claim("tasks", worker="gen-fix", lease=60)
    await play.realm.event(2, "github.issue.closed", **about)
    await play.reign()
    assert cancel_requests(play.realm.home, "gen-fix") == {delivery.event_id: ("acme/app#5 was closed by ann", None)}
    drop_request(play.realm.home, "gen-fix", delivery.event_id)
    play.realm.result(delivery.event_id, "gen-fix", status="cancelled", error="acme/app#5 was closed by ann")
    await play.realm.bus.settle(done=[(delivery, "cancelled")])


async def a_task_is_landed_later(play: Play) -> None:
    await play.realm.event(1, "github.pr.opened", repo="acme/app", payload={"number": 5})
    await play.reign()
    (task,) = await play.realm.work(not_landed="the remote refused it")
    await play.reign()
    url = "https://github.example/acme/app/pull/12"
    named = {"url": url, "branch": "kingdom/x", "opened_for": "acme/app#5"}
    note = {"task_id": task.id, "summary": "Mended.", "branch": "kingdom/x", "links": [url], "work_id": task.id}
    for _ in range(2):  # a report of another machine may be taken in twice
        play.realm.home.landings.mkdir(exist_ok=True)
        write_json(play.realm.home.landing(task.id), {**note, "pull_requests": [named]})
        await play.reign()
        assert not play.realm.home.landing(task.id).exists()
    result = json.loads(play.realm.home.result(task.id).read_text())
    assert (result["links"], result["summary"], result.get("not_landed")) == ([url], "Mended.", None)
    opened = OpenedPullRequests(play.realm.home).find(url)
    assert opened is not None
    assert opened.opened_for == "acme/app#5"
    said = [message for message in play.realm.messages() if url in message.content]
    assert [(one.type, one.content) for one in said] == [("thread_update", f"gen-pr landed acme/app#5\n{url}")]
    assert said[0].context["task_id"] == task.id


SCENES: list[Scene] = [
    a_task_is_landed_later,
    an_event_is_done,
    a_question_is_answered_twice,
    nobody_answers,
    a_schedule_comes_due,
    a_waiting_task_is_cancelled,
    a_running_task_is_cancelled,
    a_killed_run_and_a_second_try,
    a_review_comes_back,
    a_comment_answers,
    a_mention_waits_for_the_pull_request,
    an_issue_is_closed,
    an_issue_is_closed_while_its_task_runs,
]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is one: hundreds of reigns are played, and each waits for the disk often."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if os.access(shared, os.W_OK) else tmp_path) as found:
        yield Path(found)


async def perform(root: Path, scene: Scene, stopper: Stopper) -> dict[str, Any]:
    realm = Realm(root)
    realm.install()
    async with realm.open():
        play = Play(realm, stopper)
        await scene(play)
        return await play.end()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_wherever_the_king_is_stopped_all_ends_as_if_he_had_not_been(
    scene: Scene, folder: Path, stride: int
) -> None:
    whole = Stopper()
    expected = await perform(folder / "whole", scene, whole)
    assert not expected["events"]["pending"], expected
    assert not expected["events"]["dispatched"], expected
    assert whole.passed > 10
    for point in range(1, whole.passed + 1, stride):
        ended = await perform(folder / f"{point}", scene, Stopper(point, point + 3))
        assert ended == expected, f"stopped {whole.trail[point - 1]} (point {point})"


async def test_a_stop_loses_no_line_of_the_book_that_was_finished(tmp_path: Path) -> None:
    realm = Realm(tmp_path)
    realm.install()
    async with realm.open():
        king = realm.king()
        await king.start()
        await realm.event()
        await king.tick()
        await king.stop()
        with (realm.home.role("king") / ".book").open("ab") as file:
            file.write(b'{"cases": {"evt-git')
        successor = realm.king()
        await successor.start()
        assert successor.report()["active"] == 1
        with contextlib.suppress(StopAsyncIteration):
            await successor.stop()
