"""A page that is closed leaves nothing behind in the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import nicegui
import pytest
from nicegui import Client
from playwright.async_api import Browser, expect

from kingdom.web.live.hub import Hub, Listener
from tests.support.browser import visiting
from tests.support.courts import PATIENCE
from tests.support.seen_court import SeenCourt

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.walk]


async def test_listeners_and_elements_go_with_the_page(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listening: list[Listener] = []
    listen = Hub.listen

    def counted(hub: Hub, listener: Listener) -> Callable[[], None]:
        listening.append(listener)
        undo = listen(hub, listener)

        def undone() -> None:
            listening.remove(listener)
            undo()

        return undone

    court = SeenCourt(tmp_path)
    await court.fill()
    async with visiting(browser, tmp_path, court=False) as visitor:
        monkeypatch.setattr(Hub, "listen", counted)
        monkeypatch.setattr(nicegui.app.config, "reconnect_timeout", 0.05)
        known = set(Client.instances)
        async with visitor.page("/") as page:
            await expect(page.locator("[data-soldier]")).to_be_visible()
            assert listening
            (client,) = [client for name, client in Client.instances.items() if name not in known]
        await asyncio.wait_for(client.disconnected(), PATIENCE)
        assert client.is_deleted
        assert not client.elements
        assert not listening
