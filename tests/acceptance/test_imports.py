"""What is imported when: the bus drags in nothing it does not need, and the command line answers at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import environment
from tests.support.repositories import Remote

_MAX_MODULES_OF_A_REQUEST = 135  # that are imported before anything else goes on


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nsys.stderr.write(chr(10).join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60, check=True
    )
    return set(done.stderr.split())


def within(modules: set[str], *packages: str) -> set[str]:
    return {
        name for name in modules if name.startswith(tuple(f"{package}." for package in packages)) or name in packages
    }


def test_importing_the_bus_imports_no_driver_no_command_line_and_no_transport() -> None:
    loaded = modules_after("import kingdom.bus")
    assert "kingdom.bus.worker" in loaded
    heavy = ("click", "rich", "prometheus_client", "asyncpg", "psycopg", "sqlalchemy", "sqlite3")
    assert within(loaded, *heavy) == set()
    assert within(loaded, "kingdom") == within(loaded, "kingdom.bus", "kingdom.base") | {"kingdom"}
    assert within(loaded, "kingdom.bus.transports") == set()


def test_metrics_and_logs_are_imported_without_prometheus_until_somebody_scrapes() -> None:
    loaded = modules_after("import kingdom.bus.metrics, kingdom.bus.logs\nkingdom.bus.metrics.Metrics()")
    assert within(loaded, "prometheus_client") == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["bus", "--help"],
        ["bus", "depth", "--help"],
        ["demo", "--help"],
        ["up", "-h"],
        ["task", "-h"],
    ],
)
def test_help_imports_neither_the_bus_nor_rich(arguments: list[str]) -> None:
    loaded = modules_after(f"from kingdom.cli.app import run\nassert run({arguments!r}) == 0")
    assert "kingdom.cli.app" in loaded
    assert within(loaded, "kingdom.bus", "rich", "asyncio", "asyncpg", "sqlite3", "prometheus_client") == set()


def test_the_help_of_the_root_imports_no_command_and_that_of_a_command_no_other() -> None:
    root = modules_after("from kingdom.cli.app import run\nassert run(['--help']) == 0")
    core = {f"kingdom.cli{name}" for name in ("", ".app", ".commands", ".output", ".parsing")}
    assert within(root, "kingdom.cli") == core
    depth = modules_after("from kingdom.cli.app import run\nassert run(['bus', 'depth', '--help']) == 0")
    assert "kingdom.cli.bus.inspection" in depth
    assert within(depth, "kingdom.cli.court", "kingdom.cli.workflow") == set()


def test_one_request_waits_for_few_modules_the_others_are_loaded_while_git_and_the_agent_work(tmp_path: Path) -> None:
    remote = Remote(tmp_path / "shop")
    remote.commit({"a.txt": "one\n"})
    agent = tmp_path / "agent"
    agent.write_text('#!/bin/sh\necho two > a.txt\necho \'{"status": "success"}\' > "$KINGDOM_RESULT_PATH"\n')
    agent.chmod(0o755)
    words = ["run", "Do it", "--repo", str(remote.folder), "--home", str(tmp_path), "--engine", "command"]
    words += ["--option", f"argv=[{agent}]"]
    script = f"""
import sys, threading
class Recorder:
    waited_for = []
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            self.waited_for.append(name)
sys.meta_path.insert(0, Recorder())
from kingdom.cli.app import run
assert run({words!r}) == 0
sys.stderr.write(chr(10).join(Recorder.waited_for))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=120, check=True
    )
    waited_for = set(done.stderr.split())
    assert "kingdom.cli.workflow.run" in waited_for
    late = (
        "pydantic",
        "jinja2",
        "rich",
        "urllib.request",
        "importlib.metadata",
        "kingdom.journal",
        "kingdom.court.config",
    )
    late += ("kingdom.agents.runner", "kingdom.workflow.adapters.agent_client", "kingdom.workflow.landing")
    assert within(waited_for, *late) == set()
    assert len(within(waited_for, "kingdom")) <= _MAX_MODULES_OF_A_REQUEST


def test_one_request_outside_a_court_loads_no_configuration_of_courts_and_no_templates(tmp_path: Path) -> None:
    remote = Remote(tmp_path / "shop")
    remote.commit({"a.txt": "one\n"})
    script = tmp_path / "script.json"
    script.write_text('[{"write": {"path": "a.txt", "text": "two"}}, {"result": {"summary": "done"}}]')
    words = ["run", "Do it", "--repo", str(remote.folder), "--home", str(tmp_path), "--engine", "scripted"]
    words += ["--option", f"script={script}"]
    loaded = modules_after(f"from kingdom.cli.app import run\nassert run({words!r}) == 0")
    assert "kingdom.cli.workflow.run" in loaded
    late = {"kingdom.court.config", "kingdom.court.bootstrap", "kingdom.workflow.template_file"}
    late |= {"kingdom.cli.workflow.group", "rich"}
    assert loaded & late == set()
