"""Makes events of what people do in Slack: answers to questions, requests to us, and nothing of anything else."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.commands import inject
from kingdom.court.envoy.once import emit_once
from kingdom.court.envoy.port import Ears, NotNow
from kingdom.court.envoy.slack.courtesies import SEEN
from kingdom.court.envoy.slack.errors import SlackProblem
from kingdom.court.envoy.slack.form import answered_by
from kingdom.court.envoy.slack.inbox import Inbox
from kingdom.court.envoy.slack.socket import Receiver
from kingdom.court.envoy.slack.understanding import Posted, Pressed, own_user, understand
from kingdom.court.envoy.slack.words import own, plain
from kingdom.court.errors import InvalidDocument
from kingdom.court.king.cleaning import one_line, storable
from kingdom.court.trust.frozen import freeze
from kingdom.journal.catalog import EventDetected, MessageHumanResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.court.envoy.slack.desk import Desk

_MOST: Final = 20_000  # characters of what a person wrote
log = logging.getLogger("kingdom.court.envoy.slack")


class SlackEars(Ears):
    """The ears."""

    def __init__(self, desk: Desk, *, back_off: tuple[float, float] = (1.0, 60.0)) -> None:
        self._desk = desk
        self._inbox = Inbox(desk.services.home, desk.clock)
        self._wake: Callable[[], None] = lambda: None
        self._receiver = Receiver(desk.api, self._keep, back_off=back_off)
        self._receiving: asyncio.Task[None] | None = None
        self._events = self._answers = self._refused = 0
        self._problem: str | None = None

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Begin to receive."""
        self._wake = wake
        self._receiving = receiving = asyncio.create_task(self._receiver.run())

        def undo() -> None:
            receiving.cancel()

        return undo

    async def pass_on(self) -> None:
        """Deal with what was received, in its order. What cannot be dealt with now stays where it is."""
        self._inbox.prune()
        for task_id, entry in self._desk.threads.awaiting.all().items():
            if entry.get("answer"):  # a former process was about to
                await self._pass_on_answer(task_id, entry)
        if not self._may_judge():
            return
        for path, envelope in self._inbox.waiting():
            try:
                bot = own_user(envelope) or await self._desk.identity.user()
            except (SlackProblem, NotNow) as error:
                log.warning("what was heard waits, since it is not known who we are: %s", error)
                return
            heard = understand(envelope, bot)
            if heard is not None and not self._inbox.seen(heard.names):
                took = await (self._pressed(heard) if isinstance(heard, Pressed) else self._posted(heard, bot))
                await self._desk.courtesies.pay()
                # What is nothing to us as a message may still come as a mention, under the first of its names.
                self._inbox.remember(heard.names if took else heard.names[1:])
            self._inbox.take_out(path)

    def report(self) -> Mapping[str, Any]:
        """The connection, and what was heard since the start."""
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
        """Stop receiving."""
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
            self._receiving = None

    def _keep(self, envelope: dict[str, Any]) -> None:
        self._inbox.keep(envelope)
        self._wake()

    async def _posted(self, posted: Posted, bot: str) -> bool:
        """Deal with a post; returns whether it was meant for us."""
        desk, text = self._desk, plain(posted.text, bot)[:_MOST]
        asked = None
        if posted.thread_ts is not None and posted.thread_ts != posted.ts:
            asked = desk.threads.asked_in(posted.channel, posted.thread_ts)
        if asked is None and not posted.direct and not posted.mention:
            return False
        if not self._allowed(posted.user, posted.channel):
            return True
        if asked is not None:
            if text:
                await self._answer(asked, text, posted.user, posted.ts, posted.names)
            return True
        if posted.thread_ts is not None and desk.threads.just_answered(posted.channel, posted.thread_ts, posted.ts):
            self._whisper(posted, "closed")
            return True
        await self._request(posted, text)
        return True

    async def _request(self, posted: Posted, text: str) -> None:
        """Somebody wants something of us."""
        desk = self._desk
        event_id = f"evt-slack-{posted.channel}-{posted.ts}"
        document = {
            "id": event_id,
            "type": "slack.dm.received" if posted.direct else "slack.mention.received",
            "source": "slack",
            "payload": {
                "title": one_line(text),
                "text": text,
                "user": posted.user,
                "team": posted.team,
                "channel": posted.channel,
                "ts": posted.ts,
                "thread_ts": posted.thread_ts,
            },
        }
        desk.threads.received.put(
            event_id, {"channel": posted.channel, "ts": posted.ts, "thread_ts": posted.thread_ts, "user": posted.user}
        )
        self._events += await self._inject(document)
        desk.courtesies.mark(posted.channel, posted.ts, SEEN)

    async def _pressed(self, pressed: Pressed) -> bool:
        """Deal with a button."""
        desk = self._desk
        if not self._allowed(pressed.user, pressed.channel):
            self._whisper(pressed, "stranger")
            return True
        entry = desk.threads.awaiting.get(pressed.task_id)
        choices = [] if entry is None or entry.get("answer") else entry.get("choices") or []
        if entry is None or entry.get("message_ts") != pressed.message_ts or pressed.choice >= len(choices):
            self._whisper(pressed, "closed")
            return True
        await self._answer(pressed.task_id, choices[pressed.choice], pressed.user, pressed.action_ts, pressed.names)
        return True

    async def _answer(self, task_id: str, text: str, user: str, ts: str, names: tuple[str, ...]) -> None:
        """The answer to a question that is open. It is written down with the question first: from here on it is *the*
        answer, whatever comes after it and whoever passes it on."""
        awaiting = self._desk.threads.awaiting
        answer = {"text": text, "user": user, "ts": ts, "names": list(names)}
        entry = {**(awaiting.get(task_id) or {}), "answer": answer}
        awaiting.put(task_id, entry)
        await self._pass_on_answer(task_id, entry)

    async def _pass_on_answer(self, task_id: str, entry: dict[str, Any]) -> None:
        desk, answer, thread_ts = self._desk, entry["answer"], str(entry.get("thread_ts"))
        event_id = f"evt-slack-response-{task_id}-{answer['ts'].partition('.')[0]}"
        payload = {"task_id": task_id, "text": answer["text"], "user": answer["user"], "channel": entry.get("channel")}
        self._answers += await self._inject(
            {"id": event_id, "type": "slack.human_response", "source": "slack", "payload": payload, "priority": "high"}
        )
        emit_once(desk.services, MessageHumanResponse(task_id, thread_ts))
        desk.threads.answered_in(str(entry.get("channel")), thread_ts, answer["ts"])
        self._inbox.remember(answer["names"])
        await desk.close_question(task_id, answered_by(answer["user"], answer["text"], desk.locale))

    async def _inject(self, document: dict[str, Any]) -> bool:
        services, document = self._desk.services, storable(document)
        try:
            accepted = await inject(services, {**document, "payload": freeze(document["payload"])})
        except InvalidDocument as error:  # no reason to stop listening to everybody
            log.warning("what was heard cannot be passed on: %s", error)
            return False
        if not accepted:  # by a former process, which may not have got as far as the journal
            emit_once(services, EventDetected(document["id"], document["source"], document["type"]))
        return accepted

    def _may_judge(self) -> bool:
        """Whether it can be said who may be heard: a file that is broken just now must not cost anybody a word."""
        problem = self._desk.trust.load().problem
        if problem != self._problem:
            self._problem = problem
            if problem is not None:
                log.error("what was heard waits, since config/trust.yaml cannot be used: %s", problem)
        return problem is None

    def _allowed(self, user: str, channel: str) -> bool:
        if self._desk.allows(user, channel):
            return True
        self._refused += 1
        log.warning(
            "Slack user %s was not heard: neither slack.users in config/envoy.yaml nor config/trust.yaml lets them",
            user,
        )
        return False

    def _whisper(self, heard: Posted | Pressed, name: str) -> None:
        text = own(self._desk.locale, name, user=heard.user)
        self._desk.courtesies.whisper(heard.channel, heard.user, text, heard.thread_ts)
