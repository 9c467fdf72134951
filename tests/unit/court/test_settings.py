"""Settings are listed with where each comes from, and without secrets."""

from __future__ import annotations

from pathlib import Path

from kingdom.court.home import Home
from kingdom.court.settings import read_settings


def settings(root: Path, name: str) -> dict[str, tuple[str, str]]:
    (found,) = [file for file in read_settings(Home(root)) if file.name == name]
    return {one.key: (one.value, one.source) for one in found.settings}


def test_a_value_comes_from_the_file_or_is_the_default(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "system.yaml").write_text("budget: {daily_usd: 10}\ntimezone: Asia/Seoul\n")
    found = settings(tmp_path, "system.yaml")
    assert found["budget.daily_usd"] == ("10.0", "file")
    assert found["budget.monthly_usd"] == ("null", "default")
    assert found["timezone"] == ('"Asia/Seoul"', "file")
    assert found["web.port"] == ("8700", "default")
    assert {source for _, source in settings(tmp_path, "chamberlain.yaml").values()} == {"default"}


def test_every_setting_is_described_where_its_model_says_something(tmp_path: Path) -> None:
    (system, *_) = read_settings(Home(tmp_path))
    described = {one.key: one.description for one in system.settings}
    assert described["question.deadline_hours"].startswith("How long a question waits")
    assert not system.exists


def test_what_may_be_secret_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "system.yaml").write_text(
        "engines: {claude: {env: {MODE: fast}, args: [--x]}}\nrepos: {base_url: 'https://ann:pw1@git.example/'}\n"
    )
    found = settings(tmp_path, "system.yaml")
    assert "fast" not in found["engines"][0]
    assert '"MODE": "***"' in found["engines"][0]
    assert "pw1" not in found["repos.base_url"][0]


def test_a_file_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "envoy.yaml").write_text("nothing: 1\n")
    (envoy,) = [file for file in read_settings(Home(tmp_path)) if file.name == "envoy.yaml"]
    assert "unknown key 'nothing'" in envoy.problems[0]
    assert envoy.settings == []
