"""The role: looks at results, questions, schedules and events, decides, and does what follows in one go.

A look collects everything that is to be done (:mod:`plan`), writes it into the book (:mod:`book`) and carries it out
(:mod:`carrying_out`). When anything fails on the way, what is in memory is worth nothing any more, and the next look
begins as after a restart (:mod:`recovery`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.inotify import MOVED_TO, FileWatcher
from kingdom.bus import Envelope
from kingdom.court.king import results
from kingdom.court.king.admission import NotAdmitted
from kingdom.court.king.decisions import (
    EventAction,
    decide_answer,
    decide_cancel,
    decide_retry,
    discard_event,
    dispatch_event,
)
from kingdom.court.king.pending import PendingEvents, RoutingTable
from kingdom.court.king.results import (
    check_deadlines,
    drop_finished_cases,
    rebuild_cases,
    release_held_tasks,
    release_unknown_events,
)
from kingdom.court.king.schedules import Schedules
from kingdom.court.king.state import KingState, TickPlan
from kingdom.court.king.write_ahead_log import Applier, Commands, WriteAheadLog
from kingdom.court.packages.installed import Generals
from kingdom.court.queues import EVENTS
from kingdom.court.trust.policy import TrustFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kingdom.base.inotify import FileChange
    from kingdom.bus import Delivery
    from kingdom.court.config import SystemConfig
    from kingdom.court.king.admission import AdmittedEvent, Gate
    from kingdom.court.king.pending import PendingEvent
    from kingdom.court.loop import Services

LEASE_SECONDS: Final = 10 * 365 * 86400.0  # an event is the king's until its case ends; a restarted king recalls it
MAX_EVENTS_PER_TICK: Final = 250  # events taken up in one look
PEEK_BATCH: Final = 250  # events read at a time
MAX_EVENTS_READ_PER_TICK: Final = 2000  # and at most in one look, before something is done about them
_UNLIMITED_ATTEMPTS: Final = 1_000_000_000  # attempts


class King:
    """Hears events, has generals act on them, and answers for what came of it."""

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
        self._sound = False  # what is in memory is what is on disk
        self._reset()

    def _reset(self) -> None:
        self._state = KingState(self._services, self._config, self._gates, self._trust.load())
        self._held: dict[str, Delivery] = {}
        self._schedules = Schedules(self._services.home, self._config.timezone)
        self._applier = Applier(self._services, self._schedules, self._held)
        self._pending = PendingEvents()
        self._routing = RoutingTable(Generals(), self._services.home, self._state.trust)
        self._events_came = True
        self._last_full_check: float | None = None
        self._last_checked_task = ""  # the last task whose whereabouts were checked

    # ── the role ──────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Reconcile with what a former king left behind."""
        self._services.home.results.mkdir(parents=True, exist_ok=True)
        await self._state.sequences.recover(self._services.bus)
        await self._recover()

    async def tick(self) -> float | None:
        """Look at everything and act."""
        if not self._sound:
            await self._recover()
        self._sound = False
        wait = await self._run_tick()
        self._sound = True
        return wait

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have ``wake`` called when an event or a result appears."""

        def events_came() -> None:
            self._events_came = True
            wake()

        def results_came(changes: list[FileChange]) -> None:
            if any(_is_result(change.name) or not change.name for change in changes):  # no name: some were lost
                wake()

        undo_events = self._services.bus.subscribe(EVENTS, events_came)
        watch = FileWatcher(asyncio.get_running_loop())
        with contextlib.suppress(OSError):  # then the interval must do
            self._services.home.results.mkdir(parents=True, exist_ok=True)
            watch.add(self._services.home.results, MOVED_TO, results_came)

        def undo() -> None:
            undo_events()
            watch.close()

        return undo

    def report(self) -> Mapping[str, Any]:
        """What waits and why, and how much is under way."""
        state = self._state
        return {
            "waiting": len(self._pending),
            "holds": state.admission.holds.report(),
            "active": state.cases.active_count,
            "asking": [case.task for case in state.cases.asking()],
            "problems": [*state.generals.problems, *([self._trust.problem] if self._trust.problem else [])],
        }

    async def stop(self) -> None:
        """Let go of the book. Events stay with the king, whoever is king next."""
        self._wal.close()
        self._sound = False

    # ── a look ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run_tick(self) -> float | None:
        state, now = self._state, self._services.clock()
        around = self._last_full_check is None or not 0 <= now - self._last_full_check < self.interval
        state.plan, state.tick_again = TickPlan(), False
        self._reload_generals(now)
        more = await results.collect_results(state)
        waits = [check_deadlines(state, now)]
        if around:
            self._last_checked_task = await results.fail_lost_tasks(state, self._last_checked_task)
            await self._resync_pending()
            self._last_full_check = now
        if around or self._events_came:
            more = await self._read_events() or more
        state.admission.begin(state.generals, now)
        jobs = await self._decide_direct()
        waits.append(self._schedules.look(state, now))
        chosen = state.admission.choose(self._pending.groups(), MAX_EVENTS_PER_TICK)
        await self._claim({**jobs, **{one.pending.id: (self._dispatch(one), one.task_id) for one in chosen}})
        more = more or state.tick_again or len(chosen) == MAX_EVENTS_PER_TICK
        await self._commit()
        if self._applier.refused:
            await self._fail_refused_tasks()
        if self._wal.long:
            self._wal.rewrite(state.cases)
        return 0.0 if more else min((wait for wait in waits if wait is not None), default=None)

    def _reload_generals(self, now: float) -> None:
        generals, trust, state = self._load_generals(), self._trust.load(), self._state
        others = generals is not state.generals and generals != state.generals
        if others or trust is not state.trust:
            state.trust = trust
            self._routing = RoutingTable(generals, self._services.home, trust)
            self._pending.reroute(self._routing)
        if others:
            self._schedules.use(state, generals, now)
        state.generals = generals

    async def _read_events(self) -> bool:
        """Read what is new in the queue; return whether there may be more."""
        self._events_came = False
        for _ in range(MAX_EVENTS_READ_PER_TICK // PEEK_BATCH):
            found = await self._services.bus.peek(EVENTS, limit=PEEK_BATCH, skip=self._pending)
            self._pending.add(found, self._routing)
            if len(found) < PEEK_BATCH:
                return False
        self._events_came = True
        return True

    async def _resync_pending(self) -> None:
        depths = await self._services.bus.depth()
        if depths[EVENTS].pending < len(self._pending):  # somebody took some away
            self._pending.clear()
            self._events_came = True

    async def _decide_direct(self) -> dict[str, tuple[EventAction, str | None]]:
        jobs: dict[str, tuple[EventAction, str | None]] = {}
        for pending in list(self._pending.direct.values()):
            if len(jobs) == MAX_EVENTS_PER_TICK:
                self._state.tick_again = True
                break
            try:
                jobs[pending.id] = await self._decide(pending)
            except NotAdmitted as held:
                self._state.admission.holds.add(str(held), [pending.id])
        return jobs

    async def _decide(self, pending: PendingEvent) -> tuple[EventAction, str | None]:
        state = self._state
        if pending.invalid is not None:
            return self._reject(pending.invalid), None
        verdict = state.trust.judge(pending.people)
        if verdict.waits:
            raise NotAdmitted(verdict.reason)
        if verdict.refused:
            return discard_event(state, pending, verdict.reason), None
        if pending.command == "answer":
            return await decide_answer(state, pending)
        if pending.command == "retry":
            return await decide_retry(state, pending)
        if pending.command == "cancel":
            return await decide_cancel(state, pending, pending.author or pending.type.partition(".")[0]), None
        why = self._routing.why_not(pending.type, pending.repo, pending.author, pending.people)
        return discard_event(state, pending, why), None

    def _reject(self, reason: str) -> EventAction:
        async def job(delivery: Delivery) -> None:
            self._state.plan.invalid[delivery.event_id] = reason

        return job

    def _dispatch(self, chosen: AdmittedEvent) -> EventAction:
        async def job(delivery: Delivery) -> None:
            dispatch_event(self._state, delivery, chosen)

        return job

    async def _claim(self, jobs: Mapping[str, tuple[EventAction, str | None]]) -> None:
        claimed = await self._services.bus.claim(
            EVENTS,
            worker=self.name,
            ids=jobs,
            limit=len(jobs) or 1,
            lease=LEASE_SECONDS,
            max_attempts=_UNLIMITED_ATTEMPTS,
        )
        for delivery in claimed:
            self._held[delivery.event_id] = delivery
            await jobs[delivery.event_id][0](delivery)
            _drop_payload(delivery)
        for event_id, (_, task_id) in jobs.items():
            self._pending.remove(event_id)
            if event_id not in self._held:
                self._state.tick_again = True  # it vanished, and leaves its place to another
                if task_id is not None:
                    self._state.admission.withdraw(task_id)

    # ── doing it ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _commit(self) -> None:
        state, plan = self._state, self._state.plan
        if plan.invalid:
            dead = [(self._held.pop(event_id), "INVALID", reason) for event_id, reason in plan.invalid.items()]
            await self._services.bus.settle(dead=dead)
        if not plan:
            return
        ids = state.sequences.messages(len(plan.drafts))
        now, channel = state.clock(), self._config.channel
        messages = [draft.message(one, channel, now) for draft, one in zip(plan.drafts, ids, strict=True)]
        entry = plan.entry(messages)
        self._wal.append(entry)
        await self._applier.apply(Commands(entry, plan.tasks, messages, plan.events))

    async def _fail_refused_tasks(self) -> None:
        """End the cases whose task the queue does not take."""
        state = self._state
        state.plan = TickPlan()
        for task_id, reason in self._applier.refused.items():
            case = state.cases.of_task(task_id)
            if case is not None:
                state.end_case(case, results.failed_result(state, case, f"the task cannot be stored: {reason}"))
        self._applier.refused.clear()
        await self._commit()

    async def _recover(self) -> None:
        self._reset()
        state, bus = self._state, self._services.bus
        for delivery in await bus.recall(EVENTS, worker=self.name, lease=LEASE_SECONDS):
            self._held[delivery.event_id] = delivery
            _drop_payload(delivery)
        opened = self._wal.open()
        if not opened.found:
            opened = await rebuild_cases(self._services, state, self._held)
        for case in opened.cases.values():
            state.cases.put(case)
        self._schedules.load()
        if opened.last is not None:
            await self._applier.apply(Commands.of(opened.last), again=True)
        drop_finished_cases(state, self._held)
        await release_unknown_events(state, self._held)
        await release_held_tasks(state, LEASE_SECONDS)
        self._wal.rewrite(state.cases)
        for case in state.cases.active():
            state.admission.reserve(case, state.clock())
        self._sound = True


def _is_result(name: str) -> bool:
    """What else generals keep beside results is nothing to the king."""
    return name.endswith(".json") and not name.endswith("-raw.json")


def _drop_payload(delivery: Delivery) -> None:
    """Keep of a claimed event only what settling it needs: there may be very many, and their payloads large."""
    delivery.envelope = Envelope(type=delivery.envelope.type, event_id=delivery.event_id)
