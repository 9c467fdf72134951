"""`/api/sessions`."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import Field

from kingdom.web.acting import acts_on
from kingdom.web.context import Context
from kingdom.web.envelope import ApiModel, Ok, Page, ok, page
from kingdom.web.security import PERSON_SCOPE_KEY
from kingdom.web.views.sessions import BrowserSession, end_session, list_sessions

router = APIRouter(prefix="/api/sessions", tags=["people"])


class EndedSession(ApiModel):
    """A session that was ended."""

    id: str = Field(examples=["8f1c2a4b9d3e5f60718293a4"])
    name: str = Field(description="Who was logged in.", examples=["ann"])


@router.get("", operation_id="listSessions", summary="List the browsers that are logged in")
async def get_sessions(context: Context, request: Request) -> Ok[Page[BrowserSession]]:
    """Your own; with the role `own` those of everybody. Newest first, all on one page."""
    return page(await asyncio.to_thread(list_sessions, context, request.scope[PERSON_SCOPE_KEY]))


@router.delete("/{sessionId}", operation_id="endSession", summary="Log a browser out")
async def delete_session(
    context: Context,
    request: Request,
    session_id: Annotated[
        str, Path(alias="sessionId", pattern="^[0-9a-f]{1,64}$", examples=["8f1c2a4b9d3e5f60718293a4"])
    ],
) -> Ok[EndedSession]:
    """One of your own; with the role `own` one of anybody. Its open pages and streams end at once."""
    name = await asyncio.to_thread(end_session, context, request.scope[PERSON_SCOPE_KEY], session_id)
    acts_on(name)
    context.connections.end_revoked()
    return ok(EndedSession(id=session_id, name=name))
