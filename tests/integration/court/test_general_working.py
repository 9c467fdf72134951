"""A general at work: tasks come in, soldiers do them, results come out. Real files, a real queue, fake soldiers."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.errors import EngineNotInstalled
from kingdom.agents.port import Order, Outcome, Tokens
from kingdom.base.files import write_json
from kingdom.court.cancellations import cancel_requests, request_cancel
from kingdom.court.config import SystemConfig
from kingdom.court.general.context import GeneralContext, GeneralDeps, TaskProgressStore
from kingdom.court.general.task_run import TaskParked, TaskRun
from kingdom.court.loop import Services
from kingdom.court.packages.installed import GeneralPackage as Package
from kingdom.court.queues import TASKS
from tests.support.fake_agents import FakeAgents, success
from tests.support.generals import NOW, Post, posted


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with posted(tmp_path) as post:
        yield post


def fake(post: Post) -> FakeAgents:
    assert isinstance(post.agents, FakeAgents)
    return post.agents


def failing(*errors: str) -> Any:
    """A soldier that fails with each of the errors, then succeeds."""

    def script(order: Order, number: int) -> Outcome:
        if number <= len(errors):
            return Outcome("failed", error=errors[number - 1], tokens=Tokens(input=10), cost_usd=0.5)
        return replace(success(), tokens=Tokens(input=3, output=4), cost_usd=0.25)

    return script


async def test_a_task_is_done_and_its_result_reported(post: Post) -> None:
    task = await post.task(payload={"title": "Fix the door"})
    (result,) = await post.finish(task)
    (order,) = fake(post).orders
    assert result["status"] == "success"
    assert result["summary"] == "Done."
    assert result["general"] == "gen-test"
    assert result["soldier_id"] == order.run_id
    assert result["session_id"] == "session-1"
    assert post.status(task) == "completed"
    assert post.home.soldier_id(task.id).read_text().strip() == order.run_id
    assert post.home.session_id(task.id).read_text().strip() == "session-1"
    assert post.home.prompt(task.id).read_text() == order.prompt
    assert "Fix the door" in order.prompt
    assert order.result_path == post.home.handover(task.id)
    assert [kind for kind, _ in post.told()] == [
        "task.started", "soldier.spawned", "soldier.completed", "task.completed",
    ]  # fmt: skip
    (line,) = (post.home.logs / "tasks.log").read_text().splitlines()
    assert task.id in line
    assert " success " in line
    assert list(post.home.role("gen-test").glob("campaigns/*")) == []


async def test_the_order_follows_the_manifest(tmp_path: Path) -> None:
    manifest = {
        "engine": {"name": "command", "model": "m-1", "options": {"argv": ["true"]}},
        "timeout_seconds": 70.0,
        "timers": {"first_output": 5.0, "silence": 6.0},
        "caps": {"turns": 7, "tokens": 8, "cost_usd": 9.0},
        "profile": "read",
        "env": ["PASSED_ON", "NOT_SET"],
    }
    async with posted(tmp_path, **manifest) as post:
        task = await post.task()
        general = post.general(environment={"PASSED_ON": "yes", "SECRET": "no"})
        await post.finish(task, general=general)
        (order,) = fake(post).orders
    assert (order.engine, order.model, order.options) == ("command", "m-1", {"argv": ["true"]})
    assert (order.timers.total, order.timers.first_output, order.timers.silence) == (70.0, 5.0, 6.0)
    assert (order.caps.turns, order.caps.tokens, order.caps.cost_usd) == (7, 8, 9.0)
    assert order.profile == "read"
    assert order.env == {"PASSED_ON": "yes"}
    assert order.labels["general"] == "gen-test"


async def test_a_run_that_fails_is_tried_again_with_its_error_told(post: Post) -> None:
    fake(post).script = failing("the first reason", "the second reason")
    task = await post.task()
    (result,) = await post.finish(task)
    first, second, third = fake(post).orders
    assert result["status"] == "success"
    assert result["retry_count"] == 2
    assert result["tokens"] == {"input": 23, "output": 4}
    assert result["cost_usd"] == pytest.approx(1.25)
    assert "the first reason" not in first.prompt
    assert "the first reason" in second.prompt
    assert "the second reason" in third.prompt
    assert len({order.run_id for order in fake(post).orders}) == 3
    assert post.naps == [5.0, 10.0]


async def test_when_the_tries_are_spent_the_last_error_is_the_results(post: Post) -> None:
    fake(post).script = failing("one", "two", "three", "four")
    task = await post.task()
    (result,) = await post.finish(task)
    assert (result["status"], result["error"], result["retry_count"]) == ("failed", "three", 2)
    assert post.status(task) == "failed"
    assert ("task.failed", {"task_id": task.id, "error": "three", "retry_count": 2}) in post.told()


async def test_a_timeout_is_told_with_its_timer(tmp_path: Path) -> None:
    async with posted(tmp_path, retries=0, timers={"silence": 33.0}) as post:
        fake(post).script = lambda order, number: Outcome("timeout", error="silent for 33 s", timer="silence")
        task = await post.task()
        (result,) = await post.finish(task)
        assert result["status"] == "timeout"
        assert next(data for kind, data in post.told() if kind == "soldier.timeout")["timeout_seconds"] == 33.0


@pytest.mark.parametrize(
    ("configured", "passed"),
    [
        (["KEY", "OTHER"], {"KEY": "k", "PASSED_ON": "yes"}),
        ({"BASE": "http://127.0.0.1", "PASSED_ON": "no"}, {"BASE": "http://127.0.0.1", "PASSED_ON": "yes"}),
    ],
)
async def test_an_engines_own_variables_and_model(tmp_path: Path, configured: Any, passed: dict[str, str]) -> None:
    async with posted(tmp_path, engine="command", env=["PASSED_ON"]) as post:
        post.system = {"engines": {"command": {"env": configured, "model": "m-2"}}}
        task = await post.task()
        await post.finish(task, general=post.general(environment={"PASSED_ON": "yes", "KEY": "k", "SECRET": "no"}))
        (order,) = fake(post).orders
    assert order.env == passed
    assert order.model == "m-2"


@pytest.mark.parametrize("status", ["skipped", "killed"])
async def test_what_is_final_is_not_tried_again(post: Post, status: Any) -> None:
    fake(post).script = lambda order, number: Outcome(status, result={"status": status, "summary": "so it is"})
    task = await post.task()
    (result,) = await post.finish(task)
    assert result["status"] == status
    assert len(fake(post).orders) == 1
    assert post.status(task) == ("completed" if status == "skipped" else "failed")


async def test_a_question_ends_the_task_and_the_answer_goes_on_in_the_same_place(post: Post) -> None:
    asked = {"status": "needs_human", "question": {"text": "Red or\u200b blue?", "choices": ["red", "blue"]}}
    fake(post).script = lambda order, number: Outcome("needs_human", result=asked, session_id="session-9")
    task = await post.task()
    (result,) = await post.finish(task)
    assert result["question"]["text"] == "Red or blue?"
    assert result["question"]["choices"] == ["red", "blue"]
    assert post.status(task) == "needs_human"
    assert ("task.needs_human", {"task_id": task.id, "question": "Red or blue?"}) in post.told()

    fake(post).script = lambda order, number: success()
    said = {"original_task_id": task.id, "question": "Red or blue?", "answer": "Blue, {{ please }}", "user": "ann"}
    resume = await post.task(2, type="resume", payload={**task.payload, **said})
    (result,) = await post.finish(resume)
    before, order = fake(post).orders
    assert order.session_id == "session-9"
    assert order.cwd == before.cwd
    assert "Blue, {{ please }}" in order.prompt
    described = json.loads((order.cwd / ".kingdom-task.json").read_text())
    assert (described["task_id"], described["answer"]) == (resume.id, "Blue, {{ please }}")
    assert result["original_task_id"] == task.id

    again = await post.task(3, type="resume", payload={**said, "original_task_id": resume.id})
    post.home.session_id(resume.id).unlink()
    await post.finish(again)
    assert fake(post).orders[-1].cwd == before.cwd
    assert fake(post).orders[-1].session_id == "session-9"


async def test_a_lost_conversation_is_told_the_whole_story_anew(post: Post) -> None:
    post.prompt("{% if resume %}go on: {{ answer }}{% else %}All: {{ data }}{% endif %}")
    payload = {"title": "The title", "original_task_id": "task-20260101-001", "question": "Q?", "answer": "Because."}
    task = await post.task(type="resume", payload=payload)
    await post.finish(task)
    (order,) = fake(post).orders
    assert order.session_id is None
    assert "The title" in order.prompt
    assert "Because." in order.prompt


async def test_over_the_limit_a_task_is_parked_and_comes_back(post: Post) -> None:
    def script(order: Order, number: int) -> Outcome:
        return Outcome("rate_limited", error="limit reached", resets_at=NOW + 3600) if number == 1 else success()

    fake(post).script = script
    task = await post.task()
    general = post.general()
    await general.start()
    await post.work(general, lambda: post.state(task) == "pending")
    await general.tick()
    assert len(fake(post).orders) == 1, "it waits until the limit ends"
    assert not post.home.result(task.id).exists()
    record = await post.bus.find(task.id)
    assert record is not None
    assert record.next_retry_at is not None
    assert record.error_code == "RATE_LIMITED"
    assert (fake(post).orders[0].cwd).is_dir()
    await general.stop()


async def test_as_many_at_once_as_the_manifest_says(tmp_path: Path) -> None:
    async with posted(tmp_path, concurrency=2) as post:
        fake(post).gate.clear()
        tasks = [await post.task(number) for number in (1, 2, 3)]
        general = post.general()
        await general.start()
        await post.work(general, lambda: len(fake(post).orders) == 2)
        await general.tick()
        assert sorted(map(post.state, tasks)) == ["in_progress", "in_progress", "pending"]
        assert general.report()["waiting"] == 1
        assert len(general.report()["running"]) == 2
        fake(post).gate.set()
        await post.work(general, lambda: all(post.state(task) == "completed" for task in tasks))
        await general.stop()


async def test_a_general_that_sees_only_some_of_what_waits_looks_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.court.general.general._PEEK_LIMIT", 2)
    async with posted(tmp_path, concurrency=3) as post:
        fake(post).gate.clear()
        for number in (1, 2, 3, 4):
            await post.task(number)
        general = post.general()
        await general.start()
        assert await general.tick() == 0.0
        assert len(general.report()["running"]) == 2
        assert await general.tick() is None
        assert len(general.report()["running"]) == 3
        await general.stop()


async def test_a_running_task_is_cancelled_outside_the_limit(post: Post) -> None:
    fake(post).gate.clear()
    task = await post.task()
    general = post.general()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    request_cancel(post.home, "gen-test", task.id, "cancelled by ann")
    await post.work(general, lambda: post.state(task) == "completed")
    await general.stop()
    assert post.result(task)["status"] == "cancelled"
    assert post.result(task)["error"] == "cancelled by ann"
    assert post.status(task) == "cancelled"
    soldier = fake(post).orders[0].run_id
    assert fake(post).stopped == [(soldier, "cancelled by ann")]
    assert cancel_requests(post.home, "gen-test") == {}
    assert post.told()[-2:] == [
        ("soldier.ended", {"task_id": task.id, "soldier_id": soldier, "status": "cancelled"}),
        ("task.cancelled", {"task_id": task.id, "reason": "cancelled by ann"}),
    ]


async def test_a_waiting_or_parked_task_is_cancelled_without_a_soldier(post: Post) -> None:
    fake(post).gate.clear()
    running, waiting = await post.task(1), await post.task(2)
    general = post.general()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    request_cancel(post.home, "gen-test", waiting.id, "cancelled")
    await post.work(general, lambda: post.state(waiting) == "completed")
    assert (post.result(waiting)["status"], post.result(waiting)["error"]) == ("cancelled", "cancelled")
    assert [one.task_id for one in fake(post).orders] == [running.id]
    await general.stop()


async def test_a_cancel_that_comes_too_late_changes_nothing(post: Post) -> None:
    task = await post.task()
    (result,) = await post.finish(task)
    for late in (task.id, "task-20260101-999"):
        request_cancel(post.home, "gen-test", late, "cancelled")
    general = post.general()
    await general.start()
    await general.tick()
    await general.stop()
    assert cancel_requests(post.home, "gen-test") == {}
    assert post.result(task) == result
    assert result["status"] == "success"


async def test_a_cancel_task_of_a_former_version_is_still_understood(post: Post) -> None:
    fake(post).gate.clear()
    task = await post.task()
    general = post.general()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    await general.stop()
    order = await post.task(2, type="cancel", priority="high", payload={"task_id": task.id, "reason": "enough"})
    strange = await post.task(3, type="cancel", payload={"task_id": "../../x"})
    post.manifest = post.manifest.model_copy(update={"concurrency": 3})
    general = post.general()
    await general.start()
    await post.work(general, lambda: {post.state(one) for one in (task, order, strange)} == {"completed"})
    await general.stop()
    assert (post.result(task)["status"], post.result(task)["error"]) == ("cancelled", "enough")


async def test_without_a_result_a_task_is_not_done(post: Post) -> None:
    def script(order: Order, number: int) -> Outcome:
        said = {"status": "success", "summary": "All done!", "reported": False}
        return Outcome("success", result=said) if number == 1 else success()

    fake(post).script = script
    (result,) = await post.finish(await post.task())
    assert (result["status"], result["retry_count"]) == ("success", 1)
    assert "ended without the result file" in fake(post).orders[1].prompt
    kinds = [kind for kind, _ in post.told()]
    assert (kinds.count("soldier.ended"), kinds.count("soldier.completed")) == (1, 1)


async def test_only_a_soldier_that_left_a_result_has_completed(post: Post) -> None:
    fake(post).script = lambda order, number: Outcome("killed", error="it was stopped from outside")
    task = await post.task()
    (result,) = await post.finish(task)
    assert result["status"] == "killed"
    kinds = [kind for kind, _ in post.told()]
    assert "soldier.completed" not in kinds
    assert "soldier.ended" in kinds
    assert "task.failed" not in kinds, "the king may run it again"


async def test_a_lost_lease_stops_the_soldier_and_nothing_is_written(post: Post) -> None:
    fake(post).gate.clear()
    task = await post.task()
    general = post.general()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    (stolen,) = await post.bus.recall(TASKS, worker="gen-test")  # as another process of that name would
    post.uptime += 25
    await post.work(general, lambda: bool(fake(post).stopped) and not general.report()["running"])
    assert not post.home.result(task.id).exists()
    assert post.state(task) == "in_progress"
    assert await post.bus.release([stolen]) == []
    fake(post).gate.set()
    await post.work(general, lambda: post.state(task) == "completed")
    assert post.result(task)["status"] == "success"
    assert fake(post).overlaps() == ""
    await general.stop()


async def test_leases_are_renewed(post: Post) -> None:
    fake(post).gate.clear()
    task = await post.task()
    general = post.general()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    before = await post.bus.find(task.id)
    post.uptime += 25
    await general.tick()
    after = await post.bus.find(task.id)
    await general.stop()
    assert before is not None
    assert after is not None
    assert before.locked_until is not None
    assert after.locked_until is not None
    assert after.locked_until > before.locked_until


async def test_a_stopped_general_leaves_its_soldiers_and_the_next_takes_them_over(post: Post) -> None:
    fake(post).gate.clear()
    task = await post.task()
    general = post.general()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    await general.stop()
    assert fake(post).stopped == []
    assert post.state(task) == "in_progress"
    fake(post).gate.set()
    (result,) = await post.finish(task)
    (order,) = fake(post).orders
    assert fake(post).adopted == [order.run_id]
    assert result["soldier_id"] == order.run_id
    assert result["retry_count"] == 0


async def test_a_soldier_that_never_got_to_running_is_replaced_without_counting(post: Post) -> None:
    task = await post.task()
    general = post.general()
    fake(post).gate.clear()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    await general.stop()
    run_id = fake(post).orders[0].run_id
    for path in fake(post).folder.glob(f"{run_id}.*"):
        path.unlink()
    fake(post).gate.set()
    (result,) = await post.finish(task)
    assert len(fake(post).orders) == 2
    assert result["retry_count"] == 0


async def test_a_soldier_is_taken_over_though_the_note_about_it_is_lost(post: Post) -> None:
    fake(post).gate.clear()
    task = await post.task()
    general = post.general()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    await general.stop()
    (note,) = post.home.role("gen-test").glob("campaigns/*")
    note.write_text("{")
    fake(post).gate.set()
    (result,) = await post.finish(task)
    assert result["status"] == "success"
    assert len(fake(post).orders) == 1
    assert fake(post).overlaps() == ""


async def test_retries_are_counted_across_restarts(post: Post) -> None:
    fake(post).script = failing("one", "two", "three", "four")
    task = await post.task()
    waiting = asyncio.Event()

    async def never(seconds: float) -> None:
        post.woken.set()
        waiting.set()
        await asyncio.Event().wait()

    general = post.general(sleep=never)
    await general.start()
    await post.work(general, waiting.is_set)
    await general.stop()
    (result,) = await post.finish(task)
    assert (result["error"], result["retry_count"]) == ("three", 2)
    assert len(fake(post).orders) == 3


async def test_a_missing_engine_holds_its_tasks_with_the_reason(post: Post) -> None:
    def script(order: Order, number: int) -> Outcome:
        raise EngineNotInstalled("claude is not installed: npm install …")

    fake(post).script = script
    task = await post.task()
    general = post.general()
    await general.start()
    await post.work(general, lambda: post.state(task) == "pending")
    assert not post.home.result(task.id).exists()
    record = await post.bus.find(task.id)
    assert record is not None
    assert (record.error_code, record.error_message) == ("HELD", "claude is not installed: npm install …")
    held = general.report()["held"]
    assert held[task.id]["reason"] == "claude is not installed: npm install …"
    await general.stop()
    again = post.general()
    await again.start()
    assert again.report()["held"] == held, "another process knows"
    await again.stop()
    progress = TaskProgressStore(post.home.role("gen-test")).load(task.id)
    assert progress is not None
    assert (progress.retries, progress.holds) == (0, 1), "no try is spent"


async def test_after_hours_without_engine_and_model_everything_is_done_and_nothing_has_failed(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def pass_time(context: GeneralContext, resets_at: float | None) -> float:
        """Time passes at once: it is the clock that shows how long the task waited."""
        assert resets_at is not None
        post.now = max(post.now, resets_at)
        return 0.0

    def script(order: Order, number: int) -> Outcome:
        nonlocal looks
        looks += 1
        if post.now < NOW + 3600:
            raise EngineNotInstalled("claude is not installed: npm install …")
        if post.now < NOW + 3 * 3600:
            return Outcome("rate_limited", error="the model service of claude is overloaded or away (529)")
        return success()

    monkeypatch.setattr("kingdom.court.general.general.parking_seconds", pass_time)
    fake(post).script = script
    tasks = [await post.task(number) for number in (1, 2, 3)]
    results = await post.finish(*tasks)
    assert [(result["status"], result["retry_count"]) for result in results] == [("success", 0)] * 3
    assert looks > 3
    kinds = {kind for kind, _ in post.told()}
    assert "task.failed" not in kinds
    assert post.now >= NOW + 3 * 3600


async def test_the_pauses_between_looks_at_an_outage_grow(post: Post) -> None:
    post.agents = FakeAgents(post.root / "agents", lambda order, number: Outcome("rate_limited", error="529"))
    task = await post.task()
    context = GeneralContext(
        Services(post.home, post.bus, post.journal, lambda: post.now), Package(post.manifest, post.folder),
        SystemConfig(), post.agents, GeneralDeps(),
    )  # fmt: skip
    waits = []
    for _ in range(8):
        (delivery,) = await post.bus.claim(TASKS, worker="gen-test", types=["gen-test"], limit=1)
        ending = await TaskRun(context, task, delivery).run()
        assert isinstance(ending, TaskParked)
        assert ending.resets_at is not None
        waits.append(ending.resets_at - post.now)
        await post.bus.release([delivery])
    assert waits == sorted(waits)
    assert waits[0] >= 20
    assert waits[-1] <= 900
    assert waits[-1] > waits[0]


async def test_a_parked_task_that_is_cancelled_has_its_result_at_once(post: Post) -> None:
    fake(post).script = lambda order, number: Outcome("rate_limited", error="limit reached", resets_at=NOW + 3600)
    task = await post.task()
    general = post.general()
    await general.start()
    await post.work(general, lambda: post.state(task) == "pending")
    request_cancel(post.home, "gen-test", task.id, "cancelled by ann")
    await post.work(general, lambda: post.home.result(task.id).exists())
    await general.stop()
    assert (post.result(task)["status"], post.result(task)["error"]) == ("cancelled", "cancelled by ann")
    assert general.report()["held"] == {}


@pytest.mark.parametrize(
    ("template", "words"),
    [
        (None, "cannot be read"),
        ("{{ no_such_thing }}", "'no_such_thing' is undefined"),
        ("{% if %}", "prompt.md:1"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
async def test_a_prompt_that_cannot_be_made_fails_the_task(post: Post, template: str | None, words: str) -> None:
    if template is None:
        (post.folder / "prompt.md").unlink()
    else:
        post.prompt(template)
    (result,) = await post.finish(await post.task())
    assert result["status"] == "failed"
    assert words in result["error"]
    assert fake(post).orders == []


async def test_what_was_learned_is_in_the_next_prompt(post: Post) -> None:
    post.prompt("{{ memory }}")
    fake(post).script = lambda order, number: success(memory_updates=["The tests need\u202e Redis.", "## not a head"])
    await post.finish(await post.task(1))
    await post.finish(await post.task(2))
    learned = (post.home.general_memory("gen-test") / "learned.md").read_text()
    assert "task-20260921-001\n- The tests need Redis.\n- ## not a head\n" in learned
    assert "The tests need Redis." in fake(post).orders[1].prompt
    assert "The tests need" not in fake(post).orders[0].prompt


async def test_earlier_results_on_the_same_subject_are_told(post: Post) -> None:
    post.prompt("{{ previous_results }}")
    fake(post).script = lambda order, number: success(f"Did {order.task_id}")
    await post.finish(await post.task(1, payload={"ticket_key": "QP-1"}))
    await post.finish(await post.task(2, payload={"ticket_key": "QP-2"}))
    await post.finish(await post.task(3, payload={"ticket_key": "QP-1"}))
    assert "Did task-20260921-001" in fake(post).orders[2].prompt
    assert "Did task-20260921-002" not in fake(post).orders[2].prompt


async def test_an_invalid_task_is_put_aside_and_the_rest_goes_on(post: Post) -> None:
    folder = post.home.queue / "tasks" / "pending"
    broken = {
        "id": "task-20260921-777", "event_id": "nonsense", "target_general": "gen-test", "type": "x",
        "payload": {}, "priority": "normal", "created_at": "2026-09-21T12:00:00Z", "status": "pending",
    }  # fmt: skip
    (folder / "task-20260921-777.json").write_text(json.dumps(broken))
    (result,) = await post.finish(await post.task())
    assert result["status"] == "success"
    assert list(post.home.queue.glob("tasks/invalid/task-20260921-777*"))


async def test_a_full_disk_at_the_result_loses_nothing(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    task = await post.task()
    general = post.general()
    await general.start()
    real, full = os.open, True

    def open_(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if full and f"{task.id}.json" in str(path) and "results" in str(path) and flags & os.O_CREAT:
            raise OSError(28, "No space left on device")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", open_)
    with pytest.raises(OSError, match="No space left"):
        await post.work(general, lambda: False)
    with pytest.raises(OSError, match="No space left"):
        await general.tick()
    assert post.state(task) == "in_progress"
    full = False
    await post.work(general, lambda: post.state(task) == "completed")
    await general.stop()
    assert post.result(task)["status"] == "success"
    assert len(fake(post).orders) == 1


async def test_a_clock_set_back_makes_no_negative_duration(post: Post) -> None:
    def script(order: Order, number: int) -> Outcome:
        post.now -= 3600
        return success()

    fake(post).script = script
    (result,) = await post.finish(await post.task())
    assert result["duration_seconds"] == 0.0
    assert result["status"] == "success"


async def test_a_journal_that_cannot_be_written_stops_no_work(post: Post) -> None:
    post.home.journal.unlink(missing_ok=True)
    post.home.journal.mkdir()
    (result,) = await post.finish(await post.task())
    assert result["status"] == "success"


async def test_a_disabled_general_starts_nothing_and_its_waiting_tasks_can_be_cancelled(post: Post) -> None:
    path = post.home.state / "disabled.json"
    path.parent.mkdir(exist_ok=True)
    write_json(path, {"gen-test": {"user": "ann"}})
    waits, unwanted = await post.task(1), await post.task(2)
    general = post.general()
    await general.start()
    request_cancel(post.home, "gen-test", unwanted.id, "not needed")
    await post.work(general, lambda: post.state(unwanted) == "completed")
    assert post.result(unwanted)["status"] == "cancelled"
    assert fake(post).orders == []
    assert post.state(waits) == "pending"
    path.unlink()
    await post.work(general, lambda: post.state(waits) == "completed")
    assert post.result(waits)["status"] == "success"
    await general.stop()
