"""One browser for all tests of a run (of each worker, where there are several)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from tests.support.browser import launched


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Chromium."""
    async with launched() as found:
        yield found
