"""Engines by name, the command engine's arguments, and how a script is chosen."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.engines import default_engines, find_engine
from kingdom.agents.engines.command import CommandEngine
from kingdom.agents.engines.scripted import choose_steps
from kingdom.agents.errors import EngineNotInstalled, EngineUnknown, InvalidOrder, InvalidScript
from kingdom.agents.port import Order, Text


def order(cwd: Path, **options: Any) -> Order:
    return Order("run-1", "task-1", "command", "the prompt", cwd, cwd / "r.json", options=options)


def test_every_engine_is_found_by_its_name() -> None:
    engines = default_engines({"claude": {"path": "/opt/claude"}})
    assert set(engines) >= {"claude", "codex", "command", "scripted"}
    for name in ("claude", "codex", "command", "scripted"):
        assert engines[name].name == name
        assert engines[name] is engines[name]


def test_an_unknown_engine_is_told_with_those_there_are() -> None:
    with pytest.raises(EngineUnknown, match="no engine 'claud': use one of claude, codex, command, scripted"):
        find_engine(default_engines(), "claud")


def test_another_distribution_can_bring_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("gemini", f"{__name__}:CommandEngine", "kingdom.agents.engines")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[CommandEngine.__module__])
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda group, name=None: [point] if name in (None, "gemini") else [],
    )
    assert isinstance(find_engine(default_engines(), "gemini"), CommandEngine)
    assert "gemini" in default_engines()


def test_placeholders_are_replaced_as_whole_arguments_only(tmp_path: Path) -> None:
    argv = ["sh", "{result_path}", "{cwd}", "{prompt_path}", "x{cwd}", "{HOME}", "; rm -rf /"]
    launch = CommandEngine().launch(order(tmp_path, argv=argv))
    assert Path(launch.argv[0]).name == "sh"
    assert launch.argv[1:] == (
        f"{tmp_path}/r.json",
        str(tmp_path),
        "{prompt_path}",
        "x{cwd}",
        "{HOME}",
        "; rm -rf /",
    )
    assert launch.stdin == b"the prompt"


def test_a_command_gets_the_variables_the_configuration_names(tmp_path: Path) -> None:
    engine = CommandEngine({"env": ["TOKEN", "UNSET"]}, {"TOKEN": "t", "OTHER": "o"})
    assert engine.launch(order(tmp_path, argv=["sh"])).env == {"TOKEN": "t"}
    engine = CommandEngine({"argv": ["sh"], "env": {"MODE": "fast"}}, {})
    assert engine.launch(order(tmp_path)).env == {"MODE": "fast"}


@pytest.mark.parametrize("argv", ["ls -l", [], None, [1], ["a\0b"]])
def test_anything_but_a_list_of_arguments_is_refused(tmp_path: Path, argv: Any) -> None:
    with pytest.raises(InvalidOrder, match="must be a list of arguments"):
        CommandEngine().launch(order(tmp_path, argv=argv))


@pytest.mark.parametrize("program", ["no-such-program-here", "./job.sh", "/no/such"])
def test_a_program_that_is_not_there_is_told(tmp_path: Path, program: str) -> None:
    (tmp_path / "job.sh").write_text("not executable")
    with pytest.raises(EngineNotInstalled, match=program.lstrip("./")):
        CommandEngine().launch(order(tmp_path, argv=[program]))


def test_lines_of_a_command_are_text(tmp_path: Path) -> None:
    reader = CommandEngine().reader(order(tmp_path))
    assert list(reader.feed(b"hello \xff\r")) == [Text("hello �")]
    assert list(reader.feed(b"  ")) == []


STEPS = [{"say": "x"}]


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        (STEPS, STEPS),
        ({"steps": STEPS, "on_resume": []}, STEPS),
        ({"review": STEPS, "default": []}, STEPS),
        ({"github.pr.*": {"steps": STEPS}, "default": []}, STEPS),
        ({"other": [], "default": STEPS}, STEPS),
        ({"gen-pr": STEPS, "github.*": []}, []),
    ],
)
def test_a_script_is_chosen_by_the_labels(script: Any, steps: Any) -> None:
    labels = {"general": "gen-pr", "task_type": "review", "event_type": "github.pr.review_requested"}
    assert choose_steps(script, labels, resume=False) == steps


def test_a_resume_may_have_steps_of_its_own() -> None:
    assert choose_steps({"steps": [], "on_resume": STEPS}, {}, resume=True) == STEPS
    assert choose_steps({"steps": STEPS}, {}, resume=True) == STEPS


def test_a_script_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("steps:\n  - say: x\n")
    (tmp_path / "s.json").write_text('[{"say": "x"}]')
    assert choose_steps(str(tmp_path / "s.yaml"), {}, resume=False) == STEPS
    assert choose_steps(tmp_path / "s.json", {}, resume=False) == STEPS
    (tmp_path / "s.yaml").write_text("steps: [")
    for name in ("s.yaml", "none.yaml"):
        with pytest.raises(InvalidScript, match=f"{name} cannot be read"):
            choose_steps(str(tmp_path / name), {}, resume=False)


def test_no_script_for_a_run_is_told() -> None:
    with pytest.raises(InvalidScript, match="no default: there are review, fix"):
        choose_steps({"review": [], "fix": []}, {"task_type": "other"}, resume=False)
    with pytest.raises(InvalidScript, match="must be a list of steps"):
        choose_steps(None, {}, resume=False)
