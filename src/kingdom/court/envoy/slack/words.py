"""Text for Slack: what the envoy itself says, in the languages of the court, and how the text of others is put."""

from __future__ import annotations

import re
from typing import Final

_TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "how": "_Press a button, or reply in this thread._",
        "how_free": "_Reply in this thread to answer._",
        "answered": "Answered by {user}: {text}",
        "elsewhere": "Answered elsewhere.",
        "closed": "This question is closed already.",
        "stranger": "You may not answer here: you are not among the users in config/envoy.yaml (your id is {user}).",
        "cut": "… (cut: `kingdom trace {id}` shows all of it)",
        "nobody": "Nobody here takes this up: no general subscribes to `{type}`.",
    },
    "ko": {
        "how": "_버튼을 누르거나 이 스레드에 답글을 남겨 주세요._",
        "how_free": "_이 스레드에 답글로 답해 주세요._",
        "answered": "{user} 님의 답: {text}",
        "elsewhere": "다른 곳에서 답을 받았습니다.",
        "closed": "이미 마감된 질문입니다.",
        "stranger": "답할 권한이 없습니다: config/envoy.yaml의 users에 없습니다 (ID: {user}).",
        "cut": "… (잘림: 전체 내용은 `kingdom trace {id}`)",
        "nobody": "맡을 장군이 없습니다: `{type}`을(를) 구독하는 장군이 없습니다.",
    },
}
_URGENT: Final = {"normal": "", "high": ":small_orange_diamond: ", "urgent": ":rotating_light: "}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_ESCAPED: Final = str.maketrans({**_ENTITIES})
_MENTION: Final = re.compile(r"<[@#!]([^>|]*)(?:\|([^>]*))?>")
_LINK: Final = re.compile(r"<((?:https?|mailto|tel):[^>|]*)(?:\|[^>]*)?>")
MOST: Final = 39_000  # characters of a post: Slack's limit is 40,000
SECTION: Final = 2_900  # characters of one block: Slack's limit is 3,000


def own(locale: str, name: str, **values: str) -> str:
    """Something the envoy itself says; values are put in as they are."""
    return _TEXTS[locale][name].format(**values)


def escape(text: str) -> str:
    """The text of others, so that nothing in it is taken for a mention, a link or a command."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text).translate(_ESCAPED)


def plain(text: str, bot: str | None = None) -> str:
    """What a person wrote, as text: without the mention of the bot, links as addresses, no entities."""
    if bot:
        text = re.sub(rf"<@{re.escape(bot)}(\|[^>]*)?>", "", text)
    text = _LINK.sub(r"\1", text)
    text = _MENTION.sub(lambda found: f"@{found[2] or found[1]}", text)
    for character, entity in reversed(_ENTITIES.items()):
        text = text.replace(entity, character)
    return text.strip()


def mentions(text: str, bot: str | None) -> bool:
    """Whether a text speaks to the bot."""
    return bool(bot) and re.search(rf"<@{re.escape(bot or '')}(\|[^>]*)?>", text) is not None


def urgently(urgency: str) -> str:
    """What stands before a message that is urgent."""
    return _URGENT.get(urgency, "")


def cut(text: str, most: int, rest: str = "…") -> str:
    """An escaped text of at most ``most`` characters, ended by ``rest`` when something is missing."""
    if len(text) <= most:
        return text
    kept = text[: max(most - len(rest) - 1, 0)]
    return re.sub(r"&[a-z]{0,3}\Z", "", kept) + f"\n{rest}"  # no half of an entity


def pieces(text: str, size: int) -> list[str]:
    """A text in pieces, at the ends of lines where there are any."""
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
