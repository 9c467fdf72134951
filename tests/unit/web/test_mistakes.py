"""What makes no sense is refused or left out, and breaks nothing: cursors, addresses, requests that are cut off."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from kingdom.web.envelope import ApiError, cursor_id, cursor_of, cursor_position
from kingdom.web.middleware import IdempotencyMiddleware, ResponseStore
from kingdom.web.views.documents import _position
from kingdom.web.views.redaction import HIDDEN, shown_url


@pytest.mark.parametrize(
    "position", [["", 10**400, "task-1"], ["", float("nan"), "task-1"], [1.5, "task-1"], "task-1", {"at": 1}]
)
def test_a_cursor_of_documents_that_was_made_up_is_refused(position: object) -> None:
    with pytest.raises(ApiError, match="start again without it") as refused:
        _position(cursor_of(position))
    assert refused.value.status == 422


def test_a_cursor_that_is_nested_too_deeply_is_refused() -> None:
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    assert cursor_position(cursor_of(deep)) == deep
    with pytest.raises(ApiError, match="start again without it"):
        cursor_position("W1tb" * 50_000)  # [[[[…
    with pytest.raises(ApiError, match="start again without it"):
        cursor_id(cursor_of(deep))


def test_an_address_that_makes_no_sense_is_not_shown() -> None:
    assert shown_url("http://[::zz]/mcp?key=1") == HIDDEN
    assert shown_url("https://ann:secret@host/mcp?key=1#top") == f"https://ann:***@host/mcp?key={HIDDEN}"


async def test_a_request_that_was_cut_off_is_not_done_and_its_key_stays_free(tmp_path: Path) -> None:
    done: list[bytes] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        done.append((await receive())["body"])
        await PlainTextResponse("done")(scope, receive, send)

    async def post(*messages: Message) -> list[Message]:
        coming, sent = list(messages), list[Message]()

        async def receive() -> Message:
            return coming.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/api/gits", "headers": [(b"idempotency-key", b"one")]}
        await keyed(scope, receive, send)
        return sent

    keyed = IdempotencyMiddleware(application, ResponseStore(tmp_path / "answers.db", time.time))
    half: Message = {"type": "http.request", "body": b'{"name":', "more_body": True}
    assert await post(half, {"type": "http.disconnect"}) == []
    assert done == []
    sent = await post(half, {"type": "http.request", "body": b'"web"}', "more_body": False})
    assert (sent[0]["status"], done) == (200, [b'{"name":"web"}'])
