"""What the demo proves, read from the files it left."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kingdom.cli import output
from kingdom.cli.demo.stage import branches
from kingdom.court.documents import all_documents
from kingdom.court.files import read_json
from kingdom.court.queues import EVENTS, MESSAGES, TASKS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.cli.demo.stage import Stage
    from kingdom.court.loop import Services


@dataclass(frozen=True, slots=True)
class Proof:
    """How it ended."""

    home: str
    events: int
    completed: int
    tasks: int
    succeeded: int
    asked: int
    messages_sent: int
    king_killed: bool
    commits: dict[str, str]  # per branch
    cost_usd: float

    @property
    def holds(self) -> bool:
        """Whether every event was completed, by one task each (and one more for the answer)."""
        return (
            self.completed >= self.events
            and self.tasks == self.events + self.asked
            and self.succeeded == self.events
            and self.king_killed
            and len(self.commits) >= 2
        )

    def document(self) -> dict[str, Any]:
        """The JSON form."""
        return {**asdict(self), "holds": self.holds}

    def lines(self) -> list[str]:
        """The same for people, and what to try next."""
        command = output.own_name()
        mark = "✓" if self.holds else "✗"
        commits = [f"  {name}: {subject}" for name, subject in self.commits.items()]
        counts = (
            f"{self.events} events in, {self.completed} completed; {self.tasks} tasks, {self.succeeded} succeeded, "
            f"{self.asked} asked a person; {self.messages_sent} messages; ${self.cost_usd:.2f} (played, not paid)"
        )
        killed = "killed on the way, and nothing was lost or done twice" if self.king_killed else "not killed"
        return [
            "",
            f"{mark} {counts}",
            f"{mark} the king was {killed}",
            f"{mark} what the soldiers left, in the clone of the repository:",
            *commits,
            "",
            f"Everything lies in {self.home}: look at it with ls and cat, or ask it:",
            f"  {command} trace evt-github-4712-2026 --home {shlex.quote(self.home)}",
            f"  {command} task ls --home {shlex.quote(self.home)}",
            f"  {command} logs --home {shlex.quote(self.home)}",
            f"A court of your own: {command} init DIR",
        ]


async def prove(stage: Stage, services: Services, given: Sequence[str], killed: int | None) -> Proof:
    """Read what came of it."""
    documents = await all_documents(services)
    tasks = [item for item in documents if item.stream == TASKS]
    results = [read_json(stage.home.result(task.id)) or {} for task in tasks]
    return Proof(
        home=str(stage.home.root),
        events=len(given),
        completed=sum(item.stream == EVENTS and item.state == "completed" and item.id in given for item in documents),
        tasks=len(tasks),
        succeeded=sum(result.get("status") == "success" for result in results),
        asked=sum(result.get("status") == "needs_human" for result in results),
        messages_sent=sum(item.stream == MESSAGES and item.state == "sent" for item in documents),
        king_killed=killed is not None,
        commits=branches(stage),
        cost_usd=sum(result.get("cost_usd") or 0.0 for result in results),
    )
