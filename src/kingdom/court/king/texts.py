"""What the king says, in the languages of the court."""

from __future__ import annotations

from typing import Final

_TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "started": "{general} started on {title}",
        "success": "{general} finished {title}",
        "skipped": "{general} had nothing to do for {title}",
        "failed": "{general} failed at {title}",
        "timeout": "{general} ran out of time at {title}",
        "question": "{general} asks about {title}",
        "default": "without an answer by {deadline}: {default}",
        "reminder": "{general} still waits for an answer about {title}",
        "cancelled": "cancelled by {user}",
    },
    "ko": {
        "started": "{general}: {title} 작업을 시작했습니다",
        "success": "{general}: {title} 작업을 마쳤습니다",
        "skipped": "{general}: {title} 처리할 내용이 없습니다",
        "failed": "{general}: {title} 작업에 실패했습니다",
        "timeout": "{general}: {title} 작업이 시간을 초과했습니다",
        "question": "{general}: {title} 작업에 대해 질문이 있습니다",
        "default": "{deadline}까지 답이 없으면: {default}",
        "reminder": "{general}: {title} 작업이 아직 답을 기다리고 있습니다",
        "cancelled": "{user} 님이 취소했습니다",
    },
}


def say(locale: str, name: str, **values: str) -> str:
    """A text of the court with its values filled in; they are data, whatever braces they hold."""
    return _TEXTS[locale][name].format(**values)
