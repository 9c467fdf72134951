"""Webhooks: only genuine ones are heard, and what they tell has the ids that polling would give."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from kingdom.court.sentinel.github_events import GitHubAccount
from kingdom.court.sentinel.github_webhooks import parse_github_webhook
from kingdom.court.sentinel.jira_events import JiraAccount
from kingdom.court.sentinel.webhook_requests import ParsedWebhook, WebhookRefused
from kingdom.court.sentinel.webhooks import parse_generic_webhook, parse_jira_webhook

SECRET = "It's a Secret to Everybody"
ME = GitHubAccount.of("kingdom-bot", ["kingdom-bot"])
NOON = "2026-02-07T12:00:00Z"
MOMENT = NOON.replace(":", "_")
PULL: dict[str, Any] = {
    "number": 12,
    "title": "Discounts",
    "body": "",
    "user": {"login": "grace"},
    "head": {"ref": "f", "sha": "a" * 40},
    "base": {"ref": "main"},
    "updated_at": NOON,
    "state": "open",
}


def signed(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def github(event: str, by: str = "grace", **payload: Any) -> ParsedWebhook:
    document = {"repository": {"id": 900000, "full_name": "acme/shop"}, "sender": {"login": by}, **payload}
    body = json.dumps(document).encode()
    headers = {"X-GitHub-Event": event, "X-GitHub-Delivery": "d-1", "X-Hub-Signature-256": signed(body)}
    return parse_github_webhook(headers, body, secret=SECRET, account=ME)


def test_the_signature_of_github_s_own_example_is_right() -> None:
    body = b"Hello, World!"
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    with pytest.raises(WebhookRefused, match="not JSON"):  # past the signature
        parse_github_webhook({"X-Hub-Signature-256": signature}, body, secret=SECRET, account=ME)


@pytest.mark.parametrize("signature", [None, "", "sha256=", "sha1=abc", signed(b"{}", "other"), "sha256=\xff"])
def test_what_is_not_signed_with_our_secret_is_refused(signature: str | None) -> None:
    headers = {} if signature is None else {"x-hub-signature-256": signature}
    with pytest.raises(WebhookRefused) as caught:
        parse_github_webhook(headers, b"{}", secret=SECRET, account=ME)
    assert caught.value.status == 401
    with pytest.raises(WebhookRefused):
        parse_github_webhook({"x-hub-signature-256": signed(b"{}", "")}, b"{}", secret="", account=ME)


@pytest.mark.parametrize(
    ("event", "payload", "kind", "name"),
    [
        ("pull_request", {"action": "opened", "pull_request": PULL}, "pr.opened", "12-opened"),
        (
            "pull_request",
            {"action": "synchronize", "pull_request": PULL},
            "pr.updated",
            f"12-updated-{'a' * 16}-{MOMENT}",
        ),
        (
            "pull_request",
            {"action": "review_requested", "pull_request": PULL, "requested_reviewer": {"login": "Kingdom-Bot"}},
            "pr.review_requested",
            f"12-review_requested-Kingdom-Bot-{MOMENT}",
        ),
        (
            "pull_request",
            {"action": "closed", "pull_request": {**PULL, "merged": True}},
            "pr.merged",
            f"12-merged-{MOMENT}",
        ),
        (
            "issue_comment",
            {
                "action": "created",
                "issue": {"number": 12, "title": "x", "pull_request": {}},
                "comment": {"id": 5, "user": {"login": "grace"}, "body": "@kingdom-bot hi", "created_at": NOON},
            },
            "pr.mentioned",
            "12-comment-5",
        ),
        (
            "pull_request_review",
            {
                "action": "submitted",
                "pull_request": PULL,
                "review": {
                    "id": 6,
                    "user": {"login": "grace"},
                    "state": "APPROVED",
                    "body": None,
                    "submitted_at": NOON,
                },
            },
            "pr.reviewed",
            "12-review-6",
        ),
        (
            "issues",
            {"action": "assigned", "issue": {"number": 3, "updated_at": NOON}, "assignee": {"login": "kingdom-bot"}},
            "issue.assigned",
            f"3-assigned-kingdom-bot-{MOMENT}",
        ),
    ],
)
def test_what_github_tells(event: str, payload: dict[str, Any], kind: str, name: str) -> None:
    heard = github(event, **payload)
    assert [found.type for found in heard.events] == [f"github.{kind}"]
    assert heard.events[0].id == f"evt-github-900000-{name}"
    assert heard.delivery == "d-1"
    assert heard.hint is not None
    assert heard.hint["number"] == heard.events[0].payload["number"]
    assert heard == github(event, **payload)  # delivered again


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("ping", {"zen": "Keep it logically awesome."}),
        ("pull_request", {"action": "edited", "pull_request": PULL}),
        ("pull_request", {"action": "opened", "pull_request": PULL, "by": "kingdom-bot"}),
        (
            "pull_request",
            {"action": "opened", "pull_request": {**PULL, "requested_reviewers": [{"login": "kingdom-bot"}]}},
        ),
        ("pull_request", {"action": "review_requested", "pull_request": PULL, "requested_reviewer": {"login": "ann"}}),
        ("issues", {"action": "opened", "issue": None}),
        ("push", {"ref": "refs/heads/main"}),
    ],
)
def test_what_is_no_event(event: str, payload: dict[str, Any]) -> None:
    assert github(event, **payload).events == []


def test_what_jira_tells() -> None:
    issue = {"key": "SHOP-7", "fields": {"summary": "A discount", "created": NOON, "description": "wiki *text*"}}
    document: dict[str, Any] = {
        "webhookEvent": "jira:issue_updated",
        "timestamp": 1770465600000,
        "user": {"accountId": "acc-ann"},
        "issue": issue,
        "changelog": {"id": "77", "items": [{"field": "assignee", "to": "acc-me", "toString": "Me"}]},
    }
    account = JiraAccount("acc-me", frozenset({"acc-me"}))

    def heard(**change: Any) -> ParsedWebhook:
        body = json.dumps({**document, **change}).encode()
        headers = {"X-Hub-Signature": signed(body)}
        return parse_jira_webhook(headers, body, secret=SECRET, account=account)

    assert [(event.id, event.type) for event in heard().events] == [
        ("evt-jira-SHOP-7-change-77", "jira.ticket.assigned")
    ]
    assert heard().hint == {"key": "SHOP-7"}
    assert heard(user={"accountId": "acc-me"}).events == []
    comment = {"id": "9", "author": {"accountId": "acc-ann"}, "body": "hello", "created": NOON}
    assert [event.id for event in heard(webhookEvent="comment_created", comment=comment).events] == [
        "evt-jira-SHOP-7-comment-9"
    ]
    made = heard(webhookEvent="jira:issue_created").events
    assert [event.id for event in made] == ["evt-jira-SHOP-7-created"]
    token = {"X-Kingdom-Token": "wrong"}
    with pytest.raises(WebhookRefused, match="token"):
        parse_jira_webhook(token, b"{}", secret=SECRET, account=account)


def test_any_program_can_tell_something_with_a_token() -> None:
    def heard(document: Any, name: str = "ci", **headers: str) -> ParsedWebhook:
        named = {"Authorization": f"Bearer {SECRET}", **headers}
        return parse_generic_webhook(name, named, json.dumps(document).encode(), token=SECRET, now=1770465600.0)

    event = heard({"status": "failed"}).events[0]
    assert (event.type, event.source, event.payload) == ("webhook.ci", "webhook_ci", {"status": "failed"})
    event = heard({"type": "ci.failed", "payload": {"a": 1}, "id": "evt-x-1"}, **{"Idempotency-Key": "run-5"}).events[0]
    assert (event.id, event.type, event.payload) == ("evt-webhook-ci-run-5", "ci.failed", {"a": 1})
    for document, name, headers, status in (
        ({}, "ci", {"Authorization": "Bearer wrong"}, 401),
        ({}, "ci", {"Authorization": ""}, 401),
        ([], "ci", {}, 400),
        ({"type": "No Type", "payload": {}}, "ci", {}, 400),
        ({}, "../ci", {}, 404),
        ({}, "ci", {"Idempotency-Key": "../x"}, 400),
    ):
        with pytest.raises(WebhookRefused) as caught:
            heard(document, name, **headers)
        assert caught.value.status == status
    with pytest.raises(WebhookRefused):
        parse_generic_webhook("ci", {}, b"{}", token="", now=0.0)


@pytest.mark.parametrize(
    ("event", "payload", "association"),
    [
        ("pull_request", {"action": "opened", "pull_request": {**PULL, "author_association": "NONE"}}, "NONE"),
        (
            "pull_request",
            {
                "action": "review_requested",
                "pull_request": {**PULL, "author_association": "NONE"},
                "requested_reviewer": {"login": "kingdom-bot"},
                "by": "ann",
            },
            "COLLABORATOR",  # nobody else could
        ),
        ("pull_request", {"action": "closed", "pull_request": {**PULL, "author_association": "NONE"}, "by": "x"}, None),
        (
            "issue_comment",
            {
                "action": "created",
                "issue": {**PULL, "author_association": "NONE"},
                "comment": {"id": 1, "body": "hi", "user": {"login": "ann"}, "author_association": "MEMBER"},
            },
            "MEMBER",
        ),
    ],
)
def test_what_the_actor_is_to_the_repository(event: str, payload: dict[str, Any], association: str | None) -> None:
    (found,) = github(event, **payload).events
    assert found.payload.get("actor_association") == association
    assert found.payload["opened_by"] == "grace"


CHECK: dict[str, Any] = {
    "id": 77,
    "name": "tests",
    "conclusion": "failure",
    "html_url": "https://github.com/acme/shop/runs/77",
    "completed_at": NOON,
    "output": {"title": "2 failed", "summary": "test_ls"},
    "app": {"slug": "github-actions"},
    "pull_requests": [{"number": 12, "head": {"ref": "f", "sha": "a" * 40}, "base": {"ref": "main"}}],
}


def test_a_failed_check_is_an_event_of_its_pull_requests() -> None:
    (event,) = github("check_run", action="completed", check_run=CHECK).unpolled
    assert (event.type, event.id) == ("github.pr.check_failed", "evt-github-900000-12-check_failed-77")
    assert event.payload["url"] == "https://github.com/acme/shop/pull/12"
    assert event.payload["check"]["title"] == "2 failed"
    assert (event.payload["actor"], event.payload["head"]) == ("github-actions", "f")


@pytest.mark.parametrize(
    "payload",
    [
        {"action": "created", "check_run": CHECK},
        {"action": "completed", "check_run": CHECK | {"conclusion": "success"}},
        {"action": "completed", "check_run": CHECK | {"pull_requests": []}},
        {"action": "completed", "check_run": CHECK | {"pull_requests": [None, {"number": "x"}]}},
    ],
)
def test_other_checks_are_none(payload: dict[str, Any]) -> None:
    parsed = github("check_run", **payload)
    assert (parsed.hint, parsed.events, parsed.unpolled) == (None, [], [])
