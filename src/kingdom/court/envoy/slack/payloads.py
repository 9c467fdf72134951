"""Parses what Slack sends."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from kingdom.court.envoy.slack.text import mentions_user

ACTION_PREFIX: Final = "kingdom_answer"  # of our buttons' action ids; the number of the choice follows
BLOCK_PREFIX: Final = "kingdom_question:"  # of our button blocks' ids; the task id follows
_TIMESTAMP: Final = re.compile(r"\d{1,12}\.\d{1,9}\Z")
# All other subtypes of messages are Slack's own notices.
_USER_SUBTYPES: Final = (None, "file_share", "thread_broadcast", "me_message")


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
