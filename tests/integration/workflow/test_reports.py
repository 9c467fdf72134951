"""Reports by outline: what counts as complete, and the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.workflow.adapters.workspaces import (
    MAX_REPORT_BYTES,
    ReportIncomplete,
    Workspaces,
    WorkspaceUnusable,
    extract_report,
    missing_sections,
    read_report,
    report_prompt,
    write_report,
)
from kingdom.workflow.domain.resources import WorkSpace
from kingdom.workflow.domain.work import Task, Work

OUTLINE = ("Findings", "Next steps")
WHOLE = "## Findings\n\nIt is the parser.\n\n## Next steps\n\n- Mend it.\n"


def task(name: str = "look around") -> Task:
    return Task("task-1", 2, name, "Look.", OUTLINE)


def test_the_agent_is_asked_for_exactly_the_sections() -> None:
    asked = report_prompt(task(), OUTLINE)
    assert "look around" in asked
    assert "## Findings\n## Next steps\n" in asked


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        "# The report\n\n### 1. findings:\n\nx\n\n### 2) **Next   Steps**\n\ny",
        "## Next steps ##\ny\n## Findings\nx",
        "# Findings\n## In detail\nx\n# Next steps\n```\n# a comment\n```\n",
    ],
)
def test_a_report_with_all_its_sections_is_complete(text: str) -> None:
    assert extract_report(text, OUTLINE) == text.strip() + "\n"


@pytest.mark.parametrize("text", [f"```markdown\n{WHOLE}```", f"Here it is:\n\n````md\n{WHOLE}````\n\nAnything else?"])
def test_a_report_in_a_block_of_code_is_taken_out(text: str) -> None:
    assert extract_report(text, OUTLINE) == WHOLE


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("I am done.", ["no section 'Findings'", "no section 'Next steps'"]),
        ("## Findings\nx", ["no section 'Next steps'"]),
        ("## Findings\n\n## Next steps\ny", ["section 'Findings' is empty"]),
        ("## Findings\n### Inside\n\n## Next steps\ny", ["section 'Findings' is empty"]),
        ("## Findings\nx\n```\n## Next steps\ny\n```", ["no section 'Next steps'"]),
        ("## Findings and more\nx\n## Next steps\ny", ["no section 'Findings'"]),
    ],
)
def test_what_is_missing_is_named(text: str, missing: list[str]) -> None:
    assert missing_sections(text, OUTLINE) == missing
    with pytest.raises(ReportIncomplete, match="; ".join(missing)):
        extract_report(text, OUTLINE)


def test_no_text_is_no_report() -> None:
    with pytest.raises(ReportIncomplete, match="the agent gave no report"):
        extract_report(" \n", OUTLINE)


def test_it_lies_in_the_workspace_named_by_its_task(tmp_path: Path) -> None:
    path = write_report(tmp_path, task("Look around, ../../twice!"), WHOLE)
    assert path == tmp_path / "reports" / "2-Look-around-twice.md"
    assert read_report(path) == WHOLE
    assert write_report(tmp_path, task("Look around, ../../twice!"), "new\n") == path
    assert [item.name for item in path.parent.iterdir()] == [path.name], "nothing unfinished is left"
    assert path.read_text() == "new\n"


def test_a_link_an_agent_left_is_not_followed(tmp_path: Path) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.mkdir()
    workspace.mkdir()
    (workspace / "reports").symlink_to(outside)
    path = write_report(workspace, task(), WHOLE)
    (outside / "target").write_text("kept")
    path.unlink()
    path.symlink_to(outside / "target")
    write_report(workspace, task(), WHOLE)
    assert [item.name for item in outside.iterdir()] == ["target"]
    assert (outside / "target").read_text() == "kept"
    assert not path.is_symlink()


def test_a_report_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportIncomplete, match=f"{MAX_REPORT_BYTES} may be kept"):
        write_report(tmp_path, task(), "x" * (MAX_REPORT_BYTES + 1))


def space(workspaces: Workspaces, work_id: str, name: str = "plan") -> WorkSpace:
    work = Work(work_id, "wf-1", 0, name, [task()])
    return WorkSpace(f"ws-{work_id}", "wf-1", work_id, workspaces.path(work))


async def test_workspaces_are_made_and_removed_with_their_reports(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "workspaces")
    first, second = space(workspaces, "work-1"), space(workspaces, "work-2")
    assert first.path != second.path, "works of the same name have a folder each"
    for one in (first, second, first):
        await workspaces.make(one)
    path = write_report(Path(first.path), task(), WHOLE)
    assert path.exists()
    for one in (first, first, second):
        await workspaces.remove(one)
    assert list((tmp_path / "workspaces").iterdir()) == []


async def test_a_fork_gets_the_files_of_a_workspace(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "workspaces")
    first, second = space(workspaces, "work-1"), space(workspaces, "work-2")
    await workspaces.copy(first, second)
    assert not Path(second.path).exists(), "there was nothing to copy"
    await workspaces.make(first)
    write_report(Path(first.path), task(), WHOLE)
    (Path(first.path) / "link").symlink_to("/etc")
    await workspaces.copy(first, second)
    await workspaces.copy(first, second)
    assert (Path(second.path) / "reports" / "2-look-around.md").read_text() == WHOLE
    assert sorted(item.name for item in Path(second.path).iterdir()) == ["reports", "results"]


@pytest.mark.parametrize("path", ["/etc", "workspaces/../other", "other"])
async def test_nothing_outside_is_removed(tmp_path: Path, path: str) -> None:
    (tmp_path / "other").mkdir()
    workspaces = Workspaces(tmp_path / "workspaces")
    with pytest.raises(WorkspaceUnusable, match="left alone"):
        await workspaces.remove(WorkSpace("ws", "wf-1", "work-1", str(tmp_path / path)))
    assert (tmp_path / "other").exists()
