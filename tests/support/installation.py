"""An installation of Kingdom in an environment of its own, and what can be done with it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.pages import ROOT, blocks

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
