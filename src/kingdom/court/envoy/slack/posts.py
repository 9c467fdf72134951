"""Builds what is posted in Slack."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.court.envoy.slack.payloads import ACTION_PREFIX, BLOCK_PREFIX
from kingdom.court.envoy.slack.rich_text import Unit, divide_units, is_plain, markdown_units, plain_text, rich_blocks
from kingdom.court.envoy.slack.text import (
    URGENCY_EMOJI,
    escape,
    own_text,
    truncate,
    unescape,
    urgency_prefix,
)

if TYPE_CHECKING:
    from kingdom.court.models import Message

MAX_POST_CHARS: Final = 39_000  # of a text; Slack's limit is 40,000
MAX_UPDATE_CHARS: Final = 2_900  # of a post to which updates are added
_MAX_TEXT_CHARS: Final = 3_900  # of a text that is shown without blocks: Slack advises at most 4,000
_MAX_PART_SIZE: Final = 8_000  # of the blocks of one post, as JSON: Slack refuses some from 11,000 on
_MAX_PARTS: Final = 10  # posts for one message
_MAX_BUTTONS: Final = 25  # Slack's limit for one block
_MAX_LABEL_CHARS: Final = 75  # Slack's limit for the text on a button
METADATA_EVENT_TYPE: Final = "kingdom_message"  # of the metadata of our posts
_Block = dict[str, Any]


class PostPart(NamedTuple):
    """One post of a message. A long message has several: the first, and replies below it."""

    text: str
    """What notifications show, and what is shown if there are no blocks."""
    blocks: list[_Block] | None


def post_text(message: Message, locale: str) -> str:
    rest = own_text(locale, "cut", id=_trace_id(message))
    return urgency_prefix(message.urgency) + truncate(escape(message.content), MAX_POST_CHARS, rest)


def post_parts(message: Message, locale: str) -> list[PostPart]:
    """Return the posts of a message: its Markdown as rich text, divided if it is long, with buttons if it asks."""
    units, controls = markdown_units(message.content), _question_blocks(message, locale)
    text = post_text(message, locale)
    if not controls and len(message.content) <= _MAX_TEXT_CHARS and is_plain(message.content, units):
        return [PostPart(text, None)]
    parts = divide_units(units, _MAX_PART_SIZE - len(json.dumps(controls)), _MAX_PART_SIZE)
    if len(parts) > _MAX_PARTS:
        parts = parts[:_MAX_PARTS]
        parts[-1].append(_note(own_text(locale, "cut", id=_trace_id(message))))
    shown = [rich_blocks(part) for part in parts]
    shown[0] = [*_with_emoji(shown[0], URGENCY_EMOJI.get(message.urgency)), *controls]
    if len(parts) == 1:
        return [PostPart(text, shown[0])]
    shown[0].append(_context(own_text(locale, "more")))
    texts = [truncate(escape(plain_text(part)), _MAX_TEXT_CHARS) for part in parts]
    texts[0] = urgency_prefix(message.urgency) + texts[0]
    return [PostPart(*both) for both in zip(texts, shown, strict=True)]


def text_blocks(text: str) -> list[_Block]:
    """Return the blocks of a text that :func:`post_text` made; the first of them, if it is long."""
    text = unescape(text)
    emoji = next((name for name in URGENCY_EMOJI.values() if name and text.startswith(f":{name}: ")), None)
    units = markdown_units(text.removeprefix(f":{emoji}: ") if emoji else text)
    return _with_emoji(rich_blocks(divide_units(units, _MAX_PART_SIZE, 0)[0]), emoji)


def join_updates(before: str, text: str) -> str:
    """Return the text of a post with an update added: as a further line, or as a paragraph if one is formatted."""
    plain = all(is_plain(one, markdown_units(one)) for one in (before, text))
    return f"{before}\n{text}" if plain else f"{before}\n\n{text}"


def _question_blocks(message: Message, locale: str) -> list[_Block]:
    """Return the buttons of a question, and how to answer it; nothing for other messages."""
    task_id = task_id_of(message)
    if message.type != "human_input_request" or task_id is None:
        return []
    choices, blocks = choices_of(message), list[_Block]()
    if choices:
        buttons = [
            {
                "type": "button",
                "action_id": f"{ACTION_PREFIX}{number}",
                "text": {"type": "plain_text", "text": _button_label(choice), "emoji": False},
                "value": str(number),
            }
            for number, choice in enumerate(choices[:_MAX_BUTTONS])
        ]
        blocks.append({"type": "actions", "block_id": f"{BLOCK_PREFIX}{task_id}", "elements": buttons})
    return [*blocks, _context(own_text(locale, "how" if choices else "how_free"))]


def closed_question(text: str, outcome: str) -> tuple[str, list[_Block]]:
    """Return text and blocks of a closed question: its text and the outcome, without buttons."""
    blocks = [*text_blocks(text), _context(outcome)]
    return truncate(text, MAX_POST_CHARS - len(outcome)) + f"\n{outcome}", blocks


def _context(text: str) -> _Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def _note(text: str) -> Unit:
    return Unit({"type": "rich_text_section", "elements": [{"type": "text", "text": text, "style": {"italic": True}}]})


def _with_emoji(blocks: list[_Block], name: str | None) -> list[_Block]:
    """Return blocks that begin with an emoji."""
    if not name:
        return blocks
    lead: list[_Block] = [{"type": "emoji", "name": name}, {"type": "text", "text": " "}]
    if blocks and blocks[0]["type"] == "rich_text" and blocks[0]["elements"][0]["type"] == "rich_text_section":
        section, *others = blocks[0]["elements"]
        first = {**section, "elements": [*lead, *section["elements"]]}
        return [{**blocks[0], "elements": [first, *others]}, *blocks[1:]]
    return [{"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": lead}]}, *blocks]


def answered_text(user: str, answer: str, locale: str) -> str:
    return own_text(locale, "answered", user=f"<@{user}>", text=truncate(escape(answer), 1000))


def post_metadata(court: str, intents: list[str]) -> dict[str, Any]:
    """Return the metadata by which we find our post again. It names the court: another one may use the same ids."""
    return {
        "event_type": METADATA_EVENT_TYPE,
        "event_payload": {"court": court, "intent": intents[-1], "intents": intents},
    }


def post_intents(post: dict[str, Any], court: str) -> list[str]:
    """Return the ids of a court's messages in a post."""
    metadata = post.get("metadata")
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    intents = payload.get("intents") if isinstance(payload, dict) and payload.get("court") == court else None
    return [str(one) for one in intents] if isinstance(intents, list) else []


def task_id_of(message: Message) -> str | None:
    return _context_text(message, "task_id")


def thread_task_id(message: Message) -> str | None:
    """Return the task under which the thread of a message is stored: the first task of its case."""
    return _context_text(message, "original_task_id") or task_id_of(message)


def topic_of(message: Message) -> str | None:
    """Return what the tasks of a message were first asked for, such as an issue."""
    return _context_text(message, "topic")


def choices_of(message: Message) -> list[str]:
    choices = message.context.get("choices")
    return [str(one) for one in choices] if isinstance(choices, list) else []


def _context_text(message: Message, key: str) -> str | None:
    value = message.context.get(key)
    return value if isinstance(value, str) and value else None


def _trace_id(message: Message) -> str:
    return task_id_of(message) or message.id


def _button_label(choice: str) -> str:
    line = " ".join(choice.split()) or "–"
    return line if len(line) <= _MAX_LABEL_CHARS else f"{line[: _MAX_LABEL_CHARS - 1]}…"
