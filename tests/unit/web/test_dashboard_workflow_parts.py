"""What the pages of workflows compute: pictures, forms, rows, durations. No browser is needed for it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from kingdom.base.yamlfile import YamlProblem
from kingdom.web.dashboard.formats import format_minute, page_url
from kingdom.web.dashboard.pager import part_numbers
from kingdom.web.dashboard.words import TEXTS, translations
from kingdom.web.dashboard.workflows.diff_pages import MAX_FILE_ROWS, diff_rows
from kingdom.web.dashboard.workflows.new_workflow import nest_values, query_variables
from kingdom.web.dashboard.workflows.plan_draft import TaskDraft, WorkDraft, draft_of
from kingdom.web.dashboard.workflows.progress import Durations, format_duration, layout_graph
from kingdom.web.views.changed_files import patch_part
from kingdom.web.views.checkpoints import ChangedFile, DiffLine, parse_hunks
from kingdom.web.views.workflows import WorkflowEvent
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, WorkflowTemplate
from kingdom.workflow.template_file import KnownNames
from kingdom.workflow.templates import SourceIds, parse_template

NOW = datetime(2026, 2, 7, 10, tzinfo=UTC)
SOURCES = SourceIds({"web": "git-1"}, {"tracker": "mcp-1"})
TEMPLATE = WorkflowTemplate(
    "tpl-1",
    "repair",
    (
        WorkDefinition("plan", (TaskDefinition("look", "Look at {{ issue.key }}.", ("Findings", "Risks")),)),
        WorkDefinition(
            "build",
            (TaskDefinition("a", "Build it.", retries=3), TaskDefinition("b", "Test\nit.")),
            engine="scripted",
            model="m",
            engine_options={"script": [{"say": "hm"}]},
            mcp_server_refs=(McpServerRef("mcp-1", {"TOKEN": "${TOKEN}"}),),
            after=("plan",),
            pause_after=True,
        ),
        WorkDefinition(
            "check",
            (TaskDefinition("a", "Check it."),),
            mcp_server_refs=(McpServerRef("mcp-1", {"TOKEN": "${OTHER}"}),),
            after=("plan", "build"),
            merge=True,
            continues="plan",
        ),
    ),
    "Plans, then builds.",
    (GitRef("git-1", "main"),),
    (McpServerRef("mcp-1", {"PLACE": "here"}),),
    "fail",
    LandPlan("push", title="{{ workflow.name }}"),
)


@dataclass(frozen=True)
class _Step:
    name: str
    after: list[str] = field(default_factory=list)
    sequence: int = 0
    status: str = "PENDING"
    attempt: int = 1

    @property
    def id(self) -> str:
        return f"id-{self.name}"


def _steps(*steps: _Step) -> list[_Step]:
    return [replace(step, sequence=number) for number, step in enumerate(steps)]


def test_works_without_after_stand_in_a_row_with_an_arrow_from_each_to_the_next() -> None:
    graph = layout_graph(_steps(_Step("a"), _Step("b"), _Step("c")))
    assert [(node.name, node.column, node.row) for node in graph.nodes] == [("a", 0, 0), ("b", 1, 0), ("c", 2, 0)]
    assert graph.edges == (("id-a", "id-b"), ("id-b", "id-c"))


def test_works_beside_each_other_stand_below_each_other() -> None:
    graph = layout_graph(_steps(_Step("a"), _Step("b", ["a"]), _Step("c", ["a"]), _Step("d", ["b", "c"])))
    assert [(node.name, node.column, node.row) for node in graph.nodes] == [
        ("a", 0, 0),
        ("b", 1, 0),
        ("c", 1, 1),
        ("d", 2, 0),
    ]
    assert set(graph.edges) == {("id-a", "id-b"), ("id-a", "id-c"), ("id-b", "id-d"), ("id-c", "id-d")}
    assert graph.size[0] > graph.size[1]


def test_a_plan_goes_through_the_form_and_stays_the_same() -> None:
    draft = draft_of(TEMPLATE, SOURCES)
    assert parse_template(draft.text(), "template", "tpl-1", SOURCES, KnownNames()) == TEMPLATE


def test_what_the_form_does_not_show_is_kept_by_a_draft_in_the_browser() -> None:
    restored = draft_of(TEMPLATE, SOURCES).restored(draft_of(TEMPLATE, SOURCES).snapshot())
    assert parse_template(restored.text(), "template", "tpl-1", SOURCES, KnownNames()) == TEMPLATE


def test_a_work_that_is_renamed_or_removed_in_the_form_is_so_for_those_that_refer_to_it() -> None:
    draft = draft_of(TEMPLATE, SOURCES)
    draft.works[0].name = "think"
    draft.rename_work("plan", "think")
    draft.works[2].name = "look"
    draft.rename_work("check", "look")
    again = draft_of(TEMPLATE, SOURCES).restored(draft.snapshot())
    assert [work.continues for work in again.works] == [None, None, "think"]
    plan, build, check = parse_template(draft.text(), "template", "tpl-1", SOURCES, KnownNames()).works
    assert (plan.name, build.after, check.after, check.continues) == ("think", ("think",), ("think", "build"), "think")
    assert check.mcp_server_refs == TEMPLATE.works[2].mcp_server_refs
    draft.works[2].merge = False
    draft.remove_work(0)
    build, check = parse_template(draft.text(), "template", "tpl-1", SOURCES, KnownNames()).works
    assert (build.after, check.after, check.continues) == ((), ("build",), None)


def test_a_form_names_the_work_whose_engine_there_is_not() -> None:
    draft = draft_of(TEMPLATE, SOURCES)
    with pytest.raises(YamlProblem) as told:
        parse_template(draft.text(), "template", "tpl-1", SOURCES, KnownNames(engines=["scripted"]))
    assert [wrong.path[:2] for wrong in told.value.wrong] == [("works", 0), ("works", 2)]


def test_a_form_that_is_not_filled_in_is_written_down_and_its_mistakes_are_told() -> None:
    draft = draft_of(TEMPLATE, SOURCES)
    draft.name = ""
    draft.works.append(WorkDraft(tasks=[TaskDraft()]))
    with pytest.raises(YamlProblem) as told:
        parse_template(draft.text(), "template", "tpl-1", SOURCES, KnownNames())
    problems = "\n".join(told.value.problems)
    assert "name" in problems
    assert "query" in problems


def test_options_that_are_no_yaml_are_told_with_their_work() -> None:
    draft = draft_of(TEMPLATE, SOURCES)
    draft.works[1].options = "script: ["
    with pytest.raises(YamlProblem, match="options of work build"):
        draft.text()


def test_variables_are_those_somebody_has_to_give() -> None:
    queries = ["Fix {{ issue.key }}: {{issue.title}} {{ reports['a/b'] }}", "{{ branch | upper }} {{ issue.key }}"]
    assert query_variables(queries) == ["issue.key", "issue.title", "branch"]
    assert nest_values({"issue.title": "It hangs", "branch": "main", "issue.body": " "}) == {
        "issue": {"title": "It hangs"},
        "branch": "main",
    }


def test_changed_lines_stand_beside_what_they_became_and_long_files_are_cut() -> None:
    patch = "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@ def f\n one\n-two\n+zwei\n+drei\n three\n"
    rows, more = diff_rows(_file(patch))
    assert rows == [
        ["hunk", None, "@@ -1,3 +1,3 @@ def f", None, None],
        ["same", 1, "one", 1, "one"],
        ["changed", 2, "two", 2, "zwei"],
        ["changed", None, None, 3, "drei"],
        ["same", 3, "three", 4, "three"],
    ]
    assert not more
    long = "@@ -0,0 +1,3000 @@\n" + "+x\n" * 3000
    rows, more = diff_rows(_file(long))
    assert (len(rows), more) == (MAX_FILE_ROWS, True)


def test_a_patch_in_parts_has_the_lines_and_numbers_of_the_whole() -> None:
    patch = (
        "--- a/x\n+++ b/x\n@@ -1,4 +1,3 @@ def f\n one\n-@@ two\n-too\n+zwei\n three\n@@ -90,2 +89,3 @@\n a\r\n+b\n c\n"
    )
    whole = [line for hunk in parse_hunks(patch) for line in hunk.lines]
    for size in range(1, 12):
        found: list[DiffLine] = []
        for first in range(0, 10, size):
            found += [line for hunk in parse_hunks(patch_part(patch, first, size)) for line in hunk.lines]
        assert found == whole
    assert parse_hunks(patch_part(patch, 4, 2))[0].heading == "def f"
    assert patch_part(patch, 10, 5) == ""


def test_other_parts_begin_where_they_should() -> None:
    assert part_numbers(0, 10, 10, 10) == {"first": None, "previous": None, "following": None, "last": None}
    assert part_numbers(0, 10, 25, 10) == {"first": None, "previous": None, "following": 10, "last": 20}
    assert part_numbers(10, 10, 25, 10) == {"first": 0, "previous": 0, "following": 20, "last": 20}
    assert part_numbers(20, 5, 25, 10) == {"first": 0, "previous": 10, "following": None, "last": None}


def test_durations_are_of_the_last_attempt() -> None:
    durations = Durations()
    durations.take([_event("WorkStarted", 0, workId="w"), _event("TaskStarted", 1, taskId="t", workId="w")])
    span = durations.of("w")
    assert span is not None
    assert span.seconds(NOW + timedelta(seconds=5)) == 5
    durations.take(
        [_event("TaskCompleted", 3, taskId="t"), _event("WorkStatusChanged", 4, workId="w", status="PAUSED")]
    )
    assert [durations.of(one).seconds(NOW) for one in ("w", "t")] == [4, 2]  # type: ignore[union-attr]
    durations.take([_event("WorkStarted", 60, workId="w"), _event("WorkCompleted", 61, workId="w")])
    assert durations.of("w").seconds(NOW) == 1  # type: ignore[union-attr]
    assert durations.of("x") is None


@pytest.mark.parametrize(
    ("seconds", "english", "korean"),
    [(4.4, "4 s", "4초"), (125, "2 min 5 s", "2분 5초"), (12_000, "3 h 20 min", "3시간 20분")],
)
def test_a_duration_is_said_shortly(seconds: float, english: str, korean: str) -> None:
    assert [format_duration(seconds, translations(locale)) for locale in ("en", "ko")] == [english, korean]


def test_times_are_those_of_the_zone_asked_for() -> None:
    at = datetime(2026, 11, 15, 20, 30, 5, tzinfo=UTC)
    assert format_minute(at, ZoneInfo("Asia/Seoul")) == "2026-11-16 05:30"
    assert format_minute(at, UTC) == "2026-11-15 20:30"


def test_addresses_are_written_safely() -> None:
    assert page_url("workflows", "a/../b", search="x&y", cursor=None) == "/workflows/a%2F..%2Fb?search=x%26y"


def test_every_text_is_there_in_every_language_with_the_same_fields() -> None:
    import re

    fields = {
        locale: {key: sorted(re.findall(r"\{(\w+)\}", text)) for key, text in texts.items()}
        for locale, texts in TEXTS.items()
    }
    assert fields["en"] == fields["ko"]


def _file(patch: str) -> ChangedFile:
    return ChangedFile(
        path="x", old_path=None, status="modified", added=1, removed=1, binary=False, truncated=False,
        hunks=parse_hunks(patch),
    )  # fmt: skip


def _event(kind: str, at: int, **payload: str) -> WorkflowEvent:
    return WorkflowEvent(sequence=at + 1, type=kind, occurred_at=NOW + timedelta(seconds=at), payload=payload)
