"""What the lines of ``codex exec --json`` mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from kingdom.agents.engines.codex_limits import is_limit, resets_at
from kingdom.agents.engines.codex_rollout import Rollout, difference, tokens
from kingdom.agents.engines.lines import as_json, is_torn, items, mapping, one_line, parse_object, text
from kingdom.agents.port import AgentEvent, Began, Finished, Heartbeat, RateLimit, Text, ToolUse, Usage

_TOOLS: Final = {
    "command_execution": "exec",
    "file_change": "edit",
    "mcp_tool_call": "mcp",
    "web_search": "web_search",
    "collab_tool_call": "agent",
}


class CodexReader:
    """Understands one run."""

    def __init__(
        self,
        rollout: Callable[[str], Rollout],
        *,
        model: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._open_rollout = rollout
        self._rollout: Rollout | None = None
        self._ended = False
        self._model = model
        self._clock = clock
        self._tools: set[str] = set()  # items already told
        self._last_text: str | None = None

    def feed(self, line: bytes) -> Sequence[AgentEvent]:
        """What a line says."""
        document = parse_object(line)
        if document is None:
            return () if not line.strip() or is_torn(line) else (Heartbeat(),)
        match document.get("type"):
            case "thread.started":
                return self._started(document)
            case "item.started" | "item.updated" | "item.completed":
                return self._item(mapping(document.get("item")), done=document["type"] == "item.completed")
            case "turn.completed":
                self._ended = True
                return (*self._total(mapping(document.get("usage"))), Finished(ok=True, text=self._last_text))
            case "turn.failed":
                return self._failed(document)
        return (Heartbeat(),)  # "error" too: it tries again, or turn.failed follows

    def end(self) -> Sequence[AgentEvent]:
        """What it had used when it was ended: the record is written behind what it prints."""
        return () if self._ended else self._so_far()

    def _started(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        thread_id = text(document.get("thread_id"))
        if thread_id is not None:
            self._rollout = self._open_rollout(thread_id)
        return (Began(session_id=thread_id, model=self._model),)

    def _item(self, item: dict[str, Any], *, done: bool) -> Sequence[AgentEvent]:
        kind = text(item.get("type")) or ""
        events: list[AgentEvent] = []
        if kind == "agent_message":
            said = text(item.get("text"))
            if done and said is not None:
                self._last_text = said
                events.append(Text(said))
        elif kind in _TOOLS and (item_id := str(item.get("id"))[:200]) not in self._tools:
            self._tools.add(item_id)
            events.append(_tool_use(kind, item))
        # A message or a tool can only come when the model has answered, so its run has begun in the record too.
        if done and (kind == "agent_message" or kind in _TOOLS):
            events += self._so_far()
        return events or (Heartbeat(),)

    def _so_far(self) -> Sequence[AgentEvent]:
        if self._rollout is None:
            return ()
        self._rollout.follow()
        used = self._rollout.used
        return (Usage(tokens=used, turns=self._rollout.turns),) if used.total else ()

    def _total(self, usage: dict[str, Any]) -> Sequence[AgentEvent]:
        whole = tokens(usage)
        if not whole.total or self._rollout is None:
            return (Usage(tokens=whole),) if whole.total else ()
        self._rollout.follow()
        return (Usage(tokens=difference(whole, self._rollout.before), turns=self._rollout.turns),)

    def _failed(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        error = text(mapping(document.get("error")).get("message")) or "it ended with an error and gave no reason"
        events = [*self._so_far()]
        if is_limit(error):
            events.append(RateLimit("rejected", resets_at(error, self._clock())))
        return (*events, Finished(ok=False, text=self._last_text, error=error))


def _tool_use(kind: str, item: dict[str, Any]) -> ToolUse:
    match kind:
        case "command_execution":
            detail = text(item.get("command"))
        case "file_change":
            detail = ", ".join(
                filter(None, (text(mapping(change).get("path")) for change in items(item.get("changes"))))
            )
        case "mcp_tool_call":
            detail = ".".join(filter(None, (text(item.get("server")), text(item.get("tool")))))
        case _:
            detail = text(item.get("query")) or text(item.get("tool")) or text(as_json(item))
    return ToolUse(name=_TOOLS[kind], detail=one_line(detail or ""))
