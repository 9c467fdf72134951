"""Webhooks over HTTP: proved by their own secrets, durable before they are acknowledged, one event each."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kingdom.court.sentinel.watcher import Hints
from tests.integration.court.test_sentinel_reception import COMMENT, SECRETS, TICKET, WEBHOOKS
from tests.support.web import Web, web_app


@pytest.fixture
async def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Web]:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    async with web_app(tmp_path) as web:
        configure(web)
        yield web


def configure(web: Web, **sections: Any) -> None:
    path = web.context.court.home.config / "sentinel.yaml"
    path.write_text(json.dumps({"webhooks": WEBHOOKS, **sections}))


async def deliver(web: Web, body: bytes, secret: str = "g-secret", delivery: str = "d-1") -> httpx.Response:
    signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"X-Hub-Signature-256": signature, "X-GitHub-Event": "issue_comment", "X-GitHub-Delivery": delivery}
    async with web.without_token() as client:
        return await client.post("/hooks/github", content=body, headers=headers)


async def events(web: Web) -> list[dict[str, Any]]:
    answer = await web.client.get("/api/events")
    found: list[dict[str, Any]] = answer.json()["data"]["items"]
    return found


async def test_a_webhook_of_github_is_one_event_however_often_it_is_delivered(web: Web) -> None:
    # Spaces and the order of the keys are not ours: the signature is over the bytes as they were sent.
    body = json.dumps(COMMENT, indent=3).encode()
    first = await deliver(web, body)
    assert (first.status_code, first.json()["data"]["outcome"]) == (202, "events")
    again = await deliver(web, body)
    assert (again.status_code, again.json()["data"]["events"]) == (202, [])
    assert [one["id"] for one in await events(web)] == first.json()["data"]["events"]


async def test_a_wrong_signature_is_refused_in_the_envelope_and_leaves_nothing(web: Web) -> None:
    body = json.dumps(COMMENT).encode()
    for refused in (await deliver(web, body, secret="wrong"), await deliver(web, body, secret="")):
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "SYS_WEBHOOK_REFUSED")
        assert "g-secret" not in refused.text
    async with web.without_token() as client:
        assert (await client.post("/hooks/github", content=body)).status_code == 401
        assert (await client.post("/hooks/generic/ci", json={}, headers=web.client.headers)).status_code == 401
    assert await events(web) == []


async def test_a_source_that_is_watched_is_looked_at_instead(web: Web) -> None:
    configure(web, github={"enabled": True})
    taken = await deliver(web, json.dumps(COMMENT).encode())
    assert (taken.status_code, taken.json()["data"]) == (202, {"delivery": "d-1", "outcome": "hint", "events": []})
    (hint,) = Hints(web.context.court.home, "github").read().values()
    assert hint["number"] == 7
    assert await events(web) == []


async def test_jira_and_any_other_program_prove_themselves_by_their_tokens(web: Web) -> None:
    async with web.without_token() as client:
        taken = await client.post("/hooks/jira", json=TICKET, headers={"X-Kingdom-Token": "j-secret"})
        assert taken.status_code == 202
        given = {"Authorization": "Bearer c-secret", "Idempotency-Key": "build-7"}
        for _ in range(2):
            built = await client.post("/hooks/generic/ci", json={"build": "<b>7</b>"}, headers=given)
            assert built.status_code == 202
    kinds = sorted(one["type"] for one in await events(web))
    assert (len(kinds), kinds[-1]) == (2, "webhook.ci")
    event = (await web.client.get("/api/events/evt-webhook-ci-build-7")).json()["data"]
    assert event["payload"] == {"build": "<b>7</b>"}


async def test_what_is_not_set_up_is_not_found_and_what_is_too_large_is_not_read(web: Web) -> None:
    large = b" " * (1024 * 1024 + 1)
    configure(web, webhooks={"generic": {"ci": {"token_env": "CI_TOKEN"}}})
    async with web.without_token() as client:
        assert (await client.post("/hooks/github", json={})).status_code == 404
        assert (await client.post("/hooks/generic/other", json={})).status_code == 404
        assert (await client.post("/hooks/generic/github", json={})).status_code == 404
        refused = await client.post("/hooks/generic/ci", content=large, headers={"X-Kingdom-Token": "c-secret"})
        assert (refused.status_code, refused.json()["success"]) == (413, False)
        odd = await client.post("/hooks/generic/ci", content=b"not json", headers={"X-Kingdom-Token": "c-secret"})
        assert (odd.status_code, odd.json()["error"]["code"]) == (400, "SYS_WEBHOOK_REFUSED")
