"""What was dropped of a workflow when it went back, and kept."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pydantic import Field

from kingdom.web.envelope import ApiModel, not_found
from kingdom.web.views.workflow_state import find_workflow, workflow_state
from kingdom.workflow.rescues import read_rescues, restore_rescue

if TYPE_CHECKING:
    from kingdom.web.context import WebContext


class RescueInfo(ApiModel):
    """Files and commits that were dropped, and kept under a ref."""

    id: str = Field(examples=["20260207T101500Z-fix-3f1c9a0d"])
    repository: str = Field(description="Name of the repository.", examples=["web"])
    ref: str
    commit: str = Field(examples=["3f1c9a0d5b0c4e5f8a7b6c5d4e3f2a1b0c9d8e7f"])
    made_at: datetime
    why: str = Field(description="What dropped it.")
    files: list[str] = Field(description="Paths of the files that were dropped; at most 100.", examples=[["src/ls.py"]])
    file_count: int = Field(description="How many files were dropped.", examples=[1])


class RestoredRescue(ApiModel):
    """A rescue whose files are in the worktree again."""

    rescue: RescueInfo
    path: str = Field(description="Folder of the worktree.")
    replaced: str | None = Field(description="Ref of the files that were there before, if any would have been lost.")


async def list_rescues(context: WebContext, workflow_id: str) -> list[RescueInfo]:
    """Return the rescues of a workflow, oldest first."""
    store = context.parts.store
    async with store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
    kept = await read_rescues(store, workflow_state(context).git, workflow)
    return [RescueInfo.model_validate(one.document()) for one in kept]


async def restore(context: WebContext, workflow_id: str, rescue_id: str) -> RestoredRescue:
    """Bring the files of a rescue back into the worktree."""
    store, git = context.parts.store, workflow_state(context).git
    async with store.reading() as tx:
        workflow = await find_workflow(tx, workflow_id)
    kept = next((one for one in await read_rescues(store, git, workflow) if one.id == rescue_id), None)
    if kept is None:
        raise not_found("WFL", "rescue", rescue_id)
    restored = await restore_rescue(store, git, workflow, kept)
    return RestoredRescue(rescue=RescueInfo.model_validate(kept.document()), **restored._asdict())
