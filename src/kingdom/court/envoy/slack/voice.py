"""Says messages in Slack, each once.

The order in which :meth:`SlackVoice.say` does things is what makes that hold when it dies between any two of them: what
is meant goes to the disk, then to Slack, then what follows from it is done, and that goes to the disk. Whoever finds
something meant and not done looks in Slack whether it is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.days import day_of
from kingdom.court.envoy.port import NotNow, Voice
from kingdom.court.envoy.slack.courtesies import DONE, FAILED, SEEN
from kingdom.court.envoy.slack.errors import Refused, TooFast
from kingdom.court.envoy.slack.form import (
    blocks_of,
    choices_of,
    intents_in,
    metadata_of,
    task_of,
    text_of,
    thread_of,
)
from kingdom.court.envoy.slack.housekeeping import Housekeeping
from kingdom.court.envoy.slack.places import Places
from kingdom.court.envoy.slack.posts import Post
from kingdom.court.envoy.slack.updates import Updates, is_progress
from kingdom.court.models import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.envoy.slack.desk import Desk
    from kingdom.court.models import Message

_ENDINGS: Final = {"success": DONE, "skipped": DONE, "failed": FAILED, "timeout": FAILED, "killed": FAILED}
_SKEW: Final = 3600.0  # seconds that our clock and Slack's may differ
_GONE: Final = ("thread_not_found", "message_not_found", "cant_update_message", "edit_window_closed")


class SlackVoice(Voice):
    """The voice."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._places = Places(desk)
        self._updates = Updates(desk)
        self._housekeeping = Housekeeping(desk)

    def lane(self, message: Message) -> str:
        """What belongs to one thread is said in its order."""
        return thread_of(message) or message.id

    def turn(self, message: Message) -> float:
        """A turn in its channel, unless nobody is there anyway."""
        desk = self._desk
        down = desk.api.down_until - desk.clock()
        mapping = desk.threads.mappings.get(thread_of(message) or "") or {}
        return down if down > 0 else desk.pace.take(mapping.get("channel") or desk.channels.key(message.channel))

    async def said(self, message_id: str) -> bool:
        """Whether it is out, with all that follows from it."""
        post = self._desk.posts.read(message_id)
        return post is not None and post.done

    async def say(self, message: Message) -> None:
        """Post it, unless a former attempt did; then do what follows from it."""
        posts = self._desk.posts
        post = posts.read(message.id)
        if post is None:
            post = await self._mean(message)
        elif post.ts is None:
            post.ts = await self._find(post, message.id)
        if post.ts is None or post.edits:
            await self._post(message, post)
        await self._follow_up(message, post)
        post.done = True
        posts.write(message.id, post)

    async def tidy(self) -> None:
        """Small things that are still owed, and what is over without anybody having said so."""
        await self._housekeeping.look()
        await self._desk.courtesies.pay()

    def report(self) -> Mapping[str, Any]:
        """How many threads and questions are open."""
        threads = self._desk.threads
        return {"threads": len(threads.mappings.all()), "questions": len(threads.awaiting.all())}

    async def close(self) -> None:
        """Close the connections."""
        await self._desk.api.close()

    async def _mean(self, message: Message) -> Post:
        """Decide where a message goes, and note it before anything is sent."""
        channel, thread_ts = await self._places.of(message)
        post = Post(channel, thread_ts, self._desk.clock(), intents=[message.id])
        self._updates.add(message, post)
        self._desk.posts.write(message.id, post)
        return post

    async def _post(self, message: Message, post: Post) -> None:
        desk = self._desk
        arguments: dict[str, Any] = {"channel": post.channel, "metadata": metadata_of(desk.posts.court, post.intents)}
        try:
            if post.edits:  # doing it twice does no harm
                await desk.api.call("chat.update", ts=post.ts, text=post.edits, **arguments)
                return
            answer = await desk.api.call(
                "chat.postMessage",
                text=text_of(message, desk.locale),
                blocks=blocks_of(message, desk.locale),
                thread_ts=post.thread_ts,
                unfurl_links=False,
                unfurl_media=False,
                **arguments,
            )
        except (Refused, NotNow) as error:
            self._nothing_was_posted(message, post, error)
            raise
        post.ts, post.channel = str(answer["ts"]), str(answer.get("channel") or post.channel)

    def _nothing_was_posted(self, message: Message, post: Post, error: Refused | NotNow) -> None:
        """The next attempt may decide anew, and need not look for a post."""
        desk = self._desk
        desk.posts.forget(message.id)
        if isinstance(error, TooFast):
            desk.pace.close(post.channel, error.after)
        elif isinstance(error, Refused) and error.error == "channel_not_found":
            desk.channels.forget(post.channel)
        elif isinstance(error, Refused) and error.error in _GONE:  # somebody deleted what it was to be added to
            self._updates.remember(message, None)
            if not post.edits:
                desk.threads.mappings.remove([thread_of(message) or ""])

    async def _find(self, post: Post, message_id: str) -> str | None:
        """The time stamp of a post that may have gone out, if it did."""
        desk = self._desk
        place: dict[str, Any] = {"channel": post.channel, "oldest": f"{post.at - _SKEW:.6f}", "limit": 200}
        method = "conversations.history"
        if post.thread_ts is not None:
            method, place["ts"] = "conversations.replies", post.thread_ts
        async for found in desk.api.pages(method, "messages", include_all_metadata="true", **place):
            if message_id in intents_in(found, desk.posts.court) and await desk.identity.wrote(found):
                return str(found["ts"])
        return None

    async def _follow_up(self, message: Message, post: Post) -> None:
        """What follows from a post that is out. All of it may be done twice."""
        desk, task, thread = self._desk, task_of(message), thread_of(message)
        self._note(message, post)
        place = await self._places.shown(message)
        ending = _ENDINGS.get(str(message.context.get("status")))
        if place is not None and (ending or message.type == "thread_start"):
            desk.courtesies.mark(*place, ending or SEEN)
        await desk.courtesies.pay()
        if ending and thread:  # last, since the mapping says where the above belongs
            desk.threads.received.remove([str(message.context.get("event_id"))])
            desk.threads.awaiting.remove([task or thread, thread])
            desk.threads.mappings.remove([thread])

    def _note(self, message: Message, post: Post) -> None:
        threads, task, thread = self._desk.threads, task_of(message), thread_of(message)
        now, event_id = self._desk.clock(), message.context.get("event_id")
        entry = {"channel": post.channel, "thread_ts": post.thread_ts or post.ts}
        made = {"event_id": event_id, "msg_id": message.id, "created_at": timestamp(post.at)}
        if message.type == "thread_start" and thread:
            threads.mappings.put(thread, {**entry, **made})
        elif message.type == "human_input_request" and task and not post.answered:
            asked = {"choices": choices_of(message), "deadline": message.context.get("deadline")}
            text = text_of(message, self._desk.locale)
            threads.awaiting.put(task, {**entry, "message_ts": post.ts, **asked, **made, "text": text})
        elif message.type == "report":
            threads.report_sent(day_of(now, self._desk.zone).isoformat(), message.id, timestamp(now))
        if message.type != "thread_start":
            self._updates.remember(message, post if is_progress(message) else None)
