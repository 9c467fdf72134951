"""Where in Slack a message belongs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kingdom.court.envoy.slack.form import task_of, thread_of

if TYPE_CHECKING:
    from kingdom.court.envoy.slack.desk import Desk
    from kingdom.court.models import Message

_EVENT: Final = re.compile(r"evt-slack-([CDG][A-Z0-9]+)-(\d+\.\d+)\Z")


class Origin(NamedTuple):
    """The post of a person that became an event."""

    channel: str
    ts: str
    thread_ts: str


class Places:
    """Finds the thread of a message."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def of(self, message: Message) -> tuple[str, str | None]:
        """The channel of a message, and the thread in it; None for a post of its own.

        What was asked for in Slack is answered there, in the thread of whoever asked.
        """
        channel, thread_ts = await self._thread(message)
        if message.type == "human_input_request" and thread_ts is not None:
            asked = self._desk.threads.asked_in(channel, thread_ts)
            if asked not in (None, task_of(message)):  # a reply there would answer both: this one gets its own thread
                return channel, None
        return channel, thread_ts

    async def shown(self, message: Message) -> tuple[str, str] | None:
        """The post that shows how far the task of a message is."""
        origin = await self._origin(message)
        if origin is not None:
            return origin.channel, origin.ts
        mapping = self._mapping(message)
        return None if mapping is None else (mapping["channel"], mapping["thread_ts"])

    async def _thread(self, message: Message) -> tuple[str, str | None]:
        mapping = self._mapping(message)
        if message.type != "report":
            if mapping is not None:
                return mapping["channel"], mapping["thread_ts"]
            if (origin := await self._origin(message)) is not None:
                return origin.channel, origin.thread_ts
        return await self._desk.channels.resolve(message.channel), None

    def _mapping(self, message: Message) -> dict[str, str] | None:
        thread = thread_of(message)
        return None if thread is None else self._desk.threads.mappings.get(thread)

    async def _origin(self, message: Message) -> Origin | None:
        event_id = message.context.get("event_id")
        found = _EVENT.match(event_id) if isinstance(event_id, str) else None
        if found is None:
            return None
        record = await self._desk.services.bus.find(found[0])
        payload = record.envelope.payload.get("payload") if record is not None else None
        thread = payload.get("thread_ts") if isinstance(payload, dict) else None
        return Origin(found[1], found[2], thread if isinstance(thread, str) and thread else found[2])
