"""A scripted Responses API: what ``codex`` talks to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.support.model_servers.script import Say, Turn, Use
from tests.support.model_servers.server import Event, ModelServer


class ResponsesServer(ModelServer):
    """Answers ``POST /v1/responses`` with server-sent events, 100 tokens in (7 of them cached) and 10 out each."""

    path = "/v1/responses"

    def events(self, turn: Turn, request: dict[str, Any], number: int) -> Iterable[Event]:
        """One response: a message item, and a function call for each tool (``namespace/name`` for an MCP server's)."""
        assert isinstance(turn, Say | Use)
        response = {"id": f"resp_{number:04}"}
        yield "response.created", {"response": response}
        if turn.text is not None:
            content = [{"type": "output_text", "text": turn.text}]
            message = {"type": "message", "role": "assistant", "id": f"item_{number:04}", "content": content}
            yield "response.output_item.done", {"item": message}
        for index, (name, arguments) in enumerate(turn.calls if isinstance(turn, Use) else ()):
            namespace, _, function = name.rpartition("/")
            call = {"type": "function_call", "call_id": f"call_{number:04}_{index}", "name": function}
            if namespace:
                call["namespace"] = namespace
            yield "response.output_item.done", {"item": {**call, "arguments": json.dumps(arguments)}}
        usage = {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 7},
            "output_tokens": 10,
            "output_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 110,
        }
        yield "response.completed", {"response": {**response, "usage": usage}}
