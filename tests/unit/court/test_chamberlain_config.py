"""``config/chamberlain.yaml``: what is refused, and what holds meanwhile."""

from __future__ import annotations

from datetime import time
from pathlib import Path

import pytest

from kingdom.base.yamlfile import YamlProblem, load_yaml, parse_yaml
from kingdom.court.chamberlain.config import ChamberlainConfig, ChamberlainConfigFile
from kingdom.court.home import Home

TEMPLATE = Path(__file__).parents[3] / "src/kingdom/court/templates/chamberlain.yaml"


def parse(text: str) -> ChamberlainConfig:
    return parse_yaml(text, ChamberlainConfig, "chamberlain.yaml")


def test_the_template_is_the_defaults() -> None:
    assert load_yaml(TEMPLATE, ChamberlainConfig) == ChamberlainConfig()


def test_every_commented_key_of_the_template_is_a_default_too() -> None:
    lines = [
        line.removeprefix("# ") if line.startswith("# ") else line for line in TEMPLATE.read_text().splitlines()[3:]
    ]
    text = "\n".join(line.replace("  # invalid", "  invalid").replace("  # reports", "  reports") for line in lines)
    config = parse(text)
    assert config.alerts.channel == "#ops", "the one example that is not a default"
    assert config.model_copy(update={"alerts": ChamberlainConfig().alerts}) == ChamberlainConfig()


@pytest.mark.parametrize("text", ['"03:30"', "03:30", "3:30", "'3:30'"])
def test_a_time_of_day_may_stand_with_or_without_quotes(text: str) -> None:
    assert parse(f"retention: {{at: {text}}}").retention.at == time(3, 30)
    assert parse("report: {at: 13:05}").report.at == time(13, 5), "which some take for a number of base 60"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("retention:\n  logs_days: -1", "chamberlain.yaml:2: retention.logs_days"),
        ("retention:\n  log_days: 7", "did you mean 'logs_days'"),
        ("interval_seconds: fast", "chamberlain.yaml:1: interval_seconds"),
        ("health:\n  cpu_percent: {yellow: 90}", "yellow < orange < red"),
        ('retention: {at: "25:00"}', "not a time of day"),
        ("alerts: {health_from: blue}", "alerts.health_from"),
    ],
)
def test_mistakes_are_told_with_their_line(text: str, problem: str) -> None:
    with pytest.raises(YamlProblem) as raised:
        parse(text)
    assert problem in str(raised.value)


def test_a_mistake_leaves_what_held_before_and_the_next_change_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "config" / "chamberlain.yaml"
    path.parent.mkdir()
    file = ChamberlainConfigFile(Home(tmp_path))
    assert file.load().config == ChamberlainConfig(), "no file: the defaults"
    path.write_text("retention: {queue_days: 90}")
    assert file.load().config.retention.queue_days == 90
    path.write_text("retention: {queue_days: -90}")
    loaded = file.load()
    assert (loaded.config.retention.queue_days, loaded.sound) == (90, True)
    assert loaded.problem is not None
    path.write_text("retention: {queue_days: 30}")
    assert file.load().problem is None
    assert file.load().config.retention.queue_days == 30


def test_nothing_is_removed_by_defaults_that_stand_in_for_a_file_with_mistakes(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "chamberlain.yaml").write_text("retention: {queue_days: 9O}")
    loaded = ChamberlainConfigFile(Home(tmp_path)).load()
    assert loaded.config == ChamberlainConfig()
    assert not loaded.sound
