"""What the routers of workflows share: how routes are named, ids in paths, and errors with the domain they are of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Path, Query
from fastapi.routing import APIRoute
from pydantic import Field
from pydantic.alias_generators import to_camel

from kingdom.web.envelope import ApiError, ApiModel
from kingdom.workflow.domain.errors import NotFound, StillInUse, WorkflowError
from kingdom.workflow.store import ConcurrentChange

ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
# By code: an engine of another process tells no more.
_TOLD: Final = {
    NotFound.code: (404, "NOT_FOUND"),
    StillInUse.code: (409, "IN_USE"),
    ConcurrentChange.code: (409, "CHANGED"),
}
WorkflowId: TypeAlias = Annotated[
    str, Path(alias="workflowId", pattern=ID_PATTERN, max_length=100, examples=["wf-0198c2d3"])
]
Search: TypeAlias = Annotated[
    str | None,
    Query(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$", description="Words that name or issue key have in them."),
]


class Deleted(ApiModel):
    """What is gone."""

    id: str = Field(examples=["git-0198c2d0"])


def work_router(path: str, tag: str) -> APIRouter:
    """A router whose operations are called as their functions, in camelCase."""
    return APIRouter(prefix=f"/api/{path}", tags=[tag], generate_unique_id_function=_operation_id)


def _operation_id(route: APIRoute) -> str:
    return to_camel(route.name)


@contextlib.contextmanager
def told_as(prefix: str) -> Iterator[None]:
    """Errors that say nothing of their domain get it: ``GIT_NOT_FOUND``, ``GIT_IN_USE``, ``GIT_CHANGED``."""
    try:
        yield
    except WorkflowError as error:
        if (told := _TOLD.get(error.code)) is None:
            raise
        status, word = told
        raise ApiError(status, f"{prefix}_{word}", str(error)) from error
