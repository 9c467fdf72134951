"""The demo's plot: three events come in, the king is killed, a person is asked, and everything is finished once."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import sys
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from kingdom.cli.demo.proof import Proof, prove
from kingdom.cli.demo.stage import REPO
from kingdom.cli.demo.view import Scene
from kingdom.cli.output import Failure
from kingdom.court.bootstrap import open_services
from kingdom.court.commands import answer
from kingdom.court.documents import all_documents
from kingdom.court.files import write_json
from kingdom.court.models import timestamp
from kingdom.court.overview import look
from kingdom.court.queues import EVENTS, MESSAGES, TASKS
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kingdom.cli.demo.stage import Stage
    from kingdom.cli.demo.view import View
    from kingdom.court.documents import Stored
    from kingdom.court.loop import Services

_TICK: Final = 0.15  # seconds between two looks
_PATIENCE: Final = 90.0  # seconds before the demo admits that it failed
_THINKING: Final = 1.0  # seconds a person takes to answer
_PR_SET_PDEATHSIG: Final = 1
_STOPPING: Final = 20.0  # seconds the court gets to stop
EVENTS_GIVEN: Final[tuple[dict[str, Any], ...]] = (
    {
        "id": "evt-github-4711-2026",
        "type": "github.pr.review_requested",
        "source": "github",
        "repo": REPO,
        "payload": {"number": 12, "title": "Discounts for whole carts", "author": "grace"},
    },
    {
        "id": "evt-jira-SHOP-7-20260207100000",
        "type": "jira.ticket.assigned",
        "source": "jira",
        "repo": REPO,
        "payload": {"key": "SHOP-7", "title": "A discount for the whole cart"},
        "priority": "high",
    },
    {
        "id": "evt-github-4712-2026",
        "type": "github.release.planned",
        "source": "github",
        "repo": REPO,
        "payload": {"version": "v2.4.0", "title": "Release v2.4.0"},
    },
)


async def perform(stage: Stage, view: View) -> Proof:
    """Perform the demo and return what it proved. Whatever happens, no process is left."""
    with view:
        async with open_services(stage.home) as services, _court(stage, view):
            play = Play(stage, view, services)
            await play.perform()
            killed = play.killed
        async with open_services(stage.home) as services:
            return await prove(stage, services, [event["id"] for event in EVENTS_GIVEN], killed)


class Play:
    """One performance."""

    def __init__(self, stage: Stage, view: View, services: Services) -> None:
        self._stage = stage
        self._view = view
        self._services = services
        self._journal = Reader(stage.home.journal, start="oldest", report=lambda _problem: None)
        self._scene = Scene(title=f"a court in {stage.home.root}")
        self._deadline = monotonic() + _PATIENCE
        self.killed: int | None = None

    async def perform(self) -> None:
        """All acts in order."""
        await self._until(lambda: self._is_running("king"))
        self._give_events()
        await self._until(lambda: any(task.state == "in_progress" for task in self._tasks))
        await self._kill_the_king()
        await self._until(lambda: bool(self._scene.overview and self._scene.overview.questions))
        await self._answer()
        await self._until(self._all_over)
        self._view.happened("everything is finished; the court stops")

    def _give_events(self) -> None:
        """An event is a file. Whoever can write one can give the court work."""
        for event in EVENTS_GIVEN:
            path = self._stage.home.queue / EVENTS / "pending" / f"{event['id']}.json"
            write_json(path, {**event, "created_at": timestamp(time()), "status": "pending"})
        self._view.happened("three files dropped into queue/events/pending/: a review, a ticket, a release")

    async def _kill_the_king(self) -> None:
        heartbeat = json.loads(self._stage.home.heartbeat("king").read_bytes())
        self.killed = int(heartbeat["pid"])
        os.kill(self.killed, signal.SIGKILL)
        self._view.happened(f"kill -9 {self.killed}: the king is gone, the soldiers work on")
        await self._until(lambda: self._is_running("king", other_than=self.killed))
        self._view.happened("another king has taken over where the first one was")

    async def _answer(self) -> None:
        assert self._scene.overview is not None
        question = self._scene.overview.questions[0]
        self._view.happened(f"{question.general} asks: {question.question} ({' or '.join(question.choices)})")
        await self._watch(_THINKING)
        await answer(self._services, question.task_id, question.choices[0], "you")
        self._view.happened(f"a person answers: {question.choices[0]}")

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _tasks(self) -> list[Stored]:
        return [item for item in self._scene.documents if item.stream == TASKS]

    def _is_running(self, name: str, other_than: int | None = None) -> bool:
        roles = self._scene.overview.roles if self._scene.overview else []
        return any(role.name == name and role.state == "running" and role.pid != other_than for role in roles)

    def _all_over(self) -> bool:
        given = {event["id"] for event in EVENTS_GIVEN}
        over = {item.id for item in self._scene.documents if item.stream == EVENTS and item.state == "completed"}
        waiting = [item for item in self._scene.documents if item.stream == MESSAGES and item.state == "pending"]
        return given <= over and not waiting

    async def _watch(self, seconds: float) -> None:
        end = monotonic() + seconds
        while monotonic() < end:
            await self._look()
            await asyncio.sleep(_TICK)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if monotonic() > self._deadline:
                raise Failure(
                    "DEMO_STUCK", f"the demo did not go on for {_PATIENCE:g} s: see {self._stage.folder}/court.log"
                )
            await self._look()
            await asyncio.sleep(_TICK)

    async def _look(self) -> None:
        self._scene.overview = await look(self._services)
        self._scene.documents = await all_documents(self._services)
        for entry in self._journal.read():
            self._view.journalled(entry)
        self._view.show(self._scene)


def _end_with_us() -> None:
    """Have the court stopped when the demo is killed, so that it leaves nothing running whatever happens to it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.asynccontextmanager
async def _court(stage: Stage, view: View) -> AsyncIterator[None]:
    """A court that is up, in processes of its own."""
    command = (sys.executable, "-m", "kingdom", "up", "--home", str(stage.home.root))
    view.happened(f"kingdom up --home {stage.home.root}")
    with (stage.folder / "court.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_end_with_us if sys.platform.startswith("linux") else None,
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOPPING)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
