"""`/api/search`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from kingdom.web.context import Context
from kingdom.web.envelope import Ok, Page, page
from kingdom.web.views.search import SearchHit, search_all

router = APIRouter(prefix="/api/search", tags=["search"])


@router.get("", operation_id="searchAll", summary="Search everything")
async def get_search(
    context: Context,
    q: Annotated[
        str,
        Query(
            min_length=1,
            max_length=200,
            description="Words, an id, a name; all of the words must occur.",
            examples=["shop"],
        ),
    ],
    limit: Annotated[int, Query(ge=1, le=20, description="Maximum number of items of a kind.")] = 5,
) -> Ok[Page[SearchHit]]:
    """Questions, tasks, workflows, templates, generals, events, messages and people; the one with this id first.

    All on one page. The lists of the API search for more of a kind.
    """
    return page(await search_all(context, q, limit))
