"""Documents that cannot be used are reported, and say why; events that nobody takes are said."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kingdom.court.commands import nearest_types, wait_for_outcome
from kingdom.court.loop import Services
from kingdom.court.overview import read_overview
from kingdom.journal import Journal
from tests.support.chamberlains import Watched
from tests.support.kings import Realm, looks


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path).open() as realm:
        realm.install()
        yield realm


def drop(realm_or_court: Realm | Watched, name: str, text: str) -> None:
    folder = realm_or_court.home.queue / "events/pending"
    (folder / ".one").write_text(text)
    (folder / ".one").rename(folder / f"{name}.json")


def services_of(realm: Realm) -> Services:
    return Services(realm.home, realm.bus, Journal(realm.home.journal, realm.clock), realm.clock)


async def test_an_invalid_event_carries_its_reason_and_is_told_with_the_way_to_mend_it(realm: Realm) -> None:
    document = {"id": "evt-ci-1", "type": "No Type", "source": "ci", "created_at": "2026-02-07T10:00:00Z"}
    drop(realm, "evt-ci-1", json.dumps(document))
    king = realm.king()
    await king.start()
    await looks(king)
    aside = json.loads((realm.home.queue / "events/invalid/evt-ci-1.json").read_text())
    assert aside["status"] == "invalid"
    assert "type: must be two or more words" in aside["invalid_reason"]
    assert (realm.home.queue / "events/invalid/evt-ci-1.json.reason").read_text().strip() == aside["invalid_reason"]
    ((_, line),) = [entry for entry in realm.journal() if entry[0] == "event.discarded"]
    assert line["event_id"] == "evt-ci-1"
    problems = (await read_overview(services_of(realm))).problems
    (problem,) = [one for one in problems if one.what == "queue/events/invalid/evt-ci-1.json"]
    assert "move it to queue/events/pending/" in problem.why


async def test_a_file_that_is_no_document_is_counted_as_invalid(realm: Realm) -> None:
    drop(realm, "evt-ci-1", json.dumps({"id": "evt-ci-1", "type": "No Type", "source": "ci"}))
    for name in ("events/invalid/notes.json", "messages/invalid/msg-1.json"):
        (realm.home.queue / name).parent.mkdir(exist_ok=True)
        (realm.home.queue / name).write_text("{not json")
    king = realm.king()
    await king.start()
    await looks(king)
    counts = {queue.name: queue.counts for queue in (await read_overview(services_of(realm))).queues}
    assert (counts["events"]["invalid"], counts["messages"]["failed"]) == (2, 1)


async def test_a_mended_document_that_is_moved_back_is_taken_without_its_reason(realm: Realm) -> None:
    document = {"id": "evt-github-1", "type": "No Type", "source": "github", "created_at": "2026-02-07T10:00:00Z"}
    drop(realm, "evt-github-1", json.dumps(document))
    king = realm.king()
    await king.start()
    await looks(king)
    aside = realm.home.queue / "events/invalid/evt-github-1.json"
    mended = {**json.loads(aside.read_text()), "type": "github.pr.opened"}
    aside.with_name("evt-github-1.json.reason").unlink()
    aside.unlink()
    drop(realm, "evt-github-1", json.dumps(mended))
    async with Realm(realm.home.root).open() as later:
        king = later.king()
        await king.start()
        await looks(king)
    (event,) = realm.documents("events", "dispatched")
    assert (event["id"], event["status"]) == ("evt-github-1", "dispatched")
    assert "invalid_reason" not in event


async def test_the_chamberlain_reports_each_in_the_journal_and_all_in_one_message(tmp_path: Path) -> None:
    court = Watched(tmp_path)
    async with court.open():
        aside = court.home.queue / "events/invalid"
        for name in ("evt-a-1", "evt-a-2"):
            (aside / f"{name}.json").write_text("{ torn")
            (aside / f"{name}.json.reason").write_text("not JSON\n")
        for _ in range(3):
            await court.tick(30)
        await court.restart()
        await court.tick(30)
        told = court.events("system.document_invalid")
        assert sorted(line["file"] for line in told) == [f"queue/events/invalid/evt-a-{n}.json" for n in (1, 2)]
        (message,) = court.messages()
        assert message["content"].startswith("2 document(s) could not be used")
        assert "queue/events/pending/" in message["content"]
        for path in aside.iterdir():
            path.unlink()
        await court.tick(30)
        assert court.alerts() == [("invalid", "some"), ("invalid", "over")]


async def test_who_waits_for_an_event_that_nobody_takes_is_told_the_nearest_types(realm: Realm) -> None:
    event_id = await realm.event(1, "github.prs.opened")
    king = realm.king()
    await king.start()
    await looks(king)
    outcome = await wait_for_outcome(services_of(realm), event_id)
    assert (outcome.status, outcome.discarded) == ("discarded", "no general subscribes to it")
    assert outcome.known_types == ("github.pr.*",)
    assert not outcome.succeeded
    assert nearest_types(realm.home, "jira.ticket.assigned") == ("github.pr.*",)
