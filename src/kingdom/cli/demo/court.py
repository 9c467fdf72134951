"""The demo of a court: three events come in, the king is killed, a person is asked, and everything is finished once."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_json, write_json
from kingdom.cli import output
from kingdom.cli.demo.view import CourtScene
from kingdom.cli.output import CommandError
from kingdom.court.bootstrap import open_services
from kingdom.court.commands import submit_answer
from kingdom.court.home import Home
from kingdom.court.init_home import create_home
from kingdom.court.models import timestamp
from kingdom.court.overview import read_overview
from kingdom.court.packages.installer import install_package
from kingdom.court.queues import EVENTS, MESSAGES, TASKS, all_documents
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from kingdom.cli.demo.view import CourtDemoView
    from kingdom.court.loop import Services
    from kingdom.court.queues import StoredDocument


# Where the demo takes place: a home, three generals that play a script, and a repository they work on.


DEMO_REPO: Final = "acme/shop"
DEMO_GENERALS: Final = ("gen-pr", "gen-jira", "gen-release")
_SYSTEM_YAML: Final = """\
name: demo
timezone: UTC
concurrency:
  max_soldiers: 4
repos:
  base_url: {remotes}
web:
  enabled: false
"""
_CART_SOURCE: Final = "def total(prices):\n    return round(sum(round(price, 2) for price in prices), 2)\n"


@dataclass(frozen=True, slots=True)
class CourtDemoSite:
    """The court of the demo."""

    folder: Path
    home: Home
    remote: Path


def build_court_site(folder: Path | None) -> CourtDemoSite:
    """Make everything the play needs."""
    place = Path(tempfile.mkdtemp(prefix="kingdom-demo-")) if folder is None else folder.resolve()
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise CommandError(
            "NOT_EMPTY", f"{place} is not empty: give --dir an empty directory, or one that is to be made"
        )
    stage = CourtDemoSite(place, Home(place / "court"), place / "remotes" / DEMO_REPO)
    _make_repository(stage.remote)
    asyncio.run(create_home(stage.home.root, generals=()))
    (stage.home.config / "system.yaml").write_text(_SYSTEM_YAML.format(remotes=place / "remotes"))
    with as_file(files("kingdom.cli.demo").joinpath("generals")) as packages:
        for name in DEMO_GENERALS:
            install_package(stage.home, packages / name)
    return stage


def _make_repository(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "cart.py").write_text(_CART_SOURCE)
    (path / "README.md").write_text("# A shop\n")
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), (*identity, "commit", "-q", "-m", "A cart")):
        _git(path, *arguments)


def soldier_branches(stage: CourtDemoSite) -> dict[str, str]:
    """The branches soldiers left in the clone of the repository, and what their last commit says."""
    found_branches: dict[str, str] = {}
    for clone in sorted(stage.home.clones.glob("**/HEAD")):
        listed = _git(clone.parent, "for-each-ref", "--format=%(refname:short) %(subject)", "refs/heads/kingdom/")
        found_branches |= dict(line.split(" ", 1) for line in listed.splitlines() if " " in line)
    return {name: subject for name, subject in found_branches.items() if subject != "A cart"}


def _git(path: Path, *arguments: str) -> str:
    """Our own repository: plain git, but not with the settings of whoever runs the demo."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    try:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    except FileNotFoundError:
        raise CommandError(
            "NO_GIT", "git is not installed, and the demo shows agents at work on a repository"
        ) from None
    return done.stdout


# What the demo proves, read from the files it left.


@dataclass(frozen=True, slots=True)
class CourtProof:
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
        command = output.program_name()
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


async def prove_court(stage: CourtDemoSite, services: Services, given: Sequence[str], killed: int | None) -> CourtProof:
    """Read what came of it."""
    documents = await all_documents(services)
    tasks = [item for item in documents if item.stream == TASKS]
    results = [read_json(stage.home.result(task.id)) or {} for task in tasks]
    return CourtProof(
        home=str(stage.home.root),
        events=len(given),
        completed=sum(item.stream == EVENTS and item.state == "completed" and item.id in given for item in documents),
        tasks=len(tasks),
        succeeded=sum(result.get("status") == "success" for result in results),
        asked=sum(result.get("status") == "needs_human" for result in results),
        messages_sent=sum(item.stream == MESSAGES and item.state == "sent" for item in documents),
        king_killed=killed is not None,
        commits=soldier_branches(stage),
        cost_usd=sum(result.get("cost_usd") or 0.0 for result in results),
    )


# The demo's plot: three events come in, the king is killed, a person is asked, and everything is finished once.


_TICK_SECONDS: Final = 0.15  # seconds between two looks
_TIMEOUT_SECONDS: Final = 90.0  # seconds before the demo admits that it failed
_ANSWER_DELAY_SECONDS: Final = 1.0  # seconds a person takes to answer
_PR_SET_PDEATHSIG: Final = 1
_STOP_SECONDS: Final = 20.0  # seconds the court gets to stop
DEMO_EVENTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "id": "evt-github-4711-2026",
        "type": "github.pr.review_requested",
        "source": "github",
        "repo": DEMO_REPO,
        "payload": {"number": 12, "title": "Discounts for whole carts", "author": "grace"},
    },
    {
        "id": "evt-jira-SHOP-7-20260207100000",
        "type": "jira.ticket.assigned",
        "source": "jira",
        "repo": DEMO_REPO,
        "payload": {"key": "SHOP-7", "title": "A discount for the whole cart"},
        "priority": "high",
    },
    {
        "id": "evt-github-4712-2026",
        "type": "github.release.planned",
        "source": "github",
        "repo": DEMO_REPO,
        "payload": {"version": "v2.4.0", "title": "Release v2.4.0"},
    },
)


async def run_court_demo(stage: CourtDemoSite, view: CourtDemoView) -> CourtProof:
    """Perform the demo and return what it proved. Whatever happens, no process is left."""
    with view:
        async with open_services(stage.home) as services, _running_court(stage, view):
            play = CourtDemo(stage, view, services)
            await play.perform()
            killed = play.killed
        async with open_services(stage.home) as services:
            return await prove_court(stage, services, [event["id"] for event in DEMO_EVENTS], killed)


class CourtDemo:
    """One performance."""

    def __init__(self, stage: CourtDemoSite, view: CourtDemoView, services: Services) -> None:
        self._stage = stage
        self._view = view
        self._services = services
        self._journal = Reader(stage.home.journal, start="oldest", report=lambda _problem: None)
        self._scene = CourtScene(title=f"a court in {stage.home.root}")
        self._deadline = monotonic() + _TIMEOUT_SECONDS
        self.killed: int | None = None

    async def run_court_demo(self) -> None:
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
        for event in DEMO_EVENTS:
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
        await self._watch(_ANSWER_DELAY_SECONDS)
        await submit_answer(self._services, question.task_id, question.choices[0], "you")
        self._view.happened(f"a person answers: {question.choices[0]}")

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def _tasks(self) -> list[StoredDocument]:
        return [item for item in self._scene.documents if item.stream == TASKS]

    def _is_running(self, name: str, other_than: int | None = None) -> bool:
        roles = self._scene.overview.roles if self._scene.overview else []
        return any(role.name == name and role.state == "running" and role.pid != other_than for role in roles)

    def _all_over(self) -> bool:
        given = {event["id"] for event in DEMO_EVENTS}
        over = {item.id for item in self._scene.documents if item.stream == EVENTS and item.state == "completed"}
        waiting = [item for item in self._scene.documents if item.stream == MESSAGES and item.state == "pending"]
        return given <= over and not waiting

    async def _watch(self, seconds: float) -> None:
        end = monotonic() + seconds
        while monotonic() < end:
            await self._look()
            await asyncio.sleep(_TICK_SECONDS)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if monotonic() > self._deadline:
                raise CommandError(
                    "DEMO_STUCK",
                    f"the demo did not go on for {_TIMEOUT_SECONDS:g} s: see {self._stage.folder}/court.log",
                )
            await self._look()
            await asyncio.sleep(_TICK_SECONDS)

    async def _look(self) -> None:
        self._scene.overview = await read_overview(self._services)
        self._scene.documents = await all_documents(self._services)
        for entry in self._journal.read():
            self._view.journalled(entry)
        self._view.show(self._scene)


def _die_with_parent() -> None:
    """Have the court stopped when the demo is killed, so that it leaves nothing running whatever happens to it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


@contextlib.asynccontextmanager
async def _running_court(stage: CourtDemoSite, view: CourtDemoView) -> AsyncIterator[None]:
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
            preexec_fn=_die_with_parent if sys.platform.startswith("linux") else None,
        )
        try:
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_SECONDS)
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
