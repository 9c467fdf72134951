"""A quick start for each of the three people, followed with the installed package, outside of this checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.followed import Shell
from tests.support.installation import build_wheel, link, run, unpack
from tests.support.pages import ROOT

pytestmark = pytest.mark.timeout(300)

TUTORIALS = ROOT / "docs" / "tutorial"
EXTRAS = {"quick-start-bus.md": "", "quick-start-workflow.md": "court", "quick-start-court.md": "web"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(build_wheel(tmp_path_factory.mktemp("wheel")))


@pytest.mark.walk
@pytest.mark.parametrize(("page", "extra"), EXTRAS.items(), ids=EXTRAS)
def test_a_quick_start_works_with_the_installed_package(page: str, extra: str, unpacked: Path, tmp_path: Path) -> None:
    programs = link(unpacked, tmp_path, extra)
    where = run(str(programs / "python"), "-c", "import kingdom; print(kingdom.__file__)", cwd=tmp_path).stdout
    assert not Path(where.strip()).resolve().is_relative_to(ROOT / "src")
    folder = tmp_path / "reader"
    folder.mkdir()
    Shell(folder, programs).follow_page(TUTORIALS / page)


def test_each_of_the_three_has_a_quick_start() -> None:
    assert {path.name for path in TUTORIALS.glob("quick-start-*.md")} == set(EXTRAS)
