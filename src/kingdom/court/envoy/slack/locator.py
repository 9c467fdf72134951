"""Finds where a message is posted in Slack: below the request it answers, in the thread of its task, or on its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kingdom.court.envoy.slack.posts import task_id_of, thread_task_id, topic_of
from kingdom.court.errors import InvalidId

if TYPE_CHECKING:
    from kingdom.court.envoy.slack.context import SlackContext, SlackPost
    from kingdom.court.models import Message

_SLACK_EVENT_ID: Final = re.compile(r"evt-slack-([CDG][A-Z0-9]+)-(\d+\.\d+)\Z")
_ANSWERED: Final = ("success", "skipped")


class OriginPost(NamedTuple):
    """The post of a person that became an event."""

    channel: str
    ts: str
    thread_ts: str  # where to reply: the thread of the post, or a new one below it


class ThreadLocator:
    """Finds the channel and thread of a message."""

    def __init__(self, context: SlackContext) -> None:
        self._context = context

    async def locate(self, message: Message) -> tuple[str, str | None]:
        """Return the channel of a message and the thread in it; None if it is a post of its own.

        A request made in Slack is answered in the thread of that request.
        """
        channel, thread_ts = await self._thread(message)
        if message.type == "human_input_request" and thread_ts is not None:
            asked = self._context.threads.asked_in(channel, thread_ts)
            if asked not in (None, task_id_of(message)):
                return channel, None  # a reply in that thread would be ambiguous, so use a new one
        return channel, thread_ts

    async def status_post(self, message: Message) -> tuple[str, str] | None:
        """Return the post whose reactions show the progress of the message's task."""
        origin = await self._origin(message)
        if origin is not None:
            return origin.channel, origin.ts
        mapping = self._mapping(message)
        return None if mapping is None else (mapping["channel"], mapping.get("post_ts") or mapping["thread_ts"])

    async def in_place(self, message: Message, thread_ts: str | None) -> Message:
        """Return a message as it is posted there: an answer below its request needs no line that says to what."""
        said = message.type == "human_input_request" or message.context.get("status") in _ANSWERED
        body = message.content.partition("\n")[2]
        if not said or not body.strip() or thread_ts is None:
            return message
        origin = await self._origin(message)
        below = origin is not None and origin.thread_ts == thread_ts
        return message.model_copy(update={"content": body}) if below else message

    async def _thread(self, message: Message) -> tuple[str, str | None]:
        mapping = self._mapping(message)
        if message.type != "report":
            if mapping is not None:
                return mapping["channel"], mapping["thread_ts"]
            if (origin := await self._origin(message)) is not None:
                return origin.channel, origin.thread_ts
            if (former := self._former(message)) is not None:
                return former.channel, former.thread_ts or former.ts
            topic = topic_of(message)
            thread = None if topic is None else self._context.threads.topic_thread(topic, self._context.clock())
            if thread is not None:
                return thread.channel, thread.ts
        return await self._context.channels.resolve(message.channel), None

    def _former(self, message: Message) -> SlackPost | None:
        """Return the post of the message that this one follows, although the thread was closed."""
        named = message.context.get("follows")
        try:
            return self._context.posts.read(named) if isinstance(named, str) else None
        except InvalidId:
            return None

    def _mapping(self, message: Message) -> dict[str, str] | None:
        thread = thread_task_id(message)
        return None if thread is None else self._context.threads.mappings.get(thread)

    async def _origin(self, message: Message) -> OriginPost | None:
        event_id = message.context.get("event_id")
        found = _SLACK_EVENT_ID.match(event_id) if isinstance(event_id, str) else None
        if found is None:
            return None
        record = await self._context.services.bus.find(found[0])
        payload = record.envelope.payload.get("payload") if record is not None else None
        thread = payload.get("thread_ts") if isinstance(payload, dict) else None
        return OriginPost(found[1], found[2], thread if isinstance(thread, str) and thread else found[2])
