"""Webhooks arriving at a court: a source that is watched is looked at, for any other there is an event, each once."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.sentinel.watcher import Hints
from kingdom.court.sentinel.webhook_requests import WebhookRefused
from kingdom.court.sentinel.webhooks import MAX_BODY_BYTES, WebhookReceiver, WebhookResult
from tests.support.sentinels import Post

SECRETS = {"GITHUB_WEBHOOK_SECRET": "g-secret", "JIRA_WEBHOOK_SECRET": "j-secret", "CI_TOKEN": "c-secret"}
WEBHOOKS: dict[str, Any] = {
    "github": {"login": "kingdom-bot"},
    "jira": {"account_id": "acc-me"},
    "generic": {"ci": {"token_env": "CI_TOKEN"}},
}
COMMENT: dict[str, Any] = {
    "action": "created",
    "repository": {"id": 900000, "full_name": "acme/shop"},
    "sender": {"login": "grace"},
    "issue": {"number": 7, "title": "Discounts", "body": "", "user": {"login": "ann"}, "state": "open"},
    "comment": {
        "id": 99,
        "body": "@kingdom-bot look",
        "user": {"login": "grace"},
        "created_at": "2026-02-07T12:00:00Z",
    },
}
TICKET: dict[str, Any] = {
    "webhookEvent": "jira:issue_updated",
    "timestamp": 1770465600000,
    "user": {"accountId": "acc-ann", "displayName": "Ann"},
    "issue": {
        "self": "https://acme.example/rest/api/2/10",
        "id": "10007",
        "key": "SHOP-7",
        "fields": {"summary": "A discount"},
    },
    "changelog": {"id": "77", "items": [{"field": "status", "toString": "Done"}]},
}


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with Post(tmp_path / "home").open() as post:
        post.configure(webhooks=WEBHOOKS)
        yield post


def reception(post: Post) -> WebhookReceiver:
    return WebhookReceiver(post.services(), SECRETS)


async def from_github(
    to: WebhookReceiver, document: dict[str, Any] = COMMENT, secret: str = "g-secret"
) -> WebhookResult:
    body = json.dumps(document).encode()
    signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": signature, "X-GitHub-Event": "issue_comment", "X-GitHub-Delivery": "d-1"}
    return await to.receive("github", headers, body)


async def test_what_nobody_watches_becomes_an_event_however_often_it_is_delivered(post: Post) -> None:
    event_id = "evt-github-900000-7-comment-99"
    assert await from_github(reception(post)) == WebhookResult("d-1", "events", [event_id])
    assert await from_github(reception(post)) == WebhookResult("d-1", "events", [])
    assert [event["id"] for event in post.events()] == [event_id]
    assert post.events()[0]["type"] == "github.issue.mentioned"
    assert post.detected() == [event_id]


async def test_a_source_that_is_watched_is_looked_at_instead(post: Post) -> None:
    post.configure(webhooks=WEBHOOKS, github={"repos": ["acme/shop"]})
    assert await from_github(reception(post)) == WebhookResult("d-1", "hint")
    assert list(Hints(post.home, "github").read().values()) == [
        {"repo": "acme/shop", "repo_id": 900000, "number": 7, "is_pr": False}
    ]
    assert post.events() == []


async def test_what_a_source_is_told_to_ignore_is_ignored_from_a_webhook_too(post: Post) -> None:
    post.configure(webhooks=WEBHOOKS, github={"enabled": False, "ignore": ["github.issue.*"]})
    assert await from_github(reception(post)) == WebhookResult("d-1", "ignored")


async def test_jira_and_other_programs(post: Post) -> None:
    to = reception(post)
    received = await to.receive("jira", {"X-Kingdom-Token": "j-secret"}, json.dumps(TICKET).encode())
    assert received.events == ["evt-jira-10007-change-77"]
    assert post.events()[0]["payload"]["url"] == "https://acme.example/browse/SHOP-7"
    headers = {"Authorization": "Bearer c-secret", "Idempotency-Key": "run-12"}
    received = await to.receive("ci", headers, json.dumps({"build": 12}).encode())
    assert received == WebhookResult("run-12", "events", ["evt-webhook-ci-run-12"])
    assert (await to.receive("ci", headers, json.dumps({"build": 12}).encode())).events == []


async def test_nobody_gets_in_without_the_secret(post: Post) -> None:
    to = reception(post)
    with pytest.raises(WebhookRefused, match="signature") as caught:
        await from_github(to, secret="another")
    assert caught.value.status == 401
    for source, headers, status in (
        ("jira", {"X-Kingdom-Token": "g-secret"}, 401),
        ("ci", {"Authorization": "Bearer j-secret"}, 401),
        ("cd", {"Authorization": "Bearer c-secret"}, 404),
        ("../ci", {}, 404),
    ):
        with pytest.raises(WebhookRefused) as caught:
            await to.receive(source, headers, b"{}")
        assert caught.value.status == status
    assert post.events() == []


async def test_what_is_not_set_up_says_nothing_to_strangers(post: Post) -> None:
    with pytest.raises(WebhookRefused, match="not fully configured") as caught:
        await WebhookReceiver(post.services(), {}).receive("ci", {}, b"{}")
    assert caught.value.status == 503
    assert "CI_TOKEN" not in str(caught.value)
    post.configure()
    with pytest.raises(WebhookRefused, match="see webhooks in config") as caught:
        await reception(post).receive("github", {}, b"{}")
    assert caught.value.status == 404


async def test_more_than_github_ever_sends_is_not_read(post: Post) -> None:
    with pytest.raises(WebhookRefused) as caught:
        await reception(post).receive("ci", {}, b" " * (MAX_BODY_BYTES + 1))
    assert caught.value.status == 413
