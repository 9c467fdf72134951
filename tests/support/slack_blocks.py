"""Slack's documented rules for blocks, and the limits that its users found."""

from __future__ import annotations

import json
from typing import Any

_STYLES = {"bold", "italic", "strike", "code"}
_MAX_JSON_CHARS = 11_000  # slackapi/bolt-js#2867: refused from here on, though 13,200 is usual


def block_error(blocks: Any) -> str | None:
    """The error with which Slack refuses blocks; None if it takes them."""
    if not isinstance(blocks, list) or len(blocks) > 50:
        return "invalid_blocks"
    if len(json.dumps(blocks, ensure_ascii=False)) > _MAX_JSON_CHARS:
        return "msg_blocks_too_long"
    return None if all(_is_block(block) for block in blocks) else "invalid_blocks"


def _is_block(block: dict[str, Any]) -> bool:
    match block:
        case {"type": "divider"}:
            return True
        case {"type": "section", "text": {"type": "mrkdwn", "text": str(text)}}:
            return 0 < len(text) <= 3000
        case {"type": "context", "elements": [*elements]}:
            return 0 < len(elements) <= 10 and all(element["text"] for element in elements)
        case {"type": "actions", "elements": [*buttons]}:
            return 0 < len(buttons) <= 25 and all(0 < len(button["text"]["text"]) <= 75 for button in buttons)
        case {"type": "rich_text", "elements": [*elements]}:
            return bool(elements) and all(_is_rich(element) for element in elements)
    return False


def _is_rich(element: dict[str, Any]) -> bool:
    match element:
        case {"type": "rich_text_section" | "rich_text_quote", "elements": [*inner]}:
            return bool(inner) and all(_is_inline(item) for item in inner)
        case {"type": "rich_text_preformatted", "elements": [*inner]}:
            return bool(inner) and all(item["type"] in ("text", "link") and _is_inline(item) for item in inner)
        case {"type": "rich_text_list", "style": "bullet" | "ordered", "elements": [*inner]}:
            sections = all(item["type"] == "rich_text_section" and _is_rich(item) for item in inner)
            return bool(inner) and sections and 0 <= element.get("indent", 0) <= 8 and element.get("offset", 0) >= 0
    return False


def _is_inline(item: dict[str, Any]) -> bool:
    if item.get("style") is not None and not (item["style"] and set(item["style"]) <= _STYLES):
        return False
    match item:
        case {"type": "text", "text": str(text)}:
            return 0 < len(text) <= 3000
        case {"type": "link", "url": str(url)}:
            return url.startswith(("http://", "https://", "mailto:")) and item.get("text", "x") != ""
        case {"type": "emoji", "name": str(name)}:
            return bool(name)
    return False
