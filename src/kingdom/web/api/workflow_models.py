"""Parameters, values and request bodies that the workflow routes share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

from fastapi import APIRouter, Path, Query
from fastapi.routing import APIRoute
from pydantic import AfterValidator, Field, StringConstraints
from pydantic.alias_generators import to_camel

from kingdom.web.envelope import ApiError, ApiModel
from kingdom.web.views.workflow_order import WorkflowOrder
from kingdom.workflow.errors import NotFound, StillInUse, WorkflowError
from kingdom.workflow.plan_model import ID_PATTERN, NO_CONTROL, Name
from kingdom.workflow.store import ConcurrentChange

# ── Routers and errors ──


# Looked up by code: a command that another process executes returns only the code.
_PREFIXED_ERRORS: Final = {
    NotFound.code: (404, "NOT_FOUND"),
    StillInUse.code: (409, "IN_USE"),
    ConcurrentChange.code: (409, "CHANGED"),
}
WorkflowId: TypeAlias = Annotated[
    str, Path(alias="workflowId", pattern=ID_PATTERN, max_length=100, examples=["wf-0198c2d3"])
]
WorkflowSortQuery: TypeAlias = Annotated[
    WorkflowOrder,
    Query(
        description="By creation, or by a column: `progress` and `cost` the highest first, the others from A to Z; "
        "where they are equal, the newest first. A cursor belongs to its order."
    ),
]
NameSearch: TypeAlias = Annotated[
    str | None,
    Query(max_length=100, pattern=r"^[^\x00-\x1f\x7f]*$", description="Text that the name or the issue key contains."),
]


class Deleted(ApiModel):
    """Id of the deleted item."""

    id: str = Field(examples=["git-0198c2d0"])


def workflow_router(path: str, tag: str) -> APIRouter:
    """Return a router whose operation ids are its function names in camelCase."""
    return APIRouter(prefix=f"/api/{path}", tags=[tag], generate_unique_id_function=_operation_id)


def _operation_id(route: APIRoute) -> str:
    return to_camel(route.name)


@contextlib.contextmanager
def error_prefix(prefix: str) -> Iterator[None]:
    """Add a prefix to generic error codes: ``GIT_NOT_FOUND``, ``GIT_IN_USE``, ``GIT_CHANGED``."""
    try:
        yield
    except WorkflowError as error:
        if (found := _PREFIXED_ERRORS.get(error.code)) is None:
            raise
        status, word = found
        raise ApiError(status, f"{prefix}_{word}", str(error)) from error


# ── Values ──


def _name_without_at(text: str) -> str:
    if "@" in text:
        raise ValueError("a name must not contain @: NAME@BRANCH selects a branch")
    return text


SourceName: TypeAlias = Annotated[Name, AfterValidator(_name_without_at)]
IssueKey: TypeAlias = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100, pattern=NO_CONTROL)
]
Yaml: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200_000)]
