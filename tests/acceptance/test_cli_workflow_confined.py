"""Workflows whose agents are confined."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kingdom.agents.sandbox.sandbox import find_bubblewrap
from tests.acceptance.test_cli_workflow import Desk
from tests.support.repositories import Remote, plain_git


@pytest.fixture
def desk(on_disk: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with tempfile.TemporaryDirectory(prefix="kingdom-agents-") as folder:
        made = Desk(Path(folder), capsys)
        monkeypatch.setenv("KINGDOM_HOME", str(made.home))
        yield made


def test_what_an_agent_of_a_workflow_is_refused_is_in_the_journal_of_the_court(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_bubblewrap().problem:
        pytest.skip(str(find_bubblewrap().problem))
    monkeypatch.setenv("KINGDOM_SANDBOX", "required")
    (desk.home / "config").mkdir()
    (desk.home / "config" / "system.yaml").write_text("{}\n")
    (desk.home / "logs").mkdir()
    desk.run("git", "add", str(desk.folder / "app"))
    template = desk.folder / "spy.yaml"
    engine = {"name": "command", "options": {"argv": ["sh", "-c", "curl -s -m 20 http://evil.example.com; true"]}}
    template.write_text(json.dumps({"name": "spy", "engine": engine, "works": [{"name": "w", "tasks": ["Look"]}]}))
    desk.run("workflow", "create", str(template), "--repo", "app")
    desk.run("workflow", "start", "spy")
    lines = map(json.loads, (desk.home / "logs" / "events.log").read_text().splitlines())
    (refused,) = [line for line in lines if line["type"] == "soldier.refused"]
    assert refused["actor"] == "workflow"
    assert refused["data"]["reason"] == "evil.example.com:80 is not among the hosts of this run"
    (work,) = desk.show("spy")["works"]
    assert refused["data"]["task_id"] == work["tasks"][0]["id"]


def test_a_confined_agent_cannot_write_beside_its_repositories(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    if find_bubblewrap().problem:
        pytest.skip(str(find_bubblewrap().problem))
    monkeypatch.setenv("KINGDOM_SANDBOX", "required")
    Remote(desk.folder / "lib").commit({"lib.py": "lib\n"})
    for name in ("app", "lib"):
        desk.run("git", "add", str(desk.folder / name))
    script = desk.folder / "both.sh"
    script.write_text("""
        if echo x > notes.txt; then exit 9; fi
        for folder in app-* lib-*; do
            cd $folder && echo new > new.txt && git add new.txt && git commit -q -m "Add it" && cd .. || exit 1
        done
    """)
    template = desk.folder / "both.yaml"
    engine = {"name": "command", "options": {"argv": ["sh", "-c", script.read_text()]}}
    template.write_text(json.dumps({"name": "both", "engine": engine, "works": [{"name": "w", "tasks": ["Write it"]}]}))
    desk.run("workflow", "create", str(template), "--repo", "app", "--repo", "lib")
    desk.run("workflow", "start", "both")
    trees = [Path(tree["path"]) for tree in desk.show("both")["repositories"]]
    assert [(tree / "new.txt").read_text() for tree in trees] == ["new\n", "new\n"]
    assert ["Add it" in plain_git(tree, "log", "--format=%s") for tree in trees] == [True, True]
