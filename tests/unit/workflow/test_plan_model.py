"""The models of a plan have every field of the domain's classes, and lose nothing on the way there and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from kingdom.web.api.plan_changes import ModifyBody
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.plan import AddTask, Change, SetLandPlan, UpdateTask, UpdateWork, definition_of, work_from
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.plan_model import (
    GitRefFields,
    LandFields,
    McpServerRefFields,
    PlanModel,
    TaskFields,
    TemplateFields,
    WorkFields,
    from_domain,
    to_domain,
    values_of,
)

WORK = WorkDefinition(
    "both",
    (TaskDefinition("look", "Look at {{ issue.key }}.", ("Findings",), 3), TaskDefinition("do", "Do it.")),
    "scripted",
    "m",
    {"script": [{"say": "hm"}]},
    (McpServerRef("mcp-1", {"TOKEN": "${TOKEN}"}),),
    ("left", "right"),
    merge=True,
    pause_after=True,
    continues="left",
)
LAND = LandPlan("push", "all", "b", "t", "text", draft=True)


@pytest.mark.parametrize("model", [GitRefFields, McpServerRefFields, TaskFields, WorkFields, LandFields])
def test_a_model_has_the_fields_and_defaults_of_the_class_it_stands_for(model: type[PlanModel]) -> None:
    domain: Any = model.domain_class
    assert set(model.model_fields) == {field.name for field in fields(domain)}
    required = {name: "x" for name, field in model.model_fields.items() if field.is_required() and name != "tasks"}
    given = {**required, "tasks": [{"name": "a", "query": "b"}]} if "tasks" in model.model_fields else required
    plain = {**required, "tasks": (TaskDefinition("a", "b"),)} if "tasks" in model.model_fields else required
    assert to_domain(model(**given)) == domain(**plain)


def test_a_template_has_the_fields_of_its_model() -> None:
    assert set(TemplateFields.model_fields) == {field.name for field in fields(WorkflowTemplate)} - {"id", "version"}


@pytest.mark.parametrize("item", [WORK, LAND, GitRef("git-1", "main"), GitRef("git-1")])
def test_what_is_stored_survives_its_way_through_a_request(item: object) -> None:
    model = from_domain(item)
    assert to_domain(type(model).model_validate(model.model_dump(by_alias=True))) == item


def test_a_work_of_a_workflow_has_every_field_of_its_definition() -> None:
    ids = iter(range(9))
    assert definition_of(work_from(WORK, "wf-1", 0, lambda kind: f"{kind}-{next(ids)}")) == WORK


def test_any_field_of_a_part_but_its_tasks_can_be_changed() -> None:
    assert set(values_of(TaskFields).model_fields) == set(TaskFields.model_fields)
    assert set(values_of(WorkFields, "tasks").model_fields) == set(WorkFields.model_fields) - {"tasks"}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"query": " \n"}, "must have text in it"),
        ({"query": "Look", "outline": ["Cause", "Cause"]}, "'Cause' is given twice"),
    ],
)
def test_new_values_of_a_task_are_as_good_as_those_of_a_template(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        TaskFields(name="look", **values)
    with pytest.raises(ValidationError, match=problem):
        values_of(TaskFields).model_validate(values)


def test_every_change_of_the_domain_can_be_requested() -> None:
    schema = ModifyBody.model_json_schema()
    names = {name.removesuffix("Change") for name in schema["$defs"] if name.endswith("Change")}
    assert names == {change.__name__ for change in get_args(Change)}


def test_a_requested_change_is_one_of_the_domain() -> None:
    refs = [{"mcpServerId": "mcp-1", "env": {"A": "${A}"}}]
    changes = [
        {"type": "addTask", "workId": "work-1", "task": {"name": " x ", "query": "q", "outline": ["A"]}, "at": 1},
        {"type": "updateTask", "taskId": "task-1", "values": {"outline": ["B"]}},
        {"type": "updateWork", "workId": "work-1", "values": {"continues": None, "mcpServerRefs": refs}},
        {"type": "setLandPlan", "land": {"how": "push", "draft": True}},
        {"type": "setLandPlan", "land": None},
    ]
    assert ModifyBody.model_validate({"changes": changes}).changes == [
        AddTask("work-1", TaskDefinition("x", "q", ("A",)), 1),
        UpdateTask("task-1", {"outline": ("B",)}),
        UpdateWork("work-1", {"continues": None, "mcp_server_refs": (McpServerRef("mcp-1", {"A": "${A}"}),)}),
        SetLandPlan(LandPlan("push", draft=True)),
        SetLandPlan(None),
    ]


def test_a_stored_plan_may_exceed_the_limits_of_a_request() -> None:
    long = TaskDefinition("look", "x" * 10_001)
    shown = from_domain(long).model_dump(by_alias=True)
    assert shown["query"] == long.query
    with pytest.raises(ValidationError):
        TaskFields.model_validate(shown)


def test_the_schema_of_a_request_has_limits_and_that_of_a_response_none() -> None:
    def schema(mode: Any) -> str:
        return str(TypeAdapter(TemplateFields).json_schema(mode=mode))

    limits = ("minLength", "maxLength", "pattern", "minItems", "maxItems", "maximum", "maxProperties")
    assert all(limit in schema("validation") for limit in limits)
    assert not any(limit in schema("serialization") for limit in limits)
