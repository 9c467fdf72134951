"""The demo of a court: three events come in, the king is killed, a person is asked, and everything is done once."""

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
from collections import Counter
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from kingdom.base.files import read_json, write_json
from kingdom.cli import output
from kingdom.cli.demo.shared import Proof, Scene, prepare_folder
from kingdom.cli.output import CommandError
from kingdom.court.bootstrap import open_services
from kingdom.court.commands import submit_answer
from kingdom.court.home import Home
from kingdom.court.init_home import create_home
from kingdom.court.models import timestamp
from kingdom.court.overview import read_overview
from kingdom.court.packages.installer import install_package
from kingdom.court.queues import EVENTS, MESSAGES, STREAMS, TASKS, all_documents
from kingdom.journal import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from rich.console import RenderableType

    from kingdom.cli.demo.shared import DemoView
    from kingdom.court.loop import Services
    from kingdom.court.overview import CourtOverview
    from kingdom.court.queues import StoredDocument
    from kingdom.journal import Entry

DEMO_REPO: Final = "acme/shop"
DEMO_GENERALS: Final = ("gen-pr", "gen-jira", "gen-release")
DEMO_EVENTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "id": "evt-github-4711-12-request-1",
        "type": "github.pr.review_requested",
        "source": "github",
        "repo": DEMO_REPO,
        "payload": {"number": 12, "title": "Discounts for whole carts", "author": "grace"},
    },
    {
        "id": "evt-jira-10007-change-10071",
        "type": "jira.ticket.assigned",
        "source": "jira",
        "repo": DEMO_REPO,
        "payload": {"key": "SHOP-7", "title": "A discount for the whole cart"},
        "priority": "high",
    },
    {
        "id": "evt-github-4711-13-planned",
        "type": "github.release.planned",
        "source": "github",
        "repo": DEMO_REPO,
        "payload": {"version": "v2.4.0", "title": "Release v2.4.0"},
    },
)
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

_TICK_SECONDS: Final = 0.15  # between two looks at the court
_TIMEOUT_SECONDS: Final = 90.0  # before the demo reports that it is stuck
_ANSWER_DELAY_SECONDS: Final = 1.0  # that a person takes to answer
_STOP_SECONDS: Final = 20.0  # that the court has to stop
_PR_SET_PDEATHSIG: Final = 1

_STATE_STYLES: Final = {"running": "green", "completed": "green", "in_progress": "yellow", "needs_human": "magenta"}
# Journal entries as sentences. Types that are not listed are not shown.
_JOURNAL_SENTENCES: Final = {
    "task.created": "king: {task_id} for {target_general}, because of {event_type}",
    "task.started": "{actor}: starts {task_id}",
    "soldier.spawned": "{actor}: sends {soldier_id} to {task_id}",
    "task.completed": "{actor}: {task_id} is done ({status})",
    "task.failed": "{actor}: {task_id} failed: {error}",
    "task.cancelled": "{actor}: {task_id} is cancelled: {reason}",
    "task.needs_human": "{actor}: {task_id} needs a person",
    "task.resumed": "king: {original_task_id} continues as {task_id}",
    "message.sent": "envoy: informs people about {task_id}",
}


@dataclass(frozen=True, slots=True)
class CourtDemoSite:
    """The folder of the demo, the home of its court, and the repository the court works on."""

    folder: Path
    home: Home
    remote: Path


def build_court_site(folder: Path | None) -> CourtDemoSite:
    """Create the court with its generals, and the repository."""
    place = prepare_folder(folder)
    site = CourtDemoSite(place, Home(place / "court"), place / "remotes" / DEMO_REPO)
    _make_repository(site.remote)
    asyncio.run(create_home(site.home.root, generals=()))
    (site.home.config / "system.yaml").write_text(_SYSTEM_YAML.format(remotes=place / "remotes"))
    with as_file(files("kingdom.cli.demo").joinpath("generals")) as packages:
        for name in DEMO_GENERALS:
            install_package(site.home, packages / name)
    return site


async def run_court_demo(site: CourtDemoSite, view: DemoView) -> Proof:
    """Run the demo and return its proof. No process is left, whatever happens."""
    with view:
        async with open_services(site.home) as services, _running_court(site, view):
            demo = CourtDemo(site, view, services)
            await demo.run()
        async with open_services(site.home) as services:
            return await _prove(site, services, killed=demo.killed is not None)


@dataclass
class CourtScene(Scene):
    """The roles, the queues and the tasks of the court."""

    title: str
    overview: CourtOverview | None = None
    documents: list[StoredDocument] = field(default_factory=list)

    def render(self) -> list[RenderableType]:
        from rich.columns import Columns
        from rich.text import Text

        if self.overview is None:
            return []
        roles = output.Table(
            ("role", "pid", "state"),
            [(role.name, role.pid or "–", _styled_state(role.state)) for role in self.overview.roles],
            right=("pid",),
        )
        queues = output.Table(
            ("queue", "waiting", "processing", "done"),
            [(queue, *self._queue_counts(queue)) for queue in STREAMS],
            right=("waiting", "processing", "done"),
        )
        tasks = output.Table(
            ("task", "general", "type", "status"),
            [
                (
                    item.id,
                    item.document["target_general"],
                    item.document["type"],
                    _styled_state(item.document["status"]),
                )
                for item in sorted(self.documents, key=lambda item: item.id)
                if item.stream == TASKS
            ],
        )
        return [Columns([roles, queues], padding=(0, 6)), Text(), tasks]

    def _queue_counts(self, queue: str) -> tuple[int, int, int]:
        """Return how many documents of a queue are waiting, held and done."""
        states = Counter(item.state for item in self.documents if item.stream == queue)
        return states["pending"], states["dispatched"] + states["in_progress"], states["completed"] + states["sent"]


class CourtDemo:
    """One run of the demo, with the court up."""

    def __init__(self, site: CourtDemoSite, view: DemoView, services: Services) -> None:
        self._site = site
        self._view = view
        self._services = services
        self._journal = Reader(site.home.journal, start="oldest", report=lambda _problem: None)
        self._scene = CourtScene(title=f"a court in {site.home.root}")
        self._deadline = monotonic() + _TIMEOUT_SECONDS
        self.killed: int | None = None

    async def run(self) -> None:
        await self._until(lambda: self._is_running("king"))
        self._drop_events()
        await self._until(lambda: any(task.state == "in_progress" for task in self._tasks))
        await self._kill_king()
        await self._until(lambda: bool(self._scene.overview and self._scene.overview.questions))
        await self._answer_question()
        await self._until(self._all_done)
        self._view.step("everything is finished; the court stops")

    def _drop_events(self) -> None:
        """Write the events as files: any program that can write a file can give the court work."""
        for event in DEMO_EVENTS:
            path = self._site.home.queue / EVENTS / "pending" / f"{event['id']}.json"
            write_json(path, {**event, "created_at": timestamp(time()), "status": "pending"})
        self._view.step("three files dropped into queue/events/pending/: a review, a ticket, a release")

    async def _kill_king(self) -> None:
        heartbeat = json.loads(self._site.home.heartbeat("king").read_bytes())
        self.killed = int(heartbeat["pid"])
        os.kill(self.killed, signal.SIGKILL)
        self._view.step(f"kill -9 {self.killed}: the king is gone, the soldiers keep working")
        await self._until(lambda: self._is_running("king", other_than=self.killed))
        self._view.step("a new king has taken over")

    async def _answer_question(self) -> None:
        assert self._scene.overview is not None
        question = self._scene.overview.questions[0]
        self._view.step(f"{question.general} asks: {question.question} ({' or '.join(question.choices)})")
        await self._watch(_ANSWER_DELAY_SECONDS)
        await submit_answer(self._services, question.task_id, question.choices[0], "you")
        self._view.step(f"a person answers: {question.choices[0]}")

    @property
    def _tasks(self) -> list[StoredDocument]:
        return [item for item in self._scene.documents if item.stream == TASKS]

    def _is_running(self, name: str, other_than: int | None = None) -> bool:
        roles = self._scene.overview.roles if self._scene.overview else []
        return any(role.name == name and role.state == "running" and role.pid != other_than for role in roles)

    def _all_done(self) -> bool:
        given = {event["id"] for event in DEMO_EVENTS}
        done = {item.id for item in self._scene.documents if item.stream == EVENTS and item.state == "completed"}
        waiting = [item for item in self._scene.documents if item.stream == MESSAGES and item.state == "pending"]
        return given <= done and not waiting

    async def _watch(self, seconds: float) -> None:
        end = monotonic() + seconds
        while monotonic() < end:
            await self._look()
            await asyncio.sleep(_TICK_SECONDS)

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            if monotonic() > self._deadline:
                raise CommandError(
                    "DEMO_STUCK", f"no progress for {_TIMEOUT_SECONDS:g} s: see {self._site.folder}/court.log"
                )
            await self._look()
            await asyncio.sleep(_TICK_SECONDS)

    async def _look(self) -> None:
        self._scene.overview = await read_overview(self._services)
        self._scene.documents = await all_documents(self._services)
        for entry in self._journal.read():
            if sentence := journal_sentence(entry):
                self._view.reaction(sentence)
        self._view.show(self._scene)


def journal_sentence(entry: Entry) -> str | None:
    """Return a journal entry as a sentence; None when it is not shown in the demo."""
    sentence = _JOURNAL_SENTENCES.get(entry.type)
    return None if sentence is None else sentence.format(actor=entry.actor, **entry.fields)


@contextlib.asynccontextmanager
async def _running_court(site: CourtDemoSite, view: DemoView) -> AsyncIterator[None]:
    """Run the court in processes of its own for the length of the block."""
    command = (sys.executable, "-m", "kingdom", "up", "--home", str(site.home.root))
    view.step(f"kingdom up --home {site.home.root}")
    with (site.folder / "court.log").open("wb") as log:
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
                async with asyncio.timeout(_STOP_SECONDS):
                    await process.wait()
            except TimeoutError:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def _die_with_parent() -> None:
    """Have the kernel stop the court when the demo is killed, so that nothing is left running."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


async def _prove(site: CourtDemoSite, services: Services, *, killed: bool) -> Proof:
    documents = await all_documents(services)
    given = [event["id"] for event in DEMO_EVENTS]
    tasks = [item for item in documents if item.stream == TASKS]
    results = [read_json(site.home.result(task.id)) or {} for task in tasks]
    completed = sum(item.stream == EVENTS and item.state == "completed" and item.id in given for item in documents)
    succeeded = sum(result.get("status") == "success" for result in results)
    asked = sum(result.get("status") == "needs_human" for result in results)
    messages = sum(item.stream == MESSAGES and item.state == "sent" for item in documents)
    cost = sum(result.get("cost_usd") or 0.0 for result in results)
    commits = _soldier_commits(site)
    command, home = output.program_name(), shlex.quote(str(site.home.root))
    counts = (
        f"{len(given)} events in, {completed} completed; {len(tasks)} tasks, {succeeded} succeeded, "
        f"{asked} asked a person; {messages} messages; ${cost:.2f} (simulated)"
    )
    # One task for each event, and one more for each answer.
    done_once = completed >= len(given) and len(tasks) == len(given) + asked and succeeded == len(given)
    return Proof(
        claims=(
            (done_once, counts),
            (
                killed,
                "the king was killed, and nothing was lost or done twice" if killed else "the king was not killed",
            ),
            (len(commits) >= 2, "commits of the soldiers in the clone of the repository:"),
        ),
        facts={
            "home": str(site.home.root),
            "events": len(given),
            "completed": completed,
            "tasks": len(tasks),
            "succeeded": succeeded,
            "asked": asked,
            "messages_sent": messages,
            "king_killed": killed,
            "commits": commits,
            "cost_usd": cost,
        },
        next_steps=(
            *(f"  {name}: {subject}" for name, subject in commits.items()),
            "",
            f"Everything is in {site.home.root}. Look at the files, or run:",
            f"  {command} trace evt-github-4711-13-planned --home {home}",
            f"  {command} task ls --home {home}",
            f"  {command} logs --home {home}",
            f"Create a court of your own: {command} init DIR",
        ),
    )


def _make_repository(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "cart.py").write_text(_CART_SOURCE)
    (path / "README.md").write_text("# A shop\n")
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), (*identity, "commit", "-q", "-m", "A cart")):
        _git(path, *arguments)


def _soldier_commits(site: CourtDemoSite) -> dict[str, str]:
    """Return the branches soldiers left in the clone of the repository, with the subjects of their last commits."""
    branches: dict[str, str] = {}
    for clone in sorted(site.home.clones.glob("**/HEAD")):
        listed = _git(clone.parent, "for-each-ref", "--format=%(refname:short) %(subject)", "refs/heads/kingdom/")
        branches |= dict(line.split(" ", 1) for line in listed.splitlines() if " " in line)
    return {name: subject for name, subject in branches.items() if subject != "A cart"}


def _git(path: Path, *arguments: str) -> str:
    """Run git without the user's settings."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    try:
        command = ["git", *arguments]
        done = subprocess.run(command, cwd=path, env=environment, capture_output=True, text=True, check=True)  # noqa: S603
    except FileNotFoundError:
        raise CommandError("NO_GIT", "git is not installed: install it, the demo works on a repository") from None
    return done.stdout


def _styled_state(state: str) -> object:
    return output.Styled(state, _STATE_STYLES.get(state, "dim"))
