"""The envoy role: sends each pending message, records it in the journal, and settles it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import write_json
from kingdom.bus import RetryPolicy
from kingdom.court.activity import missing_entries
from kingdom.court.config import court_zone
from kingdom.court.days import day_of
from kingdom.court.envoy.port import TryLater
from kingdom.court.errors import InvalidDocument, NotLeading
from kingdom.court.models import Message, timestamp
from kingdom.court.queues import MESSAGES, parse_document, recall_held
from kingdom.journal import JournalError
from kingdom.journal.catalog import MessageSent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.bus.delivery import Delivery
    from kingdom.court.envoy.port import MessageSender, ReplyListener
    from kingdom.court.loop import Services
    from kingdom.journal.catalog import EventData

_MAX_PEEKED_MESSAGES: Final = 500
_LEASE_SECONDS: Final = 300.0  # longer than all calls that sending one message may take
_MAX_TICK_SECONDS: Final = 20.0  # then the tick ends, so that the heartbeat is written
_RETRY_POLICY: Final = RetryPolicy(base=2.0, cap=300.0, max_attempts=8)
log = logging.getLogger("kingdom.court.envoy")


def emit_once(services: Services, event: EventData) -> None:
    """Write a journal line, unless a former process wrote it in the last 24 hours."""
    if missing_entries(services.home.journal, services.clock(), [(event.spec.name, event.to_dict())]):
        services.journal.emit(event, "envoy")


class Envoy:
    name = "envoy"
    interval = 5.0

    def __init__(
        self,
        services: Services,
        sender: MessageSender,
        listener: ReplyListener | None = None,
        *,
        retries: RetryPolicy = _RETRY_POLICY,
    ) -> None:
        self._services = services
        self._bus = services.bus
        self._sender = sender
        self._listener = listener
        self._retries = retries
        # When a message may be tried again. Kept here and not in the bus, so that `peek` still returns it: later
        # messages with the same ordering key must wait for it.
        self._not_before: dict[str, float] = {}
        self._sent = self._failed = 0
        self._problem: str | None = None  # why the last message could not be sent
        self._failing_since = 0.0
        self._workers = [self.name]

    async def start(self) -> None:
        """Finish what a former process held: it may have sent a message and died before it could record that."""
        self._workers = self._services.lead.workers(self.name)
        for delivery in await recall_held(self._services, MESSAGES, self._workers, _LEASE_SECONDS):
            if await self._sender.was_sent(delivery.event_id):
                message = parse_document(Message, delivery.envelope.payload, delivery.event_id)
                await self._finish(delivery, message, again=True)
            else:
                await self._bus.release([delivery])

    async def tick(self) -> float | None:
        """Process what was received, and send the pending messages that may be sent now."""
        if self._listener is not None:
            await self._listener.process_received()
        wait = await self._send_pending()
        await self._sender.maintain()
        return wait

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` for new messages and for replies of people."""
        undo = self._bus.subscribe(MESSAGES, wake)
        stop_listening = self._listener.listen(wake) if self._listener is not None else None

        def both() -> None:
            undo()
            if stop_listening is not None:
                stop_listening()

        return both

    def report(self) -> Mapping[str, Any]:
        """Return the counts since the start, and the reports of sender and listener."""
        replies = {} if self._listener is None else self._listener.report()
        report = {"sent": self._sent, "failed": self._failed, **self._sender.report(), **replies}
        if self._problem is not None:
            report |= {"problem": self._problem[:500], "failing_since": timestamp(self._failing_since)}
        return report

    async def stop(self) -> None:
        """Close the connections. No message is held between two ticks."""
        if self._listener is not None:
            await self._listener.close()
        await self._sender.close()

    async def _send_pending(self) -> float | None:
        """Send what can be sent; return the seconds until the next waiting message may be sent."""
        began, before, soonest = self._services.clock(), self._sent + self._failed, None
        held: set[str] = set()
        records = await self._bus.peek(MESSAGES, limit=_MAX_PEEKED_MESSAGES)
        waiting = {record.envelope.event_id for record in records}
        self._not_before = {one: due for one, due in self._not_before.items() if one in waiting}
        for record in sorted(records, key=lambda one: _sort_key(one.envelope.event_id)):
            now, event_id = self._services.clock(), record.envelope.event_id
            try:
                message = parse_document(Message, record.envelope.payload, event_id)
            except InvalidDocument as error:
                await self._put_aside(event_id, error)
                continue
            ordering_key = self._sender.ordering_key(message)
            if ordering_key in held:
                continue
            pause = self._not_before.get(event_id, now) - now
            if pause <= 0:
                pause = self._sender.reserve_slot(message)
            if pause <= 0:
                pause = await self._deliver(message)
            if pause > 0:
                held.add(ordering_key)
                soonest = pause if soonest is None else min(pause, soonest)
            if self._services.clock() - began > _MAX_TICK_SECONDS:
                return 0.0
        return 0.0 if len(records) == _MAX_PEEKED_MESSAGES and self._sent + self._failed > before else soonest

    async def _deliver(self, message: Message) -> float:
        """Send a message and settle it; return 0, or the seconds after which to try again."""
        for delivery in await self._bus.claim(
            MESSAGES, worker=self._workers[0], ids=[message.id], lease=_LEASE_SECONDS
        ):
            try:
                if delivery.attempt == 1 or not await self._sender.was_sent(message.id):
                    self._services.lead.check()
                    await self._sender.send(message)
            except NotLeading:
                await self._bus.release([delivery])  # for the machine that leads now
                raise
            except TryLater as error:
                log.warning("%s waits for %.0f s: %s", message.id, error.after, error)
                self._note_problem(error)
                await self._bus.release([delivery])
                return self._try_after(message.id, error.after)
            except Exception as error:  # noqa: BLE001 - any error of a sender must not block the other messages
                return await self._try_later(delivery, error)
            self._sent += 1
            self._problem = None
            await self._finish(delivery, message, again=delivery.attempt > 1)
        return 0.0

    async def _try_later(self, delivery: Delivery, error: Exception) -> float:
        why = f"{type(error).__name__}: {error}"
        self._note_problem(error)
        if delivery.attempt >= self._retries.max_attempts:
            self._failed += 1
            log.error("%s could not be sent after %d attempts: %s", delivery.event_id, delivery.attempt, why)
            await self._bus.settle(dead=[(delivery, "NOT_SENT", why)])
            return 0.0
        after = self._retries.delay(delivery.attempt)
        log.warning("%s could not be sent, trying again in %.0f s: %s", delivery.event_id, after, why)
        await self._bus.settle(retry=[(delivery, 0.0, "NOT_SENT", why)])
        return self._try_after(delivery.event_id, after)

    def _note_problem(self, error: Exception) -> None:
        if self._problem is None:
            self._failing_since = self._services.clock()
        self._problem = str(error) or type(error).__name__

    def _try_after(self, message_id: str, seconds: float) -> float:
        self._not_before[message_id] = self._services.clock() + seconds
        return seconds

    async def _put_aside(self, event_id: str, error: InvalidDocument) -> None:
        for delivery in await self._bus.claim(MESSAGES, worker=self._workers[0], ids=[event_id], lease=_LEASE_SECONDS):
            await self._bus.settle(dead=[(delivery, "INVALID", str(error))])

    async def _finish(self, delivery: Delivery, message: Message, *, again: bool) -> None:
        task_id = message.context.get("task_id")
        event = MessageSent(message.id, task_id if isinstance(task_id, str) else None, message.channel)
        try:
            if again:
                emit_once(self._services, event)
            else:
                self._services.journal.emit(event, self.name)
        except JournalError as error:  # the message is sent: if it were not settled, it would be sent again
            log.warning("%s was sent, but could not be written to the journal: %s", message.id, error)
        if message.type == "report":
            self._record_report(message)
        await self._services.lead.save(self._services.home.role(self.name), self._services.home.journal)
        await self._bus.settle(done=[delivery])

    def _record_report(self, message: Message) -> None:
        """Write ``state/envoy/report-sent.json``: the last report that was sent."""
        now, home = self._services.clock(), self._services.home
        day, path = day_of(now, court_zone(home)).isoformat(), home.role(self.name) / "report-sent.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, {"date": day, "msg_id": message.id, "sent_at": timestamp(now)})
        except OSError as error:  # the message is sent: if it were not settled, it would be sent again
            log.warning("%s was sent, but could not be recorded: %s", message.id, error)


def _sort_key(message_id: str) -> tuple[str, int, str]:
    """Return the day and number of a message id."""
    day, _, number = message_id.removeprefix("msg-").partition("-")
    return day, int(number) if number.isascii() and number.isdigit() else 0, message_id
