"""The tables: one for each kind of aggregate, all of one shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kingdom.workflow.domain.resources import Checkpoint, WorkSpace, WorkTree
from kingdom.workflow.domain.sources import Git, McpServer
from kingdom.workflow.domain.task import Report
from kingdom.workflow.domain.template import WorkflowTemplate
from kingdom.workflow.domain.work import Work
from kingdom.workflow.domain.workflow import Workflow

A = TypeVar("A")
_LONGEST_LABEL: Final = 600  # characters; an index of PostgreSQL takes 2,700 bytes


@dataclass(frozen=True, slots=True)
class Table(Generic[A]):
    """A kind of aggregate: its table, and what of it stands in columns of their own."""

    name: str
    kind: type[A]
    noun: str  # as people call it
    workflow: Callable[[A], str | None] = lambda _: None
    rank: Callable[[A], int] = lambda _: 0
    status: Callable[[A], str | None] = lambda _: None
    label: Callable[[A], str] | None = None  # what it is searched by; it never changes


def _of(item: Any) -> str:
    return str(item.workflow_id)


def _status(item: Any) -> str:
    return str(item.status)


def _label(workflow: Workflow) -> str:
    return f"{workflow.name}\n{workflow.issue_key or ''}".lower()[:_LONGEST_LABEL]


GITS: Final = Table("wf_git", Git, "git")
MCP_SERVERS: Final = Table("wf_mcp_server", McpServer, "MCP server")
TEMPLATES: Final = Table("wf_template", WorkflowTemplate, "template")
WORKFLOWS: Final = Table("wf_workflow", Workflow, "workflow", status=_status, label=_label)
WORKS: Final = Table("wf_work", Work, "work", _of, lambda work: work.sequence, _status)
REPORTS: Final = Table("wf_report", Report, "report", _of, status=_status)
CHECKPOINTS: Final = Table(
    "wf_checkpoint", Checkpoint, "checkpoint", _of, lambda point: point.work_sequence,
    lambda point: "COMPLETE" if point.complete else "OPEN",
)  # fmt: skip
WORK_TREES: Final = Table("wf_work_tree", WorkTree, "worktree", _of, status=_status)
WORK_SPACES: Final = Table("wf_work_space", WorkSpace, "workspace", _of)
TABLES: Final[tuple[Table[Any], ...]] = (
    GITS, MCP_SERVERS, TEMPLATES, WORKFLOWS, WORKS, REPORTS, CHECKPOINTS, WORK_TREES, WORK_SPACES,
)  # fmt: skip
