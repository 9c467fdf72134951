"""The wheel in empty environments: the bus alone, and each extra by itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT, blocks

TUTORIAL = ROOT / "docs" / "tutorial" / "first-event-bus.md"
# What `pip install kingdom` brings must not bring these in.
HEAVY = ("aiohttp", "asyncpg", "fastapi", "httpx", "jinja2", "mcp", "nicegui", "psutil", "textual", "uvicorn", "yaml")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    (found,) = folder.glob("*.whl")
    return found


def run(*command: str, cwd: Path, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KINGDOM"))}
    done = subprocess.run(
        command, cwd=cwd, env={**outside, **env}, capture_output=True, text=True, timeout=240, check=False
    )
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


def install(wheel: Path, folder: Path, extra: str = "") -> Path:
    """Install the wheel with an extra into a new environment; return its folder of programs.

    Versions are those of our requirements, so that a release of somebody else's cannot break this.
    """
    run(sys.executable, "-m", "venv", str(folder / "env"), cwd=folder)
    wanted = folder / "wanted.txt"
    wanted.write_text(f"-c {ROOT / 'requirements/dev.txt'}\nkingdom{extra} @ {wheel.as_uri()}\n")
    programs = folder / "env" / "bin"
    done = run(str(ROOT / "scripts/install"), str(programs / "python"), str(wanted), cwd=folder, check=False)
    if done.returncode and "CI" not in os.environ:
        pytest.skip(f"no package index can be reached: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    return programs


def test_the_bus_alone_is_light_and_does_its_tutorial(wheel: Path, tmp_path: Path) -> None:
    programs = install(wheel, tmp_path)
    python, kingdom = str(programs / "python"), str(programs / "kingdom")
    looked = f"import importlib.util as u; print([n for n in {HEAVY} if u.find_spec(n)])"
    assert run(python, "-c", looked, cwd=tmp_path).stdout.strip() == "[]"
    (publish,) = [block for block in blocks(TUTORIAL) if block.mark == "file: publish.py"]
    (tmp_path / "publish.py").write_text(publish.text)
    assert run(python, "publish.py", cwd=tmp_path).stdout == "10 orders published\n"
    assert run(python, "publish.py", cwd=tmp_path).stdout == "0 orders published\n"
    depth = run(kingdom, "bus", "depth", "--url", "sqlite:shop.db", cwd=tmp_path).stdout
    assert "shop.orders" in depth
    (worker,) = [block for block in blocks(TUTORIAL) if block.mark == "file: worker.py"]
    (tmp_path / "worker.py").write_text(
        worker.text.replace("await worker.run()", "await asyncio.wait_for(worker.run(), 30)")
    )
    with subprocess.Popen([python, "worker.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        packed = {process.stdout.readline().split(" (")[0] for _ in range(10)}
        process.terminate()
    assert packed == {f"packed order {number}" for number in range(1, 11)}


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (("bus", "depth", "--url", "postgresql:///nowhere"), "postgres"),
        (("init", "here"), "court"),
        (("workflow", "create", "plan.yaml", "--home", "."), "court"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(
    command: tuple[str, ...], extra: str, light: Path, tmp_path: Path
) -> None:
    done = run(str(light / "kingdom"), *command, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert f"pip install 'kingdom[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("light"))


def test_the_extra_postgres_brings_its_driver(wheel: Path, tmp_path: Path, postgres_url: str) -> None:
    programs = install(wheel, tmp_path, "[postgres]")
    code = (
        "import asyncio, sys\nfrom kingdom.bus import Envelope, connect\n"
        "async def main():\n    async with connect(sys.argv[1]) as bus:\n        await bus.setup()\n"
        "        print(len(await bus.publish('orders', Envelope(type='Placed', payload={}))))\nasyncio.run(main())\n"
    )
    assert run(str(programs / "python"), "-c", code, postgres_url, cwd=tmp_path).stdout == "1\n"


def test_the_extra_court_runs_a_court_without_the_web(wheel: Path, tmp_path: Path) -> None:
    kingdom = str(install(wheel, tmp_path, "[court]") / "kingdom")
    run(kingdom, "init", "home", cwd=tmp_path)
    done = run(kingdom, "demo", cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    refused = run(kingdom, "web", "--home", "home", cwd=tmp_path, check=False)
    assert (refused.returncode, "pip install 'kingdom[web]'" in refused.stderr) == (1, True)


def test_the_extra_web_serves_the_dashboard(wheel: Path, tmp_path: Path) -> None:
    programs = install(wheel, tmp_path, "[web]")
    run(str(programs / "kingdom"), "init", "home", cwd=tmp_path)
    looked = "from kingdom.court.bootstrap import available_roles; print('web' in available_roles())"
    assert run(str(programs / "python"), "-c", looked, cwd=tmp_path).stdout == "True\n"
    code = "import kingdom.web.app, kingdom.web.dashboard.nicegui_app, kingdom.client; print('imported')"
    assert run(str(programs / "python"), "-c", code, cwd=tmp_path).stdout == "imported\n"
