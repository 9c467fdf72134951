"""`/api/settings`."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from kingdom.court.settings import SettingsFile, read_settings
from kingdom.web.context import Context
from kingdom.web.envelope import Ok, Page, page

router = APIRouter(prefix="/api/settings", tags=["court"])


@router.get("", operation_id="listSettings", summary="List the settings of the court")
async def get_settings(context: Context) -> Ok[Page[SettingsFile]]:
    """The settings of each file, and whether a value comes from the file or is the default. Secrets are hidden."""
    return page(await asyncio.to_thread(read_settings, context.court.home))
