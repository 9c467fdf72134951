"""Aggregates as JSON: what is written is read again, whatever a caller put into them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kingdom.workflow.domain.resources import Checkpoint, Committed, Git, GitRef, McpServerRef, WorkTree
from kingdom.workflow.domain.statuses import QueryStatus, TaskStatus, WorkStatus
from kingdom.workflow.domain.work import Task, Work
from kingdom.workflow.domain.workflow import Workflow, WorkflowTemplate
from kingdom.workflow.store.documents import decode, encode
from tests.support.workflow_plans import REPORTED, work

NOW = datetime(2026, 2, 7, 10, 0, 0, 123, tzinfo=UTC)


def point() -> Checkpoint:
    made = Checkpoint("cp-1", "wf-1", "work-1", 0, 2, NOW.astimezone(timezone(timedelta(hours=9))))
    made.finish({"git-1": Committed("a" * 40, "b" * 40)}, 7)
    return made


@pytest.mark.parametrize(
    "item",
    [
        Git("git-1", "앱 \x01 \u2028", url="https://example.org/x", used_by={"wf-2", "wf-1"}),
        Work(
            "work-1", "wf-1", 3, "plan", [Task("t", 0, "n", "q", ("A",), status=TaskStatus.RUNNING)], after=("a", "b")
        ),
        WorkflowTemplate("tpl-1", "fix", (work("build", "plan", REPORTED),), git_refs=(GitRef("git-1", None),)),
        WorkTree("wt-1", "wf-1", "git-1"),
        point(),
        Workflow("wf-1", "fix", NOW, mcp_server_refs=(McpServerRef("mcp-1", {"A": "b"}),), prepare_only=True),
    ],
    ids=lambda item: type(item).__name__,
)
def test_what_is_written_is_read_again(item: Any) -> None:
    text = encode(item)
    assert "version" not in json.loads(text)
    assert decode(type(item), text, item.version) == item


@pytest.mark.parametrize(
    "variables",
    [
        {"number": 2**80, "less": -(2**70)},
        {"half": 0.1, "large": 1e300, "none": None, "nested": {"list": [1, "two", [True]]}},
        {"text": "\ud800 half of a character"},
    ],
)
def test_whatever_is_given_as_a_variable_stays_what_it_is(variables: dict[str, Any]) -> None:
    workflow = Workflow("wf-1", "fix", NOW, variables=variables)
    assert decode(Workflow, encode(workflow), 0).variables == variables


def test_statuses_are_words_and_sets_are_lists() -> None:
    made = Work("work-1", "wf-1", 0, "plan", [Task("t", 0, "n", "q")], status=WorkStatus.RUNNING)
    made.tasks[0].query_status = QueryStatus.SENT
    document = json.loads(encode(made))
    assert (document["status"], document["tasks"][0]["query_status"]) == ("RUNNING", "SENT")
    assert json.loads(encode(Git("g", "n", url="u", used_by={"b", "a"})))["used_by"] == ["a", "b"]
