"""Turns what people do in Slack into events: answers to questions, mentions and direct messages."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_json, write_atomic, write_json
from kingdom.base.text import one_line, storable
from kingdom.court.commands import inject_event
from kingdom.court.envoy.port import ReplyListener, TryLater
from kingdom.court.envoy.role import emit_once
from kingdom.court.envoy.slack.api import SlackError, SocketModeReceiver
from kingdom.court.envoy.slack.context import REACTION_SEEN
from kingdom.court.envoy.slack.payloads import ButtonPress, PostedMessage, bot_user_id, parse_envelope
from kingdom.court.envoy.slack.posts import answered_text
from kingdom.court.envoy.slack.text import mentioned_users, own_text, to_plain_text
from kingdom.court.errors import InvalidDocument
from kingdom.court.loop import remove_stale_temporaries
from kingdom.court.models import USER_NAME_FIELD
from kingdom.court.repositories import known_repositories, named_repository
from kingdom.court.request_threads import DIRECT_MESSAGE, MENTION, THREAD_FIELD, SlackThread
from kingdom.court.trust.text_hash import add_text_hash
from kingdom.journal.catalog import EventDetected, MessageHumanResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from kingdom.court.envoy.slack.context import SlackContext
    from kingdom.court.home import Home
    from kingdom.court.trust.policy import TrustDecision


SEEN_TTL_SECONDS: Final = 86400.0  # Slack has been seen to deliver again after several minutes
_PRUNE_INTERVAL_SECONDS: Final = 3600.0
_UNSAFE_NAME_CHARS: Final = re.compile(r"[^A-Za-z0-9._-]")
_STRANGER_SECONDS: Final = 86400.0  # between two answers to the same unlisted user
_MAX_TEXT_CHARS: Final = 20_000
_MAX_EARLIER_POSTS: Final = 20
_MAX_EARLIER_CHARS: Final = 2_000  # of each
log = logging.getLogger("kingdom.court.envoy.slack")


class SlackInbox:
    """What was received from Slack: on disk before it is acknowledged, removed when it is processed.

    Slack delivers at least once, sometimes minutes later, and delivers one post twice, as a message and as a mention.
    So what was processed is remembered for a day, under all its names. The folders are ``state/envoy/inbox/`` and
    ``state/envoy/seen/``.
    """

    def __init__(self, home: Home, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._folder = home.role("envoy") / "inbox"
        self._seen = home.role("envoy") / "seen"
        for folder in (self._folder, self._seen):
            folder.mkdir(parents=True, exist_ok=True)
            remove_stale_temporaries(folder)
        self._last = 0
        self._pruned = 0.0

    def store(self, envelope: dict[str, Any]) -> Path:
        """Store an envelope, and return its file. After that it may be acknowledged."""
        # The file names sort in the order of arrival, even within a microsecond or when the clock is set back.
        self._last = max(self._last + 1, int(self._clock() * 1_000_000))
        name = _UNSAFE_NAME_CHARS.sub("_", str(envelope.get("envelope_id")))[:80]
        path = self._folder / f"{self._last:020d}-{name}.json"
        write_json(path, envelope)
        return path

    def pending(self) -> Iterator[tuple[Path, Any]]:
        """Yield what is not processed yet, oldest first."""
        for path in sorted(self._folder.glob("[!.]*.json")):
            yield path, read_json(path)

    def seen(self, names: Iterable[str]) -> bool:
        """Return whether something was processed under one of these names."""
        return any((self._seen / _file_name(name)).exists() for name in names)

    def remember(self, names: Iterable[str]) -> None:
        """Remember the names of something that was processed.

        Not synced: after a power cut, the ids of the events still prevent duplicates.
        """
        now = self._clock()
        for name in names:
            mark = self._seen / _file_name(name)
            write_atomic(mark, b"", durable=False)
            os.utime(mark, (now, now))

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def prune(self) -> None:
        """Forget names that are too old to be delivered again. Runs once an hour."""
        now = self._clock()
        if now - self._pruned < _PRUNE_INTERVAL_SECONDS:
            return
        self._pruned = now
        with os.scandir(self._seen) as entries:
            old = [entry.path for entry in entries if now - entry.stat().st_mtime > SEEN_TTL_SECONDS]
        for path in old:
            os.unlink(path)  # noqa: PTH108 - as scandir names it


def _file_name(name: str) -> str:
    return _UNSAFE_NAME_CHARS.sub("_", name)[:200]


class SlackListener(ReplyListener):
    """Receives what people do in Slack and emits events. Posts that are not meant for us are ignored."""

    def __init__(self, context: SlackContext, *, back_off: tuple[float, float] = (1.0, 60.0)) -> None:
        self._context = context
        self._inbox = SlackInbox(context.services.home, context.clock)
        self._wake: Callable[[], None] = lambda: None
        self._receiver = SocketModeReceiver(context.api, self._store, back_off=back_off)
        self._receiving: asyncio.Task[None] | None = None
        self._events = self._answers = self._refused = 0
        self._problem: str | None = None

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._wake = wake
        self._receiving = receiving = asyncio.create_task(self._receiver.run())

        def undo() -> None:
            receiving.cancel()

        return undo

    async def process_received(self) -> None:
        """Process what was received, in order. What cannot be processed now stays in the inbox."""
        self._inbox.prune()
        for task_id, entry in self._context.threads.awaiting.all().items():
            if entry.get("answer"):  # a former process was stopped before it could emit the answer
                await self._emit_answer(task_id, entry)
        if not self._trust_is_valid():
            return
        for path, envelope in self._inbox.pending():
            try:
                bot = bot_user_id(envelope) or await self._context.identity.user_id()
            except (SlackError, TryLater) as error:
                log.warning("received messages wait: our own user id is not known: %s", error)
                return
            received = parse_envelope(envelope, bot)
            if received is not None and not self._inbox.seen(received.names):
                if isinstance(received, ButtonPress):
                    for_us = await self._pressed(received)
                else:
                    for_us = await self._posted(received, bot)
                await self._context.best_effort.flush()
                # A post that was ignored as a message may still arrive as a mention, under its first name.
                self._inbox.remember(received.names if for_us else received.names[1:])
            self._inbox.remove(path)

    def report(self) -> Mapping[str, Any]:
        """Return the state of the connection, and the counts since the start."""
        return {
            "slack": {
                "connections": self._receiver.connected,
                "problem": self._problem or self._receiver.problem,
                "events": self._events,
                "answers": self._answers,
                "refused": self._refused,
            }
        }

    async def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
            self._receiving = None

    async def _store(self, envelope: dict[str, Any]) -> None:
        await self._context.services.lead.save(self._inbox.store(envelope))
        self._wake()

    async def _posted(self, posted: PostedMessage, bot: str) -> bool:
        """Process a post, and return whether it was meant for us."""
        context, asked = self._context, None
        if posted.thread_ts is not None and posted.thread_ts != posted.ts:
            asked = context.threads.asked_in(posted.channel, posted.thread_ts)
        others = mentioned_users(posted.text, bot)
        if asked is None and not posted.direct and not posted.mention and (others or not self._goes_on(posted)):
            return False
        if not (decision := self._judge(posted.user, posted.channel)).permit:
            self._turn_away(posted, decision)
            return True
        names = {user: name for user in others if (name := await context.users.name(user)) is not None}
        text = to_plain_text(posted.text, bot, names)[:_MAX_TEXT_CHARS]
        if asked is not None:
            if text:
                await self._answer(asked, text, posted.user, posted.ts, posted.names)
            return True
        if posted.thread_ts is not None and context.threads.just_answered(posted.channel, posted.thread_ts, posted.ts):
            self._send_ephemeral(posted, "closed")
            return True
        await self._request(posted, text, bot)
        return True

    def _goes_on(self, posted: PostedMessage) -> bool:
        """Whether a post follows a request of its author in the same thread: then it needs no mention."""
        if posted.thread_ts is None or not posted.text.strip():
            return False
        return self._context.threads.has_asked(SlackThread(posted.channel, posted.thread_ts), posted.user)

    async def _said_before(self, posted: PostedMessage, thread: SlackThread, bot: str) -> list[dict[str, str]]:
        """Return what a thread says before the first request in it: that is often what the request is about.

        People who may not use the court are left out. Later requests go on with a task that knows it.
        """
        context = self._context
        if posted.thread_ts is None or posted.thread_ts == posted.ts or context.threads.is_requested(thread):
            return []
        said: list[dict[str, str]] = []
        place = {"channel": posted.channel, "ts": posted.thread_ts, "latest": posted.ts, "limit": 200}
        try:
            async for one in context.api.pages("conversations.replies", "messages", **place):
                author, text = one.get("user") or one.get("bot_id"), one.get("text")
                if one.get("ts") == posted.ts or not isinstance(author, str) or not isinstance(text, str):
                    continue
                if author == bot or one.get("bot_id") or context.judge(author, posted.channel).permit is not None:
                    said.append({"user": author, "text": to_plain_text(text, bot)[:_MAX_EARLIER_CHARS]})
        except (SlackError, TryLater) as error:
            log.warning("what was said before in the thread %s cannot be read: %s", thread.subject, error)
        return [{**one, **await self._named(one["user"])} for one in said[-_MAX_EARLIER_POSTS:]]

    async def _request(self, posted: PostedMessage, text: str, bot: str) -> None:
        """Emit an event for a mention, a direct message, or what goes on with one."""
        context, thread = self._context, SlackThread(posted.channel, posted.thread_ts or posted.ts)
        event_id = f"evt-slack-{posted.channel}-{posted.ts}"
        known = await asyncio.to_thread(known_repositories, context.services.home)
        before = await self._said_before(posted, thread, bot)
        document = {
            "id": event_id,
            "type": DIRECT_MESSAGE if posted.direct else MENTION,
            "source": "slack",
            "repo": named_repository(text, known, context.base_url),
            "payload": {
                "title": one_line(text),
                "text": text,
                "subject": thread.subject,
                "user": posted.user,
                **await self._named(posted.user),
                "team": posted.team,
                "channel": posted.channel,
                "ts": posted.ts,
                "thread_ts": posted.thread_ts,
                **({THREAD_FIELD: before} if before else {}),
            },
        }
        context.threads.received.put(
            event_id, {"channel": posted.channel, "ts": posted.ts, "thread_ts": posted.thread_ts, "user": posted.user}
        )
        context.threads.note_request(thread, posted.user, context.services.clock())
        self._events += await self._inject(document)
        context.best_effort.set_reaction(posted.channel, posted.ts, REACTION_SEEN)

    async def _pressed(self, pressed: ButtonPress) -> bool:
        """Process a press of a button."""
        context = self._context
        if not self._judge(pressed.user, pressed.channel).permit:
            self._send_ephemeral(pressed, "stranger")
            return True
        entry = context.threads.awaiting.get(pressed.task_id)
        choices = [] if entry is None or entry.get("answer") else entry.get("choices") or []
        if entry is None or entry.get("message_ts") != pressed.message_ts or pressed.choice >= len(choices):
            self._send_ephemeral(pressed, "closed")
            return True
        await self._answer(pressed.task_id, choices[pressed.choice], pressed.user, pressed.action_ts, pressed.names)
        return True

    async def _answer(self, task_id: str, text: str, user: str, ts: str, names: tuple[str, ...]) -> None:
        """Answer an open question. The answer is first stored with the question: from then on it is *the* answer, no
        matter what else arrives and which process emits it."""
        awaiting = self._context.threads.awaiting
        answer = {"text": text, "user": user, "ts": ts, "names": list(names)}
        entry = {**(awaiting.get(task_id) or {}), "answer": answer}
        awaiting.put(task_id, entry)
        await self._emit_answer(task_id, entry)

    async def _emit_answer(self, task_id: str, entry: dict[str, Any]) -> None:
        context, answer, thread_ts = self._context, entry["answer"], str(entry.get("thread_ts"))
        event_id = f"evt-slack-response-{task_id}-{answer['ts'].partition('.')[0]}"
        said = {"text": answer["text"], "user": answer["user"], **await self._named(answer["user"])}
        payload = {"task_id": task_id, **said, "channel": entry.get("channel")}
        self._answers += await self._inject(
            {"id": event_id, "type": "slack.human_response", "source": "slack", "payload": payload, "priority": "high"}
        )
        emit_once(context.services, MessageHumanResponse(task_id, thread_ts))
        context.threads.answered_in(str(entry.get("channel")), thread_ts, answer["ts"])
        self._inbox.remember(answer["names"])
        await context.close_question(task_id, answered_text(answer["user"], answer["text"], context.locale))

    async def _named(self, user: str) -> dict[str, str]:
        """Return the field of a payload with the name of a user, if it is known. It is for people to read."""
        name = await self._context.users.name(user)
        return {} if name is None else {USER_NAME_FIELD: name}

    async def _inject(self, document: dict[str, Any]) -> bool:
        services, document = self._context.services, storable(document)
        try:
            accepted = await inject_event(services, {**document, "payload": add_text_hash(document["payload"])})
        except InvalidDocument as error:  # no reason to stop processing the other messages
            log.warning("a received message cannot become an event: %s", error)
            return False
        if not accepted:  # a former process emitted it, and may have died before it wrote the journal line
            emit_once(services, EventDetected(document["id"], document["source"], document["type"]))
        return accepted

    def _trust_is_valid(self) -> bool:
        """Return whether trust.yaml is valid. While it is not, messages wait, so that none is wrongly ignored."""
        problem = self._context.trust.load().problem
        if problem != self._problem:
            self._problem = problem
            if problem is not None:
                log.error("received messages wait: config/trust.yaml is invalid: %s", problem)
        return problem is None

    def _judge(self, user: str, channel: str) -> TrustDecision:
        decision = self._context.judge(user, channel)
        if decision.permit is None:
            self._refused += 1
            log.warning("ignored Slack user %s: %s", user, decision.reason)
        return decision

    def _turn_away(self, posted: PostedMessage, decision: TrustDecision) -> None:
        """Tell somebody who may not use the court so, in the thread, once in a day."""
        context, now = self._context, self._context.services.clock()
        told = context.threads.strangers.all()
        last = told.get(posted.user, {}).get("at")
        if isinstance(last, (int, float)) and 0 <= now - last < _STRANGER_SECONDS:
            return
        old = [user for user, entry in told.items() if now - float(entry.get("at") or 0) >= _STRANGER_SECONDS]
        context.threads.strangers.remove(old)
        context.threads.strangers.put(posted.user, {"at": now})
        text = own_text(context.locale, "refused" if decision.by_rule else "unlisted", user=posted.user)
        thread = posted.thread_ts or posted.ts
        context.best_effort.add("chat.postMessage", channel=posted.channel, thread_ts=thread, text=text)

    def _send_ephemeral(self, received: PostedMessage | ButtonPress, name: str) -> None:
        text = own_text(self._context.locale, name, user=received.user)
        self._context.best_effort.send_ephemeral(received.channel, received.user, text, received.thread_ts)
