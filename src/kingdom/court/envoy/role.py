"""The loop over the messages: say each, write down that it was said, settle it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus import RetryPolicy
from kingdom.court.errors import InvalidDocument
from kingdom.court.journal_tail import journal_tail
from kingdom.court.models import Message
from kingdom.court.queues import MESSAGES, read
from kingdom.journal import JournalError
from kingdom.journal.catalog import MessageSent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.bus.delivery import Delivery
    from kingdom.court.envoy.port import Ears, Voice
    from kingdom.court.loop import Services

_BATCH: Final = 20
_LEASE: Final = 60.0  # seconds
_RETRIES: Final = RetryPolicy(base=2.0, cap=300.0, max_attempts=8)
log = logging.getLogger("kingdom.court.envoy")


class Envoy:
    """The role ``envoy``."""

    name = "envoy"
    interval = 10.0

    def __init__(
        self, services: Services, voice: Voice, ears: Ears | None = None, *, retries: RetryPolicy = _RETRIES
    ) -> None:
        self._services = services
        self._bus = services.bus
        self._voice = voice
        self._ears = ears
        self._retries = retries
        self._sent = self._failed = 0

    async def start(self) -> None:
        """Finish what a former envoy held: it may have said a message and died before it could write that down."""
        for delivery in await self._bus.recall(MESSAGES, worker=self.name, lease=_LEASE):
            if await self._voice.said(delivery.event_id):
                if not self._journalled(delivery.event_id):
                    self._write_down(read(Message, delivery.envelope.payload, delivery.event_id))
                await self._bus.settle(done=[delivery])
            else:
                await self._deliver(delivery)

    async def tick(self) -> float | None:
        """Say what waits, until nothing does."""
        if self._ears is not None:
            await self._ears.pass_on()
        while batch := await self._bus.claim(MESSAGES, worker=self.name, limit=_BATCH, lease=_LEASE):
            for delivery in batch:
                await self._deliver(delivery)
        return None

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
        return {"sent": self._sent, "failed": self._failed}

    async def stop(self) -> None:
        """It holds nothing."""

    async def _deliver(self, delivery: Delivery) -> None:
        try:
            message = read(Message, delivery.envelope.payload, delivery.event_id)
        except InvalidDocument as error:
            await self._bus.settle(dead=[(delivery, "INVALID", str(error))])
            return
        try:
            await self._voice.say(message)
        except Exception as error:  # noqa: BLE001 - whatever a voice may raise, the others must still be heard
            await self._try_later(delivery, error)
            return
        self._write_down(message)
        self._sent += 1
        await self._bus.settle(done=[delivery])

    async def _try_later(self, delivery: Delivery, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        if delivery.attempt >= self._retries.max_attempts:
            self._failed += 1
            log.error("%s could not be sent after %d attempts: %s", delivery.event_id, delivery.attempt, why)
            await self._bus.settle(dead=[(delivery, "NOT_SENT", why)])
        else:
            after = self._retries.delay(delivery.attempt)
            log.warning("%s could not be sent, trying again in %.0f s: %s", delivery.event_id, after, why)
            await self._bus.settle(retry=[(delivery, after, "NOT_SENT", why)])

    def _write_down(self, message: Message) -> None:
        task_id = message.context.get("task_id")
        event = MessageSent(message.id, task_id if isinstance(task_id, str) else None, message.channel)
        try:
            self._services.journal.emit(event, self.name)
        except JournalError as error:  # it is out: not to settle it would send it again
            log.warning("%s was sent, but the journal does not take it: %s", message.id, error)

    def _journalled(self, message_id: str) -> bool:
        return any(
            entry.type == "message.sent" and entry.fields.get("msg_id") == message_id
            for entry in journal_tail(self._services.home.journal)
        )
