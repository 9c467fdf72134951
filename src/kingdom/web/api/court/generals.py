"""``/api/generals``: who does the work."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from kingdom.web.context import Context
from kingdom.web.envelope import Ok, Page, ok, page
from kingdom.web.views.generals import GeneralState, list_generals, read_general

router = APIRouter(prefix="/api/generals", tags=["court"])
Name = Annotated[str, Path(max_length=60, pattern=r"^[a-z0-9][a-z0-9_\-]*$", examples=["gen-pr"])]


@router.get("", operation_id="listGenerals", summary="The generals, and what is wrong with them")
async def list_all(context: Context) -> Ok[Page[GeneralState]]:
    """Every installed one, also those that cannot be used."""
    return page(await list_generals(context))


@router.get("/{name}", operation_id="getGeneral", summary="One general")
async def get(context: Context, name: Name) -> Ok[GeneralState]:
    """Its manifest and its problems."""
    return ok(await read_general(context, name))
