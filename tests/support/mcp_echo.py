"""A small MCP server over standard input and output, with one tool: it says what it was told, and its token."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOL = {
    "name": "echo",
    "description": "Says what it was told.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            return {
                "protocolVersion": version,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            said = f"echo: {request['params']['arguments']['text']}, token: {os.environ.get('ECHO_TOKEN')}"
            return {"content": [{"type": "text", "text": said}]}
    return {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}), flush=True)


if __name__ == "__main__":
    main()
