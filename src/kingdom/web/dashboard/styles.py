"""The style sheet and the mark, served as files that browsers may keep."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

from kingdom.web.dashboard import theme

_FOLDER: Final = Path(__file__).parent / "assets"
MARK: Final = _FOLDER / "mark.svg"
_CROWN: Final = MARK.read_bytes()
_SHEET: Final = theme.variables() + "".join(path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.css")))
PATH: Final = f"/assets/kingdom-{hashlib.sha256(_SHEET.encode()).hexdigest()[:12]}.css"
"""Names what is in it: a new version is a new address."""

router = APIRouter(include_in_schema=False)
_FOREVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


@router.get(PATH)
async def sheet() -> Response:
    """The style sheet of every page."""
    return Response(_SHEET, media_type="text/css", headers=_FOREVER)


@router.get("/assets/mark.svg")
@router.get("/favicon.ico")
async def mark() -> Response:
    """The crown."""
    return Response(_CROWN, media_type="image/svg+xml", headers={"Cache-Control": "public, max-age=86400"})
