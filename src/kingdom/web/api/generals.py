"""`/api/generals`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field, StringConstraints

from kingdom.court.general_record import GeneralRecord
from kingdom.web.acting import signature
from kingdom.web.api.court_models import RequestedBy
from kingdom.web.context import Context
from kingdom.web.envelope import ApiModel, Ok, Page, ok, page
from kingdom.web.views.generals import (
    GeneralState,
    install_general,
    list_generals,
    read_general,
    read_record,
    set_enabled,
)

router = APIRouter(prefix="/api/generals", tags=["court"])
GeneralName = Annotated[str, Path(max_length=60, pattern=r"^[a-z0-9][a-z0-9_\-]*$", examples=["gen-pr"])]
_REQUESTED_BY_WEB = RequestedBy()


class InstallBody(ApiModel):
    """A general to install."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"folder": "/home/ann/gen-pr", "replace": False}]})

    folder: Annotated[str, StringConstraints(min_length=1, max_length=4000)] = Field(
        description="Its folder on the machine of the court, an absolute path; or the name of one that comes along."
    )
    replace: bool = Field(default=False, description="Replace the general of that name.")


@router.get("", operation_id="listGenerals", summary="List generals")
async def get_generals(context: Context) -> Ok[Page[GeneralState]]:
    """All installed generals, including those that cannot be used, with their problems."""
    return page(await list_generals(context))


@router.post("", operation_id="installGeneral", summary="Install a general", status_code=201)
async def post_general(context: Context, body: InstallBody) -> Ok[GeneralState]:
    """Check a general and copy it into the court, as `kingdom general install` does. 422: it has problems."""
    return ok(await install_general(context, body.folder, replace=body.replace))


@router.get("/{name}", operation_id="getGeneral", summary="Get a general")
async def get_general(context: Context, name: GeneralName) -> Ok[GeneralState]:
    """The manifest and problems of a general."""
    return ok(await read_general(context, name))


@router.get("/{name}/record", operation_id="getGeneralRecord", summary="Get the record of a general")
async def get_general_record(context: Context, name: GeneralName) -> Ok[GeneralRecord]:
    """Next runs, outcomes of the last days, durations of the latest tasks, cost and limits."""
    return ok(await read_record(context, name))


@router.post("/{name}/enable", operation_id="enableGeneral", summary="Enable a general")
async def post_enable(context: Context, name: GeneralName, asked: RequestedBy = _REQUESTED_BY_WEB) -> Ok[GeneralState]:
    """Let a general start tasks again."""
    return ok(await set_enabled(context, name, signature(asked.user), enabled=True))


@router.post("/{name}/disable", operation_id="disableGeneral", summary="Disable a general")
async def post_disable(context: Context, name: GeneralName, asked: RequestedBy = _REQUESTED_BY_WEB) -> Ok[GeneralState]:
    """Have a general start nothing. Its events and schedules wait; what it has begun ends."""
    return ok(await set_enabled(context, name, signature(asked.user), enabled=False))
