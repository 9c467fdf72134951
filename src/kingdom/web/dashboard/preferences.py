"""How a visitor wants the pages: kept in cookies, set by following a link."""

from __future__ import annotations

from typing import Annotated, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.responses import RedirectResponse

from kingdom.web.dashboard.visit import LOCALE_COOKIE, THEME_COOKIE, Theme

router = APIRouter(include_in_schema=False)
PATH: Final = "/preferences"
_YEAR: Final = 365 * 24 * 3600


@router.get(PATH)
async def prefer(
    theme: Annotated[Theme | None, Query()] = None,
    locale: Annotated[Literal["en", "ko"] | None, Query()] = None,
    back: Annotated[str, Query(max_length=2000)] = "/",
) -> RedirectResponse:
    """Remember a choice and go back to the page it was made on."""
    response = RedirectResponse(back if _of_ours(back) else "/", 303)
    for name, value in ((THEME_COOKIE, theme), (LOCALE_COOKIE, locale)):
        if value is not None:
            response.set_cookie(name, value, max_age=_YEAR, httponly=True, samesite="strict")
    return response


def link(back: str, **choice: str) -> str:
    """The address that makes a choice: ``link(visit.path, theme="dark")``."""
    return f"{PATH}?{urlencode({**choice, 'back': back})}"


def _of_ours(path: str) -> bool:
    """Whether a path leads to this server: ``//host`` and ``/\\host`` lead browsers elsewhere."""
    return path.startswith("/") and path[1:2] not in ("/", "\\") and not any(ord(letter) < 32 for letter in path)
