"""What people say about a pull request goes on with the work of the task that opened it."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.port import Order, Outcome
from kingdom.court.cancellations import cancel_requests
from kingdom.court.general.landing import land_again
from kingdom.court.loop import Services
from kingdom.court.models import Task, timestamp
from kingdom.court.packages.manifest import Manifest
from kingdom.court.pull_requests import OpenedPullRequests, is_marked, opened_by
from kingdom.court.queues import is_answered
from kingdom.court.sentinel.jira_events import adf_text
from kingdom.journal import Journal
from tests.support.fake_agents import FakeAgents
from tests.support.fake_jira import FakeJira
from tests.support.generals import NOW, Post, posted
from tests.support.github_server import GitHubServer, github_of_a_court
from tests.support.kings import Realm, looks
from tests.support.repositories import plain_git

BRANCH = "kingdom/acme-app-5"
URL = "https://github.example/acme/app/pull/12"


# ── the king ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path).open() as realm:
        own = [{"type": "github.pr.commented", "own": True}]
        realm.install("gen-fix", subscribes=["github.issue.assigned", *own], notify="silent")
        yield realm


async def opened(realm: Realm, **result: Any) -> Task:
    """An issue that ends in a pull request; returns its task."""
    await realm.event(1, "github.issue.assigned", repo="acme/app", payload={"number": 5})
    king = realm.king()
    await king.start()
    await looks(king)
    fields = {"pull_requests": [{"url": URL, "branch": BRANCH}], "work_id": "task-20260207-001", **result}
    (task,) = await realm.work("gen-fix", **fields)
    await looks(king)
    await king.stop()
    return task


async def commented(realm: Realm, event: int, /, **payload: Any) -> list[Task]:
    """A comment; returns the tasks that wait, after another king has come to the throne."""
    fields = {"number": 12, "url": URL, "state": "open", **payload}
    await realm.event(event, "github.pr.commented", repo="acme/app", payload=fields)
    king = realm.king()
    await king.start()
    await looks(king)
    await king.stop()
    return realm.tasks()


async def test_a_comment_becomes_a_follow_up_of_the_last_task(realm: Realm) -> None:
    first = await opened(realm)
    (second,) = await commented(realm, 2)
    known = {"url": URL, "branch": BRANCH, "general": "gen-fix", "work_id": first.id, "checks": 0, "opened_for": None}
    assert second.document()["follow_up"] == {**known, "task_id": first.id}
    await realm.work("gen-fix", pull_requests=[{"url": URL, "branch": BRANCH}], work_id=first.id)
    (third,) = await commented(realm, 3, url=URL.upper())
    assert third.document()["follow_up"] == {**known, "task_id": second.id}


@pytest.mark.parametrize(
    "payload", [{"url": URL.replace("12", "13"), "number": 13}, {"state": "merged"}, {"state": "closed"}, {"url": None}]
)
async def test_pull_requests_of_others_and_finished_ones_are_left_alone(realm: Realm, payload: dict[str, Any]) -> None:
    await opened(realm)
    assert await commented(realm, 2, **payload) == []
    assert realm.where("evt-github-2") == ("completed", "completed")


async def test_its_end_is_a_task_of_its_own(realm: Realm) -> None:
    realm.install("gen-fix", subscribes=["github.issue.assigned", {"type": "github.pr.*", "own": True}])
    await opened(realm)
    await realm.event(2, "github.pr.merged", repo="acme/app", payload={"number": 12, "url": URL, "state": "merged"})
    king = realm.king()
    await king.start()
    await looks(king)
    (task,) = realm.tasks()
    assert (task.type, "follow_up" in task.document()) == ("github.pr.merged", False)


@pytest.mark.parametrize("named", [None, "x", ["x"], [{"url": URL}], [{"url": 7, "branch": BRANCH}]])
async def test_a_result_that_names_no_pull_request_records_none(realm: Realm, named: Any) -> None:
    await opened(realm, pull_requests=named)
    assert OpenedPullRequests(realm.home).find(URL) is None
    assert await commented(realm, 2) == []


async def several(realm: Realm, *events: tuple[int, str, dict[str, Any]]) -> list[Task]:
    """The tasks that come of events about the pull request which wait together, one after the other."""
    types = [{"type": "github.pr.*", "own": True}]
    realm.install("gen-fix", subscribes=["github.issue.assigned", *types], notify="silent")
    first = await opened(realm)
    for event, kind, payload in events:
        about = {"number": 12, "url": URL, "actor": "ann", **payload}
        await realm.event(event, f"github.pr.{kind}", repo="acme/app", payload=about)
    done = []
    while True:
        await reign(realm)
        found = await realm.work("gen-fix", pull_requests=[{"url": URL, "branch": BRANCH}], work_id=first.id)
        if not found:
            return done
        done += found


def comment(text: str, **more: Any) -> dict[str, Any]:
    return {"comment": {"author": "ann", "body": text}, **more}


# ── what is said on the issue ─────────────────────────────────────────────────────────────────────────────────────

OPENED = {"url": URL, "branch": BRANCH, "opened_for": "acme/app#5"}


@pytest.fixture
async def heard(realm: Realm) -> Realm:
    """Generals that are mentioned: the one that opens pull requests is asked last."""
    realm.install("gen-any", subscribes=["github.issue.mentioned"], order=1)
    own = [{"type": "github.pr.commented", "own": True}]
    types = ["github.issue.assigned", "github.issue.mentioned", "jira.ticket.mentioned", *own]
    realm.install("gen-fix", subscribes=types, notify="silent")
    return realm


async def mentioned(realm: Realm, event: int, text: str = "And cp.", number: int = 5) -> str:
    payload = {"number": number, "actor": "ann", **comment(text)}
    return await realm.event(event, "github.issue.mentioned", repo="acme/app", payload=payload)


async def test_a_mention_on_its_issue_goes_on_with_the_pull_request(heard: Realm) -> None:
    first = await opened(heard, pull_requests=[OPENED])
    await mentioned(heard, 2)
    await mentioned(heard, 3, number=6)
    await reign(heard)
    second, other = heard.tasks()
    known = {**OPENED, "general": "gen-fix", "task_id": first.id, "work_id": first.id, "checks": 0}
    assert (second.target_general, second.document()["follow_up"]) == ("gen-fix", known)
    assert (other.target_general, "follow_up" in other.document()) == ("gen-any", False)
    await heard.work("gen-fix", pull_requests=[{"url": URL, "branch": BRANCH}], work_id=first.id)
    await reign(heard)
    record = OpenedPullRequests(heard.home).find_for("acme/app#5")
    assert (record and record.task_id) == second.id, "a task about the pull request does not hide the issue"


async def test_a_mention_that_waited_for_the_task_goes_on_with_its_pull_request(heard: Realm) -> None:
    await heard.event(1, "github.issue.assigned", repo="acme/app", payload={"number": 5})
    king = heard.king()
    await king.start()
    await looks(king)
    await mentioned(heard, 2)
    heard.clock.now += 60  # so that it reads events
    await looks(king)
    assert (king.report()["waiting"], len(heard.tasks())) == (1, 1)
    (first,) = await heard.work("gen-fix", pull_requests=[OPENED], work_id="task-20260207-001")
    await looks(king)
    (second,) = heard.tasks()
    assert (second.target_general, second.document()["follow_up"]["task_id"]) == ("gen-fix", first.id)
    await king.stop()


async def test_issue_and_pull_request_are_worked_on_one_after_the_other(heard: Realm) -> None:
    first = await opened(heard, pull_requests=[OPENED])
    await mentioned(heard, 2)
    await mentioned(heard, 3)
    about = {"number": 12, "url": URL, "actor": "ann", **comment("Call it dump.")}
    await heard.event(4, "github.pr.commented", repo="acme/app", payload=about)
    types = []
    for _ in range(2):
        await reign(heard)
        (task,) = await heard.work("gen-fix", pull_requests=[OPENED], work_id=first.id)
        types.append((task.type, [one["comment"]["body"] for one in task.payload.get("further", [])]))
    await reign(heard)
    assert types == [("github.issue.mentioned", ["And cp."]), ("github.pr.commented", [])]
    assert heard.tasks() == []


async def test_the_latest_pull_request_of_an_issue_counts(heard: Realm) -> None:
    await opened(heard, pull_requests=[OPENED])
    again = {**OPENED, "url": URL.replace("12", "14"), "branch": f"{BRANCH}-2"}
    for event in (2, 3):
        await mentioned(heard, event)
        await reign(heard)
        (task,) = await heard.work("gen-fix", pull_requests=[again], work_id="task-20260207-002")
        await reign(heard)
    assert task.document()["follow_up"]["url"] == again["url"]


async def test_messages_about_issue_and_pull_request_name_what_was_first_asked_for(heard: Realm) -> None:
    types = ["github.issue.assigned", "github.issue.mentioned", {"type": "github.pr.commented", "own": True}]
    heard.install("gen-fix", subscribes=types)
    first = await opened(heard, pull_requests=[OPENED])
    await commented(heard, 2)
    await heard.work("gen-fix", pull_requests=[OPENED], work_id=first.id)
    await mentioned(heard, 3)
    await reign(heard)
    assert [one.context["topic"] for one in heard.messages()] == ["acme/app#5"] * 5


async def test_a_ticket_goes_on_with_its_pull_request_too(heard: Realm) -> None:
    await opened(heard, pull_requests=[{**OPENED, "opened_for": "APP-7"}])
    await heard.event(2, "jira.ticket.mentioned", payload={"key": "APP-7", **comment("And cp.")})
    await reign(heard)
    (task,) = heard.tasks()
    assert task.document()["follow_up"]["url"] == URL


async def test_a_question_about_it_is_answered_on_the_issue_or_the_pull_request(heard: Realm) -> None:
    first = await opened(heard, pull_requests=[OPENED])
    for event, kind, number in ((2, "github.issue.mentioned", 5), (4, "github.pr.commented", 12)):
        await mentioned(heard, event)
        await reign(heard)
        (asked,) = await heard.work("gen-fix", status="needs_human", question={"text": "Red?"}, asked_at=NOON)
        await reign(heard)
        about = {"number": number, "actor": "ann", **({"url": URL} if number == 12 else {}), **comment("Blue.")}
        await heard.event(event + 1, kind, repo="acme/app", payload=about, created_at="2026-02-07T12:01:00Z")
        await reign(heard)
        (resumed,) = await heard.work("gen-fix", pull_requests=[OPENED], work_id=first.id)
        assert (resumed.type, resumed.payload["answer"], resumed.payload["original_task_id"]) == (
            "resume", "Blue.", asked.id,
        )  # fmt: skip
        await reign(heard)


async def test_what_waits_for_a_pull_request_is_one_task(realm: Realm) -> None:
    lines = [{"body": f"line {number}", "path": "ls.py"} for number in range(30)]
    (task,) = await several(
        realm,
        (2, "commented", comment("Call it dump.")),
        (3, "reviewed", comment("x" * 20_000, review_state="changes_requested", line_comments=lines, title="Long")),
        (4, "check_failed", {"check": {"name": "tests"}, "head_sha": "1" * 40}),
    )
    assert task.payload["comment"]["body"] == "Call it dump."
    review, check = task.payload["further"]
    assert (review["type"], review["review_state"], len(review["line_comments"]), "title" in review) == (
        "github.pr.reviewed",
        "changes_requested",
        20,
        False,
    )
    assert 8_000 <= len(review["comment"]["body"]) < 8_100
    assert check == {
        "type": "github.pr.check_failed",
        "actor": "ann",
        "check": {"name": "tests"},
        "head_sha": "1" * 40,
    }
    for number in (2, 3, 4):
        assert realm.where(f"evt-github-{number}") == ("completed", "completed")
        assert ("event.dispatched", f"evt-github-{number}", task.id) in [
            (name, data.get("event_id"), data.get("task_id")) for name, data in realm.journal()
        ]


async def test_a_failed_check_takes_no_comment_along(realm: Realm) -> None:
    check: dict[str, Any] = {"check": {"name": "tests"}}
    first, second = await several(
        realm, (2, "check_failed", check), (3, "commented", comment("Thanks")), (4, "check_failed", check)
    )
    assert (first.type, [one["type"] for one in first.payload["further"]]) == (
        "github.pr.check_failed",
        ["github.pr.check_failed"],
    )
    assert (second.type, "further" in second.payload) == ("github.pr.commented", False)


async def test_an_end_joins_nothing_and_is_joined_by_nothing(realm: Realm) -> None:
    tasks = await several(realm, (2, "commented", comment("Call it dump.")), (3, "merged", {"state": "merged"}))
    assert [(task.type, "further" in task.payload) for task in tasks] == [
        ("github.pr.commented", False),
        ("github.pr.merged", False),
    ]


async def test_with_rules_of_trust_only_words_of_the_same_person_join(realm: Realm) -> None:
    realm.home.config.mkdir(exist_ok=True)
    rules = {"default": "trusted", "rules": [{"source": "github", "users": ["ann", "bob"], "tier": "trusted"}]}
    (realm.home.config / "trust.yaml").write_text(json.dumps(rules))
    by_bob = {**comment("No."), "actor": "bob"}
    tasks = await several(
        realm, (2, "commented", comment("One.")), (3, "commented", by_bob), (4, "commented", comment("Two."))
    )
    said = [[one["comment"]["body"] for one in (task.payload, *task.payload.get("further", []))] for task in tasks]
    assert said == [["One.", "Two."], ["No."]]


async def test_events_that_join_one_that_vanishes_are_given_back(realm: Realm) -> None:
    await opened(realm)
    for event in (2, 3):
        about = {"number": 12, "url": URL, **comment(f"{event}")}
        await realm.event(event, "github.pr.commented", repo="acme/app", payload=about)
    king = realm.king()
    await king.start()
    claim = realm.bus.claim

    async def claim_after_another(stream: str, **options: Any) -> Any:
        if "evt-github-2" in (options.get("ids") or ()):
            realm.lose("events", "evt-github-2")
        return await claim(stream, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(realm.bus, "claim", claim_after_another)
        await looks(king)
    (task,) = realm.tasks()
    assert (task.event_id, "further" in task.payload) == ("evt-github-3", False)


# ── what ends work ────────────────────────────────────────────────────────────────────────────────────────────────


async def ended(realm: Realm, event: int, kind: str, at: str = "2026-02-07T12:05:00Z", **payload: Any) -> None:
    about = {"number": 5, "actor": "ann", **payload}
    await realm.event(event, f"github.{kind}", repo="acme/app", payload=about, created_at=at)
    await reign(realm)


@pytest.fixture
async def issue(realm: Realm) -> Realm:
    """A general at work on issue 5, which ends with the issue."""
    types = ["github.issue.assigned", "github.issue.mentioned", {"type": "github.pr.commented", "own": True}]
    ends = ["github.issue.closed", "github.issue.unassigned", "github.pr.merged"]
    realm.install("gen-fix", subscribes=types, cancel_on=ends)
    payload = {"number": 5, "title": "Sort"}
    await realm.event(1, "github.issue.assigned", repo="acme/app", payload=payload, created_at=NOON)
    await reign(realm)
    return realm


@pytest.mark.parametrize(
    ("kind", "why"), [("closed", "was closed by ann"), ("unassigned", "was unassigned by ann"), ("labeled", None)]
)
async def test_a_task_that_waits_ends_with_its_issue(issue: Realm, kind: str, why: str | None) -> None:
    await ended(issue, 2, f"issue.{kind}")
    assert [task.status for task in issue.tasks()] == ([] if why else ["pending"])
    if why is not None:
        (task,) = issue.tasks("completed")
        result = json.loads(issue.home.result(task.id).read_text())
        assert (result["status"], result["error"]) == ("cancelled", f"acme/app#5 {why}")
        assert f"gen-fix no longer works on acme/app#5 Sort\nacme/app#5 {why}" in issue.messages()[-1].content
        assert issue.where("evt-github-1") == ("completed", "cancelled")
        told = {"event_id": "evt-github-2", "task_id": task.id, "target_general": "gen-fix"}
        assert ("event.dispatched", told) in issue.journal()
    assert issue.where("evt-github-2") == ("completed", "completed")


async def test_a_task_that_runs_is_cancelled_at_its_general(issue: Realm) -> None:
    (delivery,) = await issue.bus.claim("tasks", worker="gen-fix", lease=60)
    await ended(issue, 2, "issue.closed")
    assert cancel_requests(issue.home, "gen-fix") == {delivery.event_id: ("acme/app#5 was closed by ann", None)}


async def test_a_question_ends_with_its_issue(issue: Realm) -> None:
    await issue.work("gen-fix", status="needs_human", question={"text": "red or blue?"})
    await reign(issue)
    await ended(issue, 2, "issue.closed")
    assert issue.where("evt-github-1") == ("completed", "cancelled")


async def test_what_happened_before_and_waits_is_dropped_and_what_came_after_is_not(issue: Realm) -> None:
    for event, minute in ((2, 4), (3, 6)):
        payload = {"number": 5, **comment("And cp.")}
        at = f"2026-02-07T12:0{minute}:00Z"
        await issue.event(event, "github.issue.mentioned", repo="acme/app", payload=payload, created_at=at)
    await ended(issue, 4, "issue.closed")
    (task,) = issue.tasks()
    assert task.event_id == "evt-github-3"
    reasons = {data["event_id"]: data["reason"] for name, data in issue.journal() if name == "event.discarded"}
    assert reasons["evt-github-2"] == "overtaken by github.issue.closed"


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("issue.closed", {"number": 6}),
        ("issue.closed", {"at": "2026-02-07T11:59:00Z"}),
        ("pr.merged", {}),
        ("pr.closed", {}),
    ],
    ids=["another issue", "closed before", "of another kind", "not in the manifest"],
)
async def test_nothing_else_ends_it(issue: Realm, kind: str, more: dict[str, Any]) -> None:
    await ended(issue, 2, kind, **more)
    assert len(issue.tasks()) == 1


async def test_a_review_ends_with_its_pull_request_and_a_mention_on_the_issue_does_not(issue: Realm) -> None:
    await issue.work("gen-fix", pull_requests=[OPENED], work_id="task-20260207-001")
    await reign(issue)
    about = {"number": 12, "url": URL, **comment("Call it dump.")}
    await issue.event(2, "github.pr.commented", repo="acme/app", payload=about, created_at=NOON)
    await reign(issue)
    assert [task.type for task in issue.tasks()] == ["github.pr.commented"]
    await ended(issue, 3, "pr.merged", number=12, url=URL, state="merged")
    assert issue.tasks() == []
    for event, waits in ((4, True), (6, False)):
        await mentioned(issue, event)
        if not waits:
            await reign(issue)
        await ended(issue, event + 1, "pr.merged", number=12, url=URL, state="merged")
        assert [task.event_id for task in issue.tasks()] == [f"evt-github-{event}"]
        await issue.work("gen-fix")


async def test_a_review_ends_when_nobody_asks_for_it_any_more(realm: Realm) -> None:
    kinds = ["github.pr.review_requested", "github.pr.review_request_removed"]
    realm.install("gen-pr", subscribes=kinds[:1], cancel_on=kinds[1:])
    await realm.event(1, kinds[0], repo="acme/app", payload={"number": 7}, created_at=NOON)
    await reign(realm)
    assert len(realm.tasks()) == 1
    await ended(realm, 2, "pr.review_request_removed", number=7)
    (task,) = realm.tasks("completed")
    assert (
        json.loads(realm.home.result(task.id).read_text())["error"] == "ann took back the request to review acme/app#7"
    )


async def test_new_commits_replace_the_review_of_older_ones(realm: Realm) -> None:
    realm.install("gen-pr", subscribes=["github.pr.opened", "github.pr.updated"], cancel_on=["github.pr.updated"])
    for event, kind in enumerate(("opened", "updated", "updated", "updated"), 1):
        at = f"2026-02-07T12:0{event}:00Z"
        await realm.event(event, f"github.pr.{kind}", repo="acme/app", payload={"number": 7}, created_at=at)
        if event in (1, 4):
            await reign(realm)
    (task,) = realm.tasks()
    assert task.event_id == "evt-github-4"
    assert [one.event_id for one in realm.tasks("completed")] == ["evt-github-1"]


async def test_somebody_who_may_not_use_the_court_ends_nothing(issue: Realm) -> None:
    rules = {"default": "trusted", "rules": [{"source": "github", "users": ["ann"], "tier": "refuse"}]}
    (issue.home.config / "trust.yaml").write_text(json.dumps(rules))
    by_bob = {"number": 5, **comment("And cp."), "actor": "bob"}
    await issue.event(2, "github.issue.mentioned", repo="acme/app", payload=by_bob, created_at=NOON)
    await ended(issue, 3, "issue.closed")
    assert issue.where("evt-github-3") == ("completed", "completed"), "it is refused"
    assert len(issue.tasks()) == 1
    assert issue.ids("events", "pending") == ["evt-github-2"], "what waits is not dropped either"


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def asking(realm: Realm, **result: Any) -> Task:
    """A task that asks, at noon; returns it."""
    realm.install("gen-fix", subscribes=["github.issue.*"], notify="silent")
    realm.install("gen-other", subscribes=["github.pr.*"])
    await realm.event(1, "github.issue.assigned", repo="acme/app", payload={"number": 5})
    await reign(realm)
    (task,) = await realm.work("gen-fix", status="needs_human", question={"text": "red or blue?"}, **result)
    await reign(realm)
    return task


async def reign(realm: Realm) -> None:
    """Each time it is another king."""
    king = realm.king()
    await king.start()
    await looks(king)
    await king.stop()


async def said(realm: Realm, event: int, text: str, at: str, kind: str = "github.issue.mentioned") -> str:
    payload = {"number": 5, "actor": "ann", "comment": {"author": "ann", "body": text}}
    return await realm.event(event, kind, repo="acme/app", payload=payload, created_at=at)


NOON = "2026-02-07T12:00:00Z"


async def test_a_comment_after_a_posted_question_is_its_answer(realm: Realm) -> None:
    asked = await asking(realm, asked_at=NOON)
    before = await said(realm, 2, "also look at cp", "2026-02-07T11:59:00Z")
    first = await said(realm, 3, "red", "2026-02-07T12:01:00Z")
    second = await said(realm, 4, "no, blue", "2026-02-07T12:02:00Z")
    await reign(realm)
    (resumed,) = realm.tasks()
    answer = f"evt-github-response-{asked.id}-3"
    assert (resumed.type, resumed.event_id, resumed.target_general) == ("resume", answer, "gen-fix")
    assert await is_answered(Services(realm.home, realm.bus, Journal(realm.home.journal, realm.clock)), asked.id)
    assert {name: resumed.payload[name] for name in ("original_task_id", "question", "answer", "user", "number")} == {
        "original_task_id": asked.id, "question": "red or blue?", "answer": "red", "user": "ann", "number": 5,
    }  # fmt: skip
    assert realm.ids("events", "pending") == [before, second], "they wait for the subject, and are tasks of their own"
    for event_id in (before, second):
        await realm.work("gen-fix")
        await reign(realm)
        (task,) = realm.tasks()
        assert (task.type, task.event_id) == ("github.issue.mentioned", event_id)
    assert realm.where(first) == ("completed", "completed")


@pytest.mark.parametrize(
    ("result", "event"),
    [
        ({}, {}),
        ({"asked_at": "soon"}, {}),
        ({"asked_at": NOON}, {"kind": "github.pr.commented"}),
        ({"asked_at": NOON}, {"kind": "github.issue.closed", "text": None}),
        ({"asked_at": NOON}, {"text": " "}),
    ],
    ids=["not posted", "no time", "of another general", "no comment", "no words"],
)
async def test_nothing_else_is_an_answer(realm: Realm, result: dict[str, Any], event: dict[str, Any]) -> None:
    await asking(realm, **result)
    event = dict(event)
    if event.get("text", "") is None:
        await realm.event(2, event["kind"], repo="acme/app", payload={"number": 5}, created_at="2026-02-07T12:01:00Z")
    else:
        await said(realm, 2, event.pop("text", "red"), "2026-02-07T12:01:00Z", **event)
    await reign(realm)
    assert realm.tasks() == []
    assert realm.ids("events", "pending") == ["evt-github-2"], "it waits for the subject"


# ── the general ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubServer]:
    with github_of_a_court(tmp_path / "github", monkeypatch, "acme/app") as server:
        monkeypatch.setattr("kingdom.court.general.landing.OUTAGE_SECONDS", (0.0,))
        yield server


@pytest.fixture
async def post(tmp_path: Path, github: GitHubServer) -> AsyncIterator[Post]:
    async with posted(tmp_path / "court", land="pull-request", evidence=["commit"], retries=0) as post:
        post.base_url = github.url
        post.system = {"git": {"credentials": {github.host: {"env": "HUB_TOKEN"}}}}
        yield post


def fake(post: Post) -> FakeAgents:
    assert isinstance(post.agents, FakeAgents)
    return post.agents


def commits(name: str, summary: str, *commands: tuple[str, ...]) -> Callable[[Order, int], Outcome]:
    """A soldier that runs commands of git and commits a file."""

    def work(order: Order, number: int) -> Outcome:
        for words in commands:
            plain_git(order.cwd, *words)
        (order.cwd / name).write_text(f"{order.run_id}\n")
        plain_git(order.cwd, "add", name)
        plain_git(order.cwd, "commit", "--quiet", "--message", f"Change {name}")
        return Outcome("success", {"status": "success", "summary": summary}, session_id="session-1")

    return work


async def resolved(post: Post) -> dict[str, Any]:
    """An issue that ended in a pull request; returns the result of its task."""
    fake(post).script = commits("ls.py", "ls takes --json.")
    payload = {"number": 5, "title": "Add --json to ls"}
    (result,) = await post.finish(await post.task(repo="acme/app", type="github.issue.assigned", payload=payload))
    return result


async def follow_up(post: Post, first: dict[str, Any], number: int = 2) -> dict[str, Any]:
    """What comes of a comment on the pull request; returns the result of its task."""
    (known,) = opened_by(first, "gen-test")
    payload = {"number": 1, "title": "Add --json to ls", "url": known.url, "comment": {"body": "Call it {{ dump }}."}}
    fields = {"type": "github.pr.commented", "payload": payload, "follow_up": known.document()}
    (result,) = await post.finish(await post.task(number, repo="acme/app", **fields))
    return result


async def on_issue(post: Post, first: dict[str, Any], number: int = 2, **fields: Any) -> dict[str, Any]:
    """What comes of a mention on the issue; returns the result of its task."""
    (known,) = opened_by(first, "gen-test")
    payload = {"number": 5, "title": "Add --json to ls", "comment": {"id": 11, "body": "Call it dump."}}
    given = {"type": "github.issue.mentioned", "payload": payload, "follow_up": known.document(), **fields}
    (result,) = await post.finish(await post.task(number, repo="acme/app", **given))
    return result


@pytest.mark.parametrize(
    ("asked", "status"), [("2026-09-21T14:13:30Z", "skipped"), ("2026-09-21T15:00:00Z", "success")]
)
async def test_who_asks_in_two_ways_at_once_is_answered_once(
    post: Post, github: GitHubServer, asked: str, status: str
) -> None:
    post.now += 60
    first = await resolved(post)
    fake(post).script = commits("dump.py", "It is called dump now.")
    event = {"id": "evt-test-2", "created_at": asked}
    payload = {"number": 5, "title": "Add --json to ls"}
    second = await on_issue(post, first, type="github.issue.assigned", payload=payload, event=event)
    assert second["status"] == status
    if status == "skipped":
        (pull,) = github.pulls["acme/app"]
        done = f"{first['task_id']} has done it, in {pull['html_url']}, since this was asked for"
        assert (second["summary"], len(fake(post).orders)) == (done, 1)
        assert ("acme/app", 5) not in github.comments


def subjects(github: GitHubServer) -> list[str]:
    return plain_git(github.bare("acme/app"), "log", "--format=%s", f"main..{BRANCH}").splitlines()


async def test_a_comment_goes_on_in_the_same_place_branch_and_conversation(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    (pull,) = github.pulls["acme/app"]
    assert (pull["title"], pull["head"]["ref"]) == ("Add --json to ls", BRANCH)
    assert "ls takes --json.\n\nCloses #5.\n" in pull["body"]
    fake(post).script = commits("dump.py", "It is called dump now.")
    second = await follow_up(post, first)
    assert (second["status"], second["error"]) == ("success", None)
    assert subjects(github) == ["Change dump.py", "Change ls.py"]
    assert github.pulls["acme/app"] == [pull], "there is no other, and its text is as it was"
    (comment,) = github.comments["acme/app", 1]
    assert comment["body"] == f"It is called dump now.\n\n<!-- kingdom {second['task_id']} -->"
    before, after = fake(post).orders
    assert (after.cwd, after.session_id) == (before.cwd, "session-1")
    assert "# Your own pull request\n\nPull request 1 is your own work" in after.prompt
    assert "Call it {{ dump }}." in after.prompt
    named = {"url": pull["html_url"], "branch": BRANCH}
    assert (second["pull_requests"], second["work_id"]) == ([named], first["task_id"])
    assert (second["original_task_id"], second["links"]) == (first["task_id"], [pull["html_url"]])
    third = await follow_up(post, second, 3)
    assert (third["original_task_id"], third["work_id"]) == (second["task_id"], first["task_id"])


async def test_what_is_said_on_the_issue_goes_on_there_and_is_answered_on_the_issue(
    post: Post, github: GitHubServer
) -> None:
    first = await resolved(post)
    (pull,) = github.pulls["acme/app"]
    fake(post).script = commits("dump.py", "It is called dump now.", ("cat-file", "-e", "HEAD:ls.py"))
    second = await on_issue(post, first)
    assert (second["status"], second["error"]) == ("success", None)
    assert subjects(github) == ["Change dump.py", "Change ls.py"]
    assert github.pulls["acme/app"] == [pull]
    assert list(github.comments) == [("acme/app", 5)], "GitHub shows on the pull request that it was named there"
    (said,) = github.comments["acme/app", 5]
    assert said["body"] == f"It is called dump now.\n\n{pull['html_url']}\n\n<!-- kingdom {second['task_id']} -->"
    before, after = fake(post).orders
    assert (after.cwd, after.session_id) == (before.cwd, "session-1")
    assert "Pull request 1 is your own work" in after.prompt
    named = {"url": pull["html_url"], "branch": BRANCH, "opened_for": "acme/app#5"}
    assert (second["pull_requests"], second["work_id"]) == ([named], first["task_id"])


@pytest.mark.parametrize("how", ["merged", "closed"])
async def test_after_its_end_there_is_another_pull_request(post: Post, github: GitHubServer, how: str) -> None:
    first = await resolved(post)
    if how == "merged":
        github.merge("acme/app", 1)
    else:
        github.pulls["acme/app"][0]["state"] = "closed"
    fake(post).script = commits("dump.py", "It is called dump now.")
    second = await on_issue(post, first)
    assert fake(post).orders[1].cwd != fake(post).orders[0].cwd
    assert "Pull request 1" not in fake(post).orders[1].prompt
    new = github.pulls["acme/app"][1]
    branch = BRANCH if how == "merged" else f"{BRANCH}-2"  # what is merged may be pushed over
    assert (new["head"]["ref"], new["body"].split("\n\n")[:2]) == (
        branch,
        ["It is called dump now.", "Closes #5."],
    )
    assert (second["links"], "original_task_id" in second) == ([new["html_url"]], False)
    assert github.comments == {}


async def test_it_waits_while_the_state_of_the_pull_request_is_not_known(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    (known,) = opened_by(first, "gen-test")
    payload = {"number": 5, "comment": {"body": "Call it dump."}}
    fields = {"type": "github.issue.mentioned", "payload": payload, "follow_up": known.document()}
    task = await post.task(2, repo="acme/app", **fields)
    general = post.general()
    await general.start()
    github.fail_next = [503]
    progress = post.home.role("gen-test") / "campaigns" / f"{task.id}.json"
    await post.work(general, lambda: progress.exists() and json.loads(progress.read_text())["held"] is not None)
    await general.stop()
    document = json.loads(progress.read_text())
    assert document["held"].startswith(f"the state of {known.url} cannot be read now: acme/app at ")
    assert (document["retries"], document["soldier"], len(fake(post).orders)) == (0, None, 1)


# ── reactions ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "payload", "path"),
    [
        ("issue.assigned", {}, "/issues/5"),
        ("issue.mentioned", {}, "/issues/5"),
        ("issue.mentioned", {"comment": {"id": 11, "body": "Do it."}}, "/issues/comments/11"),
        ("pr.commented", {"comment": {"id": 12, "body": "Why?", "path": "ls.py"}}, "/pulls/comments/12"),
        ("pr.reviewed", {"comment": {"id": 13, "body": "No."}, "review_state": "changes_requested"}, None),
        ("pr.check_failed", {"check": {"name": "tests"}}, None),
        ("issue.mentioned", {"comment": {"id": "../7", "body": "Do it."}}, None),
    ],
)
async def test_a_reaction_shows_that_work_has_begun(
    post: Post, github: GitHubServer, kind: str, payload: dict[str, Any], path: str | None
) -> None:
    fake(post).script = commits("ls.py", "ls takes --json.")
    fields = {"type": f"github.{kind}", "payload": {"number": 5, **payload}}
    (result,) = await post.finish(await post.task(repo="acme/app", **fields))
    assert result["status"] == "success"
    assert github.reactions == ({} if path is None else {path: {"eyes"}})


async def test_without_replies_or_the_right_to_react_nothing_is_shown(post: Post, github: GitHubServer) -> None:
    fields = {"type": "github.issue.assigned", "payload": {"number": 5}}
    fake(post).script = commits("ls.py", "ls takes --json.")
    github.refuse.append("reactions")
    (result,) = await post.finish(await post.task(repo="acme/app", **fields))
    assert (result["status"], github.reactions) == ("success", {})
    github.refuse.clear()
    land = {"how": "pull-request", "replies": False}
    post.manifest = Manifest.model_validate({**post.manifest.model_dump(exclude_defaults=True), "land": land})
    (result,) = await post.finish(await post.task(2, repo="acme/app", **fields))
    assert (result["status"], github.reactions) == ("success", {})


async def test_a_question_is_answered_without_a_commit(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    fake(post).script = lambda order, number: Outcome("success", {"status": "success", "summary": "Because."})
    await follow_up(post, first)
    assert subjects(github) == ["Change ls.py"]
    assert [one["body"].splitlines()[0] for one in github.comments["acme/app", 1]] == ["Because."]


async def test_nothing_is_posted_where_nothing_was_asked(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    document = {"status": "skipped", "summary": "Thanks for thanks."}
    fake(post).script = lambda order, number: Outcome("skipped", document)
    second = await follow_up(post, first)
    assert (second["status"], github.comments) == ("skipped", {})


@pytest.mark.walk
async def test_what_others_pushed_is_there_before_the_work_begins(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    github.commit("acme/app", {"theirs.py": "pass\n"}, "Mend the tests", branch=BRANCH)
    fake(post).script = commits("dump.py", "It is called dump now.", ("cat-file", "-e", "HEAD:theirs.py"))
    assert (await follow_up(post, first))["status"] == "success"
    assert subjects(github) == ["Change dump.py", "Mend the tests", "Change ls.py"]


@pytest.mark.walk
async def test_the_place_is_made_again_from_the_pull_request(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    github.commit("acme/app", {"theirs.py": "pass\n"}, "Mend the tests", branch=BRANCH)
    github.commit("acme/app", {"new.py": "pass\n"}, "Go on", branch="main")
    for folder in (post.home.workspace, post.home.results):
        shutil.rmtree(folder)
        folder.mkdir()
    fake(post).script = commits("dump.py", "It is called dump now.", ("cat-file", "-e", "HEAD:ls.py"))
    second = await follow_up(post, first)
    assert (second["status"], second["error"]) == ("success", None)
    assert subjects(github) == ["Change dump.py", "Mend the tests", "Change ls.py"]
    assert fake(post).orders[-1].cwd == fake(post).orders[0].cwd


@pytest.mark.walk
async def test_work_that_was_not_pushed_is_merged_with_that_of_others_or_refused(
    post: Post, github: GitHubServer
) -> None:
    first = await resolved(post)
    plain_git(fake(post).orders[0].cwd, "commit", "--quiet", "--allow-empty", "--message", "Left behind")
    theirs = github.commit("acme/app", {"theirs.py": "pass\n"}, "Mend the tests", branch=BRANCH)
    fake(post).script = commits("dump.py", "It is called dump now.")
    refused = await follow_up(post, first)
    merge = f"git merge --no-edit {theirs}"
    assert f"Others have pushed to it: bring that in first, with `{merge}`." in fake(post).orders[-1].prompt
    assert refused["status"] == "success"
    assert f"but was not landed: the branch {BRANCH} has commits of others: merge them in" in refused["summary"]
    assert github.comments == {}
    fake(post).script = commits("more.py", "Merged.", tuple(merge.split()[1:]))
    merged = await follow_up(post, first, 3)
    assert merged["links"] == first["links"]
    assert {"Change dump.py", "Change more.py", "Left behind", "Mend the tests"} < set(subjects(github))


def landing(post: Post, github: GitHubServer) -> Services:
    """What ``kingdom task land`` reads."""
    (post.home.config / "system.yaml").write_text(json.dumps(post.system | {"repos": {"base_url": github.url}}))
    package = {**post.manifest.model_dump(mode="json", exclude_defaults=True), "subscribes": ["test.happened"]}
    (post.folder / "manifest.yaml").write_text(json.dumps(package))
    return Services(post.home, post.bus, post.journal)


async def test_what_opens_another_one_and_was_refused_is_landed_later(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    github.merge("acme/app", 1)
    github.refuse.append("/pulls")
    fake(post).script = commits("dump.py", "It is called dump now.")
    second = await on_issue(post, first)
    assert "but was not landed: no pull request may be made" in second["summary"]
    github.refuse.clear()
    landed = await land_again(landing(post, github), second["task_id"])
    assert landed.url == github.pulls["acme/app"][1]["html_url"]
    assert "Change dump.py" in subjects(github)


async def test_an_answer_is_posted_once_however_often_it_is_landed(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    fake(post).script = commits("dump.py", "It is called dump now.")
    github.fail_next = [403]
    second = await follow_up(post, first)
    assert "but was not landed: no pull request may be made" in second["summary"]
    services = landing(post, github)
    for _ in range(2):
        landed = await land_again(services, second["task_id"])
        assert (landed.branch, landed.url) == (BRANCH, first["links"][0])
    assert len(github.comments["acme/app", 1]) == 1
    opened = OpenedPullRequests(post.home).find(landed.url)
    assert opened is not None
    assert (opened.task_id, opened.work_id) == (second["task_id"], first["task_id"])


async def test_what_was_merged_meanwhile_gets_another_pull_request(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    work = commits("dump.py", "It is called dump now.")

    def merged_meanwhile(order: Order, number: int) -> Outcome:
        github.merge("acme/app", 1)
        plain_git(github.bare("acme/app"), "update-ref", "-d", f"refs/heads/{BRANCH}")
        return work(order, number)

    fake(post).script = merged_meanwhile
    second = await follow_up(post, first)
    _, pull = github.pulls["acme/app"]
    assert (second["links"], pull["head"]["ref"]) == ([pull["html_url"]], "kingdom/acme-app-1")
    (comment,) = github.comments["acme/app", 1]
    assert comment["body"].startswith(f"It is called dump now.\n\n{pull['html_url']}\n\n")


async def test_an_answer_after_the_merge_opens_nothing(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)

    def merged_meanwhile(order: Order, number: int) -> Outcome:
        github.merge("acme/app", 1)
        return Outcome("success", {"status": "success", "summary": "Because."})

    fake(post).script = merged_meanwhile
    second = await follow_up(post, first)
    assert (second["links"], len(github.pulls["acme/app"])) == (first["links"], 1)
    assert [one["body"].splitlines()[0] for one in github.comments["acme/app", 1]] == ["Because."]


async def test_a_branch_that_is_gone_is_said(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    plain_git(github.bare("acme/app"), "update-ref", "-d", f"refs/heads/{BRANCH}")
    fake(post).script = commits("dump.py", "It is called dump now.")
    second = await follow_up(post, first)
    assert f"but was not landed: the branch {BRANCH} is gone: restore it on {first['links'][0]}" in second["summary"]


# ── failed checks ─────────────────────────────────────────────────────────────────────────────────────────────────


async def checked(post: Post, first: dict[str, Any], number: int, sha: str, checks: int = 0) -> dict[str, Any]:
    """What comes of a failed check of the pull request; returns the result of its task."""
    (known,) = opened_by(first, "gen-test")
    payload = {"number": 1, "url": known.url, "head_sha": sha, "check": {"name": "tests", "summary": "1 failed"}}
    follow_up = {**known.document(), "checks": checks}
    fields = {"type": "github.pr.check_failed", "payload": payload, "follow_up": follow_up}
    (result,) = await post.finish(await post.task(number, repo="acme/app", **fields))
    return result


async def test_a_failed_check_is_mended_and_those_of_the_same_commit_are_old_then(
    post: Post, github: GitHubServer
) -> None:
    first = await resolved(post)
    head = github.refs("acme/app")[BRANCH]
    fake(post).script = commits("tests.py", "The tests pass now.")
    assert (await checked(post, first, 2, head))["status"] == "success"
    assert subjects(github) == ["Change tests.py", "Change ls.py"]
    old = await checked(post, first, 3, head)
    assert (old["status"], old["summary"]) == (
        "skipped",
        f"the check was of {head[:12]}; newer commits are in the pull request",
    )
    assert "pull_requests" not in old, "it does not count"
    assert len(fake(post).orders) == 2, "no soldier was sent"


async def test_after_three_in_a_row_a_person_is_asked_once(post: Post, github: GitHubServer) -> None:
    first = await resolved(post)
    head = github.refs("acme/app")[BRANCH]
    tired = await checked(post, first, 2, head, checks=3)
    said = "the checks have failed again, after 3 tasks about them in a row. Say in a comment what to do."
    assert (tired["status"], tired["error"]) == ("failed", said)
    assert [named["url"] for named in tired["pull_requests"]] == first["links"], "it counts"
    (comment,) = github.comments["acme/app", 1]
    assert comment["body"].startswith(f"I could not do this: {said}\n\n")
    assert (await checked(post, first, 3, head, checks=4))["status"] == "skipped"
    assert (len(github.comments["acme/app", 1]), len(fake(post).orders)) == (1, 1)


async def test_checks_in_a_row_are_counted_until_somebody_says_something(realm: Realm) -> None:
    realm.install("gen-fix", subscribes=["github.issue.assigned", {"type": "github.pr.*", "own": True}])
    first = await opened(realm)
    counts = []
    for event, kind in enumerate(["check_failed", "check_failed", "commented", "check_failed"], 2):
        await realm.event(event, f"github.pr.{kind}", repo="acme/app", payload={"number": 12, "url": URL})
        await reign(realm)
        (task,) = await realm.work("gen-fix", pull_requests=[{"url": URL, "branch": BRANCH}], work_id=first.id)
        counts.append(task.document()["follow_up"]["checks"])
        await reign(realm)
    assert counts == [0, 1, 2, 0]


# ── replies ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def replied(post: Post, github: GitHubServer, outcome: Outcome, **fields: Any) -> tuple[dict[str, Any], str]:
    """The result of a task about issue 5, and what was posted there without its mark; empty if nothing was."""
    fake(post).script = lambda order, number: outcome
    given = {"repo": "acme/app", "type": "github.issue.assigned", "payload": {"number": 5, "title": "Sort"}, **fields}
    (result,) = await post.finish(await post.task(**given))
    comments = [one["body"] for one in github.comments.get(("acme/app", 5), [])]
    mark = f"\n\n<!-- kingdom {result['task_id']} -->"
    assert all(comment.endswith(mark) for comment in comments)
    return result, "\n---\n".join(comment.removesuffix(mark) for comment in comments)


def asks() -> Outcome:
    question = {"text": "By name or by size?", "choices": ["name", "size"]}
    return Outcome("needs_human", {"status": "needs_human", "summary": "", "question": question})


@pytest.mark.parametrize(
    ("subscribes", "how"),
    [
        (["github.issue.assigned", "github.issue.mentioned"], "Answer in a comment that mentions this account."),
        (["github.issue.*"], "Answer in a comment."),
        (["github.issue.assigned"], "Answer it in the court: `kingdom answer task-20260921-001 …`"),
    ],
)
async def test_a_question_is_posted_on_the_issue(
    post: Post, github: GitHubServer, subscribes: list[str], how: str
) -> None:
    post.manifest = Manifest.model_validate(
        {**post.manifest.model_dump(exclude_defaults=True), "subscribes": subscribes}
    )
    result, comment = await replied(post, github, asks())
    assert comment == f"I have a question before I go on: By name or by size?\n\nChoices: name, size.\n\n{how}"
    assert (result["status"], result["asked_at"]) == ("needs_human", github.now)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("slack", ["The question was answered elsewhere. I go on."]),
        ("king", ["Nobody answered the question in time. I go on with: name"]),
        ("github", []),
    ],
)
async def test_a_question_that_was_answered_elsewhere_is_not_left_open_on_the_issue(
    post: Post, github: GitHubServer, source: str, said: list[str]
) -> None:
    asked, _ = await replied(post, github, asks())
    payload = {"number": 5, "title": "Sort", "original_task_id": asked["task_id"], "answer": "name", "user": "U1"}
    event = {"id": "evt-test-2", "source": source, "type": f"{source}.human_response"}
    failed = Outcome("failed", {"status": "failed", "error": "No."})
    fake(post).script = lambda order, number: failed
    await post.finish(await post.task(2, repo="acme/app", type="resume", payload=payload, event=event))
    notes = [one["body"] for one in github.comments["acme/app", 5]][1:]
    assert [note.partition("\n\n<!--")[0] for note in notes] == [*said, "I could not do this: No."]
    assert all(is_marked(note) for note in notes), "they are not heard as comments of people"


@pytest.mark.parametrize(
    ("outcome", "comment"),
    [
        (Outcome("failed", {"status": "failed", "error": "ls.py is gone.", "summary": ""}), "ls.py is gone."),
        (Outcome("failed", {"status": "failed", "summary": "ls.py is gone."}), "ls.py is gone."),
    ],
)
async def test_why_it_failed_is_said_in_the_words_of_the_soldier(
    post: Post, github: GitHubServer, outcome: Outcome, comment: str
) -> None:
    assert (await replied(post, github, outcome))[1] == f"I could not do this: {comment}"


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("failed", error="/home/court/x is not there"),
        Outcome("success", {"status": "success", "summary": "Done, without a commit"}),
        Outcome("timeout", error="too long"),
    ],
)
async def test_words_of_the_court_are_not_posted(post: Post, github: GitHubServer, outcome: Outcome) -> None:
    result, comment = await replied(post, github, outcome)
    assert result["status"] in ("failed", "timeout")
    assert comment == "I could not do this. What happened is in the court: `kingdom task show task-20260921-001`"


async def test_in_korean(post: Post, github: GitHubServer) -> None:
    post.system = {**post.system, "locale": "ko"}
    skipped = Outcome("skipped", {"status": "skipped", "summary": "이미 있습니다."})
    assert (await replied(post, github, skipped))[1] == "아무것도 바꾸지 않았습니다: 이미 있습니다."


@pytest.mark.parametrize(
    ("kind", "outcome", "comment"),
    [
        ("review_requested", Outcome("failed", {"status": "failed", "error": "No."}), "I could not do this: No."),
        (
            "mentioned",
            Outcome("skipped", {"status": "skipped", "summary": "A draft."}),
            "I did not review this: A draft.",
        ),
        ("opened", Outcome("failed", {"status": "failed", "error": "No."}), ""),
        ("updated", Outcome("skipped", {"status": "skipped", "summary": "A draft."}), ""),
    ],
)
async def test_who_asked_for_a_review_hears_why_there_is_none(
    post: Post, github: GitHubServer, kind: str, outcome: Outcome, comment: str
) -> None:
    land = {"how": "review"}
    post.manifest = Manifest.model_validate({**post.manifest.model_dump(exclude_defaults=True), "land": land})
    _, said = await replied(post, github, outcome, type=f"github.pr.{kind}")
    assert said == comment


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "jira.ticket.assigned"},
        {"payload": {"number": "5"}},
        {"payload": {"number": 5, "repo": "acme/other"}, "repo": None},
    ],
)
async def test_what_is_not_about_an_issue_of_the_repository_gets_no_reply(
    post: Post, github: GitHubServer, fields: dict[str, Any]
) -> None:
    if fields.get("repo", "") is None:
        github.create("acme/other")
        url = f"{github.url}/acme/app"
        manifest = {**post.manifest.model_dump(exclude_defaults=True), "default_repo": url}
        post.manifest = Manifest.model_validate(manifest)
        fields = {"payload": {"number": 5}, "repo": None}
    result, comment = await replied(post, github, asks(), **fields)
    assert (result["status"], comment, "asked_at" in result) == ("needs_human", "", False)


async def test_a_reply_that_cannot_be_posted_or_is_not_wanted_changes_nothing(post: Post, github: GitHubServer) -> None:
    github.refuse.append("/comments")
    result, comment = await replied(post, github, asks())
    assert (result["status"], comment, "asked_at" in result) == ("needs_human", "", False)
    land = {"how": "pull-request", "replies": False}
    post.manifest = Manifest.model_validate({**post.manifest.model_dump(exclude_defaults=True), "land": land})
    fake(post).script = lambda order, number: asks()
    task = await post.task(2, repo="acme/app", type="github.issue.assigned", payload={"number": 5})
    (result,) = await post.finish(task)
    assert (result["status"], github.comments) == ("needs_human", {("acme/app", 5): []} if github.comments else {})


# ── tickets ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def jira(post: Post, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeJira]:
    async with FakeJira(lambda: NOW) as server:
        server.create("APP-7")
        post.home.config.mkdir(exist_ok=True)
        (post.home.config / "sentinel.yaml").write_text(
            json.dumps({"jira": {"url": server.url, "email": "bot@x.example"}})
        )
        monkeypatch.setenv("JIRA_API_TOKEN", "jira-token")
        yield server


async def on_ticket(post: Post, jira: FakeJira, script: Callable[[Order, int], Outcome]) -> tuple[dict[str, Any], str]:
    """The result of a task about a ticket, and what was posted there."""
    fake(post).script = script
    fields = {"type": "jira.ticket.assigned", "payload": {"key": "APP-7", "title": "Sort the list"}}
    (result,) = await post.finish(await post.task(repo="acme/app", **fields))
    return result, "\n---\n".join(map(adf_text, (one["body"] for one in jira.issues["APP-7"]["comments"])))


async def test_a_comment_shows_that_work_has_begun_on_a_ticket(post: Post, jira: FakeJira) -> None:
    _, comment = await on_ticket(post, jira, commits("ls.py", "The list is sorted."))
    assert comment.startswith("I have begun. (task-20260921-001)\n---\nThe list is sorted.")
    land = {"how": "pull-request", "replies": False}
    post.manifest = Manifest.model_validate({**post.manifest.model_dump(exclude_defaults=True), "land": land})
    task = await post.task(2, repo="acme/app", type="jira.ticket.assigned", payload={"key": "APP-7"})
    (result,) = await post.finish(task)
    assert (result["status"], len(jira.issues["APP-7"]["comments"])) == ("success", 2)


async def test_a_ticket_gets_the_link_of_its_pull_request(post: Post, jira: FakeJira, github: GitHubServer) -> None:
    result, comment = await on_ticket(post, jira, commits("ls.py", "The list is sorted."))
    (pull,) = github.pulls["acme/app"]
    _, said = comment.split("\n---\n")
    assert said == f"The list is sorted.\n{pull['html_url']}\n{result['task_id']}, gen-test"
    _, posted_comment = jira.issues["APP-7"]["comments"]
    link = posted_comment["body"]["content"][1]["content"][0]
    assert link["marks"] == [{"type": "link", "attrs": {"href": pull["html_url"]}}]


async def test_only_the_key_of_a_ticket_becomes_part_of_an_address(post: Post, jira: FakeJira) -> None:
    fake(post).script = lambda order, number: asks()
    fields = {"type": "jira.ticket.assigned", "payload": {"subject": "APP-7/../APP-8?x=", "title": "Sort"}}
    (result,) = await post.finish(await post.task(repo="acme/app", **fields))
    assert (result["status"], "asked_at" in result, jira.requests) == ("needs_human", False, [])


async def test_a_question_is_posted_on_the_ticket_once(post: Post, jira: FakeJira) -> None:
    subscribes = ["jira.ticket.assigned", "jira.ticket.mentioned"]
    post.manifest = Manifest.model_validate(
        {**post.manifest.model_dump(exclude_defaults=True), "subscribes": subscribes}
    )
    jira.comment("APP-7", "I have a question. task-20260921-001, gen-test", by="acc-bot")
    result, comment = await on_ticket(post, jira, lambda order, number: asks())
    assert comment == "I have a question. task-20260921-001, gen-test", "it was posted before"
    assert result["asked_at"] == timestamp(NOW)
    jira.issues["APP-7"]["comments"].clear()
    fake(post).script = lambda order, number: asks()
    task = await post.task(2, repo="acme/app", type="jira.ticket.assigned", payload={"key": "APP-7"})
    (result,) = await post.finish(task)
    begun, again = jira.issues["APP-7"]["comments"]
    assert adf_text(begun["body"]) == "I have begun. (task-20260921-002)"
    assert adf_text(again["body"]).splitlines()[:3] == [
        "I have a question before I go on: By name or by size?",
        "Choices: name, size.",
        "Answer in a comment that mentions this account.",
    ]


async def test_a_question_that_was_answered_elsewhere_is_not_left_open_on_the_ticket(
    post: Post, jira: FakeJira
) -> None:
    asked, _ = await on_ticket(post, jira, lambda order, number: asks())
    payload = {"key": "APP-7", "original_task_id": asked["task_id"], "answer": "name", "user": "ada"}
    fake(post).script = lambda order, number: Outcome("failed", {"status": "failed", "error": "No."})
    await post.finish(await post.task(2, repo="acme/app", type="resume", payload=payload))
    _, _, note, _ = [adf_text(one["body"]) for one in jira.issues["APP-7"]["comments"]]
    assert note == "The question was answered elsewhere. I go on. (task-20260921-002)"


@pytest.mark.parametrize("wrong", ["token", "ticket", "jira", "status"])
async def test_a_ticket_that_cannot_be_commented_on_changes_nothing(
    post: Post, jira: FakeJira, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    match wrong:
        case "token":
            monkeypatch.delenv("JIRA_API_TOKEN")
        case "ticket":
            jira.issues["APP-8"] = jira.issues.pop("APP-7")
            jira.issues["APP-7"] = {"id": "none", "comments": []}
            jira.fail("POST", 403, times=2)
        case "jira":
            (post.home.config / "sentinel.yaml").unlink()
        case "status":
            jira.fail("GET", 503, times=9)
    result, comment = await on_ticket(post, jira, lambda order, number: asks())
    assert (result["status"], comment, "asked_at" in result) == ("needs_human", "", False)
