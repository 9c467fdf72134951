"""The sentinel hears GitHub: a real client over the loopback interface against a server with GitHub's habits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.models import timestamp
from kingdom.court.sentinel.config import GitHubSection
from kingdom.court.sentinel.watcher import SourcePoller, hints_folder, write_hint
from tests.support.fake_github import ME, REPO, FakeGitHub
from tests.support.sentinels import Post


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with Post(tmp_path).open() as opened:
        yield opened


@pytest.fixture
async def github(post: Post) -> AsyncIterator[FakeGitHub]:
    async with FakeGitHub(post.clock) as server:
        yield server


def section(github: FakeGitHub, **more: Any) -> GitHubSection:
    return GitHubSection(url=github.url, **more)


async def look(post: Post, watch: SourcePoller, seconds: float = 61.0) -> None:
    """One look, when it is time for it."""
    await watch.poll()
    post.clock.now += seconds


def act(post: Post, seconds: float = 2.0) -> None:
    """Time passes between two acts."""
    post.clock.now += seconds


async def test_each_thing_that_people_do_is_one_event_of_its_own_type(post: Post, github: FakeGitHub) -> None:
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        github.open(1)
        act(post)
        github.open(2, pr=False)
        act(post, 100)
        request = github.request_review(1)
        comment = github.comment(1)
        mention = github.comment(2, f"What do you think, @{ME}?")
        assigned = github.assign(2)
        taken = github.unassign(2)
        github.unassign(2, of="somebody")
        review = github.review(1, "changes_requested", "no", lines=("why?", "and this?"))
        sha = github.push(1)
        act(post)
        await look(post, watch)
        act(post)
        github.merge(1)
        github.close(2)
        await look(post, watch)
    found = {event["id"].removeprefix("evt-github-900000-"): event["type"] for event in post.events()}
    merged = next(name for name in found if "merged" in name)
    closed = next(name for name in found if "closed" in name)
    assert found == {
        "1-opened": "github.pr.opened",
        "2-opened": "github.issue.opened",
        f"1-request-{request}": "github.pr.review_requested",
        f"1-comment-{comment}": "github.pr.commented",
        f"2-comment-{mention}": "github.issue.mentioned",
        f"2-assigned-{assigned}": "github.issue.assigned",
        f"2-unassigned-{taken}": "github.issue.unassigned",
        f"1-review-{review}": "github.pr.reviewed",
        merged: "github.pr.merged",
        closed: "github.issue.closed",
    }
    assert "1-updated-" + sha[:16] not in found  # it was pushed before anybody had looked: the opening tells of it
    event = next(event for event in post.events() if event["type"] == "github.pr.reviewed")
    assert [line["body"] for line in event["payload"]["line_comments"]] == ["why?", "and this?"]
    assert event["payload"]["head_sha"] == sha
    assert event["repo"] == REPO
    assert post.detected() == [
        event["id"] for event in sorted(post.events(), key=lambda event: post.detected().index(event["id"]))
    ]
    assert set(post.detected()) == post.seen() == {event["id"] for event in post.events()}


async def test_two_review_requests_on_one_pull_request_are_two_events(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    act(post, 100)
    async with post.watch("github", section(github)) as watch:
        github.request_review(1)
        await look(post, watch)
        github.request_review(1)
        await look(post, watch)
        await look(post, watch)
    assert post.types().count("pr.review_requested") == 2


async def test_a_pull_request_opened_with_us_as_reviewer_is_one_event(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    act(post)
    github.request_review(1)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
    assert post.types() == ["pr.review_requested"]


async def test_a_request_that_was_taken_back_before_anybody_looked_is_not_heard(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    act(post, 100)
    github.request_review(1)
    act(post)
    github.withdraw_review(1)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
    assert post.types() == ["pr.opened", "pr.review_request_removed"]


async def test_a_request_that_is_taken_back_is_heard(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    act(post, 100)
    async with post.watch("github", section(github)) as watch:
        github.request_review(1)
        await look(post, watch)
        act(post)
        github.withdraw_review(1, "somebody")
        github.withdraw_review(1)
        await look(post, watch)
    assert post.types()[-2:] == ["pr.review_requested", "pr.review_request_removed"]
    assert post.events()[-1]["payload"]["reviewer"] == ME


async def test_new_commits_are_told_once_for_each_head(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        sha = github.push(1)
        await look(post, watch)
        github.comment(1, "done")
        await look(post, watch)
    assert post.types() == ["pr.opened", "pr.updated", "pr.commented"]
    assert post.events()[1]["id"].endswith(f"updated-{sha[:16]}")
    assert post.events()[1]["payload"]["previous_sha"] == f"{1:040x}"


async def test_a_head_that_returns_to_an_earlier_commit_is_an_event_each_time(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    first = f"{1:040x}"
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        second = github.push(1)
        await look(post, watch)
        for sha in (first, second, first):
            github.force_push(1, sha)
            await look(post, watch, 700)
            await look(post, watch, 700)
        github.force_push(1, second, by=ME)
        await look(post, watch, 700)
    assert post.types() == ["pr.opened"] + ["pr.updated"] * 4, "what we did ourselves is none"
    heads = [event["payload"]["head_sha"] for event in post.events()]
    assert heads == [first, second, first, second, first]
    assert [event["payload"].get("previous_sha") for event in post.events()] == [None, *heads[:-1]]


async def test_a_mention_that_is_added_to_a_comment_later_is_not_heard_as_the_docs_say(
    post: Post, github: FakeGitHub
) -> None:
    github.open(1, pr=False)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        github.comment(1, "hello")
        await look(post, watch)
        github.timelines[REPO, 1][-1] |= {"body": f"hello @{ME}", "updated_at": timestamp(post.clock.now)}
        github.touch(1)
        await look(post, watch)
    assert post.types() == ["issue.opened", "issue.commented"]
    docs = Path(__file__).parents[3] / "docs" / "how-to" / "connect-github-jira-slack.md"
    assert "A mention that is added to a comment by editing it is not heard" in " ".join(docs.read_text().split())


async def test_what_our_own_account_does_is_no_event(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    async with post.watch("github", section(github, own_accounts=["Our-Other-Bot"])) as watch:
        await look(post, watch)
        github.comment(1, "I am on it", by=ME)
        github.comment(1, "Me too", by="our-other-bot")
        github.comment(1, "Done.\n\n<!-- kingdom task-20260921-001 -->", by="the-owner-of-another-token")
        github.push(1, by=ME)
        github.touch(1)
        await look(post, watch)
        await look(post, watch)
    assert post.types() == ["pr.opened"]


async def test_a_mention_is_sticky_in_the_inbox_but_the_next_comment_is_only_a_comment(
    post: Post, github: FakeGitHub
) -> None:
    github.open(1, pr=False)
    act(post, 100)
    github.comment(1, f"@{ME} please")
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        github.comment(1, "never mind, `@kingdom-botany` is somebody else")
        await look(post, watch)
    assert {thread["reason"] for thread in github.threads.values()} == {"mention"}
    assert post.types() == ["issue.opened", "issue.mentioned", "issue.commented"]


async def test_notifications_on_three_pages_are_all_read_and_marked(post: Post, github: FakeGitHub) -> None:
    github.notifications_per_page = 4
    for number in range(1, 11):
        github.open(number)
        act(post, 1)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
    assert post.types() == ["pr.opened"] * 10
    assert sorted(github.marked) == sorted(github.threads)
    assert not any(thread["unread"] for thread in github.threads.values())


async def test_a_server_that_says_unchanged_for_ever_is_read_whole_every_few_looks(
    post: Post, github: FakeGitHub
) -> None:
    github.always_unchanged = True
    async with post.watch("github", section(github, full_read_every=4)) as watch:
        await look(post, watch)
        await look(post, watch)
        github.open(1)
        await look(post, watch)
        assert post.types() == []
        assert "if-modified-since" in github.requests[-1].headers
        await look(post, watch)
        await look(post, watch)
    assert post.types() == ["pr.opened"]


async def test_a_last_modified_that_goes_back_hides_nothing(post: Post, github: FakeGitHub) -> None:
    async with post.watch("github", section(github, full_read_every=1000)) as watch:
        for number, modified in enumerate(("Sat, 07 Feb 2026 12:00:00 GMT", "Fri, 06 Feb 2026 12:00:00 GMT"), 1):
            github.last_modified = modified
            github.open(number)
            await look(post, watch)
    assert post.types() == ["pr.opened", "pr.opened"]


async def test_the_interval_the_server_asks_for_is_kept_across_a_restart(post: Post, github: FakeGitHub) -> None:
    github.poll_interval = 300
    async with post.watch("github", section(github)) as watch:
        await watch.poll()
        post.clock.now += 100
        assert watch.wait() == 200
        post.clock.now += 200
        assert watch.wait() == 0
        github.poll_interval = 60
        await watch.poll()
        post.clock.now += 60
        assert watch.wait() == 0
    github.poll_interval = 300
    async with post.watch("github", section(github)) as watch:
        await watch.poll()
    async with post.watch("github", section(github)) as watch:
        github.fail("GET /notifications", 500)
        await watch.poll()
        assert watch.watcher.interval == 300


async def test_a_subject_without_a_number_is_told_by_its_notification(post: Post, github: FakeGitHub) -> None:
    thread = github.notify_of("Release", "v2.4.0", None)
    github.notify_of("CheckSuite", "CI failed", None)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        await look(post, watch)
    assert sorted(post.types()) == ["notification.check_suite", "notification.release"]
    moment = timestamp(post.clock.now - 122).replace(":", "").replace(".000", "")
    assert f"evt-github-{thread}-{moment}" in {event["id"] for event in post.events()}


async def test_what_happened_before_the_court_was_there_is_none_of_its_business(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    act(post, 7200)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        assert (post.types(), github.marked) == ([], [])
        github.comment(1, "still open?")
        await look(post, watch)
    assert post.types() == ["pr.commented"]


async def test_a_notification_that_is_faster_than_its_subject_is_looked_at_again(
    post: Post, github: FakeGitHub
) -> None:
    github.open(1)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        github.comment(1, "hello")
        late = github.timelines[REPO, 1].pop()
        await look(post, watch)
        github.timelines[REPO, 1].append(late)
        await look(post, watch)
    assert post.types() == ["pr.opened", "pr.commented"]


async def test_a_comment_that_comes_while_its_notification_is_marked_as_read_is_found(
    post: Post, github: FakeGitHub
) -> None:
    github.open(1)

    def comment_just_before(request: Any) -> None:
        if request.method == "PATCH":
            github.before = lambda _: None
            post.clock.now += 1
            github.comment(1, "one more thing")

    github.before = comment_just_before
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        await look(post, watch)
    assert post.types() == ["pr.opened", "pr.commented"]


async def test_the_pause_of_a_secondary_rate_limit_is_kept_by_the_next_process_too(
    post: Post, github: FakeGitHub
) -> None:
    github.open(1)
    limit = {"message": "You have exceeded a secondary rate limit"}
    github.fail("GET /repos", 403, body=limit, Retry_After="120")
    async with post.watch("github", section(github)) as watch:
        await watch.poll()
        assert watch.wait() == 120
        assert "secondary rate limit" in watch.report()["problem"]
    asked = len(github.requests)
    async with post.watch("github", section(github)) as watch:
        assert watch.wait() == 120
        post.clock.now += 120
        assert len(github.requests) == asked
        await watch.poll()
    assert post.types() == ["pr.opened"]


async def test_when_the_requests_of_the_hour_are_spent_none_is_made_until_the_next(
    post: Post, github: FakeGitHub
) -> None:
    reset = str(int(post.clock.now) + 900)
    github.fail("GET /notifications", 403, X_RateLimit_Remaining="0", X_RateLimit_Reset=reset, body={"message": "no"})
    async with post.watch("github", section(github)) as watch:
        await watch.poll()
        assert watch.wait() == 900


async def test_a_server_that_fails_is_left_alone_longer_and_longer(post: Post, github: FakeGitHub) -> None:
    github.fail("GET /notifications", 502, times=5)
    github.open(1)
    waits = []
    async with post.watch("github", section(github)) as watch:
        for _ in range(20):
            await watch.poll()
            if not (wait := watch.wait()) or post.types():
                break
            waits.append(wait)
            post.clock.now += max(wait, 61)
    assert waits == sorted(waits)
    assert len(waits) >= 5
    assert post.types() == ["pr.opened"]


async def test_the_circuit_breaks_in_the_middle_of_a_look_and_nothing_is_lost(post: Post, github: FakeGitHub) -> None:
    for number in range(1, 31):
        github.open(number)
    github.fail("GET /repos", 503, times=3)
    async with post.watch("github", section(github)) as watch:
        await watch.poll()
        assert github.asked("GET /repos") == 3  # the other 27 were not even tried
        for _ in range(10):
            post.clock.now += max(watch.wait(), 61)
            await watch.poll()
    assert post.types() == ["pr.opened"] * 30


async def test_one_subject_that_cannot_be_read_does_not_hold_up_the_others(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    github.open(2)
    github.fail("pulls/1", 500, times=4)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        assert post.types() == ["pr.opened"]
        for _ in range(6):
            await look(post, watch, 120)
    assert post.types() == ["pr.opened", "pr.opened"]


async def test_a_subject_that_is_gone_is_left_out(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    github.open(2)
    del github.subjects[REPO, 1]
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
    assert [event["payload"]["number"] for event in post.events()] == [2]


async def test_a_revoked_token_loses_nothing(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    github.fail("GET /repos", 401, times=100, body={"message": "Bad credentials"})
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        assert "Bad credentials" in watch.report()["problem"]
        assert "kingdom connect github" in watch.report()["problem"]
    github.faults.clear()
    post.clock.now += 600
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
    assert post.types() == ["pr.opened"]


async def test_a_token_that_may_not_read_notifications_is_told_in_clear_words(post: Post, github: FakeGitHub) -> None:
    github.fail("/notifications", 403, body={"message": "Resource not accessible by personal access token"})
    async with post.watch("github", section(github)) as watch:
        await watch.poll()
        assert "classic tokens" in watch.report()["problem"]
        assert "repos" in watch.report()["problem"]


async def test_repositories_are_watched_with_any_token(post: Post, github: FakeGitHub) -> None:
    async with post.watch("github", section(github, notifications=False, repos=[REPO])) as watch:
        await look(post, watch)
        for number in range(1, 4):
            github.open(number)
        await look(post, watch)
        act(post, 100)
        github.comment(2, "hi")
        github.request_review(3, reviewer="somebody-else")
        await look(post, watch)
        await look(post, watch)
        await look(post, watch)
    assert post.types() == ["pr.opened"] * 3 + ["pr.commented"]
    assert github.asked("/notifications") == 0
    assert "if-none-match" in [one for one in github.requests if one.path.startswith("/repos/")][-1].headers


async def test_the_inbox_and_a_repository_together_tell_each_thing_once(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    async with post.watch("github", section(github, repos=[REPO])) as watch:
        await look(post, watch)
        github.comment(1, "hi")
        await look(post, watch)
    assert post.types() == ["pr.opened", "pr.commented"]


async def test_a_long_timeline_is_read_from_its_end(post: Post, github: FakeGitHub) -> None:
    github.open(1, pr=False)
    for _ in range(450):
        github.entry(1, "subscribed", "grace")
    act(post, 7200)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        github.comment(1, "the end")
        await look(post, watch)
    pages = [request.query.get("page") for request in github.requests if request.path.endswith("/timeline")]
    assert post.types() == ["issue.commented"]
    assert pages == [None, "5"]


async def test_a_hint_from_a_webhook_is_looked_at_at_once_without_asking_for_the_lists(
    post: Post, github: FakeGitHub
) -> None:
    async with post.watch("github", section(github)) as watch:
        await look(post, watch, 5.0)
        github.open(1)
        write_hint(post.home, "github", "delivery-1", {"repo": REPO, "number": 1, "is_pr": True})
        assert watch.wait() == 0
        asked = github.asked("GET /notifications")
        await watch.poll()
        assert github.asked("GET /notifications") == asked
        assert post.types() == ["pr.opened"]
        assert list(hints_folder(post.home).iterdir()) == []
        post.clock.now += 61
        await watch.poll()
    assert post.types() == ["pr.opened"]


async def test_types_and_repositories_that_are_not_wanted_are_left_out(post: Post, github: FakeGitHub) -> None:
    github.open(1)
    github.open(2, pr=False)
    github.open(3, repo="other/thing")
    wanted = section(github, only_repos=["acme/*"], ignore=["github.issue.*"])
    async with post.watch("github", wanted) as watch:
        await look(post, watch)
    assert [event["type"] for event in post.events()] == ["github.pr.opened"]
    assert post.events()[0]["repo"] == REPO


async def test_text_that_no_document_can_hold_is_made_fit(post: Post, github: FakeGitHub) -> None:
    github.open(1, body="half \ud800 a character, a \0 and " + "x" * 200_000)
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
    body = post.events()[0]["payload"]["body"]
    assert body.startswith("half ? a character, a  and xxx")
    assert "characters left out" in body


async def test_a_second_comment_in_the_second_in_which_the_first_was_read_is_heard_at_the_next_look(
    post: Post, github: FakeGitHub
) -> None:
    github.tells_time = True
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        github.open(1)
        act(post, 100)
        first = github.comment(1)
        await look(post, watch, 0.4)
        second = github.comment(1)  # the thread's time stays the same, and it has been marked as read
        post.clock.now += 61
        await look(post, watch)
        heard = {event["id"] for event in post.events()}
        asked = len(github.requests)
        await look(post, watch)
        assert len(github.requests) <= asked + 1, "once the second is over, nothing is read again"
    assert {f"evt-github-900000-1-comment-{comment}" for comment in (first, second)} <= heard


# ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("more", [{}, {"notifications": False, "repos": [REPO]}])
async def test_a_failed_check_of_an_own_pull_request_is_heard_once(
    post: Post, github: FakeGitHub, more: dict[str, Any]
) -> None:
    async with post.watch("github", section(github, **more)) as watch:
        await look(post, watch)
        github.open(1, by=ME)
        github.open(2)
        for number in (1, 2):
            github.check(number, "success", "lint")
        failed = github.check(1, "failure")
        github.check(2, "failure")
        for _ in range(12):
            await look(post, watch)
        found = [event for event in post.events() if event["type"] == "github.pr.check_failed"]
        assert [event["id"] for event in found] == [f"evt-github-900000-1-check_failed-{failed}"]
        assert found[0]["payload"]["check"] == {
            "name": "tests", "conclusion": "failure", "url": "https://ci.example/1",
            "title": "2 failed", "summary": "test_ls failed",
        }  # fmt: skip
        assert found[0]["payload"]["url"] == f"https://github.example/{REPO}/pull/1"
        assert github.asked("/search/issues") <= 4, "every five minutes"


async def test_checks_that_cannot_be_read_stop_nothing_else(post: Post, github: FakeGitHub) -> None:
    github.open(1, by=ME)
    del github.subjects[REPO, 1]["head"]["sha"]
    async with post.watch("github", section(github)) as watch:
        await look(post, watch)
        github.open(2)
        await look(post, watch)
    assert post.types() == ["pr.opened"]


async def test_checks_are_not_asked_for_when_they_are_switched_off(post: Post, github: FakeGitHub) -> None:
    async with post.watch("github", section(github, checks=False)) as watch:
        await look(post, watch)
    assert github.asked("/search/issues") == 0
