"""The sentinel hears Jira: a real client over the loopback interface against a server with Jira's habits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kingdom.court.sentinel.config import JiraSection
from kingdom.court.sentinel.watcher import SourcePoller, write_hint
from tests.support.fake_jira import ME, FakeJira
from tests.support.sentinels import Post


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JIRA_API_TOKEN", "a-token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with Post(tmp_path).open() as opened:
        yield opened


@pytest.fixture
async def jira(post: Post) -> AsyncIterator[FakeJira]:
    async with FakeJira(post.clock) as server:
        yield server


def section(jira: FakeJira, **more: Any) -> JiraSection:
    return JiraSection(url=jira.url, email="bot@acme.example", projects=["SHOP"], **more)


async def look(post: Post, watch: SourcePoller, seconds: float = 61.0) -> None:
    """One look, when it is time for it."""
    await watch.poll()
    assert "problem" not in watch.report(), watch.report()
    post.clock.now += seconds


def names(post: Post) -> list[str]:
    """The ids of the events, with the key of each ticket instead of its id."""
    return [
        event["id"].replace(f"evt-jira-{event['payload']['issue_id']}", event["payload"]["key"])
        for event in post.events()
    ]


async def test_each_change_is_one_event_of_its_own_type(post: Post, jira: FakeJira) -> None:
    jira.create("SHOP-1")
    async with post.watch("jira", section(jira, repos={"SHOP": "acme/shop"})) as watch:
        await look(post, watch)
        given = jira.change("SHOP-1", "assignee", ME)
        await look(post, watch)
        status = jira.change("SHOP-1", "status", "In Progress")
        comment = jira.comment("SHOP-1", "How is it going?")
        mention = jira.comment("SHOP-1", "Hey", mention=ME)
        jira.change("SHOP-1", "Rank", "higher")
        jira.create("SHOP-2", assignee=ME)
        resolved = jira.change("SHOP-1", "resolution", "Done")
        reopened = jira.change("SHOP-1", "resolution", None)
        taken = jira.change("SHOP-1", "assignee", "acc-ann")
        passed_on = jira.change("SHOP-1", "assignee", "acc-bob")
        for _ in range(8):
            await look(post, watch)
    assert dict(zip(names(post), post.types(), strict=True)) == {
        "SHOP-1-created": "ticket.created",
        f"SHOP-1-change-{given}": "ticket.assigned",
        f"SHOP-1-change-{status}": "ticket.updated",
        f"SHOP-1-change-{resolved}": "ticket.closed",
        f"SHOP-1-change-{reopened}": "ticket.updated",
        f"SHOP-1-change-{taken}": "ticket.unassigned",
        f"SHOP-1-change-{passed_on}": "ticket.updated",
        f"SHOP-1-comment-{comment}": "ticket.commented",
        f"SHOP-1-comment-{mention}": "ticket.mentioned",
        "SHOP-2-created": "ticket.assigned",
    }
    changed = next(event for event in post.events() if event["type"] == "jira.ticket.updated")
    assert changed["payload"]["changes"] == [{"field": "status", "from": "x", "to": "In Progress"}]
    assert changed["payload"]["url"] == f"{jira.url}/browse/SHOP-1"
    assert changed["repo"] == "acme/shop"
    assert set(post.detected()) == post.seen() == {event["id"] for event in post.events()}
    assert len(post.detected()) == len(post.events())


async def test_what_our_own_account_does_is_no_event(post: Post, jira: FakeJira) -> None:
    jira.create("SHOP-1", by=ME)
    jira.comment("SHOP-1", "I am on it", by=ME)
    jira.change("SHOP-1", by="acc-other-bot")
    async with post.watch("jira", section(jira, own_accounts=["acc-other-bot"])) as watch:
        await look(post, watch)
    assert post.events() == []


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Caracas", "Europe/Berlin"])
async def test_the_time_zone_of_the_account_does_not_matter(post: Post, jira: FakeJira, zone: str) -> None:
    jira.zone = ZoneInfo(zone)
    expected = []
    async with post.watch("jira", section(jira)) as watch:
        for number in range(1, 30):
            jira.create(f"SHOP-{number}")
            expected.append(f"SHOP-{number}-created")
            await look(post, watch, 300)
    assert names(post) == expected


@pytest.mark.parametrize("night", [datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)])
async def test_the_nights_on_which_clocks_change_lose_and_double_nothing(
    post: Post, jira: FakeJira, night: datetime
) -> None:
    jira.zone = ZoneInfo("Europe/Berlin")
    post.clock.now = night.timestamp() - 1800
    expected = []
    async with post.watch("jira", section(jira)) as watch:
        jira.create("SHOP-1")
        for _ in range(40):  # every five minutes, from half an hour before the change to long after it
            expected.append(f"SHOP-1-change-{jira.change('SHOP-1')}")
            await look(post, watch, 300)
    assert sorted(names(post)) == sorted(["SHOP-1-created", *expected])


async def test_many_updates_in_the_same_minute_are_all_told(post: Post, jira: FakeJira) -> None:
    async with post.watch("jira", section(jira)) as watch:
        await look(post, watch)
        jira.create("SHOP-1")
        for _ in range(5):
            post.clock.now += 1
            jira.change("SHOP-1")
            await look(post, watch, 0)
        for number in range(2, 8):
            jira.create(f"SHOP-{number}")
        await look(post, watch, 61)
        await look(post, watch, 61)
    assert post.types().count("ticket.updated") == 5
    assert post.types().count("ticket.created") == 7


async def test_all_pages_are_read(post: Post, jira: FakeJira) -> None:
    jira.page_size = 7
    for number in range(1, 61):
        jira.create(f"SHOP-{number}")
        post.clock.now += 1
    async with post.watch("jira", section(jira)) as watch:
        await look(post, watch)
        await look(post, watch)
    assert len(post.events()) == 60


async def test_a_page_token_that_comes_again_and_again_does_not_loop(post: Post, jira: FakeJira) -> None:
    jira.page_size, jira.repeat_token = 10, True
    for number in range(1, 46):
        jira.create(f"SHOP-{number}")
        post.clock.now += 60
    async with post.watch("jira", section(jira, overlap_minutes=1)) as watch:
        for _ in range(12):
            await look(post, watch)
    assert len(post.events()) == 45
    assert len(jira.questions) < 60


async def test_an_empty_page_with_a_token_is_not_the_last(post: Post, jira: FakeJira) -> None:
    jira.empty_page = True
    jira.create("SHOP-1")
    async with post.watch("jira", section(jira)) as watch:
        await look(post, watch)
    assert names(post) == ["SHOP-1-created"]


async def test_a_history_longer_than_the_search_shows_is_completed(post: Post, jira: FakeJira) -> None:
    async with post.watch("jira", section(jira)) as watch:
        await look(post, watch)
        jira.create("SHOP-1")
        changes = [jira.change("SHOP-1") for _ in range(150)]
        comments = [jira.comment("SHOP-1") for _ in range(130)]
        await look(post, watch)
        await look(post, watch)
    expected = [f"change-{name}" for name in changes] + [f"comment-{name}" for name in comments] + ["created"]
    assert sorted(names(post)) == sorted(f"SHOP-1-{name}" for name in expected)


async def test_a_search_that_is_ninety_seconds_behind_loses_nothing(post: Post, jira: FakeJira) -> None:
    jira.lag = 90.0
    expected = []
    async with post.watch("jira", section(jira, interval_seconds=10)) as watch:
        jira.create("SHOP-1")
        jira.create("SHOP-2")
        for turn in range(60):
            key = f"SHOP-{turn % 2 + 1}"
            expected.append(f"{key}-change-{jira.change(key)}")
            await look(post, watch, 7)
        for _ in range(20):
            await look(post, watch, 10)
    assert sorted(names(post)) == sorted(["SHOP-1-created", "SHOP-2-created", *expected])


async def test_a_night_without_a_court_is_made_up_for(post: Post, jira: FakeJira) -> None:
    async with post.watch("jira", section(jira)) as watch:
        await look(post, watch)
    jira.create("SHOP-1")
    post.clock.now += 9 * 3600
    jira.comment("SHOP-1")
    async with post.watch("jira", section(jira)) as watch:
        await look(post, watch)
    assert post.types() == ["ticket.created", "ticket.commented"]


async def test_an_hour_old_ticket_is_told_once_however_often_it_is_looked_at(post: Post, jira: FakeJira) -> None:
    jira.create("SHOP-1")
    async with post.watch("jira", section(jira)) as watch:
        for _ in range(30):
            await look(post, watch)
    assert names(post) == ["SHOP-1-created"]


async def test_a_limit_is_kept_and_a_question_it_refuses_is_told(post: Post, jira: FakeJira) -> None:
    jira.fail("search", 429, Retry_After="30")
    jira.create("SHOP-1")
    async with post.watch("jira", section(jira)) as watch:
        await watch.poll()
        assert watch.wait() == 30
        post.clock.now += 30
        jira.fail("search", 400, body={"errorMessages": ["The value 'SHOP' does not exist for the field 'project'."]})
        await watch.poll()
        assert "does not exist for the field" in watch.report()["problem"]
        post.clock.now += watch.wait()
        await look(post, watch)
    assert names(post) == ["SHOP-1-created"]


async def test_one_ticket_whose_history_cannot_be_read_does_not_hold_up_the_others_for_ever(
    post: Post, jira: FakeJira
) -> None:
    jira.create("SHOP-1")
    for _ in range(50):
        jira.change("SHOP-1")
    jira.create("SHOP-2")
    jira.fail("changelog", 500, times=1000)
    async with post.watch("jira", section(jira)) as watch:
        for _ in range(8):
            await watch.poll()
            post.clock.now += max(watch.wait(), 61)
    assert "SHOP-2-created" in names(post)


async def test_a_hint_makes_it_look_at_once(post: Post, jira: FakeJira) -> None:
    async with post.watch("jira", section(jira)) as watch:
        await look(post, watch, 5)
        jira.create("SHOP-1")
        write_hint(post.home, "jira", "delivery-1", {"key": "SHOP-1"})
        assert watch.wait() == 0
        await watch.poll()
        assert watch.wait() > 0
    assert names(post) == ["SHOP-1-created"]


async def test_a_project_that_is_gone_does_not_stop_the_others(post: Post, jira: FakeJira) -> None:
    wanted = JiraSection(url=jira.url, email="bot@acme.example", projects=["SHOP", "OPS"])
    async with post.watch("jira", wanted) as watch:
        await look(post, watch)
        jira.hidden.add("OPS")
        jira.create("SHOP-1")
        jira.create("OPS-1")
        await look(post, watch)
        assert list(watch.report()["problems"]) == ["OPS"]
        assert "jira.projects" in watch.report()["problems"]["OPS"]
        for number in range(2, 6):
            jira.create(f"SHOP-{number}")
            await look(post, watch, 3600)
    assert len(names(post)) == 5
    async with post.watch("jira", wanted) as watch:
        await look(post, watch)
        assert list(watch.report()["problems"]) == ["OPS"]
        jira.hidden.clear()
        post.clock.now += 600
        for _ in range(3):
            await look(post, watch)
        assert "problems" not in watch.report()
        jira.create("OPS-2")
        await look(post, watch)
    assert len(names(post)) == 7, "what happened in the meantime was read afterwards"


async def test_all_projects_gone_is_a_problem_of_the_source(post: Post, jira: FakeJira) -> None:
    jira.hidden.add("SHOP")
    async with post.watch("jira", section(jira)) as watch:
        await watch.poll()
        assert "does not exist for the field" in watch.report()["problem"]


async def test_a_ticket_whose_history_is_refused_does_not_stop_the_others(post: Post, jira: FakeJira) -> None:
    jira.create("SHOP-1")
    for _ in range(50):
        jira.change("SHOP-1")
    jira.create("SHOP-2")
    jira.fail("changelog", 403, times=1000)
    async with post.watch("jira", section(jira)) as watch:
        for _ in range(8):
            await watch.poll()
            post.clock.now += max(watch.wait(), 61)
    assert len([event for event in post.events() if event["payload"]["key"] == "SHOP-2"]) == 1
