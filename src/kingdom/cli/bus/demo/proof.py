"""What the demo claims, checked against what is on disk."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kingdom.cli import output

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kingdom.bus import EventBus
    from kingdom.cli.bus.demo.ledger import Ledger
    from kingdom.cli.bus.demo.story import Stage


@dataclass(frozen=True)
class Proof:
    """Counted from the bus and from the application's database after the workers are gone."""

    published: int
    held: int  # by the killed worker when it died
    handled: int  # published events that took effect
    redelivered: tuple[str, ...]  # ids handed to a handler more than once
    doubled: int  # events whose effect happened more than once
    unfinished: int  # events that are not DONE in the bus

    @property
    def lost(self) -> int:
        """Events that never took effect."""
        return self.published - self.handled

    @property
    def holds(self) -> bool:
        """Whether nothing was lost, nothing happened twice, and everything is finished."""
        return self.lost == 0 and self.doubled == 0 and self.unfinished == 0

    def document(self) -> dict[str, Any]:
        """The form for programs."""
        return {
            "published": self.published,
            "handled": self.handled,
            "lost": self.lost,
            "heldByKilledWorker": self.held,
            "deliveredTwice": len(self.redelivered),
            "tookEffectTwice": self.doubled,
            "unfinished": self.unfinished,
            "holds": self.holds,
        }

    def lines(self, stage: Stage) -> Iterator[str]:
        """The form for people: what was proved, where it lies, and what to try next."""
        yield ""
        yield f"{_mark(self.lost == 0)} {self.published} events published, {self.handled} handled, {self.lost} lost"
        yield (
            f"{_mark(self.doubled == 0)} the killed worker held {self.held}: {len(self.redelivered)} it had begun were "
            f"delivered a second time, {self.doubled} took effect twice (the Inbox sees to that)"
        )
        yield f"{_mark(self.unfinished == 0)} {self.published - self.unfinished} are DONE in the bus; ask it:"
        yield ""
        kingdom = output.own_name()
        url = shlex.quote(stage.url)
        yield f"  {kingdom} bus depth --url {url}"
        yield f"  {kingdom} bus show {(self.redelivered or stage.event_ids)[0]} --url {url}"
        yield f"  {kingdom} bus doctor --url {url}"
        yield f"  rm -r {shlex.quote(str(stage.folder))}    # when you have seen enough"


async def prove(bus: EventBus, ledger: Ledger, event_ids: Collection[str], held: int) -> Proof:
    """Count what became of every published event."""
    effects, deliveries = ledger.effects(), ledger.deliveries()
    records = [await bus.find(event_id) for event_id in event_ids]
    return Proof(
        published=len(event_ids),
        held=held,
        handled=sum(effects[event_id] > 0 for event_id in event_ids),
        redelivered=tuple(event_id for event_id in event_ids if deliveries[event_id] > 1),
        doubled=sum(count > 1 for count in effects.values()),
        unfinished=sum(record is None or record.status != "DONE" for record in records),
    )


def _mark(good: bool) -> str:
    return "✓" if good else "✗"
