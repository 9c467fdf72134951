"""Peers of the benchmark are measured by processes of environments of their own."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

import bench.peers
from bench.harness import NotMeasured, taken
from bench.peers import ROOT, Peer


@pytest.fixture
def environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bench.peers, "ENVIRONMENTS", tmp_path)
    return tmp_path


def interpreter(folder: Path, program: str) -> None:
    """Make an environment whose interpreter is a program."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(program)


def test_a_peer_that_is_not_installed_is_not_measured(environments: Path) -> None:
    with pytest.raises(NotMeasured, match=r"huey is not installed in .*/huey: make bench installs it"):
        Peer("huey", "files")(environments, 3)


def test_what_fails_in_the_process_of_a_peer_is_told(environments: Path) -> None:
    interpreter(environments / "huey", sys.executable)  # it has no package but those of the standard library
    figures, failure = taken(partial(Peer("huey", "files"), environments, 3))
    assert figures is None
    assert failure is not None
    assert failure.startswith("ModuleNotFoundError: No module named 'huey'")


def test_a_process_of_a_peer_that_dies_is_reported(environments: Path) -> None:
    interpreter(environments / "dirq", "/bin/false")
    with pytest.raises(NotMeasured, match="its process ended with exit code 1"):
        Peer("dirq", "files")(environments, 3)


def test_figures_come_back_from_the_process_of_a_peer(environments: Path) -> None:
    interpreter(environments / "dirq", sys.executable)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = environments / "dirq/lib" / version / "site-packages" / "dirq"
    packages.mkdir(parents=True)
    (environments / "dirq/pyvenv.cfg").write_text(f"home = {Path(sys.base_prefix) / 'bin'}\n")
    (packages / "__init__.py").write_text("")
    (packages / "QueueSimple.py").write_text(STAND_IN)
    assert sorted(Peer("dirq", "files")(environments, 3)) == ["get", "put"]


def test_every_peer_has_pinned_requirements() -> None:
    modules = {path.stem for path in (ROOT / "bench/peers").glob("[!_]*.py")}
    assert modules == {path.stem for path in (ROOT / "requirements/bench").glob("*.txt")}
    assert modules == {path.stem for path in (ROOT / "requirements/bench").glob("*.in")}


STAND_IN = """
class QueueSimple:
    def __init__(self, path): self.items = []
    def add(self, text): self.items.append(text)
    def first(self): return self.items[0] if self.items else ""
    def next(self): return self.first()
    def lock(self, name): return True
    def get(self, name): return name
    def remove(self, name): self.items.pop(0)
"""
