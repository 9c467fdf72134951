"""The role: looks at results, questions, schedules and events, decides, and does what follows in one go.

A look collects everything that is to be done (:mod:`plan`), writes it into the book (:mod:`book`) and carries it out
(:mod:`carrying_out`). When anything fails on the way, what is in memory is worth nothing any more, and the next look
begins as after a restart (:mod:`recovery`).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from kingdom.bus import Envelope
from kingdom.bus.inotify import MOVED_TO, Watch
from kingdom.court.king import results
from kingdom.court.king.admission import Held
from kingdom.court.king.book import Book
from kingdom.court.king.carrying_out import Hands, Orders
from kingdom.court.king.commands import Job, decide_answer, decide_cancel, decide_retry, discard
from kingdom.court.king.desk import Desk
from kingdom.court.king.dispatching import dispatch
from kingdom.court.king.plan import Plan
from kingdom.court.king.questions import look_at_deadlines
from kingdom.court.king.recovery import drop_finished, give_back_unknown, let_go_of_tasks, rebuild
from kingdom.court.king.routing import Routes
from kingdom.court.king.schedules import Schedules
from kingdom.court.king.waiting import WaitingRoom
from kingdom.court.packages.loading import Generals
from kingdom.court.queues import EVENTS
from kingdom.court.trust.judging import TrustFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kingdom.bus import Delivery
    from kingdom.bus.inotify import Change
    from kingdom.court.config.system import SystemConfig
    from kingdom.court.king.admission import Chosen
    from kingdom.court.king.gates import Gate
    from kingdom.court.king.waiting import Waiting
    from kingdom.court.loop import Services

LEASE: Final = 10 * 365 * 86400.0  # an event is the king's until its case ends; a restarted king recalls it
AT_ONCE: Final = 250  # events taken up in one look
PEEK: Final = 250  # events read at a time
FOUND_AT_ONCE: Final = 2000  # and at most in one look, before something is done about them
_ENDLESS: Final = 1_000_000_000  # attempts


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
        self._book = Book(services.home.role(self.name))
        self._sound = False  # what is in memory is what is on disk
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._desk = Desk(self._services, self._config, self._gates, self._trust.load())
        self._held: dict[str, Delivery] = {}
        self._schedules = Schedules(self._services.home, self._config.timezone)
        self._hands = Hands(self._services, self._schedules, self._held)
        self._room = WaitingRoom()
        self._routes = Routes(Generals(), self._services.home, self._desk.trust)
        self._events_came = True
        self._looked_around: float | None = None
        self._checked = ""  # the last task whose whereabouts were checked

    # ── the role ──────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Reconcile with what a former king left behind."""
        self._services.home.results.mkdir(parents=True, exist_ok=True)
        await self._desk.sequences.recover(self._services.bus)
        await self._recover()

    async def tick(self) -> float | None:
        """Look at everything and act."""
        if not self._sound:
            await self._recover()
        self._sound = False
        wait = await self._look()
        self._sound = True
        return wait

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Have ``wake`` called when an event or a result appears."""

        def events_came() -> None:
            self._events_came = True
            wake()

        def results_came(changes: list[Change]) -> None:
            if any(_is_result(change.name) or not change.name for change in changes):  # no name: some were lost
                wake()

        undo_events = self._services.bus.subscribe(EVENTS, events_came)
        watch = Watch(asyncio.get_running_loop())
        with contextlib.suppress(OSError):  # then the interval must do
            self._services.home.results.mkdir(parents=True, exist_ok=True)
            watch.add(self._services.home.results, MOVED_TO, results_came)

        def undo() -> None:
            undo_events()
            watch.close()

        return undo

    def report(self) -> Mapping[str, Any]:
        """What waits and why, and how much is under way."""
        desk = self._desk
        return {
            "waiting": len(self._room),
            "holds": desk.admission.holds.report(),
            "active": desk.cases.active_count,
            "asking": [case.task for case in desk.cases.asking()],
            "problems": [*desk.generals.problems, *([self._trust.problem] if self._trust.problem else [])],
        }

    async def stop(self) -> None:
        """Let go of the book. Events stay with the king, whoever is king next."""
        self._book.close()
        self._sound = False

    # ── a look ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _look(self) -> float | None:
        desk, now = self._desk, self._services.clock()
        around = self._looked_around is None or not 0 <= now - self._looked_around < self.interval
        desk.plan, desk.look_again = Plan(), False
        self._take_generals(now)
        more = await results.collect(desk)
        waits = [look_at_deadlines(desk, now)]
        if around:
            self._checked = await results.find_lost(desk, self._checked)
            await self._forget_vanished()
            self._looked_around = now
        if around or self._events_came:
            more = await self._find_events() or more
        desk.admission.begin(desk.generals, now)
        jobs = await self._decide_direct()
        waits.append(self._schedules.look(desk, now))
        chosen = desk.admission.choose(self._room.lines(), AT_ONCE)
        await self._claim({**jobs, **{one.waiting.id: (self._dispatching(one), one.task_id) for one in chosen}})
        more = more or desk.look_again or len(chosen) == AT_ONCE
        await self._commit()
        if self._hands.refused:
            await self._give_up_refused()
        if self._book.long:
            self._book.rewrite(desk.cases)
        return 0.0 if more else min((wait for wait in waits if wait is not None), default=None)

    def _take_generals(self, now: float) -> None:
        generals, trust, desk = self._load_generals(), self._trust.load(), self._desk
        others = generals is not desk.generals and generals != desk.generals
        if others or trust is not desk.trust:
            desk.trust = trust
            self._routes = Routes(generals, self._services.home, trust)
            self._room.reroute(self._routes)
        if others:
            self._schedules.use(desk, generals, now)
        desk.generals = generals

    async def _find_events(self) -> bool:
        """Read what is new in the queue; return whether there may be more."""
        self._events_came = False
        for _ in range(FOUND_AT_ONCE // PEEK):
            found = await self._services.bus.peek(EVENTS, limit=PEEK, skip=self._room)
            self._room.add(found, self._routes)
            if len(found) < PEEK:
                return False
        self._events_came = True
        return True

    async def _forget_vanished(self) -> None:
        depths = await self._services.bus.depth()
        if depths[EVENTS].pending < len(self._room):  # somebody took some away
            self._room.clear()
            self._events_came = True

    async def _decide_direct(self) -> dict[str, tuple[Job, str | None]]:
        jobs: dict[str, tuple[Job, str | None]] = {}
        for waiting in list(self._room.direct.values()):
            if len(jobs) == AT_ONCE:
                self._desk.look_again = True
                break
            try:
                jobs[waiting.id] = await self._decide(waiting)
            except Held as held:
                self._desk.admission.holds.add(str(held), [waiting.id])
        return jobs

    async def _decide(self, waiting: Waiting) -> tuple[Job, str | None]:
        desk = self._desk
        if waiting.invalid is not None:
            return self._setting_aside(waiting.invalid), None
        verdict = desk.trust.judge(waiting.people)
        if verdict.waits:
            raise Held(verdict.reason)
        if verdict.refused:
            return discard(desk, waiting, verdict.reason), None
        if waiting.command == "answer":
            return await decide_answer(desk, waiting)
        if waiting.command == "retry":
            return await decide_retry(desk, waiting)
        if waiting.command == "cancel":
            return await decide_cancel(desk, waiting, waiting.author or waiting.type.partition(".")[0]), None
        why = self._routes.why_not(waiting.type, waiting.repo, waiting.author, waiting.people)
        return discard(desk, waiting, why), None

    def _setting_aside(self, reason: str) -> Job:
        async def job(delivery: Delivery) -> None:
            self._desk.plan.invalid[delivery.event_id] = reason

        return job

    def _dispatching(self, chosen: Chosen) -> Job:
        async def job(delivery: Delivery) -> None:
            dispatch(self._desk, delivery, chosen)

        return job

    async def _claim(self, jobs: Mapping[str, tuple[Job, str | None]]) -> None:
        claimed = await self._services.bus.claim(
            EVENTS, worker=self.name, ids=jobs, limit=len(jobs) or 1, lease=LEASE, max_attempts=_ENDLESS
        )
        for delivery in claimed:
            self._held[delivery.event_id] = delivery
            await jobs[delivery.event_id][0](delivery)
            _lighten(delivery)
        for event_id, (_, task_id) in jobs.items():
            self._room.remove(event_id)
            if event_id not in self._held:
                self._desk.look_again = True  # it vanished, and leaves its place to another
                if task_id is not None:
                    self._desk.admission.forgo(task_id)

    # ── doing it ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _commit(self) -> None:
        desk, plan = self._desk, self._desk.plan
        if plan.invalid:
            dead = [(self._held.pop(event_id), "INVALID", reason) for event_id, reason in plan.invalid.items()]
            await self._services.bus.settle(dead=dead)
        if not plan:
            return
        ids = desk.sequences.messages(len(plan.drafts))
        now, channel = desk.clock(), self._config.channel
        messages = [draft.message(one, channel, now) for draft, one in zip(plan.drafts, ids, strict=True)]
        entry = plan.entry(messages)
        self._book.append(entry)
        await self._hands.carry_out(Orders(entry, plan.tasks, messages, plan.events))

    async def _give_up_refused(self) -> None:
        """End the cases whose task the queue does not take."""
        desk = self._desk
        desk.plan = Plan()
        for task_id, reason in self._hands.refused.items():
            case = desk.cases.of_task(task_id)
            if case is not None:
                desk.end_case(case, results.failure(desk, case, f"the task cannot be stored: {reason}"))
        self._hands.refused.clear()
        await self._commit()

    async def _recover(self) -> None:
        self._forget_everything()
        desk, bus = self._desk, self._services.bus
        for delivery in await bus.recall(EVENTS, worker=self.name, lease=LEASE):
            self._held[delivery.event_id] = delivery
            _lighten(delivery)
        opened = self._book.open()
        if not opened.found:
            opened = await rebuild(self._services, desk, self._held)
        for case in opened.cases.values():
            desk.cases.put(case)
        self._schedules.load()
        if opened.last is not None:
            await self._hands.carry_out(Orders.of(opened.last), again=True)
        drop_finished(desk, self._held)
        await give_back_unknown(desk, self._held)
        await let_go_of_tasks(desk, LEASE)
        self._book.rewrite(desk.cases)
        for case in desk.cases.active():
            desk.admission.reserve(case, desk.clock())
        self._sound = True


def _is_result(name: str) -> bool:
    """What else generals keep beside results is nothing to the king."""
    return name.endswith(".json") and not name.endswith("-raw.json")


def _lighten(delivery: Delivery) -> None:
    """Keep of a claimed event only what settling it needs: there may be very many, and their payloads large."""
    delivery.envelope = Envelope(type=delivery.envelope.type, event_id=delivery.event_id)
