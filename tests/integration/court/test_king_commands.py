"""People cancel tasks, and have them tried again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kingdom.court.cancellations import cancel_requests
from kingdom.court.king.king import King
from tests.support.kings import Realm, looks


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path).open() as realm:
        realm.install()
        await realm.event(1, repo="acme/web", payload={"pr_number": 7})
        yield realm


async def reigning(realm: Realm) -> King:
    king = realm.king()
    await king.start()
    await looks(king)
    return king


async def heard(king: King, realm: Realm) -> None:
    realm.clock.now += 10
    await looks(king)


def discarded(realm: Realm) -> list[str]:
    return [fields["reason"] for kind, fields in realm.journal() if kind == "event.discarded"]


async def test_a_task_that_waits_is_ended_by_the_king(realm: Realm) -> None:
    king = await reigning(realm)
    (task,) = realm.tasks()
    command = await realm.command("cancel", task.id)
    await heard(king, realm)
    assert [(one.id, one.status) for one in realm.tasks("completed")] == [(task.id, "cancelled")]
    assert realm.where("evt-github-1") == ("completed", "cancelled")
    assert realm.where(command) == ("completed", "completed")
    message = realm.messages()[-1]
    assert message.content.startswith("gen-pr no longer works on ")
    assert message.content.endswith("cancelled by ann")
    assert (message.context["status"], message.urgency) == ("cancelled", "normal")
    assert king.report()["active"] == 0
    assert discarded(realm) == []
    said = realm.journal()
    assert ("task.cancelled", {"task_id": task.id, "reason": "cancelled by ann"}) in said
    assert ("event.dispatched", {"event_id": command, "task_id": task.id, "target_general": "gen-pr"}) in said
    assert "task.failed" not in dict(said)


async def test_a_task_that_runs_is_ended_by_its_general(realm: Realm) -> None:
    king = await reigning(realm)
    (running,) = await realm.bus.claim("tasks", worker="gen-pr", types=["gen-pr"])
    command = await realm.command("cancel", running.event_id)
    await heard(king, realm)
    assert cancel_requests(realm.home, "gen-pr") == {running.event_id: ("cancelled by ann", "")}
    assert realm.tasks() == [], "a cancel is no task"
    assert realm.where(command) == ("completed", "completed")
    dispatched = {"event_id": command, "task_id": running.event_id, "target_general": "gen-pr"}
    assert ("event.dispatched", dispatched) in realm.journal()
    assert realm.where("evt-github-1")[0] == "dispatched"
    realm.result(running.event_id, status="cancelled", error="cancelled by ann")
    await looks(king)
    assert realm.where("evt-github-1") == ("completed", "cancelled")


async def test_a_question_nobody_will_answer_is_ended_too(realm: Realm) -> None:
    king = await reigning(realm)
    (task,) = await realm.work(status="needs_human", question={"text": "?"})
    await looks(king)
    await realm.command("cancel", task.id)
    await heard(king, realm)
    assert realm.where("evt-github-1") == ("completed", "cancelled")
    assert king.report()["asking"] == []
    assert ("task.cancelled", {"task_id": task.id, "reason": "cancelled by ann"}) in realm.journal()


async def test_an_earlier_task_of_a_case_names_the_one_it_is_at(realm: Realm) -> None:
    king = await reigning(realm)
    (first,) = await realm.work(status="killed")
    await looks(king)
    await realm.command("cancel", first.id)
    await heard(king, realm)
    assert realm.where("evt-github-1") == ("completed", "cancelled")
    assert realm.tasks() == []


@pytest.mark.parametrize("word", ["cancel", "retry"])
async def test_a_command_for_a_task_nobody_knows_is_discarded(realm: Realm, word: str) -> None:
    king = await reigning(realm)
    command = await realm.command(word, "task-20990101-001")
    await heard(king, realm)
    assert realm.where(command) == ("completed", "completed")
    assert discarded(realm) == ["task task-20990101-001 is not known"]


async def test_what_has_ended_is_not_cancelled_and_what_runs_is_not_tried_again(realm: Realm) -> None:
    king = await reigning(realm)
    (task,) = realm.tasks()
    await realm.command("retry", task.id)
    await heard(king, realm)
    await realm.work()
    await looks(king)
    await realm.command("cancel", task.id)
    await heard(king, realm)
    assert discarded(realm) == [
        f"task {task.id} is still under way (as {task.id})",
        f"task {task.id} has ended already",
    ]


async def test_another_try_is_a_new_task_for_the_same_event_and_payload(realm: Realm) -> None:
    king = await reigning(realm)
    (failed,) = await realm.work(status="failed", error="no")
    await looks(king)
    command = await realm.command("retry", failed.id)
    await heard(king, realm)
    (again,) = realm.tasks()
    assert again.id != failed.id
    assert (again.event_id, again.type, again.payload) == (failed.event_id, failed.type, failed.payload)
    assert realm.where(command)[0] == "dispatched"
    await realm.event(2, repo="acme/web", payload={"pr_number": 7})
    await heard(king, realm)
    assert king.report()["waiting"] == 1  # the subject is taken again
    king = await reigning(realm)
    (done,) = await realm.work()
    assert done.id == again.id
    await looks(king)
    assert realm.where(command) == ("completed", "completed")
    assert realm.said()[:4] == ["thread_start", "thread_update", "thread_start", "thread_update"]


async def test_another_try_waits_while_its_general_may_not_start(realm: Realm) -> None:
    king = await reigning(realm)
    (failed,) = await realm.work(status="failed", error="no")
    (realm.home.general("gen-pr") / "manifest.yaml").rename(realm.home.root / "kept.yaml")
    command = await realm.command("retry", failed.id)
    await heard(king, realm)
    assert realm.where(command)[0] == "pending"
    assert list(king.report()["holds"]) == ["gen-pr is not installed, or its manifest cannot be used"]
    (realm.home.root / "kept.yaml").rename(realm.home.general("gen-pr") / "manifest.yaml")
    await heard(king, realm)
    assert [task.type for task in realm.tasks()] == ["github.pr.opened"]
