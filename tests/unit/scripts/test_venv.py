"""The virtual environment that `make` builds, with whatever Python a machine has."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "venv"

# A Python that knows its version, and makes environments of a copy of itself.
STUB = """#!/bin/sh
case "$1" in
    -c) exit {old};;
    --version) echo Python {version};;
    -m) mkdir -p "$4/bin" && cp "$0" "$4/bin/python"; exit {failure};;
esac
"""


def stub(program: Path, version: str, failure: int = 0) -> Path:
    old = int(version.split(".")[1]) < 11
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(STUB.format(old=int(old), version=version, failure=failure))
    program.chmod(0o755)
    return program


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder that is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("rm", "mkdir", "cp"):
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


def made(programs: Path, python: str = "python3") -> subprocess.CompletedProcess[str]:
    bash, folder = str(shutil.which("bash")), str(programs.parent / "venv")
    return subprocess.run(
        [bash, str(SCRIPT), python, folder], env={"PATH": str(programs)}, capture_output=True, text=True, check=False
    )


def version_of(venv: Path) -> str:
    return subprocess.run([venv / "bin" / "python", "--version"], capture_output=True, text=True, check=True).stdout


def test_the_python_named_is_taken_where_it_is_new_enough(programs: Path, tmp_path: Path) -> None:
    stub(programs / "python3", "3.12.1")
    stub(programs / "python3.13", "3.13.0")
    assert (made(programs).stdout, version_of(tmp_path / "venv")) == ("", "Python 3.12.1\n")


def test_a_newer_python_beside_an_old_one_is_taken(programs: Path, tmp_path: Path) -> None:
    stub(programs / "python3", "3.10.13")
    stub(programs / "python3.11", "3.11.7")
    assert made(programs).stdout == "python3 is older than Python 3.11: using python3.11\n"
    assert version_of(tmp_path / "venv") == "Python 3.11.7\n"


def test_without_a_python_that_is_new_enough_one_line_says_what_to_do(programs: Path, tmp_path: Path) -> None:
    stub(programs / "python3", "3.10.13")
    done = made(programs)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "error: Kingdom needs Python 3.11 or newer, and python3 is Python 3.10.13: install one"
    )
    assert done.stderr.endswith("as in make demo PYTHON=python3.11\n")
    assert not (tmp_path / "venv").exists()


def test_without_any_python_the_line_says_so(programs: Path) -> None:
    assert "and python3 is not there: install one" in made(programs).stderr


def test_the_environment_of_an_older_python_is_replaced_and_a_good_one_kept(programs: Path, tmp_path: Path) -> None:
    stub(tmp_path / "venv" / "bin" / "python", "3.10.13")
    stub(programs / "python3", "3.12.1")
    assert made(programs).returncode == 0
    assert version_of(tmp_path / "venv") == "Python 3.12.1\n"
    stub(programs / "python3", "3.13.0")
    assert made(programs).returncode == 0
    assert version_of(tmp_path / "venv") == "Python 3.12.1\n"


def test_an_environment_that_could_not_be_made_is_removed(programs: Path, tmp_path: Path) -> None:
    stub(programs / "python3", "3.11.2", failure=1)  # as on Debian without python3-venv
    assert made(programs).returncode == 1
    assert not (tmp_path / "venv").exists()
