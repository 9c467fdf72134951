"""What a page of somebody else's can do to a browser that is logged in here: nothing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, async_playwright

from kingdom.web.security import login_link
from tests.support.browser import FLAGS, chromium
from tests.support.serving import listening
from tests.support.web import TOKEN, Served, served

pytestmark = pytest.mark.asyncio(loop_scope="module")

ATTACK = """<!doctype html><title>kittens</title>
<form id="form" method="post" action="{url}/api/changed" target="_self"><input name="a" value="1"></form>
<script>
async function tried(what) {{ try {{ return await what() }} catch (error) {{ return "refused" }} }}
async function attack() {{
  return {{
    read: await tried(async () => (await fetch("{url}/api/session", {{credentials: "include"}})).text()),
    post: await tried(async () => (await fetch("{url}/api/changed", {{
      method: "POST", credentials: "include", mode: "no-cors", body: "a=1"}})).type),
    json: await tried(async () => (await fetch("{url}/api/changed", {{
      method: "POST", credentials: "include", headers: {{"X-CSRF-Token": "guess"}}, body: "{{}}"}})).text()),
    socket: await new Promise((told) => {{
      const socket = new WebSocket("{websocket}/ws/events");
      socket.onopen = () => told("open");
      socket.onerror = () => told("refused");
    }}),
    frame: await new Promise((told) => {{
      const frame = document.createElement("iframe");
      frame.onload = () => {{ try {{ told(frame.contentDocument.title) }} catch (error) {{ told("refused") }} }};
      frame.src = "{url}/";
      document.body.append(frame);
    }}),
  }}
}}
</script>"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def deceived() -> AsyncIterator[Browser]:
    """A browser for which every name below .example leads to this machine."""
    async with async_playwright() as playwright:
        args = [*FLAGS, "--host-resolver-rules=MAP *.example 127.0.0.1"]
        browser = await playwright.chromium.launch(executable_path=chromium(), args=args)
        yield browser
        await browser.close()


@contextlib.asynccontextmanager
async def logged_in(browser: Browser, web: Served) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(login_link(web.url, TOKEN))
    assert TOKEN not in page.url
    assert [(one["httpOnly"], one["sameSite"]) for one in await context.cookies()] == [(True, "Strict")]
    yield context
    await context.close()


@contextlib.asynccontextmanager
async def attackers_page(web: Served) -> AsyncIterator[int]:
    """The port of a server with the attacker's page."""
    page = ATTACK.format(url=web.url, websocket=web.websocket_url)
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(page)}\r\n\r\n{page}".encode()

    async def give(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline() not in (b"\r\n", b""):
            pass
        writer.write(answer)
        await writer.drain()

    async with listening(give) as listener:
        yield listener.port


@pytest.fixture
def changes() -> list[str]:
    """What was changed here."""
    return []


@pytest_asyncio.fixture(loop_scope="module")
async def web(tmp_path: Path, changes: list[str]) -> AsyncIterator[Served]:
    async def change() -> None:
        changes.append("changed")

    async with served(tmp_path, court=False) as found:
        found.app.add_api_route("/api/changed", change, methods=["POST"], operation_id="injectEvent")
        yield found


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1"])
async def test_a_page_of_another_site_or_port_gets_nothing(
    deceived: Browser, web: Served, changes: list[str], host: str
) -> None:
    async with attackers_page(web) as port, logged_in(deceived, web) as context:
        page = await context.new_page()
        await page.goto(f"http://{host}:{port}/")
        done = await page.evaluate("attack()")
        assert (done["read"], done["json"], done["socket"], done["frame"]) == ("refused",) * 4
        assert done["post"] in ("opaque", "refused")
        async with page.expect_navigation():
            await page.evaluate("document.getElementById('form').submit()")
        assert '"SYS_ORIGIN"' in await page.content()
        assert changes == []


async def test_a_name_that_was_made_to_point_here_gets_nothing(deceived: Browser, web: Served) -> None:
    port = web.url.rpartition(":")[2]
    async with logged_in(deceived, web) as context:
        page = await context.new_page()
        answer = await page.goto(f"http://rebound.example:{port}/api/session")
        assert answer is not None
        assert answer.status == 403
        assert '"SYS_HOST"' in await page.content()


async def test_a_page_of_ours_can_change_something(deceived: Browser, web: Served, changes: list[str]) -> None:
    async with logged_in(deceived, web) as context:
        page = await context.new_page()
        await page.goto(f"{web.url}/login")  # the one page there is without the dashboard
        status = await page.evaluate(
            """async () => {
              const session = (await (await fetch("/api/session")).json()).data;
              const headers = {"X-CSRF-Token": session.csrfToken};
              return (await fetch("/api/changed", {method: "POST", headers})).status;
            }"""
        )
        assert (status, changes) == (200, ["changed"])
