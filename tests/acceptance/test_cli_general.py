"""``kingdom general``: list, check, install and remove generals, as an operator does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kingdom.court.home import Home
from kingdom.court.init_home import SHIPPED_GENERALS_DIR, shipped_generals
from kingdom.court.packages.installed import load_generals
from tests.support.command import kingdom, kingdom_json, kingdom_tty

MANIFEST = """\
name: gen-x
description: Tests things.
engine: {name: codex, model: big}
concurrency: 3
subscribes: [test.run.*, {type: test.asked, repos: [acme/*]}]
schedules: [{name: nightly, cron: 0 3 * * *}]
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "court")
    home.config.mkdir(parents=True)
    (home.config / "system.yaml").write_text("name: test\n")
    return home


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "gen-x"
    folder.mkdir()
    (folder / "manifest.yaml").write_text(MANIFEST)
    (folder / "prompt.md").write_text("Do it.\n{{ data }}\n{{ report }}\n")
    return folder


def put_task(home: Home, state: str, name: str, general: str) -> None:
    folder = home.queue / "tasks" / state
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps({"id": name, "target_general": general}))


def test_a_general_is_installed_listed_replaced_and_removed(home: Home, source: Path) -> None:
    at = ("--home", str(home.root))
    assert "no generals in" in kingdom("general", "ls", *at).stdout
    said = kingdom("general", "install", str(source), *at)
    assert (said.returncode, said.stdout.splitlines()[0]) == (0, f"gen-x is installed in {home.general('gen-x')}")

    (row,) = kingdom("general", "ls", *at).stdout.splitlines()[1:]
    assert " ".join(row.split()) == "gen-x enabled codex (big) test.run.*, test.asked nightly: 0 3 * * * 3 –"
    (listed,) = kingdom_json("general", "ls", *at)["generals"]
    assert listed["name"] == "gen-x"
    assert listed["problems"] == []
    assert listed["manifest"]["subscribes"][1]["repos"] == ["acme/*"]
    assert listed["manifest"]["schedules"][0]["cron"] == "0 3 * * *"

    (source / "prompt.md").write_text("Do it better.\n{{ report }}\n")
    refused = kingdom("general", "install", str(source), *at)
    assert refused.returncode == 1
    assert "already exists: use --replace" in refused.stderr
    assert kingdom_json("general", "install", str(source), "--replace", *at)["installed"]["name"] == "gen-x"
    assert (home.general("gen-x") / "prompt.md").read_text().startswith("Do it better.")

    assert kingdom_json("general", "remove", "gen-x", "--yes", *at) == {"removed": "gen-x"}
    assert not home.general("gen-x").exists()
    assert "there is no general 'gen-x'" in kingdom("general", "remove", "gen-x", "--yes", *at).stderr


def test_check_prints_every_problem_with_its_line_and_fails(home: Home, source: Path) -> None:
    (source / "manifest.yaml").write_text(MANIFEST.replace("engine: {name: codex", "engine: {name: gpt"))
    (source / "prompt.md").write_text("fine\n{{ nobody }}\n")
    result = kingdom("general", "check", str(source))
    assert result.returncode == 1
    first, second = result.stdout.splitlines()
    assert first.startswith(
        f"{source}/manifest.yaml:3: engine.name: no engine is called 'gpt': there are claude, codex"
    )
    assert second.startswith(f"{source}/prompt.md:2: unknown variable 'nobody': a prompt may use answer, data")
    document = json.loads(kingdom("general", "check", str(source), "--json").stdout)
    assert document == {"checked": [str(source)], "problems": [first, second]}

    refused = kingdom("general", "install", str(source), "--home", str(home.root))
    assert refused.returncode == 1
    assert refused.stdout.splitlines() == [first, second]
    assert refused.stderr == f"error: 2 problems: {source} was not installed\n"
    assert not home.general("gen-x").exists()


def test_check_without_a_name_looks_at_all_that_are_installed(home: Home) -> None:
    for name in ("gen-pr", "gen-jira"):
        shutil.copytree(SHIPPED_GENERALS_DIR / name, home.general(name))
    fine = kingdom("general", "check", KINGDOM_HOME=str(home.root))
    assert (fine.returncode, fine.stdout) == (0, "gen-jira, gen-pr: no problems\n")
    (home.general("gen-jira") / "manifest.yaml").write_text("name: gen-jira\ndescription: x\nschedules: [{name: a}]\n")
    wrong = f"{home.general('gen-jira')}/manifest.yaml:3: schedules a: 'cron' is missing"
    assert kingdom("general", "check", KINGDOM_HOME=str(home.root)).stdout.splitlines() == [wrong]
    assert kingdom("general", "check", "gen-jira", KINGDOM_HOME=str(home.root)).stdout.splitlines() == [wrong]
    assert kingdom("general", "check", "gen-pr", KINGDOM_HOME=str(home.root)).returncode == 0
    broken, fine_one = kingdom_json("general", "ls", "--home", str(home.root))["generals"]
    assert (broken["name"], broken["manifest"], broken["problems"]) == ("gen-jira", None, [wrong])
    assert (fine_one["name"], fine_one["problems"]) == ("gen-pr", [])


@pytest.mark.parametrize("state", ["pending", "in_progress"])
def test_a_general_with_work_is_not_removed_unless_forced(home: Home, source: Path, state: str) -> None:
    shutil.copytree(source, home.general("gen-x"))
    put_task(home, state, "task-20260207-007", "gen-x")
    put_task(home, state, "task-20260207-008", "gen-other")
    at = ("--home", str(home.root))
    result = kingdom("general", "remove", "gen-x", "--yes", *at)
    assert result.returncode == 1
    assert "gen-x has 1 unfinished task (task-20260207-007)" in result.stderr
    assert home.general("gen-x").is_dir()
    assert kingdom("general", "remove", "gen-x", "--yes", "--force", *at).returncode == 0
    assert not home.general("gen-x").exists()


def test_removing_asks_first(home: Home, source: Path) -> None:
    shutil.copytree(source, home.general("gen-x"))
    at = ("--home", str(home.root))
    nobody = kingdom("general", "remove", "gen-x", *at)
    assert nobody.returncode == 2
    assert "repeat the command with --yes" in nobody.stderr
    code, screen = kingdom_tty("general", "remove", "gen-x", *at, answer="n\n")
    assert code == 1
    assert "nothing was changed" in screen
    assert home.general("gen-x").is_dir()
    code, _ = kingdom_tty("general", "remove", "gen-x", *at, answer="y\n")
    assert code == 0
    assert not home.general("gen-x").exists()


def test_one_that_comes_along_is_installed_by_its_name_for_the_engine_of_the_others(home: Home) -> None:
    at = ("--home", str(home.root))
    installed = {}
    for engine in ("claude", "codex"):
        for general in load_generals(home).by_name:
            kingdom("general", "remove", general, "--yes", *at)
        assert kingdom("init", str(home.root), "--general", "gen-pr", "--engine", engine).returncode == 0
        assert kingdom("general", "install", "gen-issue", *at).returncode == 0
        installed[engine] = load_generals(home).by_name["gen-issue"].manifest.engine.name
    assert installed == {"claude": "claude", "codex": "codex"}
    said = kingdom("general", "install", "--help").stdout
    unknown = kingdom("general", "install", "gen-isue", *at)
    assert unknown.returncode == 1
    assert (
        unknown.stderr == f"error: there is no folder gen-isue, and Kingdom has only {', '.join(shipped_generals())}\n"
    )
    assert all(name in said for name in shipped_generals())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("remove", "../../x", "--yes"), "general '../../x' cannot be a file name"),
        (("remove", "-x", "--yes"), "No such option"),
        (("check", "nobody"), "nobody is neither a folder here nor a general in"),
        (("install", "/nonexistent"), "/nonexistent is not a general: it has no manifest.yaml"),
    ],
)
def test_a_wrong_name_is_one_clear_line(home: Home, arguments: tuple[str, ...], said: str) -> None:
    result = kingdom("general", *arguments, "--home", str(home.root))
    assert result.returncode in {1, 2}
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_a_home_it_says_how_to_make_one(tmp_path: Path) -> None:
    for arguments, extra in (((), {"KINGDOM_HOME": str(tmp_path)}), (("--home", str(tmp_path)), {})):
        result = kingdom("general", "ls", *arguments, **extra)
        assert result.returncode == 1
        assert f"kingdom init {tmp_path}" in result.stderr


def test_a_new_general_is_in_order_and_a_second_of_its_name_is_refused(home: Home) -> None:
    made = kingdom_json(
        "general", "new", "gen-y", "--hears", "demo.asked", "--hears", "demo.told.*", "--home", str(home.root)
    )
    assert made["problems"] == []
    (general,) = kingdom_json("general", "ls", "--home", str(home.root))["generals"]
    assert [item["type"] for item in general["manifest"]["subscribes"]] == ["demo.asked", "demo.told.*"]
    again = kingdom("general", "new", "gen-y", "--hears", "demo.asked", "--home", str(home.root))
    assert again.returncode == 1
    assert "already exists" in again.stderr


def test_a_general_is_disabled_and_enabled(home: Home, source: Path) -> None:
    at = ("--home", str(home.root))
    kingdom("general", "install", str(source), *at)
    assert kingdom("general", "disable", "gen-x", *at).stdout == "gen-x is disabled\n"
    assert kingdom("general", "disable", "gen-x", *at).stdout == "gen-x is already disabled\n"
    (listed,) = kingdom_json("general", "ls", *at)["generals"]
    assert listed["enabled"] is False
    assert "gen-x disabled codex" in " ".join(kingdom("general", "ls", *at).stdout.split())
    assert kingdom_json("general", "enable", "gen-x", *at) == {"name": "gen-x", "enabled": True, "changed": True}
    kingdom("general", "disable", "gen-x", *at)
    kingdom("general", "remove", "gen-x", "--yes", *at)
    kingdom("general", "install", str(source), *at)
    assert kingdom_json("general", "ls", *at)["generals"][0]["enabled"] is True, "a removed general is forgotten"
    missing = kingdom("general", "enable", "gen-y", *at)
    assert missing.returncode == 1
    assert "there is no general 'gen-y'" in missing.stderr
