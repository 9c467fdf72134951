"""What the lines of ``claude --output-format stream-json`` mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kingdom.agents.engines.lines import (
    amount,
    as_json,
    count,
    epoch,
    is_torn,
    items,
    mapping,
    one_line,
    parse_object,
    text,
)
from kingdom.agents.port import AgentEvent, Began, Finished, Heartbeat, RateLimit, Text, Tokens, ToolUse, Usage

_LIMIT_WORDS: Final = re.compile(r"usage limit reached|hit your [\w -]{0,40}limit|\(429\)", re.IGNORECASE)
_LIMIT_RESET: Final = re.compile(r"limit reached\|(\d{9,13})")
_DETAILS: Final = ("command", "file_path", "notebook_path", "pattern", "url", "query", "description", "skill", "path")
_CHARACTERS_PER_TOKEN: Final = 4


@dataclass(slots=True)
class _Message:
    """One message of the model; several lines can carry parts of it, each repeating its usage."""

    tokens: Tokens = field(default_factory=Tokens)
    characters: int = 0


class ClaudeReader:
    """Understands one run."""

    def __init__(self) -> None:
        self._session_id: str | None = None
        self._messages: dict[str, _Message] = {}
        self._limit: RateLimit | None = None  # the last thing the account's limit said

    def feed(self, line: bytes) -> Sequence[AgentEvent]:
        """What a line says."""
        document = parse_object(line)
        if document is None:
            return () if not line.strip() or is_torn(line) else (Heartbeat(),)
        match document.get("type"):
            case "system" if document.get("subtype") == "init":
                return self._init(document)
            case "assistant":
                return self._assistant(document)
            case "rate_limit_event":
                return self._rate_limit(mapping(document.get("rate_limit_info")))
            case "result":
                return self._result(document)
        return (Heartbeat(),)

    def _init(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        session_id = text(document.get("session_id"))
        if session_id is not None and session_id == self._session_id:
            return (Heartbeat(),)  # it begins again after it has made its context smaller
        self._session_id = session_id
        return (Began(session_id=session_id, model=text(document.get("model"))),)

    def _assistant(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        if document.get("is_api_error_message") is True:
            return (Heartbeat(),)  # its own words about a failed request; the result says them again
        message = mapping(document.get("message"))
        content = [block for block in items(message.get("content")) if isinstance(block, dict)]
        events: list[AgentEvent] = []
        for block in content:
            said = text(block.get("text"))
            # What a subagent says is for the agent that asked it.
            if block.get("type") == "text" and said is not None and document.get("parent_tool_use_id") is None:
                events.append(Text(said))
            elif block.get("type") == "tool_use":
                events.append(_tool_use(block))
        if usage := self._count(message, content):
            events.append(usage)
        return events or (Heartbeat(),)

    def _count(self, message: dict[str, Any], content: list[dict[str, Any]]) -> Usage | None:
        reported = mapping(message.get("usage"))
        message_id = text(message.get("id"))
        if message_id is None or not reported:
            return None
        known = self._messages.setdefault(message_id, _Message())
        known.characters += sum(len(as_json(block)) for block in content)
        now = _tokens(reported)
        # A line comes before its message is counted and says 1 token of output: what can be seen is the better guess.
        output = max(now.output, known.characters // _CHARACTERS_PER_TOKEN)
        known.tokens = Tokens(now.input, output, now.cache_read, now.cache_write)
        return Usage(tokens=self._streamed(), turns=len(self._messages))

    def _streamed(self) -> Tokens:
        return sum((message.tokens for message in self._messages.values()), Tokens())

    def _rate_limit(self, info: dict[str, Any]) -> Sequence[AgentEvent]:
        resets_at, window = epoch(info.get("resetsAt")), text(info.get("rateLimitType"))
        match info.get("status"):
            case "rejected" if info.get("isUsingOverage") is not True:
                self._limit = RateLimit("rejected", resets_at, window)
            case "rejected" | "allowed_warning":
                self._limit = RateLimit("warning", resets_at, window)
            case _:
                return (Heartbeat(),)
        return (self._limit,)

    def _result(self, document: dict[str, Any]) -> Sequence[AgentEvent]:
        said = text(document.get("result"))
        ok = document.get("subtype") == "success" and document.get("is_error") is False
        turns = count(document.get("num_turns")) or len(self._messages)
        tokens, cost = self._totals(document)
        events: list[AgentEvent] = [Usage(tokens=tokens, cost_usd=cost, turns=turns)]
        structured = document.get("structured_output")
        if ok:
            return (*events, Finished(ok=True, text=said, structured=structured if _is_object(structured) else None))
        errors = "; ".join(filter(None, map(text, items(document.get("errors")))))
        error = errors or said or text(document.get("subtype")) or "it ended with an error and gave no reason"
        if _is_limit(document, error):
            events.append(self._rejected(error))
        return (*events, Finished(ok=False, text=said, error=error))

    def _totals(self, document: dict[str, Any]) -> tuple[Tokens, float | None]:
        """What this process used.

        After ``--resume``, ``total_cost_usd`` and ``modelUsage`` count the whole conversation; ``usage`` and
        ``model_usage_since_last_result`` (not in older versions) this process only.
        """
        since = document.get("model_usage_since_last_result")
        if isinstance(since, dict):
            by_model = [mapping(model) for model in since.values()]
            return sum(map(_model_tokens, by_model), Tokens()), sum(amount(m.get("costUSD")) or 0.0 for m in by_model)
        tokens = _tokens(mapping(document.get("usage")))
        return tokens if tokens.total else self._streamed(), amount(document.get("total_cost_usd"))

    def _rejected(self, error: str) -> RateLimit:
        if self._limit is not None:
            return RateLimit("rejected", self._limit.resets_at, self._limit.window)
        found = _LIMIT_RESET.search(error)
        return RateLimit("rejected", epoch(int(found.group(1))) if found else None)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_limit(document: dict[str, Any], error: str) -> bool:
    by_status = document.get("api_error_status") == 429 or document.get("api_error_type") == "rate_limit_error"
    return by_status or _LIMIT_WORDS.search(error[:2000]) is not None


def _tokens(usage: dict[str, Any]) -> Tokens:
    return Tokens(
        input=count(usage.get("input_tokens")),
        output=count(usage.get("output_tokens")),
        cache_read=count(usage.get("cache_read_input_tokens")),
        cache_write=count(usage.get("cache_creation_input_tokens")),
    )


def _model_tokens(usage: dict[str, Any]) -> Tokens:
    return Tokens(
        input=count(usage.get("inputTokens")),
        output=count(usage.get("outputTokens")),
        cache_read=count(usage.get("cacheReadInputTokens")),
        cache_write=count(usage.get("cacheCreationInputTokens")),
    )


def _tool_use(block: dict[str, Any]) -> ToolUse:
    given = mapping(block.get("input"))
    detail = next((found for name in _DETAILS if (found := text(given.get(name)))), None)
    if detail is None and given:
        detail = text(as_json(given))
    return ToolUse(name=one_line(text(block.get("name")) or "tool", 80), detail=one_line(detail or ""))
