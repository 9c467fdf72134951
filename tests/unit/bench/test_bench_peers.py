"""Peers of the benchmark are measured by processes of environments of their own."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

import pytest

import bench.peers
from bench.harness import Figures, NotMeasured, taken
from bench.peers import ROOT, GoPeer, Peer, installed_versions


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


def program(folder: Path, source: str) -> None:
    """Make what the program of a peer in Go does, in Python."""
    folder.mkdir()
    (folder / "bench").write_text(f"#!{sys.executable}\n{source}")
    (folder / "bench").chmod(0o755)


async def asked(peer: str, *commands: str) -> list[Figures]:
    async with GoPeer(peer).running() as running:
        return [await running.ask(command, count=3) for command in commands]


def test_a_peer_in_go_that_is_not_installed_is_not_measured(environments: Path) -> None:
    with pytest.raises(NotMeasured, match=r"river is not installed in .*/river: make bench builds it; it needs Go"):
        asyncio.run(asked("river", "drain"))


def test_figures_come_back_from_the_program_of_a_peer_in_go(environments: Path) -> None:
    program(environments / "river", ANSWERS)
    assert asyncio.run(asked("river", "fill", "drain")) == [{"fill": 3}, {"drain": 3}]


def test_what_fails_in_the_program_of_a_peer_in_go_is_told(environments: Path) -> None:
    program(environments / "river", "input(); print('[null, \"there is no table\"]')")
    with pytest.raises(NotMeasured, match="there is no table"):
        asyncio.run(asked("river", "drain"))


@pytest.mark.parametrize(
    "source", ["raise SystemExit(7)", "input(); raise SystemExit(7)"], ids=["at once", "when asked"]
)
def test_a_program_of_a_peer_in_go_that_dies_is_reported(environments: Path, source: str) -> None:
    program(environments / "river", source)
    with pytest.raises(NotMeasured, match="its process ended with exit code 7"):
        asyncio.run(asked("river", "drain"))


def test_the_versions_of_a_peer_in_go_are_those_it_requires_itself(environments: Path) -> None:
    assert not list(installed_versions())
    program(environments / "river", "")
    versions = dict(installed_versions())
    assert {"github.com/riverqueue/river", "github.com/jackc/pgx/v5"} <= set(versions)
    assert "github.com/tidwall/gjson" not in versions  # it is River that requires it


def test_every_peer_in_go_has_pinned_modules() -> None:
    programs = {path.parent for path in (ROOT / "bench/peers").glob("*/main.go")}
    assert programs
    assert programs == {path.parent for path in (ROOT / "bench/peers").glob("*/go.mod")}
    assert programs == {path.parent for path in (ROOT / "bench/peers").glob("*/go.sum")}


ANSWERS = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps([{asked["command"]: asked["count"]}, None]), flush=True)
"""
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
