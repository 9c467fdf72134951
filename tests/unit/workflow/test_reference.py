"""The page of workflow events is the one the catalog and the handlers give."""

from __future__ import annotations

from dataclasses import fields

import pytest

from kingdom.workflow.domain.events import CATALOG, UI_ONLY
from kingdom.workflow.handlers import HANDLERS
from tests.support.command import script
from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "reference" / "workflow-events.md"


def test_the_page_is_the_one_the_code_gives() -> None:
    done = script(ROOT / "scripts" / "workflow-reference", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CATALOG)
def test_the_page_has_a_row_for_each_event_with_its_payload_and_handler(name: str) -> None:
    (row,) = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| `{name}` |")]
    handled = "| only shown |" if name in UI_ONLY else f"| `{HANDLERS[name].__name__}` |"
    assert row.endswith(handled)
    assert row.count("`") >= 2 + 2 * len(fields(CATALOG[name]))


def test_the_page_has_a_row_for_each_handler_with_what_it_waits_for() -> None:
    rows = PAGE.read_text("utf-8").partition("## Handlers")[2].splitlines()
    for name, handler in HANDLERS.items():
        (row,) = [line for line in rows if line.startswith(f"| `{handler.__name__}` |")]
        assert f"`{name}`" in row
