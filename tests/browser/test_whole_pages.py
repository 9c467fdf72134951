"""What is too long for its page is there as a whole, part by part: transcripts, and the changes of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from kingdom.web.dashboard.transcript_page import PART_BYTES
from kingdom.web.views.changed_files import PART_FILES, PART_LINES
from tests.support.browser import LOOKS, PHONE, Theme, Visitor, barriers, connected, overflow, shoot, visiting
from tests.support.seen_court import RUNNING, SOLDIER, WAITING, SeenCourt
from tests.support.workflow_pages import WORSE, Place

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.walk]

DESK = 1440
LINE = "word " * 20
LINES = 50 * 1024 * 1024 // (len(LINE) + 8)
FILES = PART_FILES + 7
FILE_LINES = 5 * PART_LINES // 2


# ── transcripts ──


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def court(tmp_path_factory: pytest.TempPathFactory) -> SeenCourt:
    """A soldier at work, who has said 50 MB."""
    court = SeenCourt(tmp_path_factory.mktemp("talkative"))
    await court.fill()
    with (court.home.sessions / f"{SOLDIER}.json").open("w") as file:
        file.write(f"first {WORSE}\n")
        file.writelines(f"{number:07} {LINE}\n" for number in range(LINES))
        file.write("x" * 5 * PART_BYTES + "\n")
        file.write("last words\n")
    return court


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(browser: Browser, court: SeenCourt) -> AsyncIterator[Visitor]:
    async with visiting(browser, court.home.root, court=False) as visitor:
        yield visitor


async def test_a_task_links_to_the_whole_of_its_transcript(visitor: Visitor) -> None:
    async with visitor.page(f"/tasks/{RUNNING}") as page:
        await expect(page.get_by_role("log", name="Transcript")).to_contain_text("last words")
        await page.get_by_role("link", name="The whole transcript").press("Enter")
        await _arrived(page, f"**/tasks/{RUNNING}/transcript")
        await expect(page.locator(".k-whole")).to_contain_text(f"first {WORSE}")
        assert await page.evaluate("window.owned ?? null") is None


async def test_a_long_transcript_is_read_in_parts_both_ways(visitor: Visitor) -> None:
    async with visitor.page(f"/tasks/{RUNNING}/transcript", width=DESK) as page:
        whole = page.locator(".k-whole")
        await expect(whole).to_contain_text("0000000 word")
        said = await whole.inner_text()
        assert PART_BYTES / 2 < len(said) < 2 * PART_BYTES
        assert await _offered(page) == ["following", "last"]
        await _turn(page, "following")
        last_line = said.strip().splitlines()[-1]
        await expect(whole).to_contain_text(f"{int(last_line[:7]) + 1:07} word")
        assert await _offered(page) == ["first", "previous", "following", "last"]
        await _turn(page, "last")
        await expect(whole).to_contain_text("last words")
        assert await _offered(page) == ["first", "previous"]
        await _turn(page, "previous")
        await expect(whole).to_contain_text("x" * 1000)  # a line that is longer than a part
        await _turn(page, "previous")
        await expect(whole).to_contain_text(f"{LINES - 1:07} word")
        await _turn(page, "first")
        await expect(whole).to_contain_text(f"first {WORSE}")


async def test_the_end_of_a_transcript_grows_while_one_looks(visitor: Visitor, court: SeenCourt) -> None:
    court.station("soldier-2", task_id=WAITING)
    court.say("one thing", "soldier-2")
    async with visitor.page(f"/tasks/{WAITING}/transcript?at=end") as page:
        await expect(page.locator(".k-whole")).to_contain_text("one thing")
        court.say("another", "soldier-2")
        court.emit("task.started", "gen-pr", task_id=WAITING)
        await expect(page.locator(".k-whole")).to_contain_text("another")


@pytest.mark.parametrize("at", ["nonsense", "-5", "99999999999999999999999999", "٣"])
async def test_an_address_that_names_no_part_is_no_error(visitor: Visitor, at: str) -> None:
    async with visitor.page(f"/tasks/{RUNNING}/transcript?at={at}") as page:
        await expect(page.locator("#main .k-parts").first).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)


async def test_a_task_or_soldier_that_nobody_knows_is_a_404(visitor: Visitor) -> None:
    async with visitor.page("/tasks/task-20260207-999/transcript", status=404) as page:
        await expect(page.get_by_role("alert")).to_contain_text("task-20260207-999")
    async with visitor.page(f"/tasks/{RUNNING}/transcript?soldier=nobody", status=404) as page:
        await expect(page.get_by_role("alert")).to_contain_text("has no soldier 'nobody'")


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
async def test_the_page_of_a_transcript_in_every_look(visitor: Visitor, theme: Theme, locale: str) -> None:
    path = f"/tasks/{RUNNING}/transcript?at={PART_BYTES}"
    async with visitor.page(path, theme=theme, locale=locale, width=PHONE) as page:
        await expect(page.locator(".k-whole")).to_contain_text("word word")
        await _look_at(page, f"transcript-{theme}-{locale}")


# ── changes ──


class Changes(NamedTuple):
    """The paths of two checkpoints: of one long file, and of many short ones."""

    visitor: Visitor
    long: str
    many: str


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def changes(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Changes]:
    place = Place(tmp_path_factory.mktemp("changes"))
    lines = [f"number_{number} = {number}" for number in range(FILE_LINES)]
    lines[-1] += f"  # {WORSE}"
    many = [_write(f"many/{number:03}.txt", f"{number}\n") for number in range(FILES)]
    script = {
        "write/*": [_write("long.py", "\n".join(lines) + "\n"), {"say": "done"}],
        "spread/*": [*many, {"say": "done"}],
    }
    path = tmp_path_factory.mktemp("script") / "script.json"
    path.write_text(json.dumps(script))
    async with visiting(browser, place.home, court=False, engine=True) as visitor:
        await place.register(visitor)
        works = [{"name": "write", "tasks": ["x"]}, {"name": "spread", "tasks": ["x"]}]
        workflow = await place.started(visitor, await place.template(visitor, "long", works, path))
        async with visitor.page(f"/workflows/{workflow}") as page:
            await expect(page.locator(".k-workflow-head .k-badge").first).to_have_text("completed")
        seen = (await visitor.web.client.get(f"/api/workflows/{workflow}")).json()["data"]
        points = {one["workName"]: f"/workflows/{workflow}/checkpoints/{one['id']}" for one in seen["checkpoints"]}
        yield Changes(visitor, points["write"], points["spread"])


def _write(path: str, text: str) -> dict[str, object]:
    return {"write": {"path": path, "text": text}}


async def test_a_file_that_is_cut_links_to_its_whole_diff(changes: Changes) -> None:
    async with changes.visitor.page(changes.long, width=DESK) as page:
        cut = page.locator("#file-0")
        await expect(cut).to_contain_text("The diff is cut here.")
        await cut.get_by_role("link", name="The whole diff of this file").press("Enter")
        await _arrived(page, "**/files/0")
        await expect(page.get_by_role("table", name="long.py")).to_contain_text("number_0 = 0")
        back = page.get_by_role("link", name="Checkpoint of write")
        assert str(await back.get_attribute("href")).endswith(f"{changes.long}#file-0")


async def test_a_long_file_is_read_whole_in_parts(changes: Changes) -> None:
    async with changes.visitor.page(f"{changes.long}/files/0", width=DESK) as page:
        diff = page.get_by_role("table", name="long.py")
        shown = f"Lines 1 to {PART_LINES:,} of {FILE_LINES + 1:,}"
        await expect(page.locator("[data-shown]").first).to_have_text(shown)
        await _turn(page, "following")
        row = diff.locator("tr", has_text=f"number_{PART_LINES} = ")
        await expect(row).to_contain_text(f"{PART_LINES + 1}")
        await page.get_by_role("link", name="Inline").press("Enter")
        await _arrived(page, "**/files/0?view=inline*")
        await expect(row).to_contain_text(f"{PART_LINES + 1}")
        await _turn(page, "last")
        await expect(diff).to_contain_text(WORSE)
        assert await page.evaluate("window.owned ?? null") is None
        assert await _offered(page) == ["first", "previous"]


async def test_many_files_are_shown_in_parts(changes: Changes) -> None:
    async with changes.visitor.page(changes.many) as page:
        files = page.locator("section.k-file")
        await expect(files).to_have_count(PART_FILES)
        await _turn(page, "following")
        await expect(files).to_have_count(FILES - PART_FILES)
        await expect(files.last).to_contain_text(f"many/{FILES - 1:03}.txt")
        assert await _offered(page) == ["first", "previous"]


async def test_a_file_that_is_not_there_is_a_404(changes: Changes) -> None:
    for number in ("9999", "-1", "x"):
        async with changes.visitor.page(f"{changes.long}/files/{number}", status=404) as page:
            await expect(page.get_by_role("alert")).to_contain_text("no changed file")


@pytest.mark.parametrize(("theme", "locale"), LOOKS)
@pytest.mark.parametrize("name", ["file", "files"])
async def test_the_pages_of_changes_in_every_look(changes: Changes, name: str, theme: Theme, locale: str) -> None:
    path = f"{changes.many}?first={PART_FILES}" if name == "files" else f"{changes.long}/files/0?first={2 * PART_LINES}"
    async with changes.visitor.page(path, theme=theme, locale=locale, width=PHONE) as page:
        await expect(page.locator("[data-part=first]").first).to_be_visible()
        await _look_at(page, f"changes-{name}-{theme}-{locale}")


# ── helpers ──


async def _offered(page: Page) -> list[str]:
    """The parts that the links above lead to."""
    links = page.locator("#main .k-parts").first.locator("[data-part]")
    return [str(await one.get_attribute("data-part")) for one in await links.all()]


async def _turn(page: Page, part: str) -> None:
    """Follow a link to another part, by keyboard."""
    before = page.url
    await page.locator("#main .k-parts").first.locator(f"[data-part={part}]").press("Enter")
    await page.wait_for_url(lambda url: url != before)
    await connected(page)


async def _arrived(page: Page, pattern: str) -> None:
    await page.wait_for_url(pattern)
    await connected(page)


async def _look_at(page: Page, name: str) -> None:
    for width in (PHONE, DESK):
        await page.set_viewport_size({"width": width, "height": 900})
        assert await overflow(page) == 0
        await shoot(page, f"{name}-{width}")
    assert await barriers(page) == []
