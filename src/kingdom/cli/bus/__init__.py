"""``kingdom bus``: inspect and operate a bus. Every command takes ``--url`` and, for programs, ``--json``."""

from __future__ import annotations

from kingdom.cli.bus.carrying import mirror, move, relay
from kingdom.cli.bus.inspection import dead, depth, doctor, ls, metrics, show
from kingdom.cli.bus.maintenance import bench, migrate, purge, requeue
from kingdom.cli.demo import bus_demo
from kingdom.cli.parsing import group


@group("bus")
def app() -> None:
    """Inspect and operate an event bus.

    Shows what is waiting and what failed, and requeues or purges events.
    """


for _command in (depth, ls, dead, show, requeue, purge, migrate, doctor, relay, mirror, move, bench, metrics, bus_demo):
    app.add_command(_command)
