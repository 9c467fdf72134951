"""An installation of Kingdom in an environment of its own, and what can be done with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.pages import ROOT, blocks

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
_TUTORIAL = ROOT / "docs" / "tutorial" / "first-event-bus.md"


def run(*command: str, cwd: Path, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program outside of this checkout; its output is in the error if it fails."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KINGDOM"))}
    done = subprocess.run(
        command, cwd=cwd, env={**outside, **env}, capture_output=True, text=True, timeout=600, check=False
    )
    if check and done.returncode:
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done


def do_bus_tutorial(programs: Path, folder: Path) -> None:
    """Do what the tutorial of the bus says, with the programs of an environment."""
    python, kingdom = str(programs / "python"), str(programs / "kingdom")
    (publish,) = [block for block in blocks(_TUTORIAL) if block.mark == "file: publish.py"]
    (folder / "publish.py").write_text(publish.text)
    assert run(python, "publish.py", cwd=folder).stdout == "10 orders published\n"
    assert run(python, "publish.py", cwd=folder).stdout == "0 orders published\n"
    assert "shop.orders" in run(kingdom, "bus", "depth", "--url", "sqlite:shop.db", cwd=folder).stdout
    (worker,) = [block for block in blocks(_TUTORIAL) if block.mark == "file: worker.py"]
    (folder / "worker.py").write_text(
        worker.text.replace("await worker.run()", "await asyncio.wait_for(worker.run(), 30)")
    )
    with subprocess.Popen([python, "worker.py"], cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        packed = {process.stdout.readline().split(" (")[0] for _ in range(10)}
        process.terminate()
    assert packed == {f"packed order {number}" for number in range(1, 11)}


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into a folder."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
    (found,) = folder.glob("*.whl")
    return found


def unpack(wheel: Path) -> Path:
    """Unpack a wheel as pip does, without what it requires."""
    run(*PIP, "install", "--no-index", "--no-deps", "--target", "unpacked", str(wheel), cwd=wheel.parent)
    return wheel.parent / "unpacked"


def empty(folder: Path) -> Path:
    """Make an environment with nothing in it; return its folder of programs."""
    run(sys.executable, "-m", "venv", "--without-pip", str(folder / "env"), cwd=folder)
    return folder / "env" / "bin"


def link(unpacked: Path, folder: Path, extra: str) -> Path:
    """The same environment without an index: what an installation would bring is linked from the one that runs this."""
    programs = empty(folder)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    for path in unpacked.iterdir():
        (packages / path.name).symlink_to(path)
    (ours,) = distributions(path=[str(unpacked)])
    for found in required(ours, extra, {}):
        for name in {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(found.locate_file(name))))
    program = programs / "kingdom"  # as pip makes it
    program.write_text(f"#!{programs / 'python'}\nimport sys\nfrom kingdom.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    return programs


def required(of: Distribution, extra: str, known: dict[tuple[str, str], Distribution]) -> Iterator[Distribution]:
    """What a distribution requires with an extra, directly or not."""
    for requirement in map(Requirement, of.requires or ()):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in known:
                found = known[name, wanted] = of if name == "kingdom" else distribution(name)
                if found is not of:
                    yield found
                yield from required(found, wanted, known)
