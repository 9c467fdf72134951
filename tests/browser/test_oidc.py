"""A person logs in with an account of the company, in a browser: there, back, at work, and out again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from kingdom.court.config_web import OidcSection
from tests.support.browser import LOOKS, PATIENCE, PHONE, Theme, barriers, connected, overflow, shoot
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, provided
from tests.support.web import SETTINGS, served

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.walk]


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_a_person_logs_in_with_an_account_and_out_again(
    browser: Browser, tmp_path: Path, theme: Theme, locale: str
) -> None:
    button, out = {"en": ("Log in with Example", "Log out"), "ko": ("Example 계정으로 로그인", "로그아웃")}[locale]
    async with provided() as provider:
        provider.accounts = {
            "ann": {"email": "ann@example.org", "email_verified": True},
            "cleo": {"email": "cleo@elsewhere.example", "email_verified": True},
        }
        rules = [{"role": "answer", "email": "*@example.org"}]
        oidc = OidcSection.model_validate(
            {"issuer": provider.issuer, "client_id": CLIENT_ID, "label": "Example", "roles": rules}
        )
        settings = replace(SETTINGS, oidc=oidc, oidc_secret=CLIENT_SECRET)
        context = await browser.new_context(locale=locale, color_scheme=theme)
        context.set_default_timeout(PATIENCE)
        try:
            async with served(tmp_path, pages=True, settings=settings) as web:
                page = await context.new_page()
                for width in (1440, PHONE):
                    await page.set_viewport_size({"width": width, "height": 800})
                    await page.goto(f"{web.url}/tasks?status=failed")
                    assert await overflow(page) == 0
                    await shoot(page, f"login-{theme}-{width}")
                assert await barriers(page) == []
                await page.set_viewport_size({"width": 1440, "height": 800})

                await page.get_by_role("link", name=button).click()
                await page.get_by_role("button", name="cleo").click()
                await expect(page.get_by_role("status")).to_contain_text("cleo@elsewhere.example")
                await shoot(page, f"login-refused-{theme}")
                assert await barriers(page) == []

                await page.goto(f"{web.url}/tasks?status=failed")
                await page.get_by_role("link", name=button).focus()
                await page.keyboard.press("Enter")
                await page.get_by_role("button", name="ann").click()
                await page.wait_for_url("**/tasks?status=failed")
                await connected(page)
                await page.goto(f"{web.url}/settings")
                await connected(page)
                await expect(page.locator("#main")).to_contain_text("ann@example.org")
                await expect(page.locator("[data-session]")).to_have_count(1)
                await page.locator(".k-page-actions").get_by_role("button", name=out).click()
                await expect(page.get_by_role("link", name=button)).to_be_visible()
                assert [
                    one["name"] for one in await context.cookies() if one["name"].startswith("kingdom_session")
                ] == [one["name"] for one in await context.cookies() if one["name"].endswith("_login")]
        finally:
            await context.close()
