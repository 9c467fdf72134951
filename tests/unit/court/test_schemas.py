"""The exported JSON Schemas are those of the models, and have the fixed words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kingdom.court.schemas import SCHEMAS, schema, schema_files
from tests.support.command import script
from tests.support.pages import ROOT

FOLDER = ROOT / "schemas"
UPDATE = "run .venv/bin/python scripts/export-schemas"


def test_there_is_a_file_for_each_schema_and_no_other() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(schema_files()), UPDATE


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_file_is_what_the_model_gives(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text("utf-8") == schema_files()[f"{name}.json"], UPDATE


def test_the_script_agrees() -> None:
    done = script(ROOT / "scripts" / "export-schemas", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_reference_in_a_schema_leads_somewhere(name: str) -> None:
    document = schema(name)
    references = set(_references(document))
    assert {reference for reference in references if not reference.startswith("#/$defs/")} == set()
    assert {reference.removeprefix("#/$defs/") for reference in references} == set(document.get("$defs", {}))


@pytest.mark.parametrize(
    ("name", "field", "words"),
    [
        ("event", "status", ["pending", "dispatched", "completed", "failed", "cancelled"]),
        ("event", "priority", ["high", "normal", "low"]),
        ("task", "status", ["pending", "in_progress", "completed", "failed", "needs_human", "cancelled"]),
        ("message", "type", ["thread_start", "thread_update", "human_input_request", "notification", "report"]),
        ("message", "status", ["pending", "sent", "failed"]),
        ("result", "status", ["success", "failed", "needs_human", "skipped", "killed", "timeout", "cancelled"]),
        ("raw-result", "status", ["success", "failed", "needs_human", "skipped"]),
        ("manifest", "profile", ["read", "edit", "full"]),
        ("system", "host", ["process", "tmux"]),
    ],
)
def test_the_fixed_words(name: str, field: str, words: list[str]) -> None:
    stored = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    assert stored["properties"][field]["enum"] == words


def test_documents_take_fields_nobody_knows_and_configuration_does_not() -> None:
    extra = {name: schema(name).get("additionalProperties") for name in SCHEMAS}
    documents = {"event", "task", "message", "result", "raw-result"}
    assert {name for name, allowed in extra.items() if allowed is True} == documents
    assert {name for name, allowed in extra.items() if allowed is False} == set(SCHEMAS) - documents


def test_what_may_be_written_in_short_may_be_a_text_in_the_schema_as_well() -> None:
    definitions = schema("manifest")["$defs"]
    for name in ("EventSubscription", "EngineChoice"):
        assert [form["type"] for form in definitions[name]["anyOf"]] == ["string", "object"]


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for item in value.values() for found in _references(item)]
    return [found for item in value for found in _references(item)] if isinstance(value, list) else []
