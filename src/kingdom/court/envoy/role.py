"""The loop over the messages: say each, write down that it was said, settle it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus import RetryPolicy
from kingdom.court.envoy.once import emit_once
from kingdom.court.envoy.port import NotNow
from kingdom.court.errors import InvalidDocument
from kingdom.court.models import Message
from kingdom.court.queues import MESSAGES, read
from kingdom.journal import JournalError
from kingdom.journal.catalog import MessageSent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.bus.delivery import Delivery
    from kingdom.court.envoy.port import Ears, Voice
    from kingdom.court.loop import Services

_IN_VIEW: Final = 500  # messages looked at together
_LEASE: Final = 300.0  # seconds: longer than all calls that saying one may take
_LOOK: Final = 20.0  # seconds of saying after which there is another sign of life
_RETRIES: Final = RetryPolicy(base=2.0, cap=300.0, max_attempts=8)
log = logging.getLogger("kingdom.court.envoy")


class Envoy:
    """The role ``envoy``."""

    name = "envoy"
    interval = 5.0

    def __init__(
        self, services: Services, voice: Voice, ears: Ears | None = None, *, retries: RetryPolicy = _RETRIES
    ) -> None:
        self._services = services
        self._bus = services.bus
        self._voice = voice
        self._ears = ears
        self._retries = retries
        # When a message may be tried again. Kept here and not in the bus, so that it stays in view: those behind it in
        # its lane must know that they wait for it.
        self._not_before: dict[str, float] = {}
        self._sent = self._failed = 0

    async def start(self) -> None:
        """Finish what a former envoy held: it may have said a message and died before it could write that down."""
        for delivery in await self._bus.recall(MESSAGES, worker=self.name, lease=_LEASE):
            if await self._voice.said(delivery.event_id):
                message = read(Message, delivery.envelope.payload, delivery.event_id)
                await self._finish(delivery, message, again=True)
            else:
                await self._bus.release([delivery])

    async def tick(self) -> float | None:
        """Say what waits, as far as it may be said now."""
        if self._ears is not None:
            await self._ears.pass_on()
        wait = await self._say_what_waits()
        await self._voice.tidy()
        return wait

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Be woken by new messages, and by people."""
        undo = self._bus.subscribe(MESSAGES, wake)
        deafen = self._ears.listen(wake) if self._ears is not None else None

        def both() -> None:
            undo()
            if deafen is not None:
                deafen()

        return both

    def report(self) -> Mapping[str, Any]:
        """What it has done since it was started."""
        heard = {} if self._ears is None else self._ears.report()
        return {"sent": self._sent, "failed": self._failed, **self._voice.report(), **heard}

    async def stop(self) -> None:
        """Let go of the connections; messages it holds none."""
        if self._ears is not None:
            await self._ears.close()
        await self._voice.close()

    async def _say_what_waits(self) -> float | None:
        """Say what can be said; return the seconds until something that cannot be said yet may be."""
        began, before, soonest = self._services.clock(), self._sent + self._failed, None
        held: set[str] = set()
        records = await self._bus.peek(MESSAGES, limit=_IN_VIEW)
        waiting = {record.envelope.event_id for record in records}
        self._not_before = {one: due for one, due in self._not_before.items() if one in waiting}
        for record in sorted(records, key=lambda one: _number(one.envelope.event_id)):
            now, event_id = self._services.clock(), record.envelope.event_id
            try:
                message = read(Message, record.envelope.payload, event_id)
            except InvalidDocument as error:
                await self._put_aside(event_id, error)
                continue
            lane = self._voice.lane(message)
            if lane in held:
                continue
            pause = self._not_before.get(event_id, now) - now
            if pause <= 0:
                pause = self._voice.turn(message)
            if pause <= 0:
                pause = await self._deliver(message)
            if pause > 0:
                held.add(lane)
                soonest = pause if soonest is None else min(pause, soonest)
            if self._services.clock() - began > _LOOK:
                return 0.0
        return 0.0 if len(records) == _IN_VIEW and self._sent + self._failed > before else soonest

    async def _deliver(self, message: Message) -> float:
        """Say a message and settle it; returns the seconds after which to try again, if it was not said."""
        for delivery in await self._bus.claim(MESSAGES, worker=self.name, ids=[message.id], lease=_LEASE):
            try:
                if delivery.attempt == 1 or not await self._voice.said(message.id):
                    await self._voice.say(message)
            except NotNow as error:
                log.warning("%s has to wait for %.0f s: %s", message.id, error.after, error)
                await self._bus.release([delivery])
                return self._try_after(message.id, error.after)
            except Exception as error:  # noqa: BLE001 - whatever a voice may raise, the others must still be heard
                return await self._try_later(delivery, error)
            self._sent += 1
            await self._finish(delivery, message, again=delivery.attempt > 1)
        return 0.0

    async def _try_later(self, delivery: Delivery, error: Exception) -> float:
        why = f"{type(error).__name__}: {error}"
        if delivery.attempt >= self._retries.max_attempts:
            self._failed += 1
            log.error("%s could not be sent after %d attempts: %s", delivery.event_id, delivery.attempt, why)
            await self._bus.settle(dead=[(delivery, "NOT_SENT", why)])
            return 0.0
        after = self._retries.delay(delivery.attempt)
        log.warning("%s could not be sent, trying again in %.0f s: %s", delivery.event_id, after, why)
        await self._bus.settle(retry=[(delivery, 0.0, "NOT_SENT", why)])
        return self._try_after(delivery.event_id, after)

    def _try_after(self, message_id: str, seconds: float) -> float:
        self._not_before[message_id] = self._services.clock() + seconds
        return seconds

    async def _put_aside(self, event_id: str, error: InvalidDocument) -> None:
        for delivery in await self._bus.claim(MESSAGES, worker=self.name, ids=[event_id], lease=_LEASE):
            await self._bus.settle(dead=[(delivery, "INVALID", str(error))])

    async def _finish(self, delivery: Delivery, message: Message, *, again: bool) -> None:
        task_id = message.context.get("task_id")
        event = MessageSent(message.id, task_id if isinstance(task_id, str) else None, message.channel)
        try:
            if again:
                emit_once(self._services, event)
            else:
                self._services.journal.emit(event, self.name)
        except JournalError as error:  # it is out: not to settle it would send it again
            log.warning("%s was sent, but the journal does not take it: %s", message.id, error)
        await self._bus.settle(done=[delivery])


def _number(message_id: str) -> tuple[str, int, str]:
    """What messages are sorted by: their day and their number."""
    day, _, number = message_id.removeprefix("msg-").partition("-")
    return day, int(number) if number.isascii() and number.isdigit() else 0, message_id
