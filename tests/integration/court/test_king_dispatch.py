"""Events become tasks: who, when, in which order, and why not yet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.files import write_json
from kingdom.court.errors import UnknownGeneral
from kingdom.court.king.king import MAX_EVENTS_PER_TICK
from kingdom.court.loop import Services
from kingdom.court.models import timestamp
from kingdom.court.packages.disabled import DisabledGenerals, switch_general
from kingdom.journal import Journal
from tests.support.kings import Realm, looks


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path).open() as realm:
        yield realm


async def reigning(realm: Realm, **options: Any) -> Any:
    king = realm.king(**options)
    await king.start()
    await looks(king)
    return king


def held(king: Any) -> dict[str, int]:
    return {reason: hold["count"] for reason, hold in king.report()["holds"].items()}


async def test_an_event_becomes_a_task_with_its_payload(realm: Realm) -> None:
    realm.install()
    event_id = await realm.event(7, repo="acme/web", payload={"pr_number": 7, "title": "faster"}, priority="high")
    await reigning(realm)
    (task,) = realm.tasks()
    assert task.document() == {
        "id": "task-20260207-001",
        "event_id": event_id,
        "target_general": "gen-pr",
        "type": "github.pr.opened",
        "payload": {"pr_number": 7, "title": "faster"},
        "priority": "high",
        "created_at": "2026-02-07T12:00:00Z",
        "status": "pending",
        "repo": "acme/web",
        "event": {
            "id": event_id,
            "type": "github.pr.opened",
            "source": "github",
            "repo": "acme/web",
            "priority": "high",
            "created_at": "2026-02-07T12:00:00Z",
        },
    }
    (line,) = (realm.home.logs / "tasks.log").read_text().splitlines()
    assert line.endswith("task-20260207-001 king created github.pr.opened for gen-pr priority=high")
    assert realm.where(event_id) == ("dispatched", "dispatched")
    (message,) = realm.messages()
    assert (message.type, message.content) == ("thread_start", "gen-pr started on acme/web#7 faster")
    assert realm.journal() == [
        (
            "task.created",
            {"task_id": task.id, "event_type": task.type, "target_general": "gen-pr", "priority": "high"},
        ),
        ("event.dispatched", {"event_id": event_id, "task_id": task.id, "target_general": "gen-pr"}),
    ]


async def test_an_event_nobody_takes_is_discarded_and_told(realm: Realm) -> None:
    event_id = await realm.event(1, "jira.ticket.created")
    await reigning(realm)
    assert realm.where(event_id) == ("completed", "completed")
    assert realm.journal() == [
        (
            "event.discarded",
            {"event_id": event_id, "event_type": "jira.ticket.created", "reason": "no general subscribes to it"},
        )
    ]
    assert realm.tasks() == []


async def test_many_at_once_are_dealt_with_in_one_go(realm: Realm) -> None:
    realm.install()
    for number in range(2 * MAX_EVENTS_PER_TICK + 10):
        await realm.event(number, "jira.ticket.created")
    for number in range(50):
        await realm.event(number)
    king = await reigning(realm)
    assert king.report()["waiting"] == 0
    assert len(realm.ids("events", "completed")) == 2 * MAX_EVENTS_PER_TICK + 10
    assert len(realm.tasks()) == 50


async def test_urgent_events_start_first_then_those_that_waited_longer(realm: Realm) -> None:
    realm.install(concurrency=2)
    for number, priority in enumerate(["low", "normal", "high", "normal", "high"]):
        await realm.event(number, priority=priority)
    king = await reigning(realm)
    started = [task.event_id[-1] for task in await realm.work()]
    for _ in range(2):
        await looks(king)
        started += [task.event_id[-1] for task in await realm.work()]
    assert started == ["2", "4", "1", "3", "0"]


async def test_a_subscription_may_give_its_tasks_another_priority(realm: Realm) -> None:
    realm.install(subscribes=[{"type": "github.pr.*", "priority": "low"}])
    await realm.event(1, priority="high")
    await reigning(realm)
    assert [task.priority for task in realm.tasks()] == ["low"]


async def test_what_is_queued_counts_as_much_as_what_runs(realm: Realm) -> None:
    realm.install("gen-pr", concurrency=2)
    realm.install("gen-jira", subscribes=["jira.*"], concurrency=5)
    for number in range(4):
        await realm.event(number)
        await realm.event(number, "jira.ticket.created")
    king = await reigning(realm)
    assert sorted(task.target_general for task in realm.tasks()) == ["gen-jira"] * 4 + ["gen-pr"] * 2
    assert held(king) == {"gen-pr is at its limit of 2 at once": 2}
    await realm.bus.claim("tasks", worker="gen-pr", types=["gen-pr"], limit=2)
    await looks(king)
    assert len(realm.tasks("in_progress")) == 2
    assert held(king) == {"gen-pr is at its limit of 2 at once": 2}


async def test_all_generals_together_have_no_more_than_the_courts_soldiers(tmp_path: Path) -> None:
    async with Realm(tmp_path, concurrency={"max_soldiers": 3}).open() as realm:
        realm.install("gen-pr")
        realm.install("gen-jira", subscribes=["jira.*"])
        for number in range(3):
            await realm.event(number)
            await realm.event(number, "jira.ticket.created")
        king = await reigning(realm)
        assert len(realm.tasks()) == 3
        assert held(king) == {"all 3 soldiers are at work (concurrency.max_soldiers)": 3}
        await realm.work("gen-pr", "gen-jira")
        await looks(king)
        assert len(realm.tasks()) == 3
        assert king.report()["holds"] == {}


async def test_one_subject_has_one_task_at_a_time(realm: Realm) -> None:
    realm.install()
    for number in (1, 2):
        await realm.event(number, repo="acme/web", payload={"pr_number": 7})
    await realm.event(3, repo="acme/web", payload={"pr_number": 8})
    king = await reigning(realm)
    assert [task.event_id for task in realm.tasks()] == ["evt-github-1", "evt-github-3"]
    reason = "acme/web#7 has a task already: task-20260207-001 of gen-pr"
    assert held(king) == {reason: 1}
    assert realm.where("evt-github-2") == ("pending", "pending")
    await realm.work(status="needs_human", question={"text": "?"}, limit=1)
    await looks(king)
    reason += ", which waits for an answer"
    assert held(king) == {reason: 1}  # also while a person is asked
    successor = await reigning(realm)
    assert held(successor) == {reason: 1}
    asking = realm.tasks("completed")[0]
    await realm.answer(asking.id, "yes")
    successor = await reigning(realm)
    await realm.work()
    await looks(successor)
    assert [task.event_id for task in realm.tasks()] == ["evt-github-2"]


async def test_bad_health_holds_events_and_better_health_lets_them_go(realm: Realm) -> None:
    realm.install()
    health = realm.home.role("chamberlain") / "health.json"
    health.parent.mkdir(parents=True)
    for number, priority in enumerate(["high", "normal", "low"]):
        await realm.event(number, priority=priority)
    write_json(health, {"level": "red", "reason": "disk full", "ts": timestamp(realm.clock())})
    king = await reigning(realm)
    assert held(king) == {"health is red (disk full)": 3}
    assert not (realm.home.role("king") / "task-seq").exists()  # no number is drawn for what does not start
    for level, waiting in (("orange", 2), ("yellow", 1), ("green", 0)):
        write_json(health, {"level": level, "ts": timestamp(realm.clock())})
        await looks(king)
        assert king.report()["waiting"] == waiting


class Purse:
    """A gate that counts."""

    def __init__(self, coins: int) -> None:
        self.coins = coins
        self.reserved: set[str] = set()

    def refusal(self, general: str, priority: str, now: float) -> str | None:
        return None if len(self.reserved) < self.coins else "the purse is empty"

    def reserve(self, task_id: str, general: str, now: float) -> None:
        self.reserved.add(task_id)

    def release(self, task_id: str) -> None:
        self.reserved.discard(task_id)


async def test_a_budget_is_asked_for_each_task_and_knows_the_ones_before(realm: Realm) -> None:
    realm.install()
    for number in range(5):
        await realm.event(number)
    purse = Purse(2)
    king = await reigning(realm, gates=[purse])
    assert len(realm.tasks()) == 2
    assert held(king) == {"the purse is empty": 3}
    assert purse.reserved == {task.id for task in realm.tasks()}
    again = Purse(2)
    successor = await reigning(realm, gates=[again])
    assert again.reserved == purse.reserved
    await realm.work()
    await looks(successor)
    assert again.reserved == {task.id for task in realm.tasks()}
    assert len(again.reserved) == 2


async def test_manifests_are_read_again_when_they_change(realm: Realm) -> None:
    realm.install(timeout_seconds="soon")
    await realm.event(1)
    king = await reigning(realm)
    ((reason, hold),) = king.report()["holds"].items()
    assert "timeout_seconds" in reason
    assert hold == {"count": 1, "events": ["evt-github-1"]}
    realm.install(timeout_seconds=60.0)
    await looks(king)
    assert [task.event_id for task in realm.tasks()] == ["evt-github-1"]
    assert king.report()["holds"] == {}


@pytest.mark.parametrize(
    "broken",
    [
        {"created_at": "2026-02-07T12:00:00Z", "payload": []},
        {"created_at": "2026-02-07T12:00:00Z", "source": 3},
        {"created_at": "2026-02-07T12:00:00Z", "repo": {"name": "x"}},
    ],
)
async def test_a_document_that_is_no_event_is_set_aside_with_the_reason(realm: Realm, broken: dict[str, Any]) -> None:
    realm.install()
    document = {"id": "evt-github-1", "type": "github.pr.opened", "source": "github", **broken}
    path = realm.home.queue / "events/pending/evt-github-1.json"
    path.with_suffix(".tmp").write_text(json.dumps(document))
    path.with_suffix(".tmp").rename(path)
    await realm.event(2)
    await reigning(realm)
    assert [task.event_id for task in realm.tasks()] == ["evt-github-2"]
    invalid = realm.home.queue / "events/invalid"
    assert (invalid / "evt-github-1.json").exists()
    reason = (invalid / "evt-github-1.json.reason").read_text()
    assert next(key for key in broken if key != "created_at") in reason


async def test_hostile_text_arrives_as_data_without_what_queues_refuse(realm: Realm) -> None:
    realm.install()
    text = "'; $(touch x) `id` {{ 7*7 }} \u202e\u200b \ud83d \x00 \n" + "A" * 1_000_000
    document = {
        "id": "evt-github-1",
        "type": "github.pr.opened",
        "source": "github",
        "repo": "-x/../../etc",
        "created_at": "2026-02-07T12:00:00Z",
        "payload": {"title": text, "pr_number": "../../x", "nested": [{"k\0": text}]},
    }
    path = realm.home.queue / "events/pending/evt-github-1.json"
    path.with_suffix(".tmp").write_text(json.dumps(document))
    path.with_suffix(".tmp").rename(path)
    king = await reigning(realm)
    (task,) = realm.tasks()
    clean = text.replace("\x00", "").replace("\ud83d", "")
    assert task.payload == {"title": clean, "pr_number": "../../x", "nested": [{"k": clean}]}
    (message,) = realm.messages()
    assert len(message.content) < 200
    assert message.content.isprintable()
    await realm.work(status="failed", error="bad \x00 \ud800 end")
    await looks(king)
    assert realm.where("evt-github-1") == ("completed", "failed")
    assert realm.messages()[-1].content.endswith("bad   end")


async def test_events_that_vanish_while_they_are_held_are_forgotten(realm: Realm) -> None:
    realm.install(concurrency=1)
    for number in range(3):
        await realm.event(number)
    king = await reigning(realm)
    assert king.report()["waiting"] == 2
    (realm.home.queue / "events/pending/evt-github-1.json").unlink()
    await realm.work()
    await looks(king)
    assert [task.event_id for task in realm.tasks()] == ["evt-github-2"]
    assert king.report()["waiting"] == 0


async def test_many_events_are_indexed_without_their_payloads(realm: Realm) -> None:
    realm.install(concurrency=1)
    for number in range(60):
        await realm.event(number, payload={"title": "x", "body": "y" * 20_000})
    king = await reigning(realm)
    assert king.report()["waiting"] == 59
    assert all(not hasattr(waiting, "payload") for waiting in king._pending)
    assert all(delivery.envelope.payload == {} for delivery in king._held.values())


async def test_one_too_large_for_the_queue_fails_alone(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> None:
    realm.install()
    await realm.event(1, payload={"title": "x" * 300_000})
    await realm.event(2)
    king = realm.king()
    await king.start()
    stream = realm.bus.transport._stream("tasks")  # type: ignore[attr-defined]
    monkeypatch.setattr(stream, "max_bytes", 200_000)
    await looks(king)
    assert [task.event_id for task in realm.tasks()] == ["evt-github-2"]
    assert realm.where("evt-github-1") == ("completed", "failed")
    assert "the task cannot be stored" in realm.messages()[-1].content
    assert king.report()["active"] == 1


async def test_an_event_that_lies_in_the_queue_as_a_file_is_detected_by_the_king_once(realm: Realm) -> None:
    realm.install()
    folder = realm.home.queue / "events/pending"
    document = {"id": "evt-ci-1", "type": "ci.build.broken", "source": "ci", "created_at": timestamp(realm.clock())}
    (folder / ".one").write_text(json.dumps({**document, "payload": {}, "status": "pending"}))
    (folder / ".one").rename(folder / "evt-ci-1.json")
    detected = ("event.detected", {"event_id": "evt-ci-1", "source": "ci", "event_type": "ci.build.broken"})
    (realm.home.config / "trust.yaml").write_text("no: [yaml")  # so that it waits, for another king to read it again
    for _ in range(2):
        king = realm.king()
        await king.start()
        await looks(king)
        await king.stop()
    assert realm.journal().count(detected) == 1


async def test_a_question_holds_only_what_the_manifest_says_depends_on_it(realm: Realm) -> None:
    realm.install(hold_subject_while_asking=False)
    for number in (1, 2, 3):
        await realm.event(number, repo="acme/web", payload={"pr_number": 7})
    king = await reigning(realm)
    (asking,) = await realm.work(status="needs_human", question={"text": "?"})
    await looks(king)
    (second,) = realm.tasks()
    assert second.event_id == "evt-github-2", "the next event goes on while the question is open"
    assert held(king) == {f"acme/web#7 has a task already: {second.id} of gen-pr": 1}
    await realm.answer(asking.id, "yes")
    realm.clock.now += 10
    await looks(king)
    assert held(king) == {f"acme/web#7 has a task already: {second.id} of gen-pr": 2}, "the answer waits for its turn"
    king = await reigning(realm)
    assert held(king) == {f"acme/web#7 has a task already: {second.id} of gen-pr": 2}
    await realm.work()
    await looks(king)
    (resumed,) = realm.tasks()
    assert resumed.type == "resume"
    assert held(king) == {f"acme/web#7 has a task already: {resumed.id} of gen-pr": 1}
    await realm.work()
    await looks(king)
    assert [task.event_id for task in realm.tasks()] == ["evt-github-3"]


async def test_what_comes_for_a_disabled_general_waits_until_it_is_enabled(realm: Realm) -> None:
    realm.install()
    services = Services(realm.home, realm.bus, Journal(realm.home.journal, realm.clock), realm.clock)
    assert await switch_general(services, "gen-pr", enabled=False, user="ann")
    assert not await switch_general(services, "gen-pr", enabled=False, user="ann")
    await realm.event(7)
    king = await reigning(realm, gates=[DisabledGenerals(realm.home)])
    assert realm.tasks() == []
    assert held(king) == {"gen-pr is disabled: kingdom general enable gen-pr": 1}
    assert await switch_general(services, "gen-pr", enabled=True, user="ann")
    await looks(king)
    assert len(realm.tasks()) == 1
    written = [json.loads(line) for line in realm.home.journal.read_text().splitlines()]
    told = [(line["type"], line["data"]) for line in written if line["type"].startswith("system.general")]
    who = {"general": "gen-pr", "user": "ann"}
    assert told == [("system.general_disabled", who), ("system.general_enabled", who)]


async def test_a_general_that_does_not_exist_cannot_be_disabled(realm: Realm) -> None:
    services = Services(realm.home, realm.bus, Journal(realm.home.journal, realm.clock), realm.clock)
    with pytest.raises(UnknownGeneral, match="there is no general 'gen-none'"):
        await switch_general(services, "gen-none", enabled=False, user="ann")
