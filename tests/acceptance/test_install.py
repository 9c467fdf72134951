"""The wheel in empty environments: the bus alone, and each extra by itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.installation import PIP, build_wheel, do_bus_tutorial, empty, link, run, unpack
from tests.support.pages import ROOT

MOST_PACKAGES = 3  # that `pip install kingdom` brings beside kingdom itself

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(wheel: Path) -> Path:
    return unpack(wheel)


def install(wheel: Path, folder: Path, extra: str = "") -> Path:
    """Install the wheel with an extra into a new environment; return its folder of programs.

    Versions are those of our requirements, so that a release of somebody else's cannot break this.
    """
    programs = empty(folder)
    wanted = f"kingdom{extra} @ {wheel.as_uri()}"
    pinned = str(ROOT / "requirements/dev.txt")
    given = ("--python", str(programs / "python"), "install", "--no-compile", "-c", pinned, wanted)
    done = run(*PIP, *given, cwd=folder, check=False)
    if done.returncode and "CI" not in os.environ:
        pytest.skip(f"no package index can be reached: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    return programs


def installed(programs: Path) -> set[str]:
    """Return the names of all distributions of an environment."""
    code = "import importlib.metadata as m; print(*(found.name for found in m.distributions()))"
    return set(run(str(programs / "python"), "-c", code, cwd=programs).stdout.lower().split())


def test_the_bus_alone_is_light_and_does_its_tutorial(light: Path, tmp_path: Path) -> None:
    brought = installed(light) - {"kingdom"}
    assert 0 < len(brought) <= MOST_PACKAGES, sorted(brought)
    do_bus_tutorial(light, tmp_path)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("bus", "depth", "--url", "postgresql:///nowhere"), "postgres"),
        (("init", "here"), "court"),
        (("workflow", "create", "plan.yaml", "--home", "."), "court"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(
    command: tuple[str, ...], extra: str, light: Path, wheel: Path, tmp_path: Path
) -> None:
    done = run(str(light / "kingdom"), *command, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert f"pip install '{wheel}[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("light"))


@pytest.mark.walk
def test_the_extra_postgres_brings_its_driver(unpacked: Path, tmp_path: Path, postgres_url: str) -> None:
    programs = link(unpacked, tmp_path, "postgres")
    code = (
        "import asyncio, sys\nfrom kingdom.bus import Envelope, connect\n"
        "async def main():\n    async with connect(sys.argv[1]) as bus:\n        await bus.setup()\n"
        "        print(len(await bus.publish('orders', Envelope(type='Placed', payload={}))))\nasyncio.run(main())\n"
    )
    assert run(str(programs / "python"), "-c", code, postgres_url, cwd=tmp_path).stdout == "1\n"


@pytest.mark.walk
def test_the_extra_court_runs_a_court_without_the_web(unpacked: Path, tmp_path: Path) -> None:
    kingdom = (str(link(unpacked, tmp_path, "court") / "python"), "-m", "kingdom")
    run(*kingdom, "init", "home", cwd=tmp_path)
    done = run(*kingdom, "demo", cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    refused = run(*kingdom, "web", "--home", "home", cwd=tmp_path, check=False)
    assert (refused.returncode, "[web]'" in refused.stderr) == (1, True)


@pytest.mark.walk
def test_the_extra_web_serves_the_dashboard(unpacked: Path, tmp_path: Path) -> None:
    python = str(link(unpacked, tmp_path, "web") / "python")
    run(python, "-m", "kingdom", "init", "home", cwd=tmp_path)
    looked = "from kingdom.court.bootstrap import available_roles; print('web' in available_roles())"
    assert run(python, "-c", looked, cwd=tmp_path).stdout == "True\n"
    code = "import kingdom.web.app, kingdom.web.dashboard.nicegui_app, kingdom.client; print('imported')"
    assert run(python, "-c", code, cwd=tmp_path).stdout == "imported\n"


@pytest.mark.walk
@pytest.mark.parametrize("extra", ["postgres", "court", "web"])
def test_an_extra_is_installed_from_an_index_as_it_is_linked_here(
    extra: str, wheel: Path, unpacked: Path, tmp_path: Path
) -> None:
    """The shorter tests above stand on this."""
    for name in ("real", "linked"):
        (tmp_path / name).mkdir()
    real, linked = install(wheel, tmp_path / "real", f"[{extra}]"), link(unpacked, tmp_path / "linked", extra)
    looked = "import importlib.metadata as m; print(sorted((d.name, d.version) for d in m.distributions()))"
    there = [run(str(programs / "python"), "-c", looked, cwd=tmp_path).stdout for programs in (real, linked)]
    assert there[0] == there[1]
    assert "'kingdom'" in there[0]
    assert run(str(real / "kingdom"), "--version", cwd=tmp_path).stdout.startswith("kingdom ")
