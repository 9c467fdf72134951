"""What an envelope of Slack says, as far as the court is concerned: somebody posted something, or pressed a button."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from kingdom.court.envoy.slack.words import mentions

ACTION: Final = "kingdom_answer"  # begins the ids of our buttons; the number of the choice follows
BLOCK: Final = "kingdom_question:"  # begins the ids of our blocks with buttons; the task follows
_STAMP: Final = re.compile(r"\d{1,12}\.\d{1,9}\Z")
_SPOKEN: Final = (None, "file_share", "thread_broadcast", "me_message")  # all other subtypes are notes of Slack's own


@dataclass(frozen=True, slots=True)
class Posted:
    """Somebody wrote something."""

    names: tuple[str, ...]  # under which it may come again
    team: str
    channel: str
    ts: str
    thread_ts: str | None
    user: str
    text: str
    direct: bool  # only to us
    mention: bool


@dataclass(frozen=True, slots=True)
class Pressed:
    """Somebody pressed one of our buttons."""

    names: tuple[str, ...]
    channel: str
    message_ts: str
    thread_ts: str | None
    action_ts: str
    user: str
    task_id: str
    choice: int


def understand(envelope: Any, bot: str | None) -> Posted | Pressed | None:
    """What an envelope says; None when it is nothing to us. ``bot`` is our own user id."""
    payload = _object(envelope, "payload")
    if _object(envelope).get("type") == "interactive":
        return _pressed(payload)
    if _object(envelope).get("type") == "events_api":
        return _posted(payload, bot)
    return None


def own_user(envelope: Any) -> str | None:
    """The user that we are, where an envelope says it."""
    authorizations = _object(envelope, "payload").get("authorizations")
    for one in authorizations if isinstance(authorizations, list) else ():
        if isinstance(one, dict) and one.get("is_bot") and isinstance(one.get("user_id"), str):
            return str(one["user_id"])
    return None


def _posted(payload: dict[str, Any], bot: str | None) -> Posted | None:
    event = _object(payload, "event")
    kind, user, channel, ts = (event.get(key) for key in ("type", "user", "channel", "ts"))
    if kind not in ("message", "app_mention") or event.get("subtype") not in _SPOKEN:
        return None
    if not (_text(user) and _text(channel) and _STAMP.match(_text(ts))) or event.get("bot_id") or user == bot:
        return None
    team = str(payload.get("team_id") or event.get("team") or "")
    text = event.get("text") if isinstance(event.get("text"), str) else ""
    thread = event.get("thread_ts")
    names = [f"post-{team}-{channel}-{ts}"]
    if event_id := _text(payload.get("event_id")):
        names.append(f"event-{event_id}")
    return Posted(
        names=tuple(names),
        team=team,
        channel=str(channel),
        ts=str(ts),
        thread_ts=thread if isinstance(thread, str) else None,
        user=str(user),
        text=str(text),
        direct=event.get("channel_type") == "im" or str(channel).startswith("D"),
        mention=kind == "app_mention" or mentions(str(text), bot),
    )


def _pressed(payload: dict[str, Any]) -> Pressed | None:
    if payload.get("type") != "block_actions":
        return None
    user, channel = _text(_object(payload, "user").get("id")), _text(_object(payload, "channel").get("id"))
    message, actions = _object(payload, "message"), payload.get("actions")
    for action in actions if isinstance(actions, list) else ():
        block, name, when = (_text(_object(action).get(key)) for key in ("block_id", "action_id", "action_ts"))
        number = name.removeprefix(ACTION)
        if user and channel and _STAMP.match(when) and block.startswith(BLOCK) and number.isdecimal():
            ts = _text(message.get("ts")) or _text(_object(payload, "container").get("message_ts"))
            return Pressed(
                names=(f"press-{channel}-{ts}-{user}-{when}",),
                channel=channel,
                message_ts=ts,
                thread_ts=_text(message.get("thread_ts")) or None,
                action_ts=when,
                user=user,
                task_id=block.removeprefix(BLOCK),
                choice=int(number),
            )
    return None


def _object(value: Any, key: str | None = None) -> dict[str, Any]:
    found = value if key is None else _object(value).get(key)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
