"""From what people type to what is meant: homes, ids and names, settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from kingdom.cli.output import CommandError
from kingdom.cli.session import find_or_create_workflow_home, find_workflow_home
from kingdom.cli.workflow.names import choose, parse_assignments


@dataclass(frozen=True)
class Thing:
    id: str
    name: str


THINGS = [Thing("wf-0198-aaaa", "fix"), Thing("wf-0198-bbbb", "fix"), Thing("wf-0199-cccc", "wf-0198-aaaa")]


def meant(word: str) -> str:
    return choose(THINGS, word, "workflow", "kingdom workflow ls", lambda thing: thing.name).id


@pytest.mark.parametrize(
    ("word", "found"),
    [("wf-0198-aaaa", "wf-0198-aaaa"), ("bbbb", "wf-0198-bbbb"), ("wf-0199", "wf-0199-cccc"), ("0199", "wf-0199-cccc")],
)
def test_an_id_its_beginning_or_its_end_is_enough(word: str, found: str) -> None:
    assert meant(word) == found


@pytest.mark.parametrize(
    ("word", "code", "words"),
    [
        ("fix", "AMBIGUOUS", "2 workflows match fix: use more of the id of one of wf-0198-aaaa fix, wf-0198-bbbb fix"),
        ("wf-0198", "AMBIGUOUS", "wf-0198-aaaa fix, wf-0198-bbbb fix"),
        ("aaa", "NOT_FOUND", "there is no workflow aaa here (there are fix, wf-0198-aaaa): kingdom workflow ls lists"),
        ("fox", "NOT_FOUND", "there is no workflow fox here (similar: fix)"),
    ],
)
def test_what_is_not_one_thing_is_refused_with_the_next_step(word: str, code: str, words: str) -> None:
    with pytest.raises(CommandError) as caught:
        meant(word)
    assert (caught.value.code, words in str(caught.value)) == (code, True), caught.value


def test_settings_may_be_nested() -> None:
    given = ["issue.title=Login fails", "issue.url=https://x/?a=b", "library=pydantic"]
    assert parse_assignments(given, "--var", nested=True) == {
        "issue": {"title": "Login fails", "url": "https://x/?a=b"},
        "library": "pydantic",
    }
    assert parse_assignments(["A.B=1"], "--env", nested=False) == {"A.B": "1"}


@pytest.mark.parametrize("given", [["a"], ["=1"], ["a..b=1"], ["a=1", "a.b=2"], ["a.b=2", "a=1"]])
def test_settings_that_make_no_sense_are_refused(given: list[str]) -> None:
    with pytest.raises(CommandError, match="--var"):
        parse_assignments(given, "--var", nested=True)


def test_a_home_may_be_any_folder(tmp_path: Path) -> None:
    place = find_workflow_home(tmp_path, None)
    assert place.root == tmp_path / "workflows"
    assert place.store == f"sqlite://{tmp_path}/workflows/workflows.db"
    assert not place.root.exists(), "looking makes nothing"
    assert find_workflow_home(tmp_path, "postgresql://x/y").store == "postgresql://x/y"


def test_a_home_is_found_around_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINGDOM_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    inside = tmp_path / "court" / "deep" / "down"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    with pytest.raises(CommandError, match="--home DIR"):
        find_workflow_home(None, None)
    (tmp_path / "court" / "config").mkdir()
    (tmp_path / "court" / "config" / "system.yaml").touch()
    assert find_workflow_home(None, None).root == tmp_path / "court" / "workflows"
    (inside.parent / "workflows").mkdir()
    (inside.parent / "workflows" / "workflows.db").touch()
    assert find_workflow_home(None, None).root == inside.parent / "workflows", "the nearest one"
    monkeypatch.setenv("KINGDOM_HOME", str(tmp_path))
    assert find_workflow_home(None, None).root == tmp_path / "workflows"


def test_without_a_home_workflows_are_kept_in_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINGDOM_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    place = find_or_create_workflow_home(None, None)
    assert place.root == tmp_path / "data" / "kingdom" / "workflows"
    with pytest.raises(CommandError, match="--home DIR"):
        find_workflow_home(None, None)
    place.root.mkdir()
    assert find_workflow_home(None, None).root == place.root


def test_the_path_of_a_home_may_go_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert find_workflow_home(Path(".."), None).root == tmp_path / "workflows"


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="create it first"):
        find_workflow_home(tmp_path / "nowhere", None)
