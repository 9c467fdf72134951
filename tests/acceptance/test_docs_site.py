"""``make docs`` and the copy in a release: built twice to the same bytes, without a broken link, and served."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from scripts.docs_site.links import problems
from tests.acceptance.test_release import release
from tests.support.browser import expect, launched
from tests.support.installation import run
from tests.support.pages import ROOT

# About a minute of work, and MkDocs is installed for it.
pytestmark = [pytest.mark.walk, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel as ``make release`` builds it, unpacked."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout, and a release is made from one")
    dist = tmp_path_factory.mktemp("dist")
    done = release(ROOT, "--rehearse", "--build-only", "--out", str(dist / "out"), timeout=800)
    if done.returncode and "install" in done.stderr and "CI" not in os.environ:
        pytest.skip(f"MkDocs cannot be installed here: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (dist / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(dist / "package")
    return dist / "package"


@pytest.fixture(scope="module")
def site(package: Path) -> Path:
    return package / "kingdom" / "web" / "site"


def test_no_link_is_broken_and_nothing_comes_from_another_host(site: Path) -> None:
    assert problems(site) == []
    assert not [path for path in site.rglob("*") if "fonts.g" in path.name or path.suffix == ".map"]


def test_both_languages_the_program_and_its_interface_have_pages(site: Path) -> None:
    assert re.search(r'<html lang="en"', (site / "index.html").read_text())
    assert re.search(r'<html lang="ko"', (site / "ko" / "index.html").read_text())
    interface = (site / "reference" / "python" / "bus.html").read_text()
    for name in ("connect", "Envelope", "Worker.run", "EventBus.publish"):
        assert f'id="kingdom.bus.{name}"' in interface, name
    assert ":class:" not in interface
    assert "listInbox" in (site / "reference" / "openapi.html").read_text()
    assert "/api/inbox" in json.loads((site / "reference" / "openapi.json").read_text())["paths"]
    for scheme in ("default", "slate"):
        assert f'data-md-color-scheme="{scheme}"' in (site / "index.html").read_text()


def test_words_of_both_languages_can_be_searched(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    assert index["config"]["lang"] == ["en", "ko"]
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"ko/index.html", "tutorial/first-court.html", "reference/python/bus.html"} <= found
    assert not [location for location in found if location.startswith("source/")]
    for language in ("ko", "stemmer.support", "multi"):
        assert (site / "assets" / "javascripts" / "lunr" / "min" / f"lunr.{language}.min.js").exists()


@pytest.fixture
def address(package: Path, tmp_path: Path) -> Iterator[str]:
    """Where ``kingdom docs`` of that package serves them."""
    command = [sys.executable, "-m", "kingdom", "docs", "--no-open"]
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
        assert found is not None
        yield found[0]
        process.terminate()


def test_the_copy_in_the_package_is_served(address: str) -> None:
    with httpx.Client(base_url=address, trust_env=False) as client:
        assert "Your first court" in client.get("tutorial/first-court.html").text
        assert client.get("search/search_index.json").json()["docs"]


async def test_a_browser_searches_it_in_both_languages_and_asks_no_other_host(address: str) -> None:
    asked: list[str] = []
    failed: list[str] = []
    async with launched() as browser:
        page = await browser.new_page(color_scheme="dark")
        page.on("request", lambda request: asked.append(request.url))
        page.on("response", lambda response: failed.append(response.url) if response.status >= 400 else None)
        for words, link in (("lease fencing", "explanation/leases-and-fencing.html"), ("궁정", "ko/index.html")):
            await page.goto(f"{address}index.html")
            await expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
            await page.locator("input[name=query]").press_sequentially(words)
            await expect(page.locator(f'.md-search-result__link[href*="{link}"]').first).to_be_attached()
    assert [url for url in asked if not url.startswith((address, "data:"))] == []
    assert failed == []


def test_an_empty_environment_finds_the_copy_of_its_own(package: Path, tmp_path: Path) -> None:
    shutil.copytree(package / "kingdom", tmp_path / "kingdom", ignore=shutil.ignore_patterns("site"))
    said = run(sys.executable, "-m", "kingdom", "docs", "--path", cwd=tmp_path, check=False, PYTHONPATH=str(tmp_path))
    assert (said.returncode, "no copy of the documentation" in said.stderr) == (1, True)
