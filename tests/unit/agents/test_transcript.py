"""Reading a transcript from outside: what was said so far, and then what came since."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.engines import default_engines
from kingdom.agents.port import AgentEvent, Began, Finished, Heartbeat, Order, RateLimit, Text, Tokens, ToolUse, Usage
from kingdom.agents.transcript import Transcript, describe_event


def order(folder: Path, engine: str) -> Order:
    return Order("run-1", "task-1", engine, "", folder, folder / "result.json")


def transcript(folder: Path, engine: str = "scripted") -> tuple[Path, Transcript]:
    path = folder / "run-1.json"
    return path, Transcript(path, order(folder, engine), default_engines())


def played(event: AgentEvent) -> str:
    return json.dumps({"type": type(event).__name__.lower(), **asdict(event)}) + "\n"


def test_what_a_part_said_is_read_as_it_was_told(tmp_path: Path) -> None:
    said: list[AgentEvent] = [
        Began("s-1", "m"),
        Text("hello"),
        ToolUse("Write", "a.txt"),
        Heartbeat(),
        Usage(Tokens(1, 2, 3, 4), 0.5, 1),
        RateLimit("warning", 1.0, "day"),
        Finished(ok=False, error="no"),
    ]
    path, reader = transcript(tmp_path)
    path.write_text("".join(map(played, said)))
    assert reader.read_new() == said
    assert reader.read_new() == []


def test_it_reads_on_and_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    path, reader = transcript(tmp_path)
    assert reader.read_new() == [], "there is no file yet"
    line = played(Text("second"))
    path.write_text(played(Text("first")) + line[:10])
    assert reader.read_new() == [Text("first")]
    with path.open("a") as file:
        file.write(line[10:])
    assert reader.read_new() == [Text("second")]


@pytest.mark.parametrize(("share", "heard"), [(0, 0), (0.5, 0), (1, 1), (1.5, 1), (2, 2), (99, 5)])
def test_of_a_long_one_only_the_last_whole_lines_are_read_if_wanted(tmp_path: Path, share: float, heard: int) -> None:
    path = tmp_path / "run-1.json"
    lines = [played(Text(str(number))) for number in range(5)]
    last = int(share * len(lines[0]))
    path.write_text("".join(lines))
    reader = Transcript(path, order(tmp_path, "scripted"), default_engines(), last=last)
    assert reader.read_new() == [Text(str(number)) for number in range(5 - heard, 5)]
    with path.open("a") as file:
        file.write(played(Text("more")))
    assert reader.read_new() == [Text("more")]


def test_a_real_engine_reads_its_own_lines(tmp_path: Path) -> None:
    path, reader = transcript(tmp_path, "claude")
    message: dict[str, Any] = {
        "type": "assistant",
        "message": {"content": [{"type": "text", "text": "I look around."}]},
    }
    path.write_text(json.dumps(message) + "\n")
    assert Text("I look around.") in reader.read_new()


@pytest.mark.parametrize("line", ["", "{", "[]", '{"type": "text"}', '{"type": "usage", "tokens": 3}', '{"type": 7}'])
def test_lines_that_make_no_sense_are_passed_over(tmp_path: Path, line: str) -> None:
    path, reader = transcript(tmp_path)
    path.write_text(f"{line}\n{played(Text('after'))}")
    assert reader.read_new() == [Text("after")]


def test_events_in_words() -> None:
    assert describe_event(Began("s-1", "m")) == "began m s-1"
    assert describe_event(ToolUse("Bash", "ls")) == "→ Bash ls"
    assert describe_event(RateLimit("rejected")) == "rate limit: rejected"
    assert describe_event(Finished(ok=True)) == "finished: ok"
    assert describe_event(Finished(ok=False, error="no")) == "finished: no"
    assert describe_event(Heartbeat()) == ""
