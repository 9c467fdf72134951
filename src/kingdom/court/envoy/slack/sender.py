"""Posts messages to Slack: finds the thread, posts each message once, joins updates, and cleans up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.envoy.port import MessageSender, TryLater
from kingdom.court.envoy.slack.api import SlackOutcomeUnknown, SlackRateLimited, SlackRefused
from kingdom.court.envoy.slack.cleaner import STATUS_REACTIONS, StaleStateCleaner, question_outcome
from kingdom.court.envoy.slack.context import REACTION_SEEN, SlackPost
from kingdom.court.envoy.slack.locator import ThreadLocator
from kingdom.court.envoy.slack.posts import (
    MAX_UPDATE_CHARS,
    choices_of,
    join_updates,
    post_intents,
    post_metadata,
    post_parts,
    post_text,
    task_id_of,
    text_blocks,
    thread_task_id,
    topic_of,
)
from kingdom.court.models import timestamp
from kingdom.court.request_threads import SlackThread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.court.envoy.slack.context import SlackContext
    from kingdom.court.envoy.slack.posts import PostPart
    from kingdom.court.models import Message


_CLOCK_SKEW_SECONDS: Final = 3600.0  # our clock and Slack's may differ by this much
_MAX_PATIENCE_SECONDS: Final = 86400.0  # with Slack failing at one message; then its tries count
_MIN_PAUSE_SECONDS: Final = 2.0
_MAX_PAUSE_SECONDS: Final = 300.0
_DELETED_ERRORS: Final = ("thread_not_found", "message_not_found", "cant_update_message", "edit_window_closed")


class UpdateCoalescer:
    """Adds updates that follow each other closely in a thread to one post.

    The mapping of the thread stores the last update that was posted there.
    """

    def __init__(self, context: SlackContext) -> None:
        self._context = context

    def add(self, message: Message, post: SlackPost) -> None:
        """Turn a post that was not sent yet into an addition to the previous one, if that is recent enough."""
        mapping = self._context.threads.mappings.get(thread_task_id(message) or "") or {}
        last = mapping.get("last_update")
        if not is_progress(message) or not isinstance(last, dict):
            return
        text = join_updates(last["text"], post_text(message, self._context.locale))
        fresh = 0 <= self._context.clock() - last["at"] < self._context.config.coalesce_seconds
        if fresh and len(text) <= MAX_UPDATE_CHARS:
            post.ts, post.edits, post.intents = last["ts"], text, [*last["msg_ids"], message.id]

    def remember(self, message: Message, post: SlackPost | None) -> None:
        """Store the post that the next update may be added to; None if it gets a post of its own."""
        mappings, thread = self._context.threads.mappings, thread_task_id(message) or ""
        mapping = mappings.get(thread)
        if mapping is None:
            return
        last = mapping.pop("last_update", None)
        if post is not None:
            at = last["at"] if post.edits and last else post.at
            text = post.edits or post_text(message, self._context.locale)
            if len(text) < MAX_UPDATE_CHARS:
                mapping["last_update"] = {"ts": post.ts, "text": text, "msg_ids": post.intents, "at": at}
        mappings.put(thread, mapping)


def is_progress(message: Message) -> bool:
    """Return whether a message is only a progress update. The end of a task is always a new post, to be noticed."""
    return message.type == "thread_update" and not message.context.get("status")


class SlackSender(MessageSender):
    """Posts messages to Slack, each once.

    The order of the steps in :meth:`send` ensures that, wherever the process is killed: the intent goes to disk, the
    post to Slack, then follow-up actions are done, and then their completion goes to disk. If an intent is found that
    is not done, the post is searched for in Slack first.
    """

    def __init__(self, context: SlackContext) -> None:
        self._context = context
        self._locator = ThreadLocator(context)
        self._updates = UpdateCoalescer(context)
        self._cleaner = StaleStateCleaner(context)

    def ordering_key(self, message: Message) -> str:
        """Return the task of the thread: messages of a thread are posted in order."""
        return thread_task_id(message) or message.id

    def reserve_slot(self, message: Message) -> float:
        """Reserve a post in the message's channel, unless Slack is unreachable."""
        context = self._context
        down = context.api.down_until - context.clock()
        mapping = context.threads.mappings.get(thread_task_id(message) or "") or {}
        if down > 0:
            return down
        return context.rate_limiter.acquire(mapping.get("channel") or context.channels.key(message.channel))

    async def was_sent(self, message_id: str) -> bool:
        """Return whether it is posted and all follow-up actions are done."""
        post = self._context.posts.read(message_id)
        return post is not None and post.done

    async def send(self, message: Message) -> None:
        """Post it, unless a former attempt did; then do the follow-up actions.

        While Slack is out of order or refuses our token, all messages wait, and are posted in order when that is over.
        """
        api = self._context.api
        try:
            await self._send(message)
        except SlackRefused as error:
            if not error.of_token:
                raise
            raise api.hold(str(error)) from error
        except SlackOutcomeUnknown as error:
            if not await api.is_up():
                raise api.hold(str(error)) from error
            self._check_patience(message, error)
            raise

    def _check_patience(self, message: Message, error: SlackOutcomeUnknown) -> None:
        """Raise :class:`TryLater` while Slack may be out of order in part, and not only for this message."""
        post = self._context.posts.read(message.id)
        age = _MAX_PATIENCE_SECONDS if post is None else self._context.clock() - post.at
        if age < _MAX_PATIENCE_SECONDS:
            raise TryLater(min(max(age, _MIN_PAUSE_SECONDS), _MAX_PAUSE_SECONDS), str(error)) from error

    async def _send(self, message: Message) -> None:
        posts = self._context.posts
        post = posts.read(message.id)
        if post is None:
            post = await self._plan_post(message)
        elif post.ts is None:
            post.ts = await self._find(post, message.id)
        message = await self._locator.in_place(message, post.thread_ts)
        first, *others = post_parts(message, self._context.locale)
        sent = post.ts is None or bool(post.edits)
        if sent:
            await self._post(message, post, first)
        if not post.edits:
            await self._post_others(message, post, others, slot_used=sent)
        await self._follow_up(message, post)
        post.done = True
        posts.write(message.id, post)

    async def maintain(self) -> None:
        """Remove stale state, and make the pending best-effort calls."""
        await self._cleaner.run()
        await self._context.best_effort.flush()

    def report(self) -> Mapping[str, Any]:
        """Return the numbers of open threads and questions."""
        threads = self._context.threads
        return {"threads": len(threads.mappings.all()), "questions": len(threads.awaiting.all())}

    async def close(self) -> None:
        await self._context.api.close()

    async def _plan_post(self, message: Message) -> SlackPost:
        """Decide where a message goes, and store the intent before anything is sent."""
        channel, thread_ts = await self._locator.locate(message)
        post = SlackPost(channel, thread_ts, self._context.clock(), intents=[message.id])
        self._updates.add(message, post)
        self._context.posts.write(message.id, post)
        return post

    async def _post(self, message: Message, post: SlackPost, part: PostPart) -> None:
        context = self._context
        try:
            if not post.edits:
                await self._send_new(post, part)
                return
            await context.api.call(  # harmless if repeated
                "chat.update",
                channel=post.channel,
                ts=post.ts,
                text=post.edits,
                blocks=text_blocks(post.edits),
                metadata=post_metadata(context.posts.court, post.intents),
            )
        except (SlackRefused, TryLater) as error:
            self._forget_intent(message, post, error)
            raise

    async def _send_new(self, post: SlackPost, part: PostPart) -> None:
        answer = await self._context.api.call(
            "chat.postMessage",
            channel=post.channel,
            text=part.text,
            blocks=part.blocks,
            thread_ts=post.thread_ts,
            unfurl_links=False,
            unfurl_media=False,
            metadata=post_metadata(self._context.posts.court, post.intents),
        )
        post.ts, post.channel = str(answer["ts"]), str(answer.get("channel") or post.channel)

    async def _post_others(
        self, message: Message, post: SlackPost, parts: Sequence[PostPart], *, slot_used: bool
    ) -> None:
        """Post the further parts of a long message below the first, each once: each has an intent of its own."""
        context = self._context
        if parts:
            context.posts.write(message.id, post)
        for number, part in enumerate(parts, 2):
            name = f"{message.id}.{number}"
            below = context.posts.read(name)
            if below is not None and below.done:
                continue
            if slot_used and (wait := context.rate_limiter.acquire(post.channel)) > 0:
                raise TryLater(wait, f"part {number} of {message.id} waits for its turn in {post.channel}")
            slot_used = True
            if below is None:
                below = SlackPost(post.channel, post.thread_ts or post.ts, context.clock(), intents=[name])
                context.posts.write(name, below)
            else:
                below.ts = await self._find(below, name)
            if below.ts is None:
                await self._post_part(name, below, part)
            below.done = True
            context.posts.write(name, below)

    async def _post_part(self, name: str, post: SlackPost, part: PostPart) -> None:
        context = self._context
        try:
            await self._send_new(post, part)
        except (SlackRefused, TryLater) as error:
            context.posts.forget(name)
            if isinstance(error, SlackRateLimited):
                context.rate_limiter.block(post.channel, error.after)
            raise

    def _forget_intent(self, message: Message, post: SlackPost, error: SlackRefused | TryLater) -> None:
        """Delete the intent: the next attempt decides again, and need not search for a post."""
        context = self._context
        context.posts.forget(message.id)
        if isinstance(error, SlackRateLimited):
            context.rate_limiter.block(post.channel, error.after)
        elif isinstance(error, SlackRefused) and error.error == "channel_not_found":
            context.channels.forget(post.channel)
        elif isinstance(error, SlackRefused) and error.error in _DELETED_ERRORS:
            # Somebody deleted the post or the thread that it was to be added to.
            self._updates.remember(message, None)
            if not post.edits:
                context.threads.mappings.remove([thread_task_id(message) or ""])
                context.threads.topics.remove([topic_of(message) or ""])

    async def _find(self, post: SlackPost, message_id: str) -> str | None:
        """Search for a post that may have been sent; return its ts, or None."""
        context = self._context
        place: dict[str, Any] = {
            "channel": post.channel,
            "oldest": f"{post.at - _CLOCK_SKEW_SECONDS:.6f}",
            "limit": 200,
        }
        method = "conversations.history"
        if post.thread_ts is not None:
            method, place["ts"] = "conversations.replies", post.thread_ts
        async for found in context.api.pages(method, "messages", include_all_metadata="true", **place):
            if message_id in post_intents(found, context.posts.court) and await context.identity.is_author(found):
                return str(found["ts"])
        return None

    async def _follow_up(self, message: Message, post: SlackPost) -> None:
        """Do what follows from a post that was sent. All of it may be repeated."""
        context, task, thread = self._context, task_id_of(message), thread_task_id(message)
        self._store_state(message, post)
        place = await self._locator.status_post(message)
        ending = STATUS_REACTIONS.get(str(message.context.get("status")))
        if place is not None and (ending or message.type == "thread_start"):
            context.best_effort.set_reaction(*place, ending or REACTION_SEEN)
        await context.best_effort.flush()
        if ending and thread:  # last, because the steps above need the mapping
            context.threads.received.remove([str(message.context.get("event_id"))])
            for asked in {task or thread, thread} & context.threads.awaiting.all().keys():
                # It was answered outside Slack, or cancelled: its buttons do nothing any more.
                await context.close_question(asked, await question_outcome(context, asked))
            context.threads.mappings.remove([thread])

    def _store_state(self, message: Message, post: SlackPost) -> None:
        context, task, thread = self._context, task_id_of(message), thread_task_id(message)
        threads = context.threads
        event_id = message.context.get("event_id")
        entry = {"channel": post.channel, "thread_ts": post.thread_ts or post.ts}
        made = {"event_id": event_id, "msg_id": message.id, "created_at": timestamp(post.at)}
        if (topic := topic_of(message)) is not None and message.type != "report":
            threads.note_topic(topic, SlackThread(post.channel, post.thread_ts or str(post.ts)), context.clock())
        if message.type == "thread_start" and thread:
            threads.mappings.put(thread, {**entry, **made, "post_ts": post.ts})
        elif message.type == "human_input_request" and task and not post.answered:
            asked = {"choices": choices_of(message), "deadline": message.context.get("deadline")}
            text = post_text(message, context.locale)
            threads.awaiting.put(task, {**entry, "message_ts": post.ts, **asked, **made, "text": text})
        if message.type != "thread_start":
            self._updates.remember(message, post if is_progress(message) else None)
