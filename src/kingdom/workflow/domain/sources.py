"""What workflows draw on: repositories and MCP servers, and who uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kingdom.workflow.domain.errors import StillInUse


@dataclass(frozen=True, slots=True)
class GitRef:
    """A repository of a template or workflow, and the branch its worktree starts from."""

    git_id: str
    base: str | None = None  # None: the default branch


@dataclass(frozen=True, slots=True)
class McpServerRef:
    """An MCP server of a template, workflow or Work; ``env`` overrides the server's own."""

    mcp_server_id: str
    env: Mapping[str, str] = field(default_factory=dict)  # values may be references: ${NAME}


@dataclass(slots=True)
class Used:
    """Something workflows use. Registering and releasing a use may be repeated."""

    id: str
    name: str
    used_by: set[str] = field(default_factory=set)  # workflow ids
    version: int = 0

    def add_workflow(self, workflow_id: str) -> bool:
        """Register a use; False when it was registered already."""
        if workflow_id in self.used_by:
            return False
        self.used_by.add(workflow_id)
        return True

    def remove_workflow(self, workflow_id: str) -> bool:
        """Release a use; False when there was none."""
        if workflow_id not in self.used_by:
            return False
        self.used_by.remove(workflow_id)
        return True

    def check_unused(self) -> None:
        """Raise :class:`StillInUse` when a workflow uses it."""
        if self.used_by:
            raise StillInUse(
                f"{self.name} ({self.id}) is used by {len(self.used_by)} workflows, such as {min(self.used_by)}: "
                "cancel or delete them first"
            )


@dataclass(slots=True)
class Git(Used):
    """A repository."""

    url: str = ""


@dataclass(slots=True)
class McpServer(Used):
    """An MCP server an agent can be given: a command to run, or a URL to speak to."""

    command: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # values may be references: ${NAME}
