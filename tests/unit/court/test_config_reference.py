"""The pages of the configuration are those the models give, and have every key."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from kingdom.court.chamberlain.config import ChamberlainConfig
from kingdom.court.config import SystemConfig
from kingdom.court.envoy.config import EnvoyConfig
from kingdom.court.packages.manifest import Manifest
from kingdom.court.sentinel.config import SentinelConfig
from tests.support.command import script
from tests.support.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"


def test_the_pages_are_those_the_models_give() -> None:
    done = script(ROOT / "scripts" / "config-reference", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("page", "model"),
    [
        ("configuration.md", SystemConfig),
        ("configuration.md", SentinelConfig),
        ("configuration.md", EnvoyConfig),
        ("configuration.md", ChamberlainConfig),
        ("manifest.md", Manifest),
    ],
)
def test_a_page_has_every_key_of_its_model_and_of_those_inside(page: str, model: type[BaseModel]) -> None:
    text = (REFERENCE / page).read_text("utf-8")
    keys = set(model.model_fields)
    for definition in model.model_json_schema().get("$defs", {}).values():
        for form in definition.get("anyOf", [definition]):
            keys |= set(form.get("properties", ()))
    assert len(keys) > 10
    assert {key for key in keys if f"| `{key}` |" not in text} == set()
