"""``/api/gits``: repositories that workflows work on."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from fastapi import Path
from pydantic import Field

from kingdom.gitops import InvalidInput
from kingdom.gitops.urls import check_url
from kingdom.web.api.work.routing import ID_PATTERN, Deleted, told_as, work_router
from kingdom.web.api.work.values import SourceName
from kingdom.web.context import Context
from kingdom.web.envelope import ApiError, ApiModel, Ok, Page, ok
from kingdom.web.paging import Cursor, Limit
from kingdom.web.views import sources
from kingdom.web.views.sources import Git
from kingdom.web.views.work_desk import work_desk
from kingdom.workflow.sources import read_sources
from kingdom.workflow.usecases.create_git import CreateGit
from kingdom.workflow.usecases.delete_git import DeleteGit

router = work_router("gits", "repositories")
GitId: TypeAlias = Annotated[str, Path(alias="gitId", pattern=ID_PATTERN, max_length=100, examples=["git-0198c2d0"])]


class GitBody(ApiModel):
    """A repository to register."""

    name: SourceName = Field(examples=["web"])
    url: str = Field(
        min_length=1,
        max_length=2000,
        description="`https://…`, `ssh://…`, `user@host:path`, or an absolute path of the server's machine.",
        examples=["https://github.com/acme/web.git"],
    )


@router.get("", summary="List repositories")
async def list_gits(context: Context, limit: Limit = 50, cursor: Cursor = None) -> Ok[Page[Git]]:
    """The repositories, the newest first."""
    return ok(await sources.list_gits(context, limit=limit, cursor=cursor))


@router.post("", status_code=201, summary="Register a repository")
async def create_git(context: Context, body: GitBody) -> Ok[Git]:
    """It is cloned when the first workflow needs it. Refused: a name that is taken (409 GIT_NAME_TAKEN)."""
    try:
        check_url(body.url, allow_local=True)
    except InvalidInput as error:
        raise ApiError(422, "GIT_URL", str(error)) from error
    async with work_desk(context).naming:
        if body.name in (await read_sources(context.parts.store)).repositories:
            raise ApiError(409, "GIT_NAME_TAKEN", f"there is a repository called {body.name} already")
        git_id = await CreateGit(context.parts).execute(body.name, body.url)
    return ok(await sources.read_git(context, git_id))


@router.get("/{gitId}", summary="Get a repository")
async def get_git(context: Context, git_id: GitId) -> Ok[Git]:
    """One repository, and who uses it."""
    return ok(await sources.read_git(context, git_id))


@router.delete("/{gitId}", summary="Delete a repository")
async def delete_git(context: Context, git_id: GitId) -> Ok[Deleted]:
    """Templates that name it forget it; its clone goes, unless it holds work of workflows.

    Refused while a workflow uses it (409 GIT_IN_USE).
    """
    with told_as("GIT"):
        await DeleteGit(context.parts).execute(git_id)
    return ok(Deleted(id=git_id))
