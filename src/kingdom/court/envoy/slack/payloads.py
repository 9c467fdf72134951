"""Slack payloads: parse what Slack sends, build what is posted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kingdom.court.models import Message


_TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "how": "_Press a button, or reply in this thread._",
        "how_free": "_Reply in this thread to answer._",
        "answered": "Answered by {user}: {text}",
        "elsewhere": "This question was answered outside Slack, or is no longer needed.",
        "closed": "This question is already closed.",
        "stranger": "You may not answer: your id {user} is not in `slack.users` in config/envoy.yaml.",
        "unlisted": "Sorry, <@{user}>, I may not work for you yet. Whoever runs this court can add your id {user} to "
        "`slack.users` in config/envoy.yaml.",
        "cut": "… (shortened; `kingdom trace {id}` shows the full text)",
        "nobody": "Nobody handles this: no general subscribes to `{type}`.",
    },
    "ko": {
        "how": "_버튼을 누르거나 이 스레드에 답글을 남겨 주세요._",
        "how_free": "_이 스레드에 답글로 답해 주세요._",
        "answered": "{user} 님의 답: {text}",
        "elsewhere": "Slack 밖에서 답을 받았거나 더 이상 답이 필요하지 않은 질문입니다.",
        "closed": "이미 마감된 질문입니다.",
        "stranger": "답할 권한이 없습니다: config/envoy.yaml의 `slack.users`에 ID {user}이(가) 없습니다.",
        "unlisted": "<@{user}> 님, 죄송합니다. 아직 요청을 처리할 권한이 없습니다. 관리자가 config/envoy.yaml의 "
        "`slack.users`에 ID {user}을(를) 추가하면 도와드릴 수 있습니다.",
        "cut": "… (일부 생략: 전체 내용은 `kingdom trace {id}`)",
        "nobody": "처리할 장군이 없습니다: `{type}`을(를) 구독하는 장군이 없습니다.",
    },
}
_URGENCY_PREFIXES: Final = {"normal": "", "high": ":small_orange_diamond: ", "urgent": ":rotating_light: "}
_CONTROL_CHARS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPES: Final = str.maketrans({**_ENTITIES})
_MENTION: Final = re.compile(r"<[@#!]([^>|]*)(?:\|([^>]*))?>")
_LINK: Final = re.compile(r"<((?:https?|mailto|tel):[^>|]*)(?:\|[^>]*)?>")
MAX_POST_CHARS: Final = 39_000  # Slack's limit is 40,000
MAX_SECTION_CHARS: Final = 2_900  # of one block; Slack's limit is 3,000
ACTION_PREFIX: Final = "kingdom_answer"  # of our buttons' action ids; the number of the choice follows
BLOCK_PREFIX: Final = "kingdom_question:"  # of our button blocks' ids; the task id follows
_TIMESTAMP: Final = re.compile(r"\d{1,12}\.\d{1,9}\Z")
# All other subtypes of messages are Slack's own notices.
_USER_SUBTYPES: Final = (None, "file_share", "thread_broadcast", "me_message")
METADATA_EVENT_TYPE: Final = "kingdom_message"  # of the metadata of our posts
_MAX_BUTTONS: Final = 25  # Slack's limit for one block
_MAX_LABEL_CHARS: Final = 75  # Slack's limit for the text on a button
_MAX_BLOCKS: Final = 40  # Slack's limit is 50


def own_text(locale: str, name: str, **values: str) -> str:
    """Return one of the envoy's own texts; values are inserted as they are."""
    return _TEXTS[locale][name].format(**values)


def escape(text: str) -> str:
    """Escape a text of others, so that Slack takes nothing in it for a mention, a link or a command."""
    return _CONTROL_CHARS.sub("\N{REPLACEMENT CHARACTER}", text).translate(_ESCAPES)


def to_plain_text(text: str, bot: str | None = None) -> str:
    """Return what a person wrote as plain text: without the mention of the bot, links as URLs, no entities."""
    if bot:
        text = re.sub(rf"<@{re.escape(bot)}(\|[^>]*)?>", "", text)
    text = _LINK.sub(r"\1", text)
    text = _MENTION.sub(lambda found: f"@{found[2] or found[1]}", text)
    for character, entity in reversed(_ENTITIES.items()):
        text = text.replace(entity, character)
    return text.strip()


def mentions_user(text: str, bot: str | None) -> bool:
    return bool(bot) and re.search(rf"<@{re.escape(bot or '')}(\|[^>]*)?>", text) is not None


def urgency_prefix(urgency: str) -> str:
    return _URGENCY_PREFIXES.get(urgency, "")


def truncate(text: str, max_chars: int, rest: str = "…") -> str:
    """Shorten an escaped text to ``max_chars`` characters; ``rest`` is appended if something is cut off."""
    if len(text) <= max_chars:
        return text
    kept = text[: max(max_chars - len(rest) - 1, 0)]
    return re.sub(r"&[a-z]{0,3}\Z", "", kept) + f"\n{rest}"  # do not cut an entity in half


def split_text(text: str, size: int) -> list[str]:
    """Split a text into pieces of at most ``size`` characters, at the ends of lines if possible."""
    found = []
    while len(text) > size:
        end = text.rfind("\n", size // 2, size)
        end = size if end < 0 else end
        amp = text.rfind("&", max(end - 4, 0), end)
        if amp >= 0 and ";" not in text[amp:end]:
            end = amp
        found.append(text[:end])
        text = text[end:].removeprefix("\n")
    return [*found, text] if text else found


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """A post of a person."""

    names: tuple[str, ...]  # under which it may be delivered again
    team: str
    channel: str
    ts: str
    thread_ts: str | None
    user: str
    text: str
    direct: bool  # a direct message to us
    mention: bool


@dataclass(frozen=True, slots=True)
class ButtonPress:
    """A press of one of our buttons."""

    names: tuple[str, ...]
    channel: str
    message_ts: str
    thread_ts: str | None
    action_ts: str
    user: str
    task_id: str
    choice: int


def parse_envelope(envelope: Any, bot: str | None) -> PostedMessage | ButtonPress | None:
    """Parse an envelope; None if it does not concern us. ``bot`` is our own user id."""
    payload = _object(envelope, "payload")
    if _object(envelope).get("type") == "interactive":
        return _parse_press(payload)
    if _object(envelope).get("type") == "events_api":
        return _parse_post(payload, bot)
    return None


def bot_user_id(envelope: Any) -> str | None:
    """Return our own user id, if the envelope contains it."""
    authorizations = _object(envelope, "payload").get("authorizations")
    for one in authorizations if isinstance(authorizations, list) else ():
        if isinstance(one, dict) and one.get("is_bot") and isinstance(one.get("user_id"), str):
            return str(one["user_id"])
    return None


def _parse_post(payload: dict[str, Any], bot: str | None) -> PostedMessage | None:
    event = _object(payload, "event")
    kind, user, channel, ts = (event.get(key) for key in ("type", "user", "channel", "ts"))
    if kind not in ("message", "app_mention") or event.get("subtype") not in _USER_SUBTYPES:
        return None
    if not (_text(user) and _text(channel) and _TIMESTAMP.match(_text(ts))) or event.get("bot_id") or user == bot:
        return None
    team = str(payload.get("team_id") or event.get("team") or "")
    text = event.get("text") if isinstance(event.get("text"), str) else ""
    thread = event.get("thread_ts")
    names = [f"post-{team}-{channel}-{ts}"]
    if event_id := _text(payload.get("event_id")):
        names.append(f"event-{event_id}")
    return PostedMessage(
        names=tuple(names),
        team=team,
        channel=str(channel),
        ts=str(ts),
        thread_ts=thread if isinstance(thread, str) else None,
        user=str(user),
        text=str(text),
        direct=event.get("channel_type") == "im" or str(channel).startswith("D"),
        mention=kind == "app_mention" or mentions_user(str(text), bot),
    )


def _parse_press(payload: dict[str, Any]) -> ButtonPress | None:
    if payload.get("type") != "block_actions":
        return None
    user, channel = _text(_object(payload, "user").get("id")), _text(_object(payload, "channel").get("id"))
    message, actions = _object(payload, "message"), payload.get("actions")
    for action in actions if isinstance(actions, list) else ():
        block, name, when = (_text(_object(action).get(key)) for key in ("block_id", "action_id", "action_ts"))
        number = name.removeprefix(ACTION_PREFIX)
        if user and channel and _TIMESTAMP.match(when) and block.startswith(BLOCK_PREFIX) and number.isdecimal():
            ts = _text(message.get("ts")) or _text(_object(payload, "container").get("message_ts"))
            return ButtonPress(
                names=(f"press-{channel}-{ts}-{user}-{when}",),
                channel=channel,
                message_ts=ts,
                thread_ts=_text(message.get("thread_ts")) or None,
                action_ts=when,
                user=user,
                task_id=block.removeprefix(BLOCK_PREFIX),
                choice=int(number),
            )
    return None


def _object(value: Any, key: str | None = None) -> dict[str, Any]:
    found = value if key is None else _object(value).get(key)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def post_text(message: Message, locale: str) -> str:
    rest = own_text(locale, "cut", id=_trace_id(message))
    return urgency_prefix(message.urgency) + truncate(escape(message.content), MAX_POST_CHARS, rest)


def post_blocks(message: Message, locale: str) -> list[dict[str, Any]] | None:
    """Return the blocks of a question with its buttons; None for messages that are only text."""
    task_id = task_id_of(message)
    if message.type != "human_input_request" or task_id is None:
        return None
    choices = choices_of(message)
    blocks = _section_blocks(post_text(message, locale))
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
    how = own_text(locale, "how" if choices else "how_free")
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": how}]})
    return blocks


def closed_question(text: str, outcome: str) -> tuple[str, list[dict[str, Any]]]:
    """Return text and blocks of a closed question: its text and the outcome, without buttons."""
    context = {"type": "context", "elements": [{"type": "mrkdwn", "text": outcome}]}
    return truncate(text, MAX_POST_CHARS - len(outcome)) + f"\n{outcome}", [*_section_blocks(text), context]


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


def _section_blocks(text: str) -> list[dict[str, Any]]:
    parts = split_text(text, MAX_SECTION_CHARS)[:_MAX_BLOCKS]
    return [{"type": "section", "text": {"type": "mrkdwn", "text": part}} for part in parts]
