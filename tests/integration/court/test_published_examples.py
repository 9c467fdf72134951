"""Whatever is published as an example is understood, by the code that reads the real thing, with no exception."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from typing import Any

import pytest

from kingdom.court.config import SystemConfig
from kingdom.court.envoy.config import SlackSection, SlackTokens
from kingdom.court.envoy.slack.checks import check_slack
from kingdom.court.envoy.slack.payloads import ACTION_PREFIX, BLOCK_PREFIX, ButtonPress, PostedMessage, parse_envelope
from kingdom.court.sentinel.github_api import Repository, SubjectRef, fetch_history, issue_ref, notification_ref
from kingdom.court.sentinel.github_events import (
    GitHubAccount,
    extract_actions,
    make_action_event,
    make_notification_event,
)
from kingdom.court.sentinel.github_webhooks import parse_github_webhook
from kingdom.court.sentinel.http import SourceClient
from kingdom.court.sentinel.jira_events import JiraAccount, extract_jira_events
from kingdom.court.sentinel.jira_watcher import SEARCH_PATH, complete_issue, fetch_account, search_issues
from tests.support.api_examples import Published, fetched

SECRET = "s"
ANYBODY = GitHubAccount.of(None, for_anyone=True)
REPO = "octocat/Hello-World"

# What GitHub's webhooks become; all others tell nothing that the court has an event for.
KINDS = {
    ("issues", "opened"): "opened",
    ("issues", "assigned"): "assigned",
    ("issues", "unassigned"): "unassigned",
    ("issues", "labeled"): "labeled",
    ("issues", "closed"): "closed",
    ("issues", "reopened"): "reopened",
    ("issue_comment", "created"): "commented",
    ("pull_request", "opened"): "opened",
    ("pull_request", "assigned"): "assigned",
    ("pull_request", "unassigned"): "unassigned",
    ("pull_request", "labeled"): "labeled",
    ("pull_request", "closed"): "closed",
    ("pull_request", "reopened"): "reopened",
    ("pull_request", "ready_for_review"): "ready_for_review",
    ("pull_request", "review_requested"): "review_requested",
    ("pull_request", "review_request_removed"): "review_request_removed",
    ("pull_request", "synchronize"): "updated",
    ("pull_request_review", "submitted"): "commented",
    ("pull_request_review_comment", "created"): "commented",
}


def github_examples() -> list[tuple[str, dict[str, Any]]]:
    groups = fetched("github-webhooks.json")
    return [(group["name"], example) for group in groups for example in group["examples"]]


def heard(name: str, example: dict[str, Any]) -> Any:
    body = json.dumps(example).encode()
    signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-GitHub-Event": name, "X-Hub-Signature-256": signature, "X-GitHub-Delivery": "d-1"}
    return parse_github_webhook(headers, body, secret=SECRET, account=ANYBODY)


def test_every_webhook_github_publishes_says_what_to_look_at() -> None:
    told = Counter[str]()
    for name, example in github_examples():
        found = heard(name, example)
        subject = example.get("pull_request") or example.get("issue")
        if subject is None or "number" not in subject or "repository" not in example:
            assert (found.hint, found.events) == (None, []), name
            continue
        told[name] += 1
        is_pr = "pull_request" in example or "pull_request" in example["issue"]
        repo = {"repo": example["repository"]["full_name"], "repo_id": example["repository"]["id"]}
        assert found.hint == {**repo, "number": subject["number"], "is_pr": is_pr}, name
    assert told.keys() >= {"issues", "issue_comment", "pull_request", "pull_request_review"}
    assert sum(told.values()) > 50


def test_every_webhook_github_publishes_becomes_the_event_it_tells_of() -> None:
    told = Counter[str]()
    for name, example in github_examples():
        events, what = heard(name, example).events, KINDS.get((name, example.get("action", "")))
        is_empty = name == "pull_request_review" and not example["review"]["body"]
        if what is None or is_empty:
            assert events == [], (name, example.get("action"))
            continue
        (event,) = events
        subject = example.get("pull_request") or example["issue"]
        is_pr = "pull_request" in example or "pull_request" in example["issue"]
        if what == "closed" and subject.get("merged"):
            what = "merged"
        writer = (example.get("comment") or example.get("review") or {}).get("user", example["sender"])
        assert event.type == f"github.{'pr' if is_pr else 'issue'}.{what}"
        assert event.repo == example["repository"]["full_name"]
        assert event.payload["number"] == subject["number"]
        assert event.payload["title"] == subject["title"]
        assert event.payload["actor"] == writer["login"]
        assert event.payload["opened_by"] == subject["user"]["login"]
        told[event.type] += 1
    assert len(told) > 10


async def test_notifications_and_subjects_of_github_s_description() -> None:
    examples = {name: item["value"] for name, item in fetched("github-openapi.json")["components"]["examples"].items()}
    threads = [*examples["thread-items"], examples["thread"]]
    for thread in threads:
        ref = notification_ref(thread)
        assert ref is not None
        assert (ref.repo, ref.repo_id, ref.number, ref.is_pr) == (REPO, 1296269, 123, False)
        assert make_notification_event(ref).payload["title"] == thread["subject"]["title"]
    lines = [issue_ref(Repository(1296269, REPO), issue) for issue in examples["issue-items"]]
    assert [(ref.number, ref.is_pr) for ref in lines if ref] == [(1347, True)]

    review = {**examples["pull-request-review"], "event": "reviewed"}
    answers = {
        f"GET /repos/{REPO}/issues/1347": examples["issue"],
        f"GET /repos/{REPO}/pulls/1347": examples["pull-request"],
        f"GET /repos/{REPO}/issues/1347/timeline": [*examples["timeline-issue-events"], review],
        f"GET /repos/{REPO}/pulls/1347/reviews/{review['id']}/comments": examples["review-comment-items"],
    }
    entries = {entry["event"]: entry for entry in examples["timeline-issue-events"]}
    async with Published(answers) as server:
        client = SourceClient("github", server.url, {}, lambda: 0.0)
        issue = await events(client, SubjectRef(REPO, 1347, is_pr=False, repo_id=1296269))
        pull = await events(client, SubjectRef(REPO, 1347, is_pr=True))
        await client.close()
    assert [event.type for event in issue] == ["github.issue.opened", "github.issue.labeled", "github.issue.commented"]
    opened, labeled, commented = issue
    assert opened.payload["author"] == examples["issue"]["user"]["login"]
    assert opened.payload["actor_association"] == examples["issue"]["author_association"]
    assert labeled.payload["label"] == entries["labeled"]["label"]["name"]
    assert commented.payload["comment"]["body"] == entries["commented"]["body"]
    assert commented.payload["author"] == entries["commented"]["user"]["login"]
    (reviewed,) = [event for event in pull if event.type == "github.pr.reviewed"]
    assert reviewed.payload["review_state"] == review["state"].lower() == "changes_requested"
    assert reviewed.payload["head_sha"] == examples["pull-request"]["head"]["sha"]
    assert [line["path"] for line in reviewed.payload["line_comments"]] == ["file1.txt"]


async def events(client: SourceClient, ref: SubjectRef) -> list[Any]:
    story = await fetch_history(client, ref, None)
    return [make_action_event(story.ref, story.subject, action) for action in extract_actions(story, ANYBODY)]


async def test_tickets_of_jira_s_description() -> None:
    paths = fetched("jira-openapi.json")["paths"]

    def example(path: str, method: str = "get") -> Any:
        return json.loads(paths[path][method]["responses"]["200"]["content"]["application/json"]["example"])

    found = example("/rest/api/3/search", "post")  # the new search has no example yet; its tickets are the same
    changes, comments = (example(f"/rest/api/3/issue/{{issueIdOrKey}}/{what}") for what in ("changelog", "comment"))
    answers = {
        f"POST {SEARCH_PATH}": {"issues": found["issues"], "isLast": True},
        "GET /rest/api/3/issue/10002/changelog": {**changes, "isLast": True},
        "GET /rest/api/3/issue/10002/comment": comments,
        "GET /rest/api/3/myself": example("/rest/api/3/myself"),
    }
    async with Published(answers) as server:
        client = SourceClient("jira", server.url, {}, lambda: 0.0)
        me = await fetch_account(client)
        (issue,) = [issue async for page in search_issues(client, "project = ED") for issue in page]
        await complete_issue(client, issue, 0.0)
        await client.close()
    assert me["timeZone"] == "Australia/Sydney"
    told = extract_jira_events(issue, JiraAccount("somebody-else", frozenset()), 0.0, url="https://a.example", repos={})
    assert {event.type for event in told} == {"jira.ticket.updated", "jira.ticket.commented"}
    assert {event.payload["key"] for event in told} == {"ED-1"}
    assert {event.payload["author_id"] for event in told} == {me["accountId"]}
    assert {event.payload["author"] for event in told} == {"Mia Krystof"}
    assert {event.payload["description"] for event in told} == {"Main order flow broken"}
    assert sorted(event.id for event in told) == [
        *(f"evt-jira-10002-change-{entry['id']}" for entry in changes["values"]),
        *(f"evt-jira-10002-comment-{entry['id']}" for entry in comments["comments"]),
    ]
    (comment,) = [event for event in told if event.type == "jira.ticket.commented"]
    assert comment.payload["comment"]["body"].startswith("Lorem ipsum dolor sit amet")
    mine = JiraAccount(me["accountId"], frozenset({me["accountId"]}))
    assert extract_jira_events(issue, mine, 0.0, url="https://a.example", repos={}) == []  # it was all our own doing


def slack_answers() -> dict[str, Any]:
    paths = fetched("slack-openapi.json")["paths"]
    return {
        path.removeprefix("/"): call[method]["responses"]["200"]["content"]["application/json"]["examples"]["response"][
            "value"
        ]
        for path, call in paths.items()
        for method in ("get", "post")
        if "examples"
        in call.get(method, {}).get("responses", {}).get("200", {}).get("content", {}).get("application/json", {})
    }


async def test_what_slack_s_description_has_of_its_web_api() -> None:
    known = slack_answers()
    answers = {f"{verb} /api/{name}": value for name, value in known.items() for verb in ("GET", "POST")}
    answers["POST /api/apps.connections.open"] = {"ok": True, "url": "wss://x.example"}  # younger than the description
    async with Published(answers) as server:
        config = SlackSection(api_url=f"{server.url}/api/", channel="#general", users=["W012A3CDE"])
        findings = await check_slack(config, SystemConfig(), SlackTokens("xoxb-1", "xapp-1"), lambda: 0.0)
    assert {finding.level for finding in findings} == {"ok"}
    texts = [finding.text for finding in findings]
    assert "the bot grace in the workspace Subarachnoid Workspace" in texts
    assert "messages go to #general (C012AB3CD), where the app is a member" in texts
    assert "spengler (W012A3CDE) may give tasks and answer" in texts


def envelope(event: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "events_api",
        "payload": {"type": "event_callback", "team_id": "T1", "event_id": "E1", "event": event},
    }


def test_every_message_in_slack_s_description_is_understood() -> None:
    known = slack_answers()
    posts = [*known["conversations.history"]["messages"], *known["conversations.replies"]["messages"]]
    assert len(posts) > 4
    for post in posts:
        found = parse_envelope(envelope({**post, "channel": "C012AB3CD"}), "U0BOT")
        assert isinstance(found, PostedMessage)
        assert (found.user, found.ts, found.text) == (post["user"], post["ts"], post["text"])
        assert found.thread_ts == post.get("thread_ts")
        assert found.names == (f"post-T1-C012AB3CD-{post['ts']}", "event-E1")
    ours = {**known["chat.postMessage"]["message"], "channel": "C012AB3CD"}
    assert parse_envelope(envelope(ours), "U0BOT") is None  # a bot's


@pytest.mark.parametrize("name", ["new-user-mention", "new-direct-message", "new-message-in-channels"])
def test_events_that_slack_sent(name: str) -> None:
    event = fetched(f"slack-events/{name}.json")
    found = parse_envelope(envelope(event), "U06MDSMHK7B")
    assert isinstance(found, PostedMessage)
    assert (found.user, found.channel, found.ts) == (event["user"], event["channel"], event["ts"])
    assert found.direct == (event["channel_type"] == "im")
    assert found.mention == ("<@U06MDSMHK7B>" in event["text"])


def test_buttons_that_were_pressed_in_slack() -> None:
    payload = fetched("slack-events/new-interaction-event-received.json")["event"]
    assert parse_envelope({"type": "interactive", "payload": payload}, None) is None  # a button of somebody else
    (action,) = payload["actions"]
    payload["actions"] = [{**action, "block_id": f"{BLOCK_PREFIX}task-20260207-001", "action_id": f"{ACTION_PREFIX}1"}]
    found = parse_envelope({"type": "interactive", "payload": payload}, None)
    assert isinstance(found, ButtonPress)
    assert (found.user, found.channel, found.task_id) == ("US676PZLY", "CS8319KD5", "task-20260207-001")
    assert (found.message_ts, found.action_ts, found.choice) == ("1716402983.247149", action["action_ts"], 1)
