"""The role itself. Every tick runs the same parts in the same order; an error in one does not stop the others."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from kingdom.agents.ledger import Ledger
from kingdom.base.files import write_json
from kingdom.base.text import one_line
from kingdom.court.chamberlain.alerts import (
    ACTOR,
    Alerts,
    ChamberlainDraft,
    ChamberlainTexts,
    JournalEmitter,
    Outbox,
    WarningLog,
)
from kingdom.court.chamberlain.checks import (
    AnomalyRules,
    HeartbeatMonitor,
    TokenMonitor,
    TokenReading,
    format_usd,
    warn_about_stale_threads,
)
from kingdom.court.chamberlain.cleanup import METRICS_LOG, CleanupSchedule, rotate_logs
from kingdom.court.chamberlain.config import ChamberlainConfigFile, LoadedChamberlainConfig
from kingdom.court.chamberlain.health import MachineResources, ResourceReader, at_least
from kingdom.court.chamberlain.memory import ChamberlainMemory, load_memory, memory_path
from kingdom.court.chamberlain.reports import (
    analysis_folder,
    due_reports,
    last_reported,
    report_document,
    report_text,
    stats_document,
    stats_path,
    write_report,
)
from kingdom.court.chamberlain.sessions import LocalSoldierProcesses, SoldierProcesses, SoldierSessions
from kingdom.court.chamberlain.source_alerts import check_messages, check_sources
from kingdom.court.chamberlain.tally import JournalCounter
from kingdom.court.days import ONE_DAY, day_of
from kingdom.court.machines.own_lead import read_lead
from kingdom.court.models import timestamp
from kingdom.court.packages.installed import GeneralsCache, held_tasks
from kingdom.court.queues import MESSAGES, IdSequences, repair_hint, unusable_documents
from kingdom.court.rollups.reading import RollupRecorder
from kingdom.court.rollups.store import HOUR
from kingdom.journal.catalog import SystemDocumentInvalid, SystemHealthChanged, SystemResourceWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kingdom.bus.delivery import Depth
    from kingdom.court.chamberlain.config import ChamberlainConfig
    from kingdom.court.config import SystemConfig
    from kingdom.court.loop import Services

_MAX_INVALID: Final = 1000  # documents that are reported
_MAX_REASON_CHARS: Final = 500
HELD_PREFIX: Final = "held:"
SILENT_PREFIX: Final = "silent:"
TOKENS_PREFIX: Final = "tokens:"
log = logging.getLogger("kingdom.court.chamberlain")


class Chamberlain:
    name = ACTOR

    def __init__(
        self,
        services: Services,
        system: SystemConfig,
        *,
        resources: ResourceReader | None = None,
        processes: SoldierProcesses | None = None,
    ) -> None:
        home = services.home
        self._services, self._system, self._home = services, system, home
        self._zone = ZoneInfo(system.timezone)
        self._folder = home.role(self.name)
        self._texts = ChamberlainTexts(system.locale)
        self._config_file = ChamberlainConfigFile(home)
        self._resources = resources or MachineResources(home.root)
        self._processes = processes or LocalSoldierProcesses(home)
        self._generals = GeneralsCache(home)
        self._warn = WarningLog()
        self._emit = JournalEmitter(services.journal, self._warn)
        self._memory: ChamberlainMemory
        self._caught_up = False
        self._rolled_up = False
        self._copy_tried = 0.0
        self._depths: Mapping[str, Depth] = {}
        self._readings: Mapping[str, float] = {}
        self._tokens: TokenReading | None = None
        self.interval = self._config_file.load().config.interval_seconds

    # ── the role's protocol ───────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Load the memory of the previous process; messages that it did not publish are sent with the first tick."""
        now, home, services = self._services.clock(), self._home, self._services
        for folder in (self._folder, home.logs, analysis_folder(home)):
            with self._warn.around(f"make {folder.name}"):
                folder.mkdir(parents=True, exist_ok=True)
        memory = self._memory = load_memory(memory_path(self._home), self._zone)
        if memory.reported is None:
            memory.reported = last_reported(home) or (day_of(now, self._zone) - ONE_DAY).isoformat()
        self._alerts = Alerts(memory.told, memory.told_texts)
        sequences = IdSequences(home, services.clock, self._zone)
        await sequences.recover(services.bus)
        self._outbox = Outbox(services, sequences, memory.outbox)
        self._lines = JournalCounter(home, memory)
        self._rollups = RollupRecorder(home, self._zone)
        self._heartbeats = HeartbeatMonitor(home, memory, now)
        self._sessions = SoldierSessions(self._folder / "sessions.json", self._processes, services.bus, memory.tally)
        self._token_monitor = TokenMonitor(Ledger(home.ledger), self._system.budget, self._zone, memory)
        self._anomalies = AnomalyRules(memory.tally, services.bus, self._texts, home.heartbeat("king"))
        self._housekeeping = CleanupSchedule(services, self._processes, memory, self._zone, self._warn)

    async def tick(self) -> float | None:
        now, warn = self._services.clock(), self._warn
        loaded = self._config_file.load()
        config = loaded.config
        self.interval = config.interval_seconds
        self._emit.flush()
        with warn.around("configuration"):
            self._report_config_problem(loaded)
        with warn.around("reading the journal"):
            self._caught_up = False
            self._caught_up = await asyncio.to_thread(self._lines.read)
        with warn.around("health"):
            self._check_health(config, now)
        with warn.around("heartbeats"):
            self._check_heartbeats(config, now)
        with warn.around("soldiers"):
            await self._sessions.check(config.soldiers, now, self._emit)
        with warn.around("tokens"):
            self._check_tokens(now)
        with warn.around("anomalies"):
            king_alive = self._heartbeats.alive("king")
            await self._anomalies.check(config.anomalies, now, king_alive=king_alive, alerts=self._alerts)
        with warn.around("sources"):
            check_sources(self._home, self._alerts, self._texts, now)
        with warn.around("messages"):
            waiting = self._depths.get(MESSAGES)
            check_messages(
                self._home, self._alerts, self._texts, now, waiting=waiting is not None and waiting.pending > 0
            )
        with warn.around("held tasks"):
            self._check_held()
        with warn.around("invalid documents"):
            await self._check_documents()
        with warn.around("thread mappings"):
            warn_about_stale_threads(self._home, self._memory.stale_threads, now)
        with warn.around("metrics"):
            await self._write_metrics(now)
        with warn.around("roll-ups"):
            self._rolled_up = False
            self._rolled_up = await asyncio.to_thread(self._rollups.record, now, self._depths)
        if self._rolled_up and now - self._copy_tried >= HOUR:
            with warn.around("copy of the roll-ups"):
                await self._copy_rollups(now)
        if self._caught_up:
            with warn.around("daily report"):
                self._report_days(config, now)
        with warn.around("rotation"):
            local = datetime.fromtimestamp(now, self._zone)
            rotate_logs(self._home, local, config.retention.log_max_bytes, self._emit, warn)
        more = False
        with warn.around("cleaning"):
            if loaded.sound:  # an invalid file may ask for longer retention than the defaults: remove nothing
                with_journal = self._caught_up and self._rolled_up
                more = await self._housekeeping.step(config.retention, now, self._emit, with_journal=with_journal)
        with warn.around("messages"):
            await self._send(config)
        with warn.around("memory"):
            self._memory.tally.prune(now)
            if not self._alerts.drafts:  # announced states are saved together with their messages, or not at all
                self._save(durable=False)
        behind = (not self._caught_up and self._lines.reading) or (not self._rolled_up and self._rollups.recording)
        return 0.0 if more or behind else None

    def subscribe(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to nothing: nothing is urgent enough for an earlier tick."""
        return lambda: None

    def report(self) -> Mapping[str, Any]:
        """Return the chamberlain's own fields of the heartbeat."""
        memory = self._memory
        return {
            "health": memory.health.level,
            "reason": memory.health.reason,
            "tokens": memory.token_status,
            "soldiers": self._sessions.running,
            "silent": sorted(memory.silent),
            "alerts": sorted(memory.told),
            "alert_texts": {key: memory.told_texts.get(key, key) for key in sorted(memory.told)},
        }

    async def stop(self) -> None:
        """Close the journal readers."""
        if hasattr(self, "_lines"):
            self._lines.close()
            self._rollups.close()

    # ── the parts of a tick ───────────────────────────────────────────────────────────────────────────────────────

    def _save(self, *, durable: bool) -> None:
        self._memory.save(memory_path(self._home), durable=durable)

    def _report_config_problem(self, loaded: LoadedChamberlainConfig) -> None:
        problem = loaded.problem
        self._warn("config", problem or "")
        self._alerts.update(
            "config",
            problem,
            lambda: self._texts.format("config", problem=problem),
            lambda: self._texts.format("config-over"),
        )

    def _check_health(self, config: ChamberlainConfig, now: float) -> None:
        health, before = self._memory.health, self._memory.health.level
        self._readings = self._resources.read()
        others = self._anomalies.levels(config.anomalies, now)
        for warned in health.update(self._readings, config.health, others):
            self._emit(SystemResourceWarning(metric=warned.metric, value=warned.value, threshold=warned.threshold))
        if health.level != before:
            self._emit(SystemHealthChanged(from_=before, to=health.level, reason=health.reason))
        fields = {"level": health.level, "reason": health.reason}
        self._alerts.update(
            "health",
            health.level if at_least(health.level, config.alerts.health_from) else None,
            lambda: self._texts.format("health", **fields),
            lambda: self._texts.format("health-over", **fields),
            urgency="urgent" if health.level == "red" else "high",
        )
        document = {"level": health.level, "reason": health.reason, "ts": timestamp(now), **self._readings}
        write_json(self._folder / "health.json", document, durable=False)

    def _check_heartbeats(self, config: ChamberlainConfig, now: float) -> None:
        text, alerts = self._texts.format, self._alerts
        silent = {item.role: item for item in self._heartbeats.check(config.heartbeats, now, self._emit)}
        for one in self._heartbeats.restarted:
            content, context = text("restarted", role=one.role, reason=one.reason), {"alert": f"restarted:{one.role}"}
            alerts.drafts.append(ChamberlainDraft(content, urgency="high", context={**context, "state": "restarted"}))
        alerts.forget(SILENT_PREFIX, self._heartbeats.roles)
        for role in sorted(silent.keys() | set(alerts.active(SILENT_PREFIX))):
            item = silent.get(role)
            alerts.update(
                SILENT_PREFIX + role,
                None if item is None else "silent",
                lambda who=item: text(  # type: ignore[misc]
                    "silent", role=who.role, seconds=who.limit, last_seen=who.last_seen or text("never")
                ),
                lambda name=role: text("silent-over", role=name),  # type: ignore[misc]
                urgency="urgent",
            )

    def _check_held(self) -> None:
        """Alert once that a general holds tasks back for a condition outside, and when that is over."""
        held: dict[str, tuple[int, str]] = {}
        for why, tasks in held_tasks(self._home).items():
            general, _, reason = why.partition(": ")
            count = held.get(general, (0, ""))[0] + len(tasks)
            held[general] = count, one_line(reason, _MAX_REASON_CHARS)
        self._alerts.forget(HELD_PREFIX, set(self._generals.current().by_name))
        for general in sorted(held.keys() | set(self._alerts.active(HELD_PREFIX))):
            count, reason = held.get(general, (0, ""))
            self._alerts.update(
                HELD_PREFIX + general,
                "held" if count else None,
                lambda name=general, number=count, why=reason: self._texts.format(  # type: ignore[misc]
                    "held", general=name, count=number, reason=why
                ),
                lambda name=general: self._texts.format("held-over", general=name),  # type: ignore[misc]
            )

    async def _check_documents(self) -> None:
        """Report documents that were set aside: each in the journal, all of them in one alert."""
        found = await unusable_documents(self._services, _MAX_INVALID)
        known = set(self._memory.invalid)
        for _, path, reason in reversed(found):
            if path not in known:
                self._emit(SystemDocumentInvalid(file=path, reason=one_line(reason, _MAX_REASON_CHARS)))
        self._memory.invalid = [path for _, path, _ in found]

        def text() -> str:
            stream, path, reason = found[0]
            hint, why = repair_hint(stream, path), one_line(reason, _MAX_REASON_CHARS)
            return self._texts.format("invalid", count=len(found), path=path, reason=why, hint=hint)

        self._alerts.update("invalid", "some" if found else None, text, lambda: self._texts.format("invalid-over"))

    def _check_tokens(self, now: float) -> None:
        budgets = {name: general.manifest.budget for name, general in self._generals.current().by_name.items()}
        reading = self._tokens = self._token_monitor.read(budgets, now, self._emit)
        self._alerts.forget(TOKENS_PREFIX, {"court", *reading.generals})
        for name, status in {"court": reading.court, **reading.generals}.items():
            self._alerts.update(
                TOKENS_PREFIX + name,
                None if status.status == "ok" else status.status,
                lambda it=status: self._texts.format("tokens", status=it.status, reason=it.reason),  # type: ignore[misc]
                lambda: self._texts.format("tokens-over"),
            )
        document = {
            "status": reading.court.status,
            "reason": reading.court.reason,
            "date": self._memory.token_day,
            "daily_cost_usd": format_usd(reading.daily_cost_usd),
            "daily_tokens": reading.daily_tokens,
            "monthly_cost_usd": format_usd(reading.monthly_cost_usd),
            "generals": {name: item.status for name, item in sorted(reading.generals.items())},
            "ts": timestamp(now),
        }
        write_json(self._folder / "tokens.json", document, durable=False)

    async def _write_metrics(self, now: float) -> None:
        self._depths = {}
        depths = self._depths = await self._services.bus.depth()
        line = {
            "ts": timestamp(now),
            **self._readings,
            "health": self._memory.health.level,
            "soldiers": self._sessions.running,
            "daily_cost_usd": None if self._tokens is None else format_usd(self._tokens.daily_cost_usd),
            "queues": {
                stream: {"pending": depth.pending, "processing": depth.processing, "dead": depth.dead}
                for stream, depth in sorted(depths.items())
            },
        }
        with (self._home.logs / METRICS_LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        write_json(stats_path(self._home), stats_document(self._memory.tally, now), durable=False)

    async def _copy_rollups(self, now: float) -> None:
        """Copy the roll-ups for another machine that may lead next."""
        lead = read_lead(self._home)
        if lead is not None and lead.shared:
            self._copy_tried = now  # also if it fails, with a full disk for example
            # First what was read: the position in the copy must not be ahead of the journal that goes with it.
            await self._services.lead.save(self._home.journal, self._home.ledger)
            await asyncio.to_thread(self._rollups.write_copy)

    def _report_days(self, config: ChamberlainConfig, now: float) -> None:
        memory = self._memory
        assert memory.reported is not None, "set at the start"
        for day in due_reports(memory.tally, memory.reported, now, config.report.at, self._zone):
            counts = memory.tally.day(day.isoformat())
            report = report_document(day, counts, self._token_monitor.totals_of(day))
            write_report(self._home, report, counts, self._texts)
            content = report_text(report, self._texts)
            self._alerts.drafts.append(ChamberlainDraft(content, type="report", context={"report": report}))
            memory.reported = day.isoformat()

    async def _send(self, config: ChamberlainConfig) -> None:
        """Give messages their ids and put them into the queue, each exactly once."""
        channel = self._system.channel if config.alerts.channel is None else config.alerts.channel
        drafts = self._alerts.drafts
        self._outbox.add(drafts, channel)
        drafts.clear()
        await self._outbox.send(lambda: self._save(durable=True))
