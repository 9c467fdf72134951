"""What the agents of works write, where they work, and with which MCP servers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.workflow.domain.events import ReportFailed, ReportGenerated
from kingdom.workflow.domain.resources import Git, McpServer, McpServerRef, WorkTree
from kingdom.workflow.domain.work import Work
from kingdom.workflow.errors import WorkflowError
from tests.support.agents import let_go
from tests.support.workflow_ground import DONE, WORK, Office, answered, of, open_office, task

OUTLINE = ("Findings", "Next steps")
WHOLE = "## Findings\n\nIt is the parser.\n\n## Next steps\n\nMend it.\n"


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as opened:
        yield opened


# ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def write(office: Office, engine: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Have the report of a task written; what is told."""
    await office.hire(engine, options, task(outline=OUTLINE))
    work, report = await office.begin_report("task-1")
    await office.client.write_report(work, work.tasks[0], report)
    ((kind, payload),) = await office.hear()
    return kind, dict(payload)


async def test_a_report_becomes_a_file_in_the_workspace(office: Office) -> None:
    kind, payload = await write(office, "scripted", {"script": {"plan/step 1/report": [{"say": WHOLE}]}})
    path = Path(office.workspaces.path(await office.work())) / "reports" / "0-step-1.md"
    assert [(kind, payload)] == of(ReportGenerated("report-1", "task-1", str(path)))
    assert path.read_text() == WHOLE
    assert office.runs() == [f"{WORK}.task-1.1-report"]


async def test_a_report_may_stand_in_the_result_file(office: Office) -> None:
    script = [{"say": "I wrote it."}, {"result": {"report": WHOLE}}]
    kind, _ = await write(office, "scripted", {"script": script})
    assert kind == "ReportGenerated"


async def test_a_program_prints_its_report(office: Office) -> None:
    program = office.barracks.program(f"print({WHOLE!r})", "printer.py")
    kind, payload = await write(office, "command", {"argv": [sys.executable, str(program)]})
    assert kind == "ReportGenerated"
    assert "## Findings\nIt is the parser." in Path(payload["filePath"]).read_text()


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([{"say": "## Findings\nx"}], "the report is not complete: no section 'Next steps'"),
        ([{"fail": "no idea"}], "no idea"),
        ([], "the agent gave no report"),
    ],
)
async def test_a_report_that_is_not_complete_has_failed(office: Office, script: list[Any], error: str) -> None:
    kind, payload = await write(office, "scripted", {"script": script})
    assert [(kind, payload)] == of(ReportFailed("report-1", "task-1", error))
    assert not list(office.folder.rglob("*.md"))


async def test_a_report_nobody_heard_is_asked_for_again(office: Office) -> None:
    long = WHOLE.replace("parser.", "parser. " * 1000)
    gate = office.barracks.fifo()
    source = f"""
        if not os.path.exists({str(office.folder / "second")!r}):
            open({str(office.folder / "second")!r}, "w").close()
            wait_at({str(gate)!r})
        tell(finished={{"ok": True, "text": {long!r}}})
    """
    await office.hire("telling", office.telling(source), task(outline=OUTLINE))
    work, report = await office.begin_report("task-1")
    await office.client.write_report(work, work.tasks[0], report)
    await office.left("identity.json", f"{WORK}.task-1.1-report")
    await asyncio.to_thread(let_go, gate)
    await office.left("outcome.json", f"{WORK}.task-1.1-report")
    kept = await office.hear()
    office.restart()
    stale = await office.work()
    stale.tasks[0].heard = None
    await office.save(stale)
    await office.client.recover([stale])
    assert await office.hear(2) == [*kept, *kept], "as if the first engine had died before it could tell"
    assert office.runs() == [f"{WORK}.task-1.1-report", f"{WORK}.task-1.1-report.2"]


# ── where, and with what ──────────────────────────────────────────────────────────────────────────────────────────


async def trees(office: Office, *named: tuple[str, str | None]) -> None:
    """Worktrees that are ready: the name of the repository, and whose it is."""
    async with office.store.transaction() as tx:
        for name, work_id in named:
            path = office.folder / "worktrees" / f"{name}-{work_id}"
            path.mkdir(parents=True)
            if await tx.gits.find(f"git-{name}") is None:
                await tx.gits.save(Git(f"git-{name}", name, url=f"https://example.org/{name}"))
            tree = WorkTree(f"wt-{name}-{work_id}", "wf-1", f"git-{name}", work_id=work_id)
            tree.ready(str(path), "kingdom/wf-1/x")
            await tx.work_trees.save(tree)


WHERE = """
    asked = sys.stdin.read()
    tell(finished={"ok": True, "text": os.getcwd() + " " + str("worktrees/lib-None" in asked)})
"""


@pytest.mark.parametrize(
    ("ready", "cwd", "named"),
    [
        ([], None, False),
        ([("app", None)], "worktrees/app-None", False),
        ([("app", None), ("lib", None)], "worktrees", True),
        ([("app", None), ("app", "work-2")], "worktrees/app-None", False),
    ],
)
async def test_it_works_in_the_worktree_or_where_all_of_them_are(
    office: Office, ready: list[tuple[str, str | None]], cwd: str | None, named: bool
) -> None:
    work = await office.hire("telling", office.telling(WHERE), task())
    await trees(office, *ready)
    await office.ask(work)
    where = office.folder / cwd if cwd else Path(office.workspaces.path(work))
    assert await office.hear() == answered(f"{where} {named}")


async def test_a_work_beside_others_works_in_its_own_worktree(office: Office) -> None:
    work = await office.hire("telling", office.telling(WHERE), task(), after=("first",))
    work.apart = True
    await office.save(work)
    async with office.store.transaction() as tx:
        await tx.works.save(Work("work-0", "wf-1", -1, "first", [task(2)]))
        await tx.works.save(Work("work-2", "wf-1", 1, "other", [task(3)], after=("first",)))
    await trees(office, ("app", None), ("app", WORK))
    await office.ask(work)
    assert await office.hear() == answered(f"{office.folder}/worktrees/app-{WORK} False")


async def test_nobody_starts_where_a_worktree_is_gone(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await trees(office, ("app", None))
    (office.folder / "worktrees" / "app-None").rmdir()
    with pytest.raises(WorkflowError, match="the worktree of app is gone"):
        await office.client.start(work)


async def with_server(office: Office, work: Work, **env: str) -> None:
    async with office.store.transaction() as tx:
        whole = await tx.workflows.get("wf-1")
        whole.mcp_server_refs = (McpServerRef("mcp-1", {"LEVEL": "workflow", **env}),)
        await tx.workflows.save(whole)
        await tx.mcp_servers.save(McpServer("mcp-1", "docs", command=("docs",), env={"TOKEN": "${TOKEN}"}))


async def test_mcp_servers_are_given_in_a_file_that_goes_with_the_run(office: Office) -> None:
    gate = office.barracks.fifo()
    source = f"tell(text='I am here'); wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'x'}})"
    refs = (McpServerRef("mcp-1", {"LEVEL": "work"}),)
    work = await office.hire("telling", office.telling(source), task(), mcp_server_refs=refs)
    await with_server(office, work)
    await office.ask(work)
    await office.heard_text()
    (file,) = office.mcp_folder.iterdir()
    assert office.barracks.document("order.json", f"{WORK}.task-1.1")["mcp_config"] == str(file)
    server = json.loads(file.read_text())["mcpServers"]["docs"]
    assert server == {"command": "docs", "args": [], "env": {"TOKEN": "t0ken", "LEVEL": "work"}}
    await office.client.close()
    office.restart()
    (office.mcp_folder / "left-over.json").touch()
    await office.client.recover([work])
    assert list(office.mcp_folder.iterdir()) == [file], "the run may still need it"
    await asyncio.to_thread(let_go, gate)
    await office.hear()
    await office.quiet()
    assert list(office.mcp_folder.iterdir()) == []
    everything = b"".join(path.read_bytes() for path in office.folder.rglob("*") if path.is_file())
    assert b"t0ken" not in everything


async def test_nobody_starts_without_a_secret_and_who_is_asked_all_the_same_is_an_agent_error(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await with_server(office, work, KEY="${MISSING}")
    with pytest.raises(WorkflowError, match="needs the variable MISSING"):
        await office.client.start(work)
    await office.ask(work)
    await office.quiet()
    ((kind, payload),) = await office.hear()
    assert kind == "AgentError"
    assert "needs the variable MISSING" in str(payload["error"])
