"""The result contract: what an agent may leave, and what is said of anything else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.contract import MAX_BYTES, check_result, instructions, read_result, result_schema
from kingdom.agents.errors import InvalidResult
from kingdom.agents.result_model import RawResult


def left(path: Path, data: bytes) -> Any:
    path.write_bytes(data)
    return read_result(path)


def test_a_result_has_every_field_and_keeps_those_we_do_not_know(tmp_path: Path) -> None:
    document = left(tmp_path / "r.json", b'{"status": "success", "summary": "done", "mood": {"good": true}}')
    assert document == {
        "status": "success",
        "summary": "done",
        "error": None,
        "question": None,
        "memory_updates": [],
        "links": [],
        "mood": {"good": True},
    }


def test_a_question_may_be_plain_text() -> None:
    document = check_result({"status": "needs_human", "question": "Which?"})
    assert document["question"] == {"text": "Which?", "choices": [], "default": None}


def test_needing_a_human_needs_a_question() -> None:
    with pytest.raises(InvalidResult, match="needs a question"):
        check_result({"status": "needs_human", "question": "  "})


def test_no_file_is_no_result(tmp_path: Path) -> None:
    assert read_result(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"done!", "not JSON"),
        (b'{"status": "succ', "not JSON"),
        (b'{"status": "success"}\0', "NUL byte"),
        (b'{"status": "success", "summary": "\\u0000"}', "summary: has a NUL"),
        (b'{"status": "success", "links": ["\\ud800"]}', r"links\[0\]: has half of a surrogate pair"),
        (b'{"status": "success", "summary": "\xff"}', "not UTF-8"),
        (b"[]", "must be a JSON object"),
        (b'{"status": "done"}', "status: Input should be 'success', 'failed', 'needs_human' or 'skipped'"),
        (b'{"summary": "x"}', "status: Field required"),
        (b'{"status": "success", "memory_updates": "x"}', "memory_updates: Input should be a valid list"),
        (b'{"status": "success", "x": ' + b"[" * 60 + b"]" * 60 + b"}", "nested too deep"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"x": "' + b"x" * MAX_BYTES + b'"}', "larger than"),
    ],
)
def test_what_cannot_be_used_is_told_with_its_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    import re

    problem = left(tmp_path / "r.json", data)
    assert isinstance(problem, str)
    assert re.search(reason, problem)
    assert str(tmp_path / "r.json") in problem


def test_a_link_a_pipe_and_a_folder_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"status": "success"}')
    (tmp_path / "link").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder"):
        assert "cannot be used" in str(read_result(tmp_path / name))


def test_the_schema_names_the_statuses() -> None:
    assert result_schema()["properties"]["status"]["enum"] == ["success", "failed", "needs_human", "skipped"]
    assert json.dumps(result_schema())


def test_the_example_in_the_instructions_follows_the_contract() -> None:
    text = instructions("/x/{y}/r.json")
    assert "/x/{y}/r.json" in text
    example = text.split("Example: ", 1)[1]
    assert RawResult.model_validate_json(example).status == "success"
