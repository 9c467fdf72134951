"""A scripted Messages API: what ``claude`` talks to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.support.model_servers.script import Say, Turn, Use
from tests.support.model_servers.server import Event, ModelServer


class MessagesServer(ModelServer):
    """Answers ``POST /v1/messages`` with server-sent events, 100 tokens in and 10 out for each turn."""

    path = "/v1/messages"

    def events(self, turn: Turn, request: dict[str, Any], number: int) -> Iterable[Event]:
        """One assistant message: a text block, and a block for each tool."""
        assert isinstance(turn, Say | Use)
        calls = turn.calls if isinstance(turn, Use) else ()
        usage = {
            "input_tokens": 100,
            "output_tokens": 1,
            "cache_read_input_tokens": 7,
            "cache_creation_input_tokens": 3,
        }
        message = {"id": f"msg_{number:04}", "type": "message", "role": "assistant", "model": request["model"]}
        yield (
            "message_start",
            {"message": {**message, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}},
        )
        index = 0
        if turn.text is not None:
            yield "content_block_start", {"index": index, "content_block": {"type": "text", "text": ""}}
            yield "content_block_delta", {"index": index, "delta": {"type": "text_delta", "text": turn.text}}
            yield "content_block_stop", {"index": index}
            index += 1
        for name, arguments in calls:
            block = {"type": "tool_use", "id": f"toolu_{number:04}_{index}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            yield "content_block_start", {"index": index, "content_block": block}
            yield "content_block_delta", {"index": index, "delta": delta}
            yield "content_block_stop", {"index": index}
            index += 1
        why = "tool_use" if calls else "end_turn"
        yield "message_delta", {"delta": {"stop_reason": why, "stop_sequence": None}, "usage": {"output_tokens": 10}}
        yield "message_stop", {}
