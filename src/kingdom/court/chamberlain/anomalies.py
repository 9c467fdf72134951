"""What in the journal is not normal: a general that only fails, soldiers that take too long, events nobody takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kingdom.bus import EventBus
    from kingdom.court.chamberlain.alerts import Alerts
    from kingdom.court.chamberlain.config import AnomalySection, Level
    from kingdom.court.chamberlain.tally import Tally
    from kingdom.court.chamberlain.texts import Texts

_HOUR: Final = 3600.0
_ASKED: Final = 50  # old events that are looked up in one look
FAILURES: Final = "failures:"


class Anomalies:
    """The rules, over the counts."""

    def __init__(self, tally: Tally, bus: EventBus, texts: Texts) -> None:
        self._tally = tally
        self._bus = bus
        self._texts = texts

    def levels(self, section: AnomalySection, now: float) -> dict[str, Level]:
        """What the health of the court suffers from beside its resources, and the level it asks for."""
        timeouts = self._tally.timeouts_since(now - _HOUR)
        return {f"soldier.timeout: {timeouts} in an hour": "yellow"} if timeouts >= section.timeouts_per_hour else {}

    async def tell(self, section: AnomalySection, now: float, *, king_alive: bool, alerts: Alerts) -> None:
        """Tell people what begins and what is over."""
        say, tally = self._texts.say, self._tally
        failing = {name: count for name, count in tally.streaks.items() if count >= section.failures_in_a_row}
        told = set(alerts.standing(FAILURES))
        for general in sorted(failing.keys() | told):
            alerts.tell(
                FAILURES + general,
                "failing" if general in failing else None,
                lambda name=general: say("failures", general=name, count=failing[name]),  # type: ignore[misc]
                lambda name=general: say("failures-over", general=name),  # type: ignore[misc]
            )
        timeouts = tally.timeouts_since(now - _HOUR)
        alerts.tell(
            "timeouts",
            "many" if timeouts >= section.timeouts_per_hour else None,
            lambda: say("timeouts", count=timeouts),
            lambda: say("timeouts-over"),
        )
        stale = await self._stale(section.event_stale_minutes * 60, now)
        alerts.tell(
            "stale",
            "waiting" if stale else None,
            lambda: say(
                "stale",
                count=len(stale),
                minutes=section.event_stale_minutes,
                oldest=stale[0],
                king=say("king-alive" if king_alive else "king-silent"),
            ),
            lambda: say("stale-over"),
        )

    async def _stale(self, limit: float, now: float) -> list[str]:
        """Events that have waited too long, the oldest first. The queue has the last word on whether they wait."""
        waiting = self._tally.waiting
        old = sorted((at, event_id) for event_id, at in waiting.items() if now - at > limit)
        stale = []
        for number, (_, event_id) in enumerate(old):
            record = await self._bus.find(event_id) if number < _ASKED else None
            if number < _ASKED and (record is None or record.status != "PENDING"):
                del waiting[event_id]
            else:
                stale.append(event_id)
        return stale
