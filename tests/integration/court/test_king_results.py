"""What comes of tasks, and who is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.king.king import King
from kingdom.journal import Reader
from tests.support.kings import Realm, looks

OF_ANOTHER = b"""{"task_id": "task-20260207-009", "general": "gen-pr", "status": "success",
"started_at": "2026-02-07T12:00:00Z", "ended_at": "2026-02-07T12:00:00Z"}"""


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path).open() as realm:
        realm.install()
        yield realm


async def dispatched(realm: Realm, **fields: Any) -> King:
    await realm.event(1, **fields)
    king = realm.king()
    await king.start()
    await looks(king)
    return king


@pytest.mark.parametrize(
    ("status", "ends", "said"),
    [
        ("success", "completed", "gen-pr finished change 1"),
        ("skipped", "completed", "gen-pr had nothing to do for change 1"),
        ("failed", "failed", "gen-pr failed at change 1"),
        ("timeout", "failed", "gen-pr ran out of time at change 1"),
    ],
)
async def test_a_result_ends_its_event_and_is_told(realm: Realm, status: str, ends: str, said: str) -> None:
    king = await dispatched(realm)
    await realm.work(status=status, error="because" if ends == "failed" else None)
    await looks(king)
    assert realm.where("evt-github-1") == ("completed", ends)
    assert realm.said() == ["thread_start", "thread_update"]
    assert realm.messages()[-1].content.startswith(said)
    assert king.report()["active"] == 0


@pytest.mark.parametrize(
    ("notify", "said"),
    [("all", ["thread_start", "thread_update"]), ("result", ["notification"]), ("silent", [])],
)
async def test_people_are_told_as_much_as_the_manifest_says(realm: Realm, notify: str, said: list[str]) -> None:
    realm.install(notify=notify)
    king = await dispatched(realm)
    await realm.work()
    await looks(king)
    assert realm.said() == said


async def test_a_killed_run_is_tried_again_as_a_new_task_and_then_fails(realm: Realm) -> None:
    king = await dispatched(realm, repo="acme/web", payload={"pr_number": 7})
    first = (await realm.work(status="killed"))[0]
    await looks(king)
    again = (await realm.work(status="killed"))[0]
    assert again.id != first.id
    assert (again.event_id, again.payload, again.type) == (first.event_id, first.payload, first.type)
    await looks(king)
    await realm.work(status="killed", error="out of memory")
    await looks(king)
    assert realm.tasks() == []
    assert realm.where("evt-github-1") == ("completed", "failed")
    assert realm.said() == ["thread_start", "thread_update"]
    assert "its soldier was killed 3 times: out of memory" in realm.messages()[-1].content
    assert realm.messages()[-1].context["original_task_id"] == first.id


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is invalid"),
        (b"\xff\xfe", "is invalid"),
        (b"[]", "is invalid"),
        (b'{"task_id": "task-20260207-001", "general": "gen-pr", "status": "fine"}', "status"),
        (OF_ANOTHER, "task-20260207-009"),
        (b"[" * 200_000, "is invalid"),
    ],
)
async def test_a_result_that_cannot_be_read_is_a_failure_with_the_reason(
    realm: Realm, content: bytes, reason: str
) -> None:
    king = await dispatched(realm)
    realm.home.result("task-20260207-001").write_bytes(content)
    await looks(king)
    assert realm.where("evt-github-1") == ("completed", "failed")
    assert reason in realm.messages()[-1].content


async def test_a_folder_or_a_dead_link_in_place_of_a_result_is_a_failure(realm: Realm) -> None:
    await realm.event(2)
    king = await dispatched(realm)
    realm.home.result("task-20260207-001").mkdir()
    realm.home.result("task-20260207-002").symlink_to(realm.home.root / "nowhere")
    await looks(king)
    assert king.report()["active"] == 0
    assert all("cannot be read" in message.content for message in realm.messages()[-2:])


async def test_a_task_that_is_gone_or_ended_without_a_result_leaves_nothing_stuck(realm: Realm) -> None:
    for number in (2, 3):
        await realm.event(number)
    king = await dispatched(realm)
    first, second, _ = realm.tasks()
    (realm.home.queue / "tasks/pending" / f"{first.id}.json").unlink()
    (delivery,) = await realm.bus.claim("tasks", worker="gen-pr", ids=[second.id])
    await realm.bus.settle(done=[delivery])
    realm.clock.now += 11
    await looks(king)
    assert king.report()["active"] == 1
    contents = [message.content for message in realm.messages()[-2:]]
    assert "is lost: it is no longer in a queue" in contents[0]
    assert "is lost: it ended without a result" in contents[1]


async def test_a_task_set_aside_as_invalid_fails_with_that_reason(realm: Realm) -> None:
    king = await dispatched(realm)
    (delivery,) = await realm.bus.claim("tasks", worker="gen-pr", types=["gen-pr"])
    await realm.bus.settle(dead=[(delivery, "INVALID", "no such thing")])
    realm.clock.now += 11
    await looks(king)
    assert "it was set aside: no such thing" in realm.messages()[-1].content


async def test_a_general_that_was_removed_meanwhile_may_still_report(realm: Realm) -> None:
    king = await dispatched(realm)
    (realm.home.general("gen-pr") / "manifest.yaml").unlink()
    await realm.work()
    await looks(king)
    assert realm.where("evt-github-1") == ("completed", "completed")


async def test_results_that_came_while_there_was_no_king_are_read_by_the_next(realm: Realm) -> None:
    king = await dispatched(realm)
    await king.stop()
    await realm.work()
    successor = realm.king()
    await successor.start()
    await looks(successor)
    assert realm.where("evt-github-1") == ("completed", "completed")
    assert realm.said() == ["thread_start", "thread_update"]


async def test_a_look_that_fails_half_way_is_made_good_by_the_next(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    await realm.event(1)
    king = realm.king()
    await king.start()

    async def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(realm.bus, "publish", full)
        with pytest.raises(OSError, match="No space left"):
            await king.tick()
        with pytest.raises(OSError, match="No space left"):
            await king.tick()
    assert realm.tasks() == []
    await looks(king)
    assert [task.event_id for task in realm.tasks()] == ["evt-github-1"]
    assert realm.said() == ["thread_start"]


async def test_a_killed_run_is_no_failure_until_it_is_the_last(realm: Realm) -> None:
    realm.install()
    event_id = await realm.event()
    king = realm.king()
    await king.start()
    await looks(king)
    await realm.work(status="killed", error="gone")
    await looks(king)
    (second,) = realm.tasks()
    said = realm.journal()
    assert ("event.dispatched", {"event_id": event_id, "task_id": second.id, "target_general": "gen-pr"}) in said
    assert "task.failed" not in dict(said)
    for _ in range(realm.config.retries.killed):
        (last,) = await realm.work(status="killed", error="gone")
        await looks(king)
    assert realm.where(event_id) == ("completed", "failed")
    ((_, failed),) = [line for line in realm.journal() if line[0] == "task.failed"]
    assert failed["task_id"] == last.id
    with Reader(realm.home.journal) as reader:
        assert {entry.actor for entry in reader.read() if entry.type == "task.failed"} == {"gen-pr"}


async def test_events_that_another_king_recalled_are_ended_all_the_same_and_only_once(realm: Realm) -> None:
    """A king on a machine that was cut off may recall them, in the moment before it learns that it leads no more."""
    king = await dispatched(realm)
    await realm.bus.recall("events", worker="king", lease=3600)
    await realm.work()
    await looks(king)
    assert realm.where("evt-github-1") == ("completed", "completed")
    realm.clock.now += 11  # a full check
    await looks(king)
    assert (realm.tasks(), realm.ids("events", "pending")) == ([], [])
    assert realm.said() == ["thread_start", "thread_update"]
    await king.stop()
