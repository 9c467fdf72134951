"""``kingdom metrics`` and ``kingdom service``: what others need to watch a court, and to keep it up."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kingdom.agents.ledger import Ledger, ledger_entry
from kingdom.agents.port import Order, Outcome, Tokens
from kingdom.court.home import Home
from tests.support.command import COMMAND, environment, kingdom, kingdom_json


@pytest.fixture
def home(tmp_path: Path) -> Home:
    assert kingdom("init", str(tmp_path / "court")).returncode == 0
    return Home(tmp_path / "court")


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_metrics_of_a_court_that_is_down(home: Home) -> None:
    for number in range(2):
        kingdom_json("emit", "demo.nobody", "--id", f"evt-console-{number}", "--home", str(home.root))
    (home.role("chamberlain") / "health.json").write_text('{"level": "orange", "reason": "", "ts": ""}')
    found = samples(kingdom("metrics", "--home", str(home.root)).stdout)
    assert found["kingdom_role_up", "king"] == 0
    assert found["kingdom_queue_documents", "events", "pending"] == 2
    assert found["kingdom_queue_oldest_seconds", "events"] >= 0
    assert found["kingdom_health",] == 2
    assert found["kingdom_questions",] == 0
    assert found["kingdom_journal_bytes",] > 0


def test_cost_is_told_by_general(home: Home) -> None:
    order = Order("run-1", "task-1", "scripted", "", home.root, home.root / "r", labels={"general": "gen-pr"})
    outcome = Outcome("success", tokens=Tokens(10, 5), cost_usd=0.5, cost_source="result")
    Ledger(home.ledger).append(ledger_entry(order, outcome, time.time()))
    found = samples(kingdom("metrics", "--home", str(home.root)).stdout)
    assert found["kingdom_cost_usd_today", "gen-pr"] == 0.5
    assert found["kingdom_tokens_today", "gen-pr"] == 15


def test_they_are_served_until_interrupted(home: Home) -> None:
    command = [*COMMAND, "metrics", "--serve", "--port", "0", "--json", "--home", str(home.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        told = ""
        while not told.rstrip().endswith("}"):
            told += process.stdout.readline()
        with urllib.request.urlopen(json.loads(told)["url"], timeout=30) as answer:
            assert "kingdom_role_up" in answer.read().decode()
        process.terminate()
        process.wait(timeout=30)


def test_the_unit_starts_and_stops_this_court(home: Home) -> None:
    unit = kingdom_json("service", "--home", str(home.root))["unit"]
    assert f" up --home {home.root}\n" in unit
    assert f" down --home {home.root}\n" in unit
    assert "WantedBy=default.target" in unit
    assert "User=" not in unit
    assert f"\n# EnvironmentFile={home.root}/.env\n" in unit
    unit = kingdom_json("service", "--system", "--home", str(home.root))["unit"]
    assert "WantedBy=multi-user.target" in unit
    assert f"\nUser={home.root.owner()}\n" in unit


def test_the_unit_of_a_court_in_a_database_has_the_variable_with_its_url(home: Home) -> None:
    (home.config / "machine.yaml").write_text("{name: seat, database_env: COURT_DATABASE}\n")
    unit = kingdom_json("service", "--home", str(home.root))["unit"]
    assert f"with COURT_DATABASE=postgresql://…\nEnvironmentFile={home.root}/.env\n" in unit
    done = kingdom("doctor", "--home", str(home.root))
    assert done.returncode == 1
    assert (
        "config/machine.yaml: database_env names COURT_DATABASE, but that environment variable is not set"
        in done.stdout
    )
    assert "EnvironmentFile= in a systemd unit" in done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("folder", ["court", "my court", "50% court"])
def test_systemd_accepts_the_unit(tmp_path: Path, folder: str) -> None:
    kingdom("init", str(tmp_path / folder), "--yes")
    unit = kingdom_json("service", "--system", "--home", str(tmp_path / folder))["unit"]
    (tmp_path / "kingdom.service").write_text(unit.replace("# Env", "Env"))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "kingdom.service"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "kingdom.service" in done.stderr) == (0, False), done.stderr
