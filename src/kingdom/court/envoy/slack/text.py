"""Texts in Slack: the envoy's own, escaping, and dividing long ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "how": "_Press a button, or reply in this thread._",
        "how_free": "_Reply in this thread to answer._",
        "answered": "Answered by {user}: {text}",
        "elsewhere": "This question was answered outside Slack, or is no longer needed.",
        "closed": "This question is already closed.",
        "stranger": "You may not answer: neither `slack.users` in config/envoy.yaml nor config/trust.yaml allows "
        "your id {user}.",
        "unlisted": "Sorry, <@{user}>, I may not work for you yet. The person who runs this court can add your id "
        "{user} to `slack.users` in config/envoy.yaml.",
        "cut": "… (shortened; `kingdom trace {id}` shows the full text)",
        "more": "_Continued below, in the thread._",
        "refused": "Sorry, <@{user}>, I may not work for you: a rule in config/trust.yaml says so.",
        "nobody": "Nobody handles this: no general subscribes to `{type}`. The person who runs this court can add one "
        "that does: `kingdom general install gen-slack`.",
        "discarded": "I may not do this: {reason}.",
    },
    "ko": {
        "how": "_버튼을 누르거나 이 스레드에 답글을 남겨 주세요._",
        "how_free": "_이 스레드에 답글로 답해 주세요._",
        "answered": "{user} 님의 답: {text}",
        "elsewhere": "Slack 밖에서 답을 받았거나 더 이상 답이 필요하지 않은 질문입니다.",
        "closed": "이미 마감된 질문입니다.",
        "stranger": "답할 권한이 없습니다: config/envoy.yaml의 `slack.users`도 config/trust.yaml도 "
        "ID {user}을(를) 허용하지 않습니다.",
        "unlisted": "<@{user}> 님, 죄송합니다. 아직 요청을 처리할 권한이 없습니다. 관리자가 config/envoy.yaml의 "
        "`slack.users`에 ID {user}을(를) 추가하면 도와드릴 수 있습니다.",
        "cut": "… (일부 생략: 전체 내용은 `kingdom trace {id}`)",
        "more": "_아래 스레드에 이어집니다._",
        "refused": "<@{user}> 님, 죄송합니다. config/trust.yaml의 규칙에 따라 요청을 처리할 수 없습니다.",
        "nobody": "처리할 장군이 없습니다: `{type}`을(를) 구독하는 장군이 없습니다. 관리자가 "
        "`kingdom general install gen-slack`으로 추가할 수 있습니다.",
        "discarded": "처리할 수 없습니다: {reason}.",
    },
}
URGENCY_EMOJI: Final = {"normal": "", "high": "small_orange_diamond", "urgent": "rotating_light"}
_CONTROL_CHARS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPES: Final = str.maketrans({**_ENTITIES})
_MENTION: Final = re.compile(r"<[@#!]([^>|]*)(?:\|([^>]*))?>")
_MENTIONED_USER: Final = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^>]*)?>")
_LINK: Final = re.compile(r"<((?:https?|mailto|tel):[^>|]*)(?:\|[^>]*)?>")


def own_text(locale: str, name: str, **values: str) -> str:
    """Return one of the envoy's own texts; values are inserted as they are."""
    return _TEXTS[locale][name].format(**values)


def escape(text: str) -> str:
    """Escape a text of others, so that Slack takes nothing in it for a mention, a link or a command."""
    return clean_controls(text).translate(_ESCAPES)


def clean_controls(text: str) -> str:
    """Replace characters that would change how the text around them is shown."""
    return _CONTROL_CHARS.sub("\N{REPLACEMENT CHARACTER}", text)


def unescape(text: str) -> str:
    for character, entity in reversed(_ENTITIES.items()):
        text = text.replace(entity, character)
    return text


def mentioned_users(text: str, bot: str) -> list[str]:
    """Return the ids of the users that a text mentions, other than the bot."""
    return [user for user in dict.fromkeys(_MENTIONED_USER.findall(text)) if user != bot]


def to_plain_text(text: str, bot: str | None = None, names: Mapping[str, str] | None = None) -> str:
    """Return what a person wrote as plain text: without the mention of the bot, links as URLs, no entities.

    ``names`` are those of mentioned users, by id.
    """
    if bot:
        text = re.sub(rf"<@{re.escape(bot)}(\|[^>]*)?>", "", text)
    text = _LINK.sub(r"\1", text)
    known = names or {}
    text = _MENTION.sub(lambda found: f"@{found[2] or known.get(found[1], found[1])}", text)
    return unescape(text).strip()


def mentions_user(text: str, bot: str | None) -> bool:
    return bool(bot) and re.search(rf"<@{re.escape(bot or '')}(\|[^>]*)?>", text) is not None


def urgency_prefix(urgency: str) -> str:
    emoji = URGENCY_EMOJI.get(urgency)
    return f":{emoji}: " if emoji else ""


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
