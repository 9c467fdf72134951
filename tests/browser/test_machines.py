"""The dashboard of a court on several machines: the machines, and the soldiers of all of them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from kingdom.court.machines.listing import save_machines
from kingdom.court.machines.registry import Registry
from kingdom.court.soldiers import all_soldiers
from kingdom.web.dashboard.words import TEXTS
from tests.support.browser import PHONE, barriers, overflow, shoot, visiting
from tests.support.machines import eventually, first_machine, joined_machine

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.postgres, pytest.mark.walk]


async def test_the_court_page_shows_all_machines_and_who_works_where(
    browser: Browser, tmp_path: Path, postgres_url: str
) -> None:
    async with first_machine(tmp_path / "seat", postgres_url) as seat:
        await Registry(postgres_url).publish_packages(seat.home)
        await Registry(postgres_url).register("gone", joined=True)
        async with joined_machine(tmp_path / "builder", postgres_url, "builder", soldiers=4) as builder:
            builder.start("gen-endless")
            seat.start("king")
            await seat.emit(1, "gen-endless")
            soldier = await eventually(lambda: next((one for one in all_soldiers(builder.home) if one.alive), None))
            builder.start("link")  # its first sign of life names the soldier
            await eventually(lambda: (builder.home.role("link") / "machines.json").exists())
            seat.start("link")
            await eventually(lambda: (seat.home.role("link") / "machines.json").exists())
            async with visiting(browser, seat.home.root, court=False) as visitor:
                async with visitor.page("/") as page:
                    card = page.locator("[data-machine=builder]")
                    await expect(card).to_contain_text("active")
                    await expect(card).to_contain_text("gen-asks, gen-endless, gen-quick · soldiers: 1 / 4")
                    await expect(page.locator("[data-machine=seat]")).to_contain_text("this machine")
                    await expect(page.locator("[data-machine=seat]")).to_contain_text("leads")
                    await expect(page.locator(f"[data-soldier={soldier.id}]")).to_contain_text("builder")
                    await expect(page.locator(f"[data-soldier={soldier.id}]")).to_contain_text("This takes long")
                    await shoot(page, "court-machines")
                    assert await barriers(page) == []
                async with visitor.page("/", locale="ko", theme="dark", width=PHONE) as page:
                    await expect(page.locator("[data-machine=builder]")).to_contain_text(TEXTS["ko"]["machine.active"])
                    assert await overflow(page) == 0
                    await shoot(page, "court-machines-phone")
                found = await Registry(postgres_url).machines()
                await seat.stop("link")
                silent = [replace(one, silent_seconds=3600.0 if one.name == "builder" else 0.0) for one in found]
                save_machines(seat.home, silent, time.time())
                async with visitor.page("/") as page:
                    await expect(page.locator("[data-machine=builder]")).to_contain_text("not seen")
                    await expect(page.locator("#main")).to_contain_text("kingdom machines remove builder")
