"""The king's role: read results, answers, schedules and events, and decide what to do.

Each tick collects its changes in a :class:`~kingdom.court.king.state.TickPlan`, appends them to the write-ahead log,
and applies them. When a tick fails, the state in memory may differ from the disk, so the next tick begins with the
same recovery as a restart.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.inotify import MOVED_TO
from kingdom.bus import Envelope
from kingdom.court.activity import DetectedEvents
from kingdom.court.errors import NotLeading
from kingdom.court.king.admission import NotAdmitted
from kingdom.court.king.decisions import (
    EventAction,
    answer_from_comment,
    cancel_overtaken,
    decide_answer,
    decide_cancel,
    decide_retry,
    discard_event,
    dispatch_cancel,
    dispatch_event,
    join_event,
    posted_at,
)
from kingdom.court.king.landings import collect_landings
from kingdom.court.king.pending import PendingEvents, RoutingTable
from kingdom.court.king.results import (
    check_deadlines,
    collect_results,
    drop_finished_cases,
    fail_lost_tasks,
    failed_result,
    rebuild_cases,
    release_held_tasks,
    release_unknown_events,
)
from kingdom.court.king.schedules import SCHEDULE_FILE, Schedules
from kingdom.court.king.state import KingState, TickPlan
from kingdom.court.king.write_ahead_log import LOG_FILE, Applier, Commands, WriteAheadLog
from kingdom.court.loop import on_changes
from kingdom.court.models import DETECTED_BY, timestamp
from kingdom.court.packages.installed import Generals
from kingdom.court.patterns import NOBODY_SUBSCRIBES
from kingdom.court.queues import EVENTS, recall_held
from kingdom.court.trust.policy import TrustFile
from kingdom.journal import JournalError
from kingdom.journal.catalog import EventDetected, EventDiscarded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kingdom.base.inotify import FileChange
    from kingdom.bus import Delivery
    from kingdom.bus.delivery import Record
    from kingdom.court.config import SystemConfig
    from kingdom.court.king.admission import AdmittedEvent, Gate
    from kingdom.court.king.pending import PendingEvent
    from kingdom.court.loop import Services

LEASE_SECONDS: Final = 10 * 365 * 86400.0  # the king holds an event until its case ends; a restarted king recalls it
MAX_EVENTS_PER_TICK: Final = 250  # claimed
MAX_EVENTS_READ_PER_TICK: Final = 2000
PEEK_BATCH: Final = 250  # events read at a time
_UNLIMITED_ATTEMPTS: Final = 1_000_000_000
log = logging.getLogger("kingdom.court.king")


class King:
    """Dispatches events to generals and reports the results to people."""

    name = "king"
    interval = 10.0

    def __init__(
        self,
        services: Services,
        config: SystemConfig,
        load_generals: Callable[[], Generals],
        gates: Sequence[Gate] = (),
    ) -> None:
        self._services = services
        self._config = config
        self._load_generals = load_generals
        self._gates = gates
        self._trust = TrustFile(services.home)
        self._wal = WriteAheadLog(services.home.role(self.name))
        self._consistent = False  # the state in memory is that on disk
        self._lost = False  # events that ended were held by somebody else
        self._workers = [self.name]
        self._held_in_queue = 0  # events that are held, as the queue last counted them
        self._reset()
        folder, sequences = services.home.role(self.name), self._state.sequences.paths
        self._own_files = [folder / LOG_FILE, folder / SCHEDULE_FILE, *sequences, services.home.journal]

    def _reset(self) -> None:
        self._state = KingState(self._services, self._config, self._gates, self._trust.load())
        self._held: dict[str, Delivery] = {}
        self._claimed: list[Delivery] = []  # in this tick, and not in the log yet
        self._schedules = Schedules(self._services.home, self._config.timezone)
        self._applier = Applier(self._services, self._schedules.store, self._held)
        self._pending = PendingEvents(self._state.pull_requests)
        self._detected = DetectedEvents(self._services.home.journal, self.name)
        self._routing = RoutingTable(Generals(), self._services.home, self._state.trust)
        self._new_events = True
        self._last_full_check: float | None = None
        self._last_checked_task = ""  # where the search for lost tasks continues

    # ── the role ──────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Recover the state that a former process left."""
        self._services.home.results.mkdir(parents=True, exist_ok=True)
        self._workers = self._services.lead.workers(self.name)
        await self._state.sequences.recover(self._services.bus)
        await self._recover()

    async def tick(self) -> float | None:
        """Do everything that is due; return the seconds until the next tick, or None for the interval."""
        if not self._consistent:
            await self._recover()
        self._consistent = False
        try:
            wait = await self._run_tick()
        except NotLeading:
            await self._services.bus.release(self._claimed)  # for the king on the machine that leads now
            raise
        self._consistent = not self._lost
        return 0.0 if self._lost else wait

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when an event or a result appears."""

        def events_came() -> None:
            self._new_events = True
            wake()

        def results_came(changes: list[FileChange]) -> None:
            if any(_is_result(change.name) or not change.name for change in changes):  # no name: changes were lost
                wake()

        undo_events = self._services.bus.subscribe(EVENTS, events_came)
        undo_results = on_changes([self._services.home.results, self._services.home.landings], MOVED_TO, results_came)

        def undo() -> None:
            undo_events()
            undo_results()

        return undo

    def report(self) -> Mapping[str, Any]:
        """Report pending events and why they wait, active tasks, and problems."""
        state = self._state
        return {
            "waiting": len(self._pending),
            "holds": state.admission.holds.report(),
            "active": state.cases.active_count,
            "asking": [case.task for case in state.cases.asking()],
            "deadlines": {case.task: timestamp(case.asked.deadline) for case in state.cases.asking() if case.asked},
            "problems": [*state.generals.problems, *([self._trust.problem] if self._trust.problem else [])],
        }

    async def stop(self) -> None:
        """Close the log. Dispatched events stay claimed, for the next process."""
        self._wal.close()
        self._consistent = False

    # ── a tick ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run_tick(self) -> float | None:
        state, now = self._state, self._services.clock()
        full_check = self._last_full_check is None or not 0 <= now - self._last_full_check < self.interval
        state.plan, state.tick_again = TickPlan(), False
        self._reload_generals(now)
        more = await collect_results(state)
        await collect_landings(self._services, state)
        state.record_work()  # before events about it are read
        self._pending.attach({one.opened_for for one in state.plan.opened if one.opened_for}, self._routing)
        waits = [check_deadlines(state, now)]
        if full_check:
            self._last_checked_task = await fail_lost_tasks(state, self._last_checked_task)
            await self._resync_pending()
            self._last_full_check = now
        if full_check or self._new_events:
            more = await self._read_events() or more
        overtaken = await self._cancel_overtaken()
        state.admission.begin(state.generals, now)
        actions = {**await self._decide_direct(), **self._decide_replies(), **overtaken}
        waits.append(self._schedules.start_due(state, now))
        chosen = state.admission.choose(self._pending.groups(), MAX_EVENTS_PER_TICK)
        joined = self._joining(chosen)
        actions |= {event_id: (join_event(state, root), None) for event_id, root in joined.items()}
        actions |= {one.pending.id: (self._dispatch(one), one.task_id) for one in chosen}
        await self._claim(actions)
        await self._release_unjoined(joined)
        await self._commit()
        more = more or state.tick_again or bool(state.plan.events) or len(chosen) == MAX_EVENTS_PER_TICK
        if self._applier.refused:
            await self._fail_refused_tasks()
        if self._wal.long and not self._lost:  # the entry is applied again
            self._wal.rewrite(state.cases)
        return 0.0 if more else min((wait for wait in waits if wait is not None), default=None)

    def _reload_generals(self, now: float) -> None:
        generals, trust, state = self._load_generals(), self._trust.load(), self._state
        changed = generals is not state.generals and generals != state.generals
        if changed or trust is not state.trust:
            state.trust = trust
            self._routing = RoutingTable(generals, self._services.home, trust)
            self._pending.reroute(self._routing)
        if changed:
            self._schedules.use(state, generals, now)
        state.generals = generals

    async def _read_events(self) -> bool:
        """Read new events from the queue; return whether there may be more."""
        self._new_events = False
        for _ in range(MAX_EVENTS_READ_PER_TICK // PEEK_BATCH):
            found = await self._services.bus.peek(EVENTS, limit=PEEK_BATCH, skip=self._pending)
            self._pending.add(found, self._routing)
            self._journal_dropped(found)
            if len(found) < PEEK_BATCH:
                return False
        self._new_events = True
        return True

    def _journal_dropped(self, found: Sequence[Record]) -> None:
        """Write ``event.detected`` for events that somebody put into the queue as files."""
        dropped = [record.envelope for record in found if DETECTED_BY not in record.envelope.payload]
        lines = {
            envelope.event_id: EventDetected(envelope.event_id, source, envelope.type)
            for envelope in dropped
            if isinstance(source := envelope.payload.get("source"), str)
        }
        new = self._detected.add(lines, self._services.clock()) if lines else ()
        for event_id, line in lines.items():
            if event_id in new:
                self._journal(EventDetected.spec.name, line.to_dict())

    def _journal(self, name: str, data: Mapping[str, Any]) -> None:
        try:
            self._services.journal.emit(name, self.name, data)
        except JournalError as error:
            log.warning("%s could not be written to the journal: %s", name, error)

    async def _resync_pending(self) -> None:
        depths = await self._services.bus.depth()
        if depths[EVENTS].pending < len(self._pending):  # events were removed past the king
            self._pending.clear()
            self._new_events = True
        if (held := depths[EVENTS].processing) != self._held_in_queue:
            self._held_in_queue = held
            # A king that led before may have claimed some, and died before it gave them back: recall them, once.
            if held > len(self._held):
                await self._recall()
                await release_unknown_events(self._state, self._held)
                self._new_events = True

    async def _cancel_overtaken(self) -> dict[str, tuple[EventAction, str | None]]:
        """End the tasks about what was closed or taken back, and discard what waits and happened before."""
        actions: dict[str, tuple[EventAction, str | None]] = {}
        for pending in self._pending.take_overtaking():
            decision = self._state.trust.judge(pending.people)
            if decision.waits or decision.refused:
                continue
            ended = await cancel_overtaken(self._state, pending, self._routing.cancelled_by(pending.type))
            if ended and pending.id in self._pending.direct:  # no general takes it
                actions[pending.id] = dispatch_cancel(self._state, ended[0].task, ended[0].general), None
            for one in self._pending.overtaken(pending, self._routing):
                self._pending.keep_from_dispatch(one.id)
                actions[one.id] = discard_event(self._state, one, f"overtaken by {pending.type}"), None
        return actions

    async def _decide_direct(self) -> dict[str, tuple[EventAction, str | None]]:
        actions: dict[str, tuple[EventAction, str | None]] = {}
        for pending in list(self._pending.direct.values()):
            if len(actions) == MAX_EVENTS_PER_TICK:
                self._state.tick_again = True
                break
            try:
                actions[pending.id] = await self._decide(pending)
            except NotAdmitted as held:
                self._state.admission.holds.add(str(held), [pending.id])
        return actions

    def _decide_replies(self) -> dict[str, tuple[EventAction, str | None]]:
        """Handle comments on the subject of a question that was posted there: the first is its answer."""
        actions: dict[str, tuple[EventAction, str | None]] = {}
        for case in self._state.cases.asking():
            if self._pending.first_said(case.subject, case.general, 0.0) is None:
                continue  # as for most, without a look at the disk
            posted = posted_at(self._state, case)
            if posted is not None and (said := self._pending.first_said(case.subject, case.general, posted)):
                self._pending.keep_from_dispatch(said.id)
                actions[said.id] = answer_from_comment(self._state, case), None
        return actions

    async def _decide(self, pending: PendingEvent) -> tuple[EventAction, str | None]:
        state = self._state
        if pending.invalid is not None:
            return self._reject(pending.invalid), None
        decision = state.trust.judge(pending.people)
        if decision.waits:
            raise NotAdmitted(decision.reason)
        if decision.refused:  # of what no general takes, nobody needs to know who may not ask for it
            unheard = pending.command is None and self._routing.why_not(pending.routed) == NOBODY_SUBSCRIBES
            return discard_event(state, pending, NOBODY_SUBSCRIBES if unheard else decision.refusal), None
        if pending.command == "answer":
            return await decide_answer(state, pending)
        if pending.command == "retry":
            return await decide_retry(state, pending)
        if pending.command == "cancel":
            return await decide_cancel(state, pending, pending.author or pending.type.partition(".")[0]), None
        why = self._routing.why_not(pending.routed)
        return discard_event(state, pending, why), None

    def _reject(self, reason: str) -> EventAction:
        async def action(delivery: Delivery) -> None:
            self._state.plan.invalid[delivery.event_id] = reason

        return action

    def _dispatch(self, chosen: AdmittedEvent) -> EventAction:
        async def action(delivery: Delivery) -> None:
            dispatch_event(self._state, delivery, chosen)

        return action

    async def _claim(self, actions: Mapping[str, tuple[EventAction, str | None]]) -> None:
        claimed = await self._services.bus.claim(
            EVENTS,
            worker=self._workers[0],
            ids=actions,
            limit=len(actions) or 1,
            lease=LEASE_SECONDS,
            max_attempts=_UNLIMITED_ATTEMPTS,
        )
        self._claimed = claimed
        order = {event_id: number for number, event_id in enumerate(actions)}
        for delivery in sorted(claimed, key=lambda one: order[one.event_id]):
            self._held[delivery.event_id] = delivery
            await actions[delivery.event_id][0](delivery)
            _drop_payload(delivery)
        for event_id, (_, task_id) in actions.items():
            self._pending.remove(event_id)
            if event_id not in self._held:
                self._state.tick_again = True  # it vanished: another event may take its place
                if task_id is not None:
                    self._state.admission.withdraw(task_id)

    def _joining(self, chosen: Sequence[AdmittedEvent]) -> dict[str, str]:
        """Return the events that join those that are dispatched, each with the one that it joins."""
        same_people, dispatched = self._state.trust.config.decides, {one.pending.id for one in chosen}
        found: dict[str, str] = {}
        for one in chosen:
            joining = self._pending.joining(one.pending, one.general, same_people=same_people)
            found |= {other.id: one.pending.id for other in joining if other.id not in dispatched}
        return found

    async def _release_unjoined(self, joined: Mapping[str, str]) -> None:
        """Give back the events that were claimed to join one that vanished, or was not dispatched after all."""
        lost = [one for one, root in joined.items() if one in self._held and self._state.cases.get(root) is None]
        if lost:
            await self._services.bus.release([self._held.pop(one) for one in lost])
            self._new_events = self._state.tick_again = True

    # ── applying ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _commit(self) -> None:
        state, plan = self._state, self._state.plan
        if plan.invalid:
            dead = [(self._held.pop(event_id), "INVALID", reason) for event_id, reason in plan.invalid.items()]
            await self._services.bus.settle(dead=dead)
            for delivery, _, reason in dead:
                discarded = EventDiscarded(delivery.event_id, delivery.envelope.type, f"invalid: {reason}")
                self._journal(EventDiscarded.spec.name, discarded.to_dict())
        if not plan:
            return
        ids = state.sequences.messages(len(plan.drafts))
        now, channel = state.clock(), self._config.channel
        messages = [draft.message(one, channel, now) for draft, one in zip(plan.drafts, ids, strict=True)]
        entry = plan.entry(messages)
        self._wal.append(entry)
        await self._save_log(*state.work_files())
        self._claimed = []
        lost = await self._applier.apply(Commands(entry, plan.tasks, messages, plan.events))
        if lost:  # a king on a machine that was cut off may have recalled them: do so, too, and apply the entry again
            log.warning("no longer held, so they are looked for: %s", ", ".join(lost))
            self._lost = True
        self._new_events = self._new_events or bool(plan.events)

    async def _save_log(self, *more: Path) -> None:
        """Let a king on another machine know what this one is about to do."""
        await self._services.lead.save(*self._own_files, *more)

    async def _fail_refused_tasks(self) -> None:
        """End the cases whose task the queue refused."""
        state = self._state
        state.plan = TickPlan()
        for task_id, reason in self._applier.refused.items():
            case = state.cases.of_task(task_id)
            if case is not None:
                unstored = failed_result(state, case, f"the task cannot be stored: {reason}")
                state.end_case(case, unstored, announced=False)
        self._applier.refused.clear()
        await self._commit()

    async def _recall(self) -> None:
        for delivery in await recall_held(self._services, EVENTS, self._workers, LEASE_SECONDS):
            self._held[delivery.event_id] = delivery
            _drop_payload(delivery)

    async def _recover(self) -> None:
        self._reset()
        self._lost = False
        state = self._state
        await self._recall()
        opened = self._wal.open()
        if not opened.found:
            opened = await rebuild_cases(self._services, state, self._held)
        for case in opened.cases.values():
            state.cases.put(case)
        self._schedules.load()
        if opened.last is not None:
            await self._save_log()  # the former process may have failed to
            await self._applier.apply(Commands.of(opened.last), again=True)
        drop_finished_cases(state, self._held)
        await release_unknown_events(state, self._held)
        await release_held_tasks(state, LEASE_SECONDS)
        self._wal.rewrite(state.cases)
        for case in state.cases.active():
            state.admission.reserve(case, state.clock())
        self._consistent = True


def _is_result(name: str) -> bool:
    """Whether a file is a result. Generals keep raw results in the same folder."""
    return name.endswith(".json") and not name.endswith("-raw.json")


def _drop_payload(delivery: Delivery) -> None:
    """Keep only what settling an event needs: many events are held at once, and payloads may be large."""
    delivery.envelope = Envelope(type=delivery.envelope.type, event_id=delivery.event_id)
