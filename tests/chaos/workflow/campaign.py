"""The random campaign: ``kingdom workflow engine`` under load, killed again and again; at the end all is counted.

A *kill* is ``kill -9`` of the engine, in some rounds with all agents. Between two kills single agents die, too. Every
workflow must come to the end it would have had.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.engines.scripted import ScriptedEngine
from kingdom.workflow.commands import send_command
from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.statuses import WorkflowStatus, WorkStatus
from kingdom.workflow.home import WorkflowHome, open_home
from kingdom.workflow.usecases.workflows import create_workflow
from tests.chaos.processes import ROOT, Violation, die_with_parent
from tests.chaos.workflow.agents import agents_of, kill_runs
from tests.chaos.workflow.reckoning import alive, left_at_all, left_over, reckon, sent_as
from tests.chaos.workflow.stories import REVIEW, STORIES, Site, to_go_back_to
from tests.support.command import COMMAND, environment
from tests.support.court_processes import wait_for

_AT_ONCE: Final = 6  # workflows under way
_DRAIN: Final = 120.0  # seconds without any progress
_LOOK: Final = 0.1
_RUNS: Final = b"the engine runs on"
_AGAIN: Final = ("TaskStarted", "QuerySent")
_SAME: Final = ("workflow", "known", "tasks", "reports", "branches", "commits", "dirty")


@dataclass
class Tally:
    """What was done to the engine, and what it did."""

    kills: int = 0  # of the engine,
    with_agents: int = 0  # and of those, with all agents
    while_starting: int = 0  # and before it was at work, perhaps
    agents: int = 0  # killed alone
    workflows: int = 0
    asked: int = 0  # queries and reports
    again: int = 0  # and of those, asked once more than needed

    def __str__(self) -> str:
        return (
            f"{self.kills} kills of the engine ({self.with_agents} with its agents, {self.while_starting} at its "
            f"start), {self.agents} of an agent; "
            f"{self.workflows} workflows, {self.asked} queries asked, {self.again} of them again"
        )


@dataclass
class WorkflowCampaign:
    """Rounds of violence against one engine. ``tell`` gets a line every ten kills."""

    folder: Path
    seed: int
    tell: Callable[[str], None] = print
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.seed}/workflow")
        self._site = Site(self.folder / "site")
        self._home = WorkflowHome(self._site.home)
        self._engine: subprocess.Popen[bytes] | None = None
        self._log = self.folder / "engine.log"
        self._before = 0  # how long the log was when the present engine was started
        self._stories: dict[str, str] = {}  # by workflow id
        self._pushed: dict[str, float] = {}  # when something was last asked for
        self._hit: set[str] = set()  # runs whose processes were killed
        self._allowed = 0  # works that were running when the engine was killed: each may cost one more query

    def run(self, kills: int) -> Tally:
        """Kill the engine so many times; then let it finish, and count."""
        self._site.make()
        return asyncio.run(self._run(kills))

    async def _run(self, kills: int) -> Tally:
        engines: dict[str, Any] = {"scripted": ScriptedEngine(), "command": CommandEngine(environ=self._site.environ)}
        async with open_home(self._home, engines, environ=self._site.environ) as parts:
            try:
                expected = {story: await self._undisturbed(parts, story) for story in STORIES}
                for number in range(1, kills + 1):
                    await self._round(parts)
                    if number % 10 == 0:
                        self.tell(f"workflow    {self.tally}")
                await self._finish(parts)
                await self._reckon(parts, expected)
                await self._remove(parts)
            finally:
                self._kill()
                kill_runs(agents_of(self._home))
        return self.tally

    # ── rounds ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _undisturbed(self, parts: WorkflowContext, story: str) -> dict[str, Any]:
        """What a story comes to when nobody is killed."""
        workflow_id = await self._create(parts, story)
        self._start()
        await self._until_over(parts)
        found = await reckon(parts, workflow_id)
        self._object(found["wrong"])
        return found

    async def _round(self, parts: WorkflowContext) -> None:
        chance = self._chance
        self._start()
        if chance.random() < 0.2:
            end = time.monotonic() + chance.uniform(0.2, 1.0)
            self.tally.while_starting += 1
        else:
            await self._at_work()
            end = time.monotonic() + chance.uniform(0.0, 1.5)
        while time.monotonic() < end:
            under_way = await self._push(parts)
            if under_way < _AT_ONCE and chance.random() < 0.5:
                await self._create(parts, chance.choice(STORIES))
            await asyncio.sleep(chance.uniform(0.01, _LOOK))
            if chance.random() < 0.1 and (found := agents_of(self._home)):
                self._hit |= kill_runs([chance.choice(found)])
                self.tally.agents += 1
        async with parts.store.reading() as tx:
            self._allowed += len(await tx.works.with_status(WorkStatus.RUNNING))
        self._kill()
        self.tally.kills += 1
        if chance.random() < 0.25:
            self._hit |= kill_runs(agents_of(self._home))
            self.tally.with_agents += 1

    async def _create(self, parts: WorkflowContext, story: str) -> str:
        workflow_id = await create_workflow(parts, await self._site.save_template(parts, story))
        self._stories[workflow_id] = story
        self.tally.workflows += 1
        return workflow_id

    async def _push(self, parts: WorkflowContext) -> int:
        """Ask for what a person would ask for next; returns how many workflows are not at their end."""
        async with parts.store.reading() as tx:
            resting = await tx.workflows.with_status(WorkflowStatus.CREATED, WorkflowStatus.PAUSED)
            going = await tx.workflows.with_status(
                WorkflowStatus.PREPARING, WorkflowStatus.RUNNING, WorkflowStatus.RESUMING
            )
            firsts = {workflow.id: await to_go_back_to(tx, workflow.id) for workflow in resting}
        for workflow in resting:
            if time.monotonic() - self._pushed.get(workflow.id, 0.0) < 5.0:
                continue  # it was asked for, and will come
            self._pushed[workflow.id] = time.monotonic()
            if workflow.status is WorkflowStatus.CREATED:
                await send_command(parts.store.bus, "StartWorkflow", workflow.id)
            elif workflow.reason == REVIEW:
                first = firsts[workflow.id]
                point = None if first is None else first.id
                await send_command(parts.store.bus, "ResumeWorkflow", workflow.id, checkpoint_id=point)
            else:
                raise Violation(f"{workflow.id} is paused, and nobody wanted that: {workflow.reason}")
        return len(resting) + len(going)

    # ── the engine ────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        if self._engine is not None:
            return
        self._before = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as output:
            self._engine = subprocess.Popen(
                [*COMMAND, "workflow", "engine", "--home", str(self._home.root.parent)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(**self._site.environ),
                start_new_session=True,
                cwd=ROOT,
                preexec_fn=die_with_parent,
            )

    async def _at_work(self) -> None:
        """Wait until the engine says that it runs."""
        end = time.monotonic() + _DRAIN
        while _RUNS not in self._log.read_bytes()[self._before :]:
            if self._engine is None or self._engine.poll() is not None or time.monotonic() > end:
                raise Violation(f"the engine does not begin to work:\n{self._said()}")
            await asyncio.sleep(0.02)

    def _kill(self) -> None:
        engine, self._engine = self._engine, None
        if engine is None:
            return
        if (code := engine.poll()) is not None:
            raise Violation(f"the engine ended by itself with exit code {code}:\n{self._said()}")
        engine.kill()
        engine.wait()

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _finish(self, parts: WorkflowContext) -> None:
        """Let the engine do all there is to do, and stop it the polite way."""
        self._start()
        await self._until_over(parts)
        assert self._engine is not None
        self._engine.terminate()
        code = await asyncio.to_thread(self._engine.wait, 60)
        self._engine = None
        if code != 0:
            raise Violation(f"the engine stopped with exit code {code}:\n{self._said()}")

    async def _until_over(self, parts: WorkflowContext) -> None:
        last, since = -1, time.monotonic()
        while left := await self._push(parts):
            position = await self._position(parts)
            if position != last:
                last, since = position, time.monotonic()
            elif time.monotonic() - since > _DRAIN:
                raise Violation(f"{left} workflows are stuck: {await self._states(parts)}\n{self._said()}")
            if self._engine is not None and (code := self._engine.poll()) is not None:
                raise Violation(f"the engine ended by itself with exit code {code}:\n{self._said()}")
            await asyncio.sleep(_LOOK)

    async def _position(self, parts: WorkflowContext) -> int:
        async with parts.store.reading() as tx:
            ((last,),) = await tx.session.fetch("SELECT coalesce(max(position), 0) FROM wf_event")  # type: ignore[attr-defined]
        return int(last)

    async def _states(self, parts: WorkflowContext) -> dict[str, str]:
        async with parts.store.reading() as tx:
            found = await tx.workflows.list(limit=10_000)
        return {one.id: f"{one.status} {one.reason}" for one in found if one.status is not WorkflowStatus.COMPLETED}

    async def _reckon(self, parts: WorkflowContext, expected: dict[str, dict[str, Any]]) -> None:
        wrong = await left_over(parts, self._site)
        tasks: dict[str, str] = {}
        for workflow_id, story in self._stories.items():
            found = await reckon(parts, workflow_id)
            tasks |= {task: f"{workflow_id} {name}" for task, name in found["runs"].items()}
            wrong += [f"{workflow_id}: {one}" for one in found["wrong"]]
            wanted = expected[story]["state"]
            told = found["state"]["told"]  # what an agent that was killed alone did not do is asked for again
            told |= {kind: wanted["told"][kind] for kind in _AGAIN if told[kind] > wanted["told"][kind]}
            parts_of = _SAME if found["state"]["works"] != wanted["works"] else tuple(wanted)
            wrong += [
                f"{workflow_id} ({story}): {part}: {found['state'][part]}\n  instead of {wanted[part]}"
                for part in parts_of
                if found["state"][part] != wanted[part]
            ]
        wrong += self._asked(tasks)
        if not wait_for(lambda: not alive(self._site), 20):
            wrong += [f"still there: {one}" for one in alive(self._site)]
        self._object(wrong)

    def _asked(self, tasks: dict[str, str]) -> list[str]:
        """No query was asked again unless its agent died; and no more than that."""
        wrong = []
        runs = sorted(path.name for path in self._home.runs.iterdir())
        count = Counter(sent_as(run, tasks) for run in runs)
        programs = Counter(self._site.asked())
        if twice := [run for run, times in programs.items() if times > 1]:
            wrong.append(f"begun twice under one name: {twice}")
        hit = Counter(sent_as(run, tasks) for run in self._hit)
        begun = Counter(sent_as(run, tasks) for run in programs)
        for name, times in begun.items():
            if times > 1 + hit[name]:
                wrong.append(f"{name} was asked {times} times, and its agent was killed {hit[name]} times")
        self.tally.asked = len(runs)
        self.tally.again = sum(times - 1 for times in count.values())
        if self.tally.again > self._allowed + len(self._hit):
            wrong.append(f"{self.tally.again} queries were asked again, {self._allowed} works were hit")
        return wrong

    async def _remove(self, parts: WorkflowContext) -> None:
        """Have every workflow deleted: nothing of them may be left."""
        self._start()
        for workflow_id in self._stories:
            await send_command(parts.store.bus, "DeleteWorkflow", workflow_id)
        end = time.monotonic() + _DRAIN
        while await self._there(parts):
            if time.monotonic() > end:
                raise Violation(f"workflows cannot be deleted: {await self._states(parts)}\n{self._said()}")
            await asyncio.sleep(_LOOK)
        self._kill()
        self._object(left_at_all(self._site))

    async def _there(self, parts: WorkflowContext) -> bool:
        async with parts.store.reading() as tx:
            return bool(await tx.workflows.list(limit=1))

    def _object(self, wrong: list[str]) -> None:
        if wrong:
            raise Violation("\n".join(wrong))

    def _said(self) -> str:
        """The end of what the engine printed."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-25:])
