"""Tests run in several processes: each once, whatever happens to a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = """
import os, pathlib, signal, pytest

HERE = pathlib.Path(__file__)

def note(what):
    with HERE.with_suffix(".log").open("a") as log:
        log.write(what + "\\n")

@pytest.fixture(scope="module")
def shared():
    note("opened")
    yield
    note("closed")

@pytest.mark.parametrize("number", range(8))
def test_number(number, shared):
    note(str(number))
    if number == 3 and HERE.stem == "test_killed":
        os.kill(os.getpid(), signal.SIGKILL)

def test_that_fails():
    print("said before")
    raise ValueError(HERE.stem)

def test_that_is_skipped():
    pytest.skip("not here")
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.workers",
        "--workers",
        "2",
        "-p",
        "no:cacheprovider",
    ]
    return subprocess.run(
        [*command, "-c", folder / "pytest.ini", *options, folder], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = walk\n")
    for name in ("killed", "one", "two"):
        (tmp_path / f"test_{name}.py").write_text(TESTS)
    return tmp_path


def test_each_test_runs_once_and_what_a_file_shares_is_made_once(folder: Path) -> None:
    done = run(folder, "-ra")
    assert "4 failed, 23 passed, 3 skipped" in done.stdout, done.stdout + done.stderr
    numbers = [str(number) for number in range(8)]
    for name in ("one", "two"):
        assert (folder / f"test_{name}.log").read_text().split() == ["opened", *numbers, "closed"]
        assert f"ValueError: test_{name}" in done.stdout
    assert done.stdout.count("said before") == 6, "the source and the output of each failure"
    killed = (folder / "test_killed.log").read_text().split()
    assert killed == ["opened", *numbers[:4], "opened", *numbers[4:], "closed"]
    assert "its process ended: -9" in done.stdout
    assert done.returncode == 1


def test_a_run_ends_at_the_first_failure_if_asked(folder: Path) -> None:
    done = run(folder, "-x", "-k", "fails")
    assert "1 failed" in done.stdout
    assert done.returncode == 1
