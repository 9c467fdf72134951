"""Webhooks without polling tell everything that happens, and nonsense is refused with a reason."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.errors import CourtError
from kingdom.court.sentinel.config import GitHubSection
from kingdom.court.sentinel.watcher import Hints
from kingdom.court.sentinel.webhooks import WebhookReceiver, WebhookResult
from tests.support.fake_github import REPO, FakeGitHub
from tests.support.sentinels import Post

SECRETS = {"GITHUB_WEBHOOK_SECRET": "g-secret", "JIRA_WEBHOOK_SECRET": "j-secret", "CI_TOKEN": "c-secret"}
WEBHOOKS: dict[str, Any] = {
    "github": {"login": "kingdom-bot"},
    "jira": {"account_id": "acc-me"},
    "generic": {"ci": {"token_env": "CI_TOKEN"}},
}
NOON = "2026-02-07T12:00:00Z"
PULL: dict[str, Any] = {
    "number": 12,
    "title": "Discounts",
    "user": {"login": "grace"},
    "head": {"ref": "f", "sha": "a" * 40},
    "updated_at": NOON,
}


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    async with Post(tmp_path / "home").open() as post:
        post.configure(webhooks=WEBHOOKS)
        yield post


async def deliver(post: Post, event: str, delivery: str = "d-1", repo: str = REPO, **payload: Any) -> WebhookResult:
    document = {"repository": {"id": 900_000, "full_name": repo}, "sender": {"login": "grace"}, **payload}
    body = json.dumps(document).encode()
    signature = "sha256=" + hmac.new(b"g-secret", body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": signature, "X-GitHub-Event": event, "X-GitHub-Delivery": delivery}
    return await WebhookReceiver(post.services(), SECRETS).receive("github", headers, body)


async def send(post: Post, body: bytes, source: str = "ci", **headers: str) -> WebhookResult:
    named = {"Authorization": "Bearer c-secret", **{name.replace("_", "-"): text for name, text in headers.items()}}
    return await WebhookReceiver(post.services(), SECRETS).receive(source, named, body)


async def refusal(call: Awaitable[WebhookResult]) -> int | None:
    """The status with which a webhook is refused; None if it is not."""
    try:
        await call
    except CourtError as error:
        return int(getattr(error, "status", 0))
    return None


@pytest.mark.parametrize(
    ("action", "one", "other", "kind"),
    [
        ("labeled", {"label": {"id": 1, "name": "bug!"}}, {"label": {"id": 2, "name": "bug?"}}, "pr.labeled"),
        (
            "review_requested",
            {"requested_reviewer": {"login": "kingdom-bot"}},
            {"requested_team": {"slug": "backend"}},
            "pr.review_requested",
        ),
        (
            "review_request_removed",
            {"requested_reviewer": {"login": "kingdom-bot"}},
            {"requested_team": {"slug": "backend"}},
            "pr.review_request_removed",
        ),
        ("assigned", {"assignee": {"login": "kingdom-bot"}}, {"assignee": {"login": "ann"}}, "pr.assigned"),
        ("unassigned", {"assignee": {"login": "kingdom-bot"}}, {"assignee": {"login": "ann"}}, "pr.unassigned"),
    ],
)
async def test_two_acts_in_one_second_are_two_events(
    post: Post, monkeypatch: pytest.MonkeyPatch, action: str, one: Any, other: Any, kind: str
) -> None:
    monkeypatch.setattr("kingdom.court.sentinel.github_events.GitHubAccount.is_me", lambda *_: True)
    monkeypatch.setattr("kingdom.court.sentinel.github_events.GitHubAccount.is_team", lambda *_: True)
    for delivery, what in (("d-1", one), ("d-2", other), ("d-2", other)):
        await deliver(post, "pull_request", delivery, action=action, pull_request=PULL, **what)
    assert post.types() == [kind, kind]


async def test_comments_on_lines_are_heard(post: Post) -> None:
    for number, body in enumerate(("why?", "@kingdom-bot and this?"), 1):
        comment = {
            "id": number,
            "user": {"login": "grace"},
            "body": body,
            "path": "a.py",
            "line": 3,
            "created_at": NOON,
        }
        await deliver(post, "pull_request_review_comment", action="created", pull_request=PULL, comment=comment)
    review = {"id": 6, "user": {"login": "grace"}, "state": "commented", "body": None, "submitted_at": NOON}
    await deliver(post, "pull_request_review", action="submitted", pull_request=PULL, review=review)
    assert post.types() == ["pr.commented", "pr.mentioned"], "the review around them says nothing of its own"
    assert [(event["payload"]["comment"]["path"], event["payload"]["comment"]["line"]) for event in post.events()] == [
        ("a.py", 3),
        ("a.py", 3),
    ]
    await deliver(post, "pull_request_review", action="submitted", pull_request=PULL, review={**review, "body": "so"})
    assert sorted(post.types()) == ["pr.commented", "pr.commented", "pr.mentioned"]


async def test_a_head_that_returns_to_an_earlier_commit_is_an_event(post: Post) -> None:
    for second, sha in enumerate("aba"):
        pull = {**PULL, "head": {"sha": sha * 40}, "updated_at": f"2026-02-07T12:00:0{second}Z"}
        for _ in range(2):
            await deliver(post, "pull_request", f"d-{second}", action="synchronize", pull_request=pull, before="c" * 40)
    assert post.types() == ["pr.updated"] * 3


NONSENSE = [
    ("issue_comment", {"action": "created", "issue": PULL, "comment": [1]}),
    ("issue_comment", {"action": "created", "issue": PULL, "comment": None}),
    ("issue_comment", {"action": "created", "issue": PULL, "comment": "x"}),
    ("pull_request_review", {"action": "submitted", "pull_request": PULL, "review": [1]}),
    ("pull_request", {"action": "closed", "pull_request": {**PULL, "labels": [1, None], "assignees": 3}}),
    ("pull_request", {"action": "opened", "pull_request": {**PULL, "requested_reviewers": 7, "title": [], "user": 1}}),
    ("issues", {"action": ["opened"], "issue": PULL}),
]


@pytest.mark.parametrize(("event", "payload"), NONSENSE)
async def test_nonsense_with_a_good_signature_is_refused_or_ignored_but_no_error_of_ours(
    post: Post, event: str, payload: dict[str, Any]
) -> None:
    assert await refusal(deliver(post, event, **payload)) in (None, 400)


@pytest.mark.parametrize("part", [[], 1, "x", {"fields": []}, {"id": [], "key": "SHOP-1", "fields": {"comment": 1}}])
async def test_nonsense_from_jira_is_no_error_of_ours(post: Post, part: Any) -> None:
    for document in (
        {"webhookEvent": "comment_created", "issue": part, "comment": part},
        {"webhookEvent": "jira:issue_updated", "issue": {"key": "SHOP-1", "fields": part}, "changelog": part},
        {"webhookEvent": "jira:issue_updated", "issue": {"key": "SHOP-1"}, "changelog": {"id": 1, "items": part}},
        {
            "timestamp": 1e300,
            "webhookEvent": "jira:issue_created",
            "issue": {"key": "SHOP-1", "fields": {"created": 1}},
        },
    ):
        body = json.dumps(document).encode()
        assert await refusal(send(post, body, "jira", X_Kingdom_Token="j-secret")) in (None, 400)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_what_is_no_number_in_json_is_refused(post: Post, number: str) -> None:
    with pytest.raises(CourtError, match="not a number in JSON") as caught:
        await send(post, b'{"load": %s}' % number.encode())
    assert getattr(caught.value, "status", None) == 400
    assert post.events() == []


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer", "Bearer "])
async def test_the_scheme_of_a_token_may_be_written_in_any_case(post: Post, scheme: str) -> None:
    assert len((await send(post, b"{}", Authorization=f"{scheme} c-secret")).events) == 1


async def test_a_token_without_its_scheme_is_refused(post: Post) -> None:
    with pytest.raises(CourtError, match="token"):
        await send(post, b"{}", Authorization="Basic c-secret")


async def test_another_event_under_a_key_that_was_used_is_refused_and_not_lost_in_silence(post: Post) -> None:
    first = b'{"type": "ci.failed", "payload": {"title": "main is red"}}'
    assert len((await send(post, first, Idempotency_Key="run-1")).events) == 1
    assert (await send(post, first, Idempotency_Key="run-1")).events == []
    for other in (b'{"type": "ci.failed", "payload": {"title": "main is green"}}', b'{"type": "ci.ok", "payload": {}}'):
        with pytest.raises(CourtError, match="used for another event") as caught:
            await send(post, other, Idempotency_Key="run-1")
        assert getattr(caught.value, "status", None) == 422
    assert len(post.events()) == 1


async def test_two_hints_under_one_delivery_id_are_both_followed(post: Post) -> None:
    post.configure(webhooks=WEBHOOKS, github={"enabled": True})
    for number in (12, 13, 13):
        await deliver(post, "pull_request", action="closed", pull_request={**PULL, "number": number})
    assert sorted(hint["number"] for hint in Hints(post.home, "github").read().values()) == [12, 13]


@pytest.mark.parametrize(
    ("section", "heard"),
    [
        ({"only_repos": ["globex/*"]}, []),
        ({"exclude_repos": ["acme/*"]}, []),
        ({"notifications": False, "repos": ["globex/api"]}, []),
        ({"only_repos": ["acme/*"]}, ["pr.opened"]),
        ({"only_repos": ["globex/*"], "repos": [REPO]}, ["pr.opened"]),
    ],
)
async def test_a_hint_is_followed_only_for_repositories_that_are_watched(
    post: Post, monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], heard: list[str]
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "a-token")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with FakeGitHub(post.clock) as github:
        github.repo_id("globex/api")
        watched = GitHubSection(url=github.url, **section)
        async with post.watch("github", watched) as watch:
            await watch.poll()
            post.configure(webhooks=WEBHOOKS, github=section)
            github.open(12)
            await deliver(post, "pull_request", action="opened", pull_request=PULL)
            await watch.poll()
            assert not watch.watcher.urgent(), "the hint is gone"
    assert post.types() == heard


async def test_a_webhook_without_polling_keeps_to_the_watched_repositories_too(post: Post) -> None:
    post.configure(
        webhooks=WEBHOOKS, github={"enabled": False, "only_repos": ["acme/*"], "exclude_repos": ["acme/old"]}
    )
    for delivery, repo in (("d-1", "acme/old"), ("d-2", "globex/api")):
        ignored = await deliver(post, "pull_request", delivery, repo, action="closed", pull_request=PULL)
        assert ignored.outcome == "ignored"
    assert (await deliver(post, "pull_request", action="closed", pull_request=PULL)).outcome == "events"
