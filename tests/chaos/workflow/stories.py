"""What is done by the workflows of the campaign: plans whose end is the same however often their engine is killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from kingdom.workflow.context import WorkflowContext
from kingdom.workflow.domain.resources import Checkpoint, Git, GitRef
from kingdom.workflow.domain.statuses import WorkflowStatus
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, Workflow, WorkflowTemplate
from kingdom.workflow.store.transactions import WorkflowTransaction
from kingdom.workflow.usecases.lifecycle import resume_workflow, start_workflow
from tests.support.repositories import Remote

GIT: Final = "git-app"
FINDINGS: Final = "## Findings\n\nThe last line is dropped.\n"
_MOMENT: Final = 0.02  # seconds a script takes, so that some are hit while they play
_RETRIES: Final = 50  # an agent that is killed again and again is no reason to give up here
REVIEW: Final = "review after build"

# What an agent in a process of its own does; it outlives its engine. Each line of the log is one write: a kill leaves
# it whole or leaves it out.
_PROGRAM: Final = """\
import os, sys, time
log, name = sys.argv[1:]
handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(handle, (os.environ["KINGDOM_RUN_ID"] + "\\n").encode())
time.sleep(0.03)
with open(name + ".txt", "w") as file:
    file.write("by a program\\n")
print("It is written.")
"""


class Site:
    """The folder of one story: the home of its workflows, the repository they work on, and what agents noted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home" / "workflows"
        self.remote = root / "remote"
        self.log = root / "asked.log"  # the id of each run, written by the agent itself when it begins
        self.program = root / "program.py"
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(root / "user")}

    def make(self) -> None:
        """Make the folder."""
        (self.root / "user").mkdir(parents=True)
        self.program.write_text(_PROGRAM)
        Remote(self.remote).commit({"README": "hello\n", "src/main.txt": "one\ntwo\n"})

    def asked(self) -> list[str]:
        """The ids of all runs that agents began, in the order they did."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    # ── plans ─────────────────────────────────────────────────────────────────────────────────────────────────

    def scripted(self, name: str, *tasks: TaskDefinition, **more: Any) -> WorkDefinition:
        """A Work that is played inside the engine, and dies with it."""
        script = {
            f"{name}/{task.name}": [
                {"wait": _MOMENT},
                {"write": {"path": f"{name}.txt", "text": f"{name}\n"}},
                {"say": "It is played."},
            ]
            for task in tasks
        }
        script |= {f"{name}/{task.name}/report": [{"say": FINDINGS}] for task in tasks if task.outline}
        return WorkDefinition(name, tasks, "scripted", engine_options={"script": script}, **more)

    def program_work(self, name: str, *tasks: TaskDefinition, **more: Any) -> WorkDefinition:
        """A Work done by a program, which outlives the engine."""
        argv = [sys.executable, "-I", "-S", str(self.program), str(self.log), name]
        return WorkDefinition(name, tasks, "command", engine_options={"argv": argv}, **more)

    def works(self, story: str) -> tuple[WorkDefinition, ...]:
        """The plan of a story."""
        plan = self.scripted("plan", _task("look", outline=("Findings",)), _task("choose"))
        if story == "beside":
            return (
                self.scripted("plan", _task("look")),
                self.program_work("left", _task("write"), after=("plan",)),
                self.scripted("right", _task("write"), after=("plan",)),
                self.program_work("ship", _task("describe"), _task("check"), after=("left", "right"), merge=True),
            )
        build = self.program_work("build", _task("write"), _task("check"), pause_after=story == "back")
        return plan, build, self.scripted("ship", _task("describe"))

    async def save_template(self, parts: WorkflowContext, story: str) -> str:
        """The template of a story; returns its id. May be repeated."""
        template_id = f"tpl-{story}"
        async with parts.store.transaction() as tx:
            if await tx.templates.find(template_id) is None:
                if await tx.gits.find(GIT) is None:
                    await tx.gits.save(Git(GIT, "app", url=str(self.remote)))
                works = self.works(story)
                await tx.templates.save(WorkflowTemplate(template_id, story, works, git_refs=(GitRef(GIT, "main"),)))
        return template_id


STORIES: Final = ("plain", "back", "beside")
"""``plain``: one Work after the other, with a report. ``back``: paused for review after a Work, brought back to the
checkpoint before it, and on to the end. ``beside``: two Works at the same time, merged by a third."""


async def push(parts: WorkflowContext, workflow: Workflow) -> None:
    """Do what a person would do next; nothing when the workflow goes on by itself."""
    if workflow.status is WorkflowStatus.CREATED:
        await start_workflow(parts, workflow.id)
    elif workflow.status is WorkflowStatus.PAUSED and workflow.reason == REVIEW:
        async with parts.store.transaction() as tx:
            first = await to_go_back_to(tx, workflow.id)
        await resume_workflow(parts, workflow.id, checkpoint_id=None if first is None else first.id)


async def to_go_back_to(tx: WorkflowTransaction, workflow_id: str) -> Checkpoint | None:
    """The first checkpoint, until one went back to it."""
    points = sorted(await tx.checkpoints.of_workflow(workflow_id), key=lambda point: point.id)
    return points[0] if points and all(point.valid for point in points) else None


def _task(name: str, *, outline: tuple[str, ...] = ()) -> TaskDefinition:
    return TaskDefinition(name, f"Please {name}.", outline, retries=_RETRIES)
