"""Templates as YAML: what reads well is understood, what is wrong is told with its line, nothing is lost on paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kingdom.base.yamlfile import YamlProblem
from kingdom.workflow.domain.landing import LandPlan
from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, WorkflowTemplate, check_plan
from kingdom.workflow.errors import InvalidPlan
from kingdom.workflow.template_file import KnownNames
from kingdom.workflow.templates import SourceIds, load_template, parse_template, parse_template_file, write_template

EXAMPLES = Path(__file__).parents[3] / "examples" / "workflows"
SOURCES = SourceIds({"app": "git-1", "lib": "git-2"}, {"github": "mcp-1", "jira": "mcp-2"})

WHOLE = """
name: fix
description: All keys at once
on_failure: fail
repositories: [app, {name: lib, base: develop}]
mcp:
  - github
  - name: jira
    env: {TOKEN: "${JIRA_TOKEN}"}
engine: {name: scripted, options: {script: plan.yaml}}
model: small
retries: 4
works:
  - name: plan
    pause_after: true
    mcp: [github]
    tasks:
      - Look around.
      - {name: write, query: "Plan {{ issue.key }}", report: [Problem, Plan], retries: 0}
  - name: left
    after: plan
    retries: 2
    tasks: [Do the left side.]
  - name: right
    after: [plan]
    engine: codex
    tasks: [Do the right side.]
  - name: both
    after: [left, right]
    merge: true
    tasks: [{query: Look at it, report: Findings}]
"""


def parsed(text: str) -> WorkflowTemplate:
    return parse_template(text, "t.yaml", "tpl-1", SOURCES)


def problems(text: str, known: KnownNames | None = None) -> list[str]:
    with pytest.raises(YamlProblem) as caught:
        parse_template_file(text, "t.yaml", known)
    return caught.value.problems


def plan_with(works: str, head: str = "name: t\n") -> str:
    return f"{head}works:\n{works}"


def test_a_file_with_every_key_becomes_its_template() -> None:
    template = parsed(WHOLE)
    assert (template.name, template.description, template.on_failure) == ("fix", "All keys at once", "fail")
    assert template.git_refs == (GitRef("git-1"), GitRef("git-2", "develop"))
    assert template.mcp_server_refs == (McpServerRef("mcp-1"), McpServerRef("mcp-2", {"TOKEN": "${JIRA_TOKEN}"}))
    plan, left, right, both = template.works
    assert plan.tasks == (
        TaskDefinition("task-1", "Look around.", (), 4),
        TaskDefinition("write", "Plan {{ issue.key }}", ("Problem", "Plan"), 0),
    )
    assert (plan.engine, plan.model, plan.engine_options) == ("scripted", "small", {"script": "plan.yaml"})
    assert (plan.pause_after, plan.mcp_server_refs) == (True, (McpServerRef("mcp-1"),))
    assert (left.after, left.tasks[0].retries) == (("plan",), 2)
    assert (right.engine, right.model, right.engine_options) == ("codex", None, {}), "another engine, another model"
    assert (both.after, both.merge, both.tasks[0].outline) == (("left", "right"), True, ("Findings",))


def test_the_shortest_file_has_the_defaults() -> None:
    template = parsed("name: t\nworks: [{name: only, tasks: [Do it.]}]")
    (work,) = template.works
    assert (work.engine, work.model, work.tasks[0].retries, template.on_failure) == ("claude", None, 1, "pause")


def test_a_template_is_written_as_a_file_that_says_the_same() -> None:
    template = parsed(WHOLE)
    assert parsed(write_template(template, SOURCES)) == template


def test_a_written_file_leaves_out_what_need_not_be_said() -> None:
    text = (
        "name: t\n"
        "works:\n"
        "  - name: only\n"
        "    tasks:\n"
        "      - name: do\n"
        "        query: |\n"
        "          Do it.\n"
        "\n"
        "          Well.\n"
        "      - name: tell\n"
        "        query: Tell me.\n"
        "        report:\n"
        "          - Summary\n"
    )
    assert write_template(parsed(text), SOURCES) == text


NAMES = st.text(st.characters(categories=("L", "N"), include_characters=" -_.:#&*!%@'\"[]{}"), min_size=1, max_size=12)
TEXTS = st.text(
    st.characters(categories=("L", "N", "P", "S", "Zs"), include_characters="\n\t", exclude_characters="\u2028\u2029"),
    min_size=1,
    max_size=60,
).filter(lambda text: bool(text.strip()) and not any(mark in text for mark in ("{{", "{%", "{#")))


def _is_name(text: str) -> bool:
    return text == text.strip() and text[0].isalnum()


@given(st.data())
def test_any_template_survives_being_written_and_read(data: st.DataObject) -> None:
    names = data.draw(st.lists(NAMES.filter(_is_name), min_size=1, max_size=4, unique=True))
    headings = st.lists(NAMES.filter(_is_name), max_size=3, unique=True).map(tuple)
    tasks = st.builds(TaskDefinition, st.just("x"), TEXTS, headings, st.integers(0, 100))
    works = tuple(
        WorkDefinition(
            name,
            (data.draw(tasks),),
            engine=data.draw(st.sampled_from(["claude", "codex"])),
            model=data.draw(st.sampled_from([None, "1e3", "no", "~", "0x1f", "12:30:00"])),
            after=tuple(names[at - 1 : at]),
            pause_after=data.draw(st.booleans()),
            continues=data.draw(st.sampled_from([None, *names[:at]])),
        )
        for at, name in enumerate(names)
    )
    land = data.draw(st.none() | st.builds(LandPlan, st.sampled_from(["push", "pull-request"]), title=st.just("t")))
    template = WorkflowTemplate("tpl-1", "t", works, description=data.draw(TEXTS), land=land)
    assert parsed(write_template(template, SOURCES)) == template


def test_every_mistake_is_told_with_its_line() -> None:
    text = (
        "name: t\n"
        "colour: red\n"
        "works:\n"
        "  - name: a\n"
        "    after: nobody\n"
        "    tasks: []\n"
        "  - name: a\n"
        "    tasks:\n"
        "      - query: '  '\n"
        "      - {query: ask, report: [A, A]}\n"
        "      - {query: ask, retries: lots}\n"
        "  - name: m\n"
        "    merge: true\n"
        "    tasks: [merge]\n"
    )
    found = problems(text)
    assert [line.split(": ")[0] for line in found] == [f"t.yaml:{n}" for n in (2, 4, 5, 6, 7, 9, 10, 11, 12)], (
        "\n".join(found)
    )
    assert "did you mean" in found[0] or "known:" in found[0]
    assert "two works are called 'a'" in found[1]
    assert "there is no work 'nobody'" in found[2]
    assert "at least one is needed" in found[3]


@pytest.mark.parametrize(
    ("works", "line", "words"),
    [
        ("  - {name: a, after: b, tasks: [x]}\n  - {name: b, after: a, tasks: [x]}\n", 2, "wait for each other: a, b"),
        ("  - {name: a, after: b, tasks: [x]}\n  - {name: b, tasks: [x]}\n", 2, "wait for each other: a, b"),
        ("  - {name: a, after: [], tasks: [x]}\n", 3, "leave `after` out"),
        ("  - {name: ../a, tasks: [x]}\n", 3, "is not a valid name"),
        ("  - {name: a, tasks: [{name: task-2, query: x}, y]}\n", 3, "'task-2' is given twice"),
        ("  - {name: a, tasks: [{query: x, report: ''}]}\n", 3, "report"),
        ("  - name: a\n    tasks:\n      - query: 'Fix {{ issue.key'\n", 5, "its query, line 1"),
    ],
)
def test_plans_that_cannot_work_are_refused(works: str, line: int, words: str) -> None:
    (problem,) = problems(plan_with(works))
    assert problem.startswith(f"t.yaml:{line}: ")
    assert words in problem


def test_names_are_compared_with_those_there_are() -> None:
    head = "name: t\nrepositories: [app, web]\nmcp: [slack]\nengine: cobol\n"
    known = KnownNames(repositories=["app"], mcp_servers=[], engines=["claude"])
    repository, server, engine = problems(plan_with("  - {name: a, tasks: [x]}\n", head), known)
    assert repository.startswith("t.yaml:2: repositories number 2: there is no repository 'web' (app): kingdom git add")
    assert "t.yaml:3: mcp number 1: there is no MCP server 'slack' (none at all)" in server
    assert engine == "t.yaml:4: engine: there is no engine 'cobol' (claude): use one of these"


def test_a_reader_that_knows_nothing_takes_any_name() -> None:
    text = plan_with("  - {name: a, tasks: [x]}\n", "name: t\nrepositories: [web]\n")
    assert parse_template_file(text, "t.yaml").repositories[0].name == "web"


def test_a_secret_in_a_template_is_refused() -> None:
    text = plan_with(
        "  - {name: a, tasks: [x]}\n", "name: t\nmcp: [{name: jira, env: {TOKEN: ghp_0123456789abcdef}}]\n"
    )
    assert "t.yaml:2: this looks like a secret" in problems(text)[0]


def test_a_work_without_after_waits_for_all_before_it() -> None:
    check_plan([("a", ()), ("b", ()), ("c", ("a",))])
    with pytest.raises(InvalidPlan, match="wait for each other: a, b"):
        check_plan([("a", ("b",)), ("b", ())])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_are_right(path: Path) -> None:
    template = load_template(path, "tpl-1", SourceIds(), KnownNames(engines=["claude", "codex", "command", "scripted"]))
    assert template.name == path.stem
    assert parsed(write_template(template, SOURCES)) == template


def test_there_are_an_example_in_sequence_and_one_in_parallel() -> None:
    fix = load_template(EXAMPLES / "fix-issue.yaml", "tpl-1", SourceIds())
    upgrade = load_template(EXAMPLES / "upgrade-library.yaml", "tpl-2", SourceIds())
    assert [work.after for work in fix.works] == [(), (), ()]
    assert [work.pause_after for work in fix.works] == [True, False, False]
    assert [work.merge for work in upgrade.works] == [False, False, False, True]
