"""A Work: a conversation with one agent, task after task, that ends in a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kingdom.workflow.domain.errors import IllegalTransition, NotFound
from kingdom.workflow.domain.sources import McpServerRef
from kingdom.workflow.domain.statuses import AGENT, WORK, AgentStatus, TaskStatus, WorkStatus, move
from kingdom.workflow.domain.task import Task


@dataclass(slots=True)
class Work:
    """One part of a workflow."""

    id: str
    workflow_id: str
    sequence: int
    name: str
    tasks: list[Task]
    engine: str = "claude"
    model: str | None = None
    engine_options: Mapping[str, object] = field(default_factory=dict)
    mcp_server_refs: tuple[McpServerRef, ...] = ()
    after: tuple[str, ...] = ()  # names of works it waits for, "start": nobody; none: all with a lower sequence
    merge: bool = False  # it merges what the works it waits for did
    pause_after: bool = False  # a person looks before the next one starts
    apart: bool = False  # others may run beside it: it has worktrees of its own; known once it starts
    status: WorkStatus = WorkStatus.PENDING
    agent_status: AgentStatus = AgentStatus.IDLE
    attempt: int = 1
    session_id: str | None = None  # the conversation its tasks share
    error: str | None = None
    version: int = 0

    @property
    def current_task(self) -> Task | None:
        """The task that is under way, or else the next one; None when all are done."""
        return next((task for task in self.tasks if task.status is not TaskStatus.COMPLETED), None)

    def task(self, task_id: str) -> Task:
        """One of its tasks."""
        found = next((task for task in self.tasks if task.id == task_id), None)
        if found is None:
            raise NotFound(f"work {self.id} has no task {task_id}")
        return found

    # ── its own state ─────────────────────────────────────────────────────────────────────────────────────────

    def start(self, *, apart: bool = False) -> None:
        """It begins, and so does its agent."""
        self._to(WorkStatus.RUNNING)
        self.apart = apart
        self._agent(AgentStatus.STARTING)
        self.error = None

    def complete(self) -> None:
        """All its tasks are done."""
        if unfinished := self.current_task:
            raise IllegalTransition(
                "work", self.id, f"{self.status} with task {unfinished.id} {unfinished.status}", WorkStatus.COMPLETED
            )
        self._to(WorkStatus.COMPLETED)

    def pause(self) -> None:
        """It stops where it is."""
        self._to(WorkStatus.PAUSED)

    def fail(self, error: str) -> None:
        """It cannot go on."""
        self._to(WorkStatus.FAILED)
        self.error = error

    def cancel(self) -> None:
        """It will not be finished; neither will its unfinished tasks."""
        if self.status in (WorkStatus.COMPLETED, WorkStatus.CANCELLED):
            return
        self._to(WorkStatus.CANCELLED)
        for task in self.tasks:
            task.cancel()

    def reset(self) -> None:
        """As if it had never begun. What its former agent still says is told by the attempt."""
        if self.status is WorkStatus.CANCELLED:
            raise IllegalTransition("work", self.id, self.status, WorkStatus.PENDING)
        self.status, self.agent_status = WorkStatus.PENDING, AgentStatus.IDLE
        self.attempt += 1
        self.session_id = self.error = None
        for task in self.tasks:
            task.reset()

    def begin_anew(self) -> None:
        """As a Work of another workflow, that does it once more whatever became of it here."""
        if self.status is WorkStatus.CANCELLED:
            self.status = WorkStatus.PENDING
        for task in self.tasks:
            task.revive()
        self.reset()

    def wait_again(self) -> None:
        """It will go on where it stopped: what is done stays, the task it stopped at is tried anew.

        The conversation stays as well. Late news of the former agent are told by the attempt.
        """
        self._to(WorkStatus.PENDING)
        self.agent_status, self.error = AgentStatus.IDLE, None
        self.attempt += 1
        for task in self.tasks:
            if task.status in (TaskStatus.RUNNING, TaskStatus.FAILED):  # one, which need not be the next any more
                task.reset()

    # ── its agent ─────────────────────────────────────────────────────────────────────────────────────────────

    def agent_started(self) -> None:
        """The agent runs."""
        self._agent(AgentStatus.RUNNING)

    def agent_stopped(self) -> None:
        """The agent ended."""
        if self.agent_status is not AgentStatus.STOPPED:
            self._agent(AgentStatus.STOPPED)

    def could_not_begin(self) -> None:
        """The agent has nowhere to work. The Work fails when that news of it is handled."""
        self._agent(AgentStatus.ERROR)

    def agent_failed(self, error: str) -> None:
        """The agent broke, and the Work with it."""
        if self.agent_status is not AgentStatus.ERROR:
            self._agent(AgentStatus.ERROR)
        if self.status is WorkStatus.RUNNING:
            self.fail(error)

    def _to(self, wanted: WorkStatus) -> None:
        self.status = move("work", self.id, WORK, self.status, wanted)

    def _agent(self, wanted: AgentStatus) -> None:
        self.agent_status = move("the agent of work", self.id, AGENT, self.agent_status, wanted)
