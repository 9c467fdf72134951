"""Updates that follow each other closely in a thread: they become one post that grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kingdom.court.envoy.slack.form import text_of, thread_of
from kingdom.court.envoy.slack.words import SECTION

if TYPE_CHECKING:
    from kingdom.court.envoy.slack.desk import Desk
    from kingdom.court.envoy.slack.posts import Post
    from kingdom.court.models import Message


class Updates:
    """Remembers, in the mapping of a thread, the last update that was posted there."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def add(self, message: Message, post: Post) -> None:
        """Make a post that was not sent yet an addition to the one before it, if there is one that it belongs to."""
        mapping = self._desk.threads.mappings.get(thread_of(message) or "") or {}
        last = mapping.get("last_update")
        if not is_progress(message) or not isinstance(last, dict):
            return
        text = f"{last['text']}\n{text_of(message, self._desk.locale)}"
        fresh = 0 <= self._desk.clock() - last["at"] < self._desk.config.coalesce_seconds
        if fresh and len(text) <= SECTION:
            post.ts, post.edits, post.intents = last["ts"], text, [*last["msg_ids"], message.id]

    def remember(self, message: Message, post: Post | None) -> None:
        """Note what the next update may be added to; None: nothing, it gets a post of its own."""
        mappings, thread = self._desk.threads.mappings, thread_of(message) or ""
        mapping = mappings.get(thread)
        if mapping is None:
            return
        last = mapping.pop("last_update", None)
        if post is not None:
            at = last["at"] if post.edits and last else post.at
            text = post.edits or text_of(message, self._desk.locale)
            if len(text) < SECTION:
                mapping["last_update"] = {"ts": post.ts, "text": text, "msg_ids": post.intents, "at": at}
        mappings.put(thread, mapping)


def is_progress(message: Message) -> bool:
    """Whether a message says only how far something is; what ends a task is always said anew, so that it is seen."""
    return message.type == "thread_update" and not message.context.get("status")
