"""What holds for every request: a POST with a key is done once, a GET has a tag, nothing is too large."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kingdom.web.envelope import ApiError
from kingdom.web.middleware import MAX_REQUEST_BYTES, ResponseStore, StoredResponse, etag_of, matches
from tests.support.web import Web, web_app
from tests.support.web_work import data, error

GIT = {"name": "web", "url": "https://example.org/x", "check": False}
KEY = {"Idempotency-Key": "k-1"}
ANSWER = StoredResponse(201, [("content-type", "application/json")], b"{}")


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with web_app(tmp_path / "home", court=False) as opened:
        yield opened


# ── idempotency ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_request_that_is_sent_again_is_answered_as_before_and_not_done_again(web: Web) -> None:
    first = await web.client.post("/api/gits", json=GIT, headers=KEY)
    again = await web.client.post("/api/gits", json=GIT, headers=KEY)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.content == first.content
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["Content-Type"] == first.headers["Content-Type"]
    error(await web.client.post("/api/gits", json=GIT, headers={"Idempotency-Key": "k-2"}), 409, "GIT_NAME_TAKEN")


async def test_an_answer_is_kept_over_a_restart_where_nobody_else_reads_it(tmp_path: Path) -> None:
    async with web_app(tmp_path / "home", court=False) as web:
        first = await web.client.post("/api/gits", json=GIT, headers=KEY)
    file = tmp_path / "home" / "state" / "web" / "idempotency.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    async with web_app(tmp_path / "home", court=False) as web:
        assert (await web.client.post("/api/gits", json=GIT, headers=KEY)).content == first.content


@pytest.mark.parametrize(
    ("path", "body"), [("/api/gits", GIT | {"name": "other"}), ("/api/gits?x=1", GIT), ("/api/mcp-servers", GIT)]
)
async def test_a_key_of_another_request_is_refused(web: Web, path: str, body: dict[str, str]) -> None:
    data(await web.client.post("/api/gits", json=GIT, headers=KEY), 201)
    error(await web.client.post(path, json=body, headers=KEY), 422, "SYS_IDEMPOTENCY")


async def test_a_refusal_is_kept_too(web: Web) -> None:
    wrong = GIT | {"url": "ext::x"}
    first = await web.client.post("/api/gits", json=wrong, headers=KEY)
    error(first, 422, "GIT_URL")
    assert (await web.client.post("/api/gits", json=wrong, headers=KEY)).content == first.content


async def test_a_request_that_was_not_even_tried_leaves_its_key_free(web: Web) -> None:
    error(await web.client.post("/api/gits", json={"name": 5}, headers=KEY), 422, "SYS_INVALID")
    data(await web.client.post("/api/gits", json=GIT, headers=KEY), 201)
    refused = await web.client.patch("/api/gits", json=GIT, headers=KEY)  # a used key, but first of all no such method
    error(refused, 405, "SYS_METHOD_NOT_ALLOWED")
    assert refused.headers["Allow"] == "GET, HEAD, POST"


# ── methods ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_method_that_is_not_allowed_is_answered_with_all_that_are(web: Web) -> None:
    made = data(await web.client.post("/api/gits", json=GIT), 201)
    for path, allowed in (("/api/gits", "GET, HEAD, POST"), (f"/api/gits/{made['id']}", "DELETE, GET, HEAD")):
        refused = await web.client.put(path)
        error(refused, 405, "SYS_METHOD_NOT_ALLOWED")
        assert refused.headers["Allow"] == allowed


@pytest.mark.parametrize("path", ["/api/gits", "/api/stream", "/healthz", "/metrics", "/api/nothing"])
async def test_head_is_get_without_a_body(web: Web, path: str) -> None:
    answer = await web.client.head(path)
    assert answer.status_code == (404 if path == "/api/nothing" else 200)
    assert answer.headers["Content-Type"]
    assert answer.content == b""


async def test_requests_with_one_key_at_once_are_done_once(web: Web) -> None:
    answers = await asyncio.gather(*(web.client.post("/api/gits", json=GIT, headers=KEY) for _ in range(6)))
    codes = [answer.status_code for answer in answers]
    assert 201 in codes
    assert set(codes) <= {201, 409}
    assert all(answer.json()["error"]["code"] == "SYS_IN_PROGRESS" for answer in answers if answer.status_code == 409)
    assert len(data(await web.client.get("/api/gits"))["items"]) == 1


async def test_a_key_that_is_none_is_refused_and_other_methods_have_none(web: Web) -> None:
    for key in ("x" * 201, "a b", ""):
        error(await web.client.post("/api/gits", json=GIT, headers={"Idempotency-Key": key}), 422, "SYS_IDEMPOTENCY")
    for _ in range(2):
        assert "Idempotency-Replayed" not in (await web.client.get("/api/gits", headers=KEY)).headers


async def test_what_broke_may_be_tried_again(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    from kingdom.workflow import usecases

    async def broken(*_: object) -> str:
        raise RuntimeError("no")

    with monkeypatch.context() as patch:
        patch.setattr(usecases, "create_git", broken)
        error(await web.client.post("/api/gits", json=GIT, headers=KEY), 500, "SYS_INTERNAL")
    data(await web.client.post("/api/gits", json=GIT, headers=KEY), 201)


async def test_what_another_process_left_under_way_was_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "answers.db"
    assert await ResponseStore(file, lambda: 0.0).begin("k", "asked") is None
    with pytest.raises(ApiError, match="was interrupted"):
        await ResponseStore(file, lambda: 0.0).begin("k", "asked")


async def test_answers_are_forgotten_after_a_day_and_when_there_are_too_many(tmp_path: Path) -> None:
    now = 0.0
    answers = ResponseStore(tmp_path / "answers.db", lambda: now, most=3)
    for number in range(4):
        now += 1
        assert await answers.begin(f"k{number}", "asked") is None
        await answers.finish(f"k{number}", ANSWER)
    assert await answers.begin("k1", "asked") == ANSWER
    assert await answers.begin("k0", "asked") is None
    now += 24 * 3600 + 1
    assert await answers.begin("k3", "asked") is None


# ── tags ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_one_has_already_is_not_sent_again(web: Web) -> None:
    first = await web.client.get("/api/gits")
    tag = first.headers["ETag"]
    assert tag.startswith('W/"')
    same = await web.client.get("/api/gits", headers={"If-None-Match": f'"other", {tag}'})
    assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", tag)
    assert same.headers["X-Content-Type-Options"] == "nosniff"
    data(await web.client.post("/api/gits", json=GIT), 201)
    changed = await web.client.get("/api/gits", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["ETag"] != tag


async def test_errors_and_changes_have_no_tag(web: Web) -> None:
    assert "ETag" not in (await web.client.get("/api/gits/git-nowhere")).headers
    assert "ETag" not in (await web.client.post("/api/gits", json=GIT)).headers


def test_a_tag_does_not_know_the_time() -> None:
    first, later = (b'{"data":{"timestamp":"x"},"timestamp":"%d"}' % number for number in (1, 2))
    assert etag_of(first) == etag_of(later) != etag_of(b'{"data":{"timestamp":"y"},"timestamp":"1"}')
    assert matches("*", 'W/"a"')
    assert matches('"a"', 'W/"a"')
    assert not matches(None, 'W/"a"')


# ── sizes ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("headers", [{}, KEY])
async def test_a_request_that_is_too_large_is_refused_however_it_comes(web: Web, headers: dict[str, str]) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(MAX_REQUEST_BYTES // 100_000 + 1):
            yield b" " * 100_000

    kind = {"Content-Type": "application/json", **headers}
    error(
        await web.client.post("/api/gits", content=b" " * (MAX_REQUEST_BYTES + 1), headers=kind), 413, "SYS_TOO_LARGE"
    )
    error(await web.client.post("/api/gits", content=parts(), headers=kind), 413, "SYS_TOO_LARGE")
