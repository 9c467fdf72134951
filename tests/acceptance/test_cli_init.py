"""``kingdom init``: from an empty folder to a court, and nothing of anybody's is ever overwritten."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kingdom.base.yamlfile import load_yaml
from kingdom.court.chamberlain.config import ChamberlainConfig
from kingdom.court.config import load_system
from kingdom.court.envoy.config import load_envoy
from kingdom.court.home import Home
from kingdom.court.packages.installed import load_generals
from kingdom.court.sentinel.config import load_sentinel
from tests.support.command import kingdom, kingdom_json, kingdom_tty


def tree(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    root = tmp_path_factory.mktemp("init") / "deep" / "court"
    result = kingdom("init", str(root), TZ="Asia/Seoul")
    assert result.returncode == 0, result.stderr
    return root, result.stdout


def test_a_home_has_every_folder_of_the_court(founded: tuple[Path, str]) -> None:
    root, _ = founded
    expected = {
        "queue/events": {"pending", "dispatched", "completed", "invalid"},
        "queue/tasks": {"pending", "in_progress", "completed", "invalid"},
        "queue/messages": {"pending", "sent", "failed"},
        "state": {"king", "chamberlain", "sentinel", "envoy", "results", "prompts", "soldiers", "ledger"},
        "logs": {"sessions", "analysis"},
        "memory": {"generals"},
        ".": {"queue", "state", "memory", "logs", "workspace", "config"},
    }
    for folder, names in expected.items():
        assert names <= {path.name for path in (root / folder).iterdir() if path.is_dir()}, folder
    assert (root / "state/sentinel/seen").is_dir()


def test_its_configuration_and_its_generals_can_be_used_as_they_are(founded: tuple[Path, str]) -> None:
    home = Home(founded[0])
    assert load_system(home).timezone == "Asia/Seoul"
    generals = load_generals(home)
    assert sorted(generals.by_name) == ["gen-briefing", "gen-pr"]
    assert generals.problems == []
    retention = load_yaml(home.config / "chamberlain.yaml", ChamberlainConfig).retention
    assert (retention.log_max_mb, retention.results_days, retention.prompts_days, retention.seen_days) == (
        100,
        7,
        3,
        30,
    )


def test_it_says_what_it_made_and_what_comes_next(founded: tuple[Path, str]) -> None:
    root, said = founded
    for word in ("+ config/system.yaml", "+ queue/events/", "+ config/generals/gen-pr/", f"cd {root}", "kingdom up"):
        assert word in said


def test_what_is_work_in_progress_is_ignored_by_git(founded: tuple[Path, str]) -> None:
    ignored = (founded[0] / ".gitignore").read_text("utf-8").splitlines()
    assert {"/queue/", "/state/", "/logs/", "/workspace/", ".env"} <= set(ignored)
    assert "/config/" not in ignored


def test_repeated_it_changes_nothing_and_adds_what_is_missing(tmp_path: Path) -> None:
    root = tmp_path / "court"
    kingdom_json("init", str(root))
    (root / "config/system.yaml").write_text("name: mine\n")
    (root / "config/generals/gen-pr/prompt.md").write_text("my own prompt")
    (root / ".gitignore").write_text("mine\n")
    shutil.rmtree(root / "config/generals/gen-briefing")
    (root / "logs/analysis").rmdir()
    (root / "config/chamberlain.yaml").unlink()
    before = tree(root)
    again = kingdom_json("init", str(root))
    assert again == {"home": str(root), "new": False, "made": ["config/chamberlain.yaml", "logs/analysis/"]}
    after = tree(root)
    assert {name: after[name] for name in before if not name.startswith("queue/")} == {
        name: content for name, content in before.items() if not name.startswith("queue/")
    }
    assert not (root / "config/generals/gen-briefing").exists(), "what a person removed stays removed"
    result = kingdom("init", str(root))
    assert result.stdout == f"{root} is complete: nothing was changed\n"


def test_the_generals_to_begin_with_can_be_chosen_and_added_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "court"
    kingdom_json("init", str(root), "--general", "gen-jira")
    assert list(load_generals(Home(root)).by_name) == ["gen-jira"]
    added = kingdom_json("init", str(root), "--general", "gen-pr", "--general", "gen-jira")
    assert added["made"] == ["config/generals/gen-pr/"]
    monkeypatch.chdir(root)
    inside = kingdom("init", "--general", "gen-issue")
    assert (inside.returncode, "gen-issue" in load_generals(Home(root)).by_name) == (0, True), "it is the home here"
    result = kingdom("init", str(root), "--general", "gen-x")
    assert result.returncode == 1
    assert (
        "there is no shipped general 'gen-x', only gen-briefing, gen-issue, gen-jira, gen-pr, gen-slack, gen-test"
        in result.stderr
    )


CHOSEN = ("--engine", "codex", "--repo", "acme/shop", "--repo", "acme/web", "--messages", "slack", "--language", "ko")


def chosen(root: Path) -> tuple[object, ...]:
    """What a home was made with."""
    home = Home(root)
    generals = load_generals(home)
    assert generals.problems == []
    github, slack = load_sentinel(home).github, load_envoy(home).slack
    engines = {package.manifest.engine.name for package in generals.by_name.values()}
    watched = None if github is None else (github.notifications, github.repos)
    return engines, watched, slack.enabled, load_system(home).locale


def test_what_a_court_begins_with_can_be_given(tmp_path: Path) -> None:
    root = tmp_path / "court"
    result = kingdom("init", str(root), "--general", "gen-jira", "--general", "gen-pr", *CHOSEN)
    assert result.returncode == 0, result.stderr
    assert chosen(root) == ({"codex"}, (False, ["acme/shop", "acme/web"]), True, "ko")
    assert "export GITHUB_TOKEN=…" in result.stdout
    assert "# Further settings:\n# github:" in (root / "config/sentinel.yaml").read_text("utf-8")


def test_with_slack_somebody_takes_what_people_ask_for_there(tmp_path: Path) -> None:
    kingdom_json("init", str(tmp_path / "a"), "--messages", "slack")
    assert sorted(load_generals(Home(tmp_path / "a")).by_name) == ["gen-briefing", "gen-pr", "gen-slack"]
    code, screen = kingdom_tty("init", str(tmp_path / "b"), "--messages", "slack", answer="\n\n\n\n")
    assert code == 0, screen
    assert "Generals [gen-pr gen-briefing gen-slack]" in screen
    assert "gen-slack" in load_generals(Home(tmp_path / "b")).by_name


def test_on_a_terminal_it_asks_for_what_was_not_given(tmp_path: Path) -> None:
    root = tmp_path / "court"
    code, screen = kingdom_tty(
        "init",
        str(root),
        "--language",
        "en",
        answer="codex\nshop\nacme/shop, acme/web\nslack\ngen-x\ngen-issue gen-pr\n",
    )
    assert code == 0, screen
    assert "'shop' is not a repository: write its owner and name, such as acme/shop" in screen
    assert "'gen-x' is none of them" in screen
    assert sorted(load_generals(Home(root)).by_name) == ["gen-issue", "gen-pr"]
    assert "kingdom emit github.issue.assigned …" in screen
    for question in (
        "Which agents do the work?",
        "Which GitHub repositories",
        "Where do messages go?",
        "Which generals",
    ):
        assert question in screen
    assert "In which language?" not in screen
    assert chosen(root) == ({"codex"}, (False, ["acme/shop", "acme/web"]), True, "en")
    code, screen = kingdom_tty("init", str(root))
    assert (code, "?" in screen) == (0, False), "a home that exists asks nothing"


def test_enter_is_the_default_and_yes_asks_nothing(tmp_path: Path) -> None:
    code, screen = kingdom_tty("init", str(tmp_path / "a"), answer="\n\n\n\n\n")
    assert code == 0, screen
    code, screen = kingdom_tty("init", str(tmp_path / "b"), "--yes")
    assert (code, "?" in screen) == (0, False)
    assert chosen(tmp_path / "a") == chosen(tmp_path / "b") == ({"claude"}, None, None, "en")


def test_a_word_that_is_no_repository_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    result = kingdom("init", str(tmp_path / "court"), "--repo", "https://example.org/acme")
    assert (result.returncode, list(tmp_path.iterdir())) == (1, [])
    assert "is not a repository: write its owner and name, such as acme/shop" in result.stderr


def test_a_folder_of_something_else_is_refused_and_with_force_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.c").write_text("int main;")
    (tmp_path / ".gitignore").write_text("*.o\n")
    result = kingdom("init", str(tmp_path), "--json")
    assert result.returncode == 1
    error = json.loads(result.stdout)["error"]
    assert error["code"] == "CANNOT_FOUND"
    assert "is not empty" in error["message"]
    assert "--force" in error["message"]
    assert sorted(tree(tmp_path)) == [".gitignore", "src/main.c"]
    made = kingdom_json("init", str(tmp_path), "--force")["made"]
    assert ".gitignore" not in made
    assert (tmp_path / ".gitignore").read_text() == "*.o\n"
    assert Home(tmp_path).exists


def test_an_empty_repository_and_a_founding_cut_short_are_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "config").mkdir()
    assert kingdom_json("init", str(tmp_path))["new"] is True


def test_a_file_or_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    for target in (file, file / "below"):
        result = kingdom("init", str(target))
        assert result.returncode == 1
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    assert file.read_text() == "x"


def test_a_configuration_that_is_broken_is_told_and_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "court"
    kingdom_json("init", str(root))
    (root / "config/system.yaml").write_text("name: x\nlocale: fr\n")
    result = kingdom("init", str(root))
    assert result.returncode == 1
    assert f"{root}/config/system.yaml:2: locale: must be 'en' or 'ko', not 'fr'" in result.stderr
