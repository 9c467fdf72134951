"""How a message looks in Slack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.envoy.slack.understanding import ACTION, BLOCK
from kingdom.court.envoy.slack.words import MOST, SECTION, cut, escape, own, pieces, urgently

if TYPE_CHECKING:
    from kingdom.court.models import Message

EVENT_TYPE: Final = "kingdom_message"  # of the metadata that names our messages
_BUTTONS: Final = 25  # Slack's limit for one block
_LABEL: Final = 75  # Slack's limit for the text on a button
_BLOCKS: Final = 40  # Slack's limit is 50


def text_of(message: Message, locale: str) -> str:
    """The text of a post."""
    rest = own(locale, "cut", id=_trace_id(message))
    return urgently(message.urgency) + cut(escape(message.content), MOST, rest)


def blocks_of(message: Message, locale: str) -> list[dict[str, Any]] | None:
    """A question with its buttons; None for what is only text."""
    task_id = task_of(message)
    if message.type != "human_input_request" or task_id is None:
        return None
    choices = choices_of(message)
    blocks = _sections(text_of(message, locale))
    if choices:
        buttons = [
            {
                "type": "button",
                "action_id": f"{ACTION}{number}",
                "text": {"type": "plain_text", "text": _label(choice), "emoji": False},
                "value": str(number),
            }
            for number, choice in enumerate(choices[:_BUTTONS])
        ]
        blocks.append({"type": "actions", "block_id": f"{BLOCK}{task_id}", "elements": buttons})
    how = own(locale, "how" if choices else "how_free")
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": how}]})
    return blocks


def closed(text: str, said: str) -> tuple[str, list[dict[str, Any]]]:
    """A question that is over: its text, and what came of it, without buttons."""
    context = {"type": "context", "elements": [{"type": "mrkdwn", "text": said}]}
    return cut(text, MOST - len(said)) + f"\n{said}", [*_sections(text), context]


def answered_by(user: str, answer: str, locale: str) -> str:
    """Who answered a question, and how."""
    return own(locale, "answered", user=f"<@{user}>", text=cut(escape(answer), 1000))


def metadata_of(court: str, intents: list[str]) -> dict[str, Any]:
    """What names a post as ours, so that it is found again. Another court may have messages of the same numbers."""
    return {"event_type": EVENT_TYPE, "event_payload": {"court": court, "intent": intents[-1], "intents": intents}}


def intents_in(post: dict[str, Any], court: str) -> list[str]:
    """The messages of a court that a post is made of."""
    metadata = post.get("metadata")
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    intents = payload.get("intents") if isinstance(payload, dict) and payload.get("court") == court else None
    return [str(one) for one in intents] if isinstance(intents, list) else []


def task_of(message: Message) -> str | None:
    """The task that a message is about."""
    return _named(message, "task_id")


def thread_of(message: Message) -> str | None:
    """The task under which the thread of a message is known: the first of its case."""
    return _named(message, "original_task_id") or task_of(message)


def choices_of(message: Message) -> list[str]:
    """The answers a question offers."""
    choices = message.context.get("choices")
    return [str(one) for one in choices] if isinstance(choices, list) else []


def _named(message: Message, key: str) -> str | None:
    value = message.context.get(key)
    return value if isinstance(value, str) and value else None


def _trace_id(message: Message) -> str:
    return task_of(message) or message.id


def _label(choice: str) -> str:
    line = " ".join(choice.split()) or "–"
    return line if len(line) <= _LABEL else f"{line[: _LABEL - 1]}…"


def _sections(text: str) -> list[dict[str, Any]]:
    parts = pieces(text, SECTION)[:_BLOCKS]
    return [{"type": "section", "text": {"type": "mrkdwn", "text": part}} for part in parts]
