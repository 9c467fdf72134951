"""The full crash campaign: ``python -m tests.chaos [--kills 500] [--seed N] [--transport files] [--only campaign]``.

In ``machines``, a court on four machines, and engines of workflows on three that share a store, meet faults of
machines, links, disks and database.
In the part ``kafka``, workers, publishers and brokers are killed, connections cut, shards moved and disks of brokers
filled, with one shard and with four, and on a cluster of three brokers.
The part ``court`` is a campaign of its own against a whole court, in which everything is killed at once; ``workflow``
is one against the engine of workflows, killed at every step of some stories and then at random instants; in ``git``,
git is killed, or the disk fails, at every change of a file that it makes for us. Nobody is killed in ``lives``, which
compares random lives of a stream with a model, nor in ``day``, which replays a busy day of GitHub, Jira and Slack, and
says how long that took, nor in ``outage``, which takes git host, engine, model and disk away for simulated hours.
A seed repeats the plan of a campaign (who is hit, after how long, what is published); the instants themselves also
depend on the machine. Points, faults and disk follow no chance at all.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from kingdom.bus.testing import ManualClock
from tests.chaos import strace
from tests.chaos.court.campaign import CourtCampaign, queues_on
from tests.chaos.court.machines import CourtMachinesCampaign
from tests.chaos.day import BusyDay
from tests.chaos.disks import NotPermitted
from tests.chaos.engine import Campaign
from tests.chaos.faults import CALLS, walk_faults
from tests.chaos.fulldisk import fill_and_free, ground_on_small_disk
from tests.chaos.git.operations import OPERATIONS
from tests.chaos.git.walk import FAULTS
from tests.chaos.git.walk import Walk as GitWalk
from tests.chaos.git.walk import walk as walk_git
from tests.chaos.grounds import KAFKA as KAFKA_GROUNDS
from tests.chaos.grounds import TRANSPORTS, grounds
from tests.chaos.outage import run_outages
from tests.chaos.report import Report
from tests.chaos.sites import open_site
from tests.chaos.walk import lives_of, walk
from tests.chaos.workflow.campaign import WorkflowCampaign
from tests.chaos.workflow.machines import MachinesCampaign
from tests.chaos.workflow.stories import STORIES
from tests.chaos.workflow.walk import LIFE, Walker
from tests.chaos.zygote import Zygote
from tests.conformance.harnesses import PostgresHarness, StoreHarness
from tests.conformance.machine import live
from tests.support.namespaces import why_not_possible

PARTS = ("campaign", "points", "faults", "disk", "lives")  # for each transport
COURT = "court"
WORKFLOW = "workflow"
KAFKA = "kafka"
MACHINES = "machines"
GIT = "git"
DAY = "day"
OUTAGE = "outage"
SINGLE = (KAFKA, COURT, WORKFLOW, MACHINES, GIT, DAY, OUTAGE)
_OUTAGE_HOURS, _OUTAGE_ROUNDS = 6, 3
_LIVES_OF_A_STORE = 50  # each is a stream of its own, and a store with many streams answers slowly when all are counted


@dataclass
class Run:
    """One run of everything asked for; a part that fails does not keep the others from running."""

    kills: int
    seed: int
    number_of_lives: int
    report: Report = field(default_factory=Report)

    def campaign(self, transport: str) -> None:
        """Random kills under load."""
        command = f"--transport {transport} --only campaign --kills {self.kills}"
        with self._part(f"{transport} campaign", command) as folder, grounds(transport, folder) as ground:
            tally = Campaign(ground, folder, self.seed, self._say).run(self.kills)
            self.report.count(tally)
            self._note(f"{transport:<11} campaign     {tally}")

    def kafka(self, kills: int) -> None:
        """Random faults under load on Kafka."""
        command = f"--only {KAFKA} --kills {kills}"
        for name in KAFKA_GROUNDS:
            with self._part(f"{name} campaign", command) as folder, grounds(name, folder) as ground:
                tally = Campaign(ground, folder, self.seed, self._say).run(kills)
                self.report.count(tally)
                self._note(f"{name:<11} campaign     {tally}")

    def points(self, transport: str) -> None:
        """Every crash point of every life."""
        command = f"--transport {transport} --only points"
        with self._part(f"{transport} points", command) as folder, open_site(transport, folder) as site:
            for kind, events in lives_of(transport):
                walked = walk(site, kind, events=events)
                self.report.count(walked, points="crash points")
                self._note(str(walked))

    def faults(self, transport: str) -> None:
        """An error at every write and sync of every life."""
        if not strace.available():
            self._skip(f"{transport:<11} faults      ", "strace is not installed")
            return
        command = f"--transport {transport} --only faults"
        with self._part(f"{transport} faults", command) as folder, open_site(transport, folder) as site:
            for error in [error for name, error in CALLS if name == transport]:
                for kind, events in lives_of(transport):
                    walked = walk_faults(site, kind, error, events=events)
                    self.report.count(walked, points="faults", raised="errors raised")
                    self._note(str(walked))

    def disk(self, transport: str) -> None:
        """A disk that is really full."""
        with self._part(f"{transport} disk", f"--transport {transport} --only disk"):
            try:
                with ground_on_small_disk(transport) as (ground, disk):
                    events = fill_and_free(ground, disk)
            except NotPermitted as reason:
                self._skip(f"{transport:<11} full disk   ", str(reason))
                return
            self.report.counts["events on a full disk"] += events
            self._note(f"{transport:<11} full disk    {events} events kept, refused, freed and drained")

    def lives(self, transport: str) -> None:
        """Random lives of a stream beside those of the model."""
        command = f"--transport {transport} --only lives --lives {self.number_of_lives}"
        with self._part(f"{transport} lives", command) as folder:
            for first in range(0, self.number_of_lives, _LIVES_OF_A_STORE):
                place = folder / str(first)
                place.mkdir()
                with grounds(transport, place) as ground:
                    if transport == "postgresql":
                        harness: StoreHarness = PostgresHarness(ground.url)
                    else:
                        harness = StoreHarness(ground.url, clock=ManualClock())
                    live(harness, min(_LIVES_OF_A_STORE, self.number_of_lives - first), self.seed + first)
            self.report.counts["random lives"] += self.number_of_lives
            self._note(f"{transport:<11} lives        {self.number_of_lives} like those of the model")

    def court(self, transport: str, kills: int) -> None:
        """A whole court with its queues on a transport, killed under load."""
        command = f"--transport {transport} --only {COURT} --kills {kills}"
        with self._part(f"{COURT} on {transport}", command) as folder, queues_on(transport, folder) as queues:
            tally = CourtCampaign(folder, self.seed, self._say, queues).run(kills)
            self.report.count(tally, roles="roles killed", soldiers="soldiers killed", hit="runs cut off")
            self._note(f"{COURT:<11} {transport:<11} {tally}")

    def workflow(self, kills: int) -> None:
        """The engine of workflows, killed at every step of its stories, then at random instants under load."""
        with self._part(WORKFLOW, f"--only {WORKFLOW} --kills {kills}") as folder:
            with Zygote(folder, LIFE) as zygote:
                for story in STORIES:
                    walked = Walker(folder, zygote, story).walk()
                    self.report.count(walked, points="crash points", again="queries asked again")
                    self._note(str(walked))
            tally = WorkflowCampaign(folder, self.seed, self._say).run(kills)
            self.report.count(tally, agents="agents killed", asked="queries asked", again="queries asked again")
            self._note(f"{WORKFLOW:<11} {tally}")

    def machines(self, faults: int) -> None:
        """A court on four machines, and engines of workflows on three that share a store."""
        if (reason := why_not_possible()) is not None:
            self._skip(f"{MACHINES:<11}", reason)
            return
        command = f"--only {MACHINES} --kills {faults}"
        with self._part(f"{MACHINES} of a court", command) as folder:
            court = CourtMachinesCampaign(folder, self.seed, self._say).run(faults)
            self.report.counts["faults of machines"] += court.faults.total()
            self._note(f"{MACHINES:<11} court        {court}")
        with self._part(f"{MACHINES} of workflows", command) as folder:
            workflows = MachinesCampaign(folder, self.seed, self._say).run(faults)
            self.report.counts["faults of machines"] += workflows.faults.total()
            self._note(f"{MACHINES:<11} workflows    {workflows}")

    def git(self, operations: Sequence[str]) -> None:
        """git, killed at every change it makes for us, and with a disk that fails there; a walk for each core."""
        if not strace.available():
            self._skip(f"{GIT:<11}", "strace is not installed")
            return

        def walk_one(operation: str, fault: str) -> GitWalk | None:
            with self._part(f"{GIT} {operation} {fault}", f"--only {GIT} --operation {operation}") as folder:
                return walk_git(folder, operation, fault)
            return None  # it failed

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for walked in threads.map(walk_one, *zip(*product(operations, FAULTS), strict=True)):
                if walked is not None:
                    self.report.count(walked, met="crash points" if walked.fault == "killed" else "faults")
                    self._note(str(walked))

    def day(self) -> None:
        """A busy day of GitHub, Jira and Slack."""
        with self._part(DAY, f"--only {DAY}") as folder:
            tally = asyncio.run(BusyDay(folder / "home", self.seed).run())
            self.report.count(tally)
            self._note(f"{DAY:<11} {tally}")

    def outage(self) -> None:
        """A court without its git host, its engine, its model and its disk, for hours."""
        with self._part(OUTAGE, f"--only {OUTAGE}") as folder:
            tally = asyncio.run(run_outages(folder, self.seed, _OUTAGE_HOURS, _OUTAGE_ROUNDS))
            self.report.count(tally, hours="simulated hours", soldiers="soldiers run")
            self._note(f"{OUTAGE:<11} {tally}")

    @contextmanager
    def _part(self, name: str, command: str) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(prefix="kingdom-chaos-"))
        folder.chmod(0o755)  # PostgreSQL runs as a user of its own when we are root
        try:
            yield folder
        except Exception:  # noqa: BLE001 - whatever breaks a part is its result
            repeat = f"python -m tests.chaos {command} --seed {self.seed}"
            report = (
                f"FAILED {name} (seed {self.seed}); logs in {folder}\n{traceback.format_exc()}repeat with: {repeat}"
            )
            self._say(report)
            self.report.failures.append(f"{name}: repeat with: {repeat}")
        else:
            shutil.rmtree(folder)

    def _note(self, line: str) -> None:
        self._say(line)
        self.report.lines.append(line)

    def _skip(self, name: str, reason: str) -> None:
        self.report.skipped.append(f"{' '.join(name.split())}: {reason}")
        self._note(f"{name} skipped: {reason}")

    def _say(self, line: str) -> None:
        print(line, flush=True)


def main() -> int:
    """Run what was asked for; 0 when every promise held."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument(
        "--kills",
        type=int,
        help="how many processes to kill, over all transports (500), how often the whole court, over all of them "
        "(150), the engine of workflows at random (200), on Kafka (130), and how many faults of machines (200)",
    )
    parser.add_argument("--lives", type=int, default=500, help="how many random lives on each transport (500)")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000)))
    parser.add_argument("--transport", choices=TRANSPORTS, action="append", help="may be repeated; default: all")
    parser.add_argument(
        "--only",
        choices=(*PARTS, *SINGLE),
        action="append",
        help="may be repeated; default: all",
    )
    parser.add_argument(
        "--operation", choices=[*OPERATIONS], action="append", help=f"of the part {GIT}; may be repeated; default: all"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write what was counted, skipped and failed, as JSON"
    )
    options = parser.parse_args()
    transports, parts = (
        options.transport or TRANSPORTS,
        options.only or (*PARTS, *SINGLE),
    )
    # As in tests/conftest.py: soldiers write what they did into a folder that a sandbox would hide.
    os.environ.update(KINGDOM_SANDBOX="off", KINGDOM_WEB="off")
    tool = "strace" if strace.available() else "the stopper (strace is not installed)"
    print(f"seed {options.seed}; crash points are walked with {tool}", flush=True)
    started = time.monotonic()
    run = Run(kills=-(-(options.kills or 500) // len(transports)), seed=options.seed, number_of_lives=options.lives)
    for part in [part for part in PARTS if part in parts]:
        for transport in transports:
            getattr(run, part)(transport)
    if KAFKA in parts:
        run.kafka(options.kills or 130)
    for transport in transports if COURT in parts else ():
        run.court(transport, -(-(options.kills or 150) // len(transports)))
    if WORKFLOW in parts:
        run.workflow(options.kills or 200)
    if MACHINES in parts:
        run.machines(options.kills or 200)
    if GIT in parts:
        run.git(options.operation or [*OPERATIONS])
    if DAY in parts:
        run.day()
    if OUTAGE in parts:
        run.outage()
    print(f"\nsummary (seed {options.seed}, {time.monotonic() - started:.0f} s)")
    print("\n".join(run.report.lines + [f"FAILED {line}" for line in run.report.failures]))
    if options.report:
        run.report.write(options.report)
    return 1 if run.report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
