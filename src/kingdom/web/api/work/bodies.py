"""Parts of plans as requests give them: the fields of the views, with what is allowed in them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from kingdom.web.api.work.values import (
    Branch,
    Description,
    EngineName,
    EnvName,
    EnvValue,
    IdText,
    ModelName,
    Name,
    Outline,
    QueryText,
    RetryCount,
    Variables,
)
from kingdom.web.views.templates import GitRefFields, McpServerRefFields, TaskFields, TemplateFields, WorkFields


class GitRefBody(GitRefFields):
    """A repository of a template or workflow."""

    git_id: IdText = Field(examples=["git-0198c2d0"])
    base: Branch | None = Field(default=None, description="The branch to start from; null: the default branch.")


class McpServerRefBody(McpServerRefFields):
    """An MCP server of a template, workflow or work."""

    mcp_server_id: IdText = Field(examples=["mcp-0198c2d1"])
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict,
        max_length=100,
        description="Overrides the server's own. `***` stands for a value that is not shown: given back, it stays.",
        examples=[{"TRACKER_TOKEN": "${TRACKER_TOKEN}"}],
    )


class TaskBody(TaskFields):
    """A task of a plan."""

    name: Name = Field(examples=["task-1"])
    query: QueryText = Field(examples=["Fix {{ issue.key }}."])
    outline: Outline = Field(default_factory=list, description="The sections of the report it asks for.")
    retries: RetryCount = 1


class WorkBody(WorkFields):
    """A work of a plan."""

    name: Name = Field(examples=["fix"])
    tasks: Annotated[list[TaskBody], Field(min_length=1, max_length=50)]  # type: ignore[assignment]
    engine: EngineName = Field(default="claude")
    model: ModelName | None = None
    engine_options: Variables = Field(default_factory=dict)
    mcp_server_refs: Annotated[list[McpServerRefBody], Field(max_length=20)] = Field(default_factory=list)  # type: ignore[assignment]
    after: Annotated[list[Name], Field(max_length=50)] = Field(
        default_factory=list, description="The works it waits for; empty: all before it."
    )

    @model_validator(mode="after")
    def _merges(self) -> WorkBody:
        if self.merge and len(self.after) < 2:
            raise ValueError("merge needs the works to merge in `after`, at least two")
        return self


class TemplateBody(TemplateFields):
    """A plan with a name."""

    name: Name = Field(examples=["fix"])
    description: Description = ""
    git_refs: Annotated[list[GitRefBody], Field(max_length=20)] = Field(default_factory=list)  # type: ignore[assignment]
    mcp_server_refs: Annotated[list[McpServerRefBody], Field(max_length=20)] = Field(default_factory=list)  # type: ignore[assignment]
    works: Annotated[list[WorkBody], Field(min_length=1, max_length=50)]  # type: ignore[assignment]
