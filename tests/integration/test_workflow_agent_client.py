"""The agents of works: real programs and scripted agents; what comes of a run is told once, or not at all."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.port import Text
from kingdom.workflow.adapters.orders import run_id
from kingdom.workflow.domain.events import (
    AgentStarted,
    AgentStopped,
    QueryFailed,
    QueryResponded,
    ReportFailed,
    ReportGenerated,
)
from kingdom.workflow.domain.resources import WorkTree
from kingdom.workflow.domain.sources import Git, McpServer, McpServerRef
from kingdom.workflow.domain.work import Work
from kingdom.workflow.store import StoreError, open_store
from tests.support.agents import let_go
from tests.support.workflow_ground import NOW, Office, of, task

DONE = [{"say": "It is done."}]
OUTLINE = ("Findings", "Next steps")
WHOLE = "## Findings\n\nIt is the parser.\n\n## Next steps\n\nMend it.\n"


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_store(f"sqlite://{tmp_path}/workflows.db", lambda: NOW) as store:
        await store.setup()
        place = Office(tmp_path, store, {"TOKEN": "t0ken"})
        yield place
        await place.client.stop("work-1")
        await place.client.close()
        assert place.alive() == set()


async def ask(office: Office, work: Work, number: int = 1) -> None:
    await office.client.send_query(work, work.task(f"task-{number}"), "Do it.")


def answered(text: str = "It is done.", number: int = 1) -> list[tuple[str, Any]]:
    return of(QueryResponded("work-1", f"task-{number}", text))


# ── what comes of a query ─────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_is_told_with_the_attempt_and_the_conversation_is_kept(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await ask(office, work)
    assert await office.hear() == answered()
    kept = await office.work()
    assert kept.session_id is not None
    assert kept.tasks[0].heard == run_id(work, work.tasks[0]) == "work-1.task-1.1"
    (delivery,) = await office.store.bus.claim("workflow", worker="test", limit=1, lease=5)
    assert delivery.envelope.attributes["attempt"] == 1
    assert ("work-1.task-1.1", Text("It is done.")) in office.heard


async def test_later_queries_go_on_with_the_conversation(office: Office) -> None:
    script = {"steps": [{"say": "new"}], "on_resume": [{"say": "the same"}]}
    work = await office.hire("scripted", {"script": script}, task(1), task(2))
    await ask(office, work)
    await office.hear(1)
    before = (await office.work()).session_id
    await ask(office, await office.respond("task-1"), 2)
    assert await office.hear(2) == [*answered("new"), *answered("the same", 2)]
    assert (await office.work()).session_id == before


async def test_a_program_is_given_the_query_and_answers_with_its_result_file(office: Office) -> None:
    source = """
        asked = sys.stdin.read()
        assert "Do it." in asked and os.environ["KINGDOM_RESULT_PATH"] in asked
        result(status="success", summary=os.getcwd())
        tell(finished={"ok": True, "text": "bye"})
    """
    work = await office.hire("telling", office.telling(source), task())
    await ask(office, work)
    assert await office.hear() == answered(office.workspaces.path(work))


async def test_a_very_long_answer_is_cut(office: Office) -> None:
    work = await office.hire("scripted", {"script": [{"say": "a" * 20_000}]}, task())
    await ask(office, work)
    ((_, payload),) = await office.hear()
    assert len(str(payload["response"])) < 17_000
    assert "4000 characters left out" in str(payload["response"])


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ([{"fail": "no idea"}], "no idea"),
        ([{"result": {"status": "failed", "error": "it is broken"}}], "it is broken"),
        ([{"crash": "out of memory"}], "killed: the agent crashed: out of memory"),
        ([{"dance": 1}], "step 1: 'dance' is not a step"),
    ],
)
async def test_a_failure_says_why(office: Office, script: list[Any], error: str) -> None:
    work = await office.hire("scripted", {"script": script}, task())
    await ask(office, work)
    ((kind, payload),) = await office.hear()
    assert kind == "QueryFailed"
    assert error in str(payload["error"])
    assert (await office.work()).tasks[0].tries == 0, "whether it is tried again is for others to decide"


async def test_a_silent_agent_is_a_failure(office: Office) -> None:
    options = {"script": [{"wait": 60}], "timers": {"first_output": 0.2, "silence": 0.2}}
    await ask(office, await office.hire("scripted", options, task()))
    ((kind, payload),) = await office.hear()
    assert (kind, payload["error"]) == ("QueryFailed", "timeout: it was silent for 0.2 s")


async def test_an_agent_that_is_killed_from_outside_is_a_failure(office: Office) -> None:
    work = await office.hire("telling", office.telling("os.kill(os.getpid(), signal.SIGKILL)"), task())
    await ask(office, work)
    assert await office.hear() == of(QueryFailed("work-1", "task-1", "killed: it was ended by SIGKILL, not by us"))


async def test_a_question_is_told_as_the_reason_and_no_try_is_left(office: Office) -> None:
    script = [{"ask": {"question": "Red or blue?", "choices": ["red", "blue"]}}]
    await ask(office, await office.hire("scripted", {"script": script}, task(retries=3)))
    error = "the agent asks: Red or blue? (choices: red, blue)"
    assert await office.hear() == of(QueryFailed("work-1", "task-1", error))
    kept = await office.work()
    assert kept.session_id is not None, "the conversation goes on with the answer"
    kept.tasks[0].fail_query(error)
    assert not kept.tasks[0].retry()


async def test_a_rate_limit_costs_no_attempt_and_is_sent_again(office: Office) -> None:
    source = """
        marker = os.path.join(os.getcwd(), "limited")
        tell(began={"session_id": "s-1"})
        if os.path.exists(marker):
            tell(finished={"ok": True, "text": "now"})
        else:
            open(marker, "w").close()
            tell(usage={"tokens": {"input": 1}, "turns": 1})
            tell(rate={"status": "rejected", "resets_at": time.time()})
            tell(finished={"ok": False, "error": "limit"})
    """
    work = await office.hire("telling", office.telling(source), task())
    await ask(office, work)
    assert await office.hear() == answered("now")
    assert office.runs() == ["work-1.task-1.1", "work-1.task-1.1.2"]
    assert office.barracks.document("order.json", "work-1.task-1.1.2")["session_id"] == "s-1"
    assert (await office.work()).tasks[0].attempt == 1


@pytest.mark.parametrize(
    ("engine", "options", "error"),
    [
        ("nonsense", {}, "there is no engine 'nonsense'"),
        ("command", {"argv": ["no-such-program-anywhere"]}, "no program 'no-such-program-anywhere'"),
        ("command", {"argv": "ls"}, "options.argv must be a list"),
        ("scripted", {"script": DONE, "profile": "root"}, "profile 'root' must be one of"),
        ("scripted", {"script": DONE, "timers": {"totl": 3}}, "timers: totl makes no sense here; use first_output"),
        ("scripted", {"script": DONE, "caps": {"turns": -1}}, "caps.turns: -1 must be a number above 0"),
        ("scripted", {"script": DONE, "caps": 3}, "caps: 3 makes no sense here"),
    ],
)
async def test_an_agent_that_cannot_be_started_is_an_agent_error(
    office: Office, engine: str, options: dict[str, Any], error: str
) -> None:
    work = await office.hire(engine, options, task())
    await ask(office, work)
    ((kind, payload),) = await office.hear()
    assert kind == "AgentError"
    assert error in str(payload["error"])
    await office.quiet()
    await ask(office, work)
    await office.quiet()
    assert len(await office.told()) == 1, "it is told once"


async def test_a_lost_conversation_is_told_what_was_done_before(office: Office) -> None:
    script = {"steps": [{"say": "{seen}"}], "on_resume": [{"fail": "no such conversation"}]}
    work = await office.hire("scripted", {"script": script}, task(1), task(2))
    work = await office.respond("task-1", "I chose blue.")
    work.session_id = "lost"
    work.tasks[1].tries = 1
    await office.save(work)
    await ask(office, work, 2)
    assert await office.hear() == of(QueryFailed("work-1", "task-2", "no such conversation"))
    again = await office.work()
    assert again.session_id is None
    again.engine, again.engine_options = (
        "telling",
        office.telling("tell(finished={'ok': True, 'text': str('I chose blue.' in sys.stdin.read())})"),
    )
    again.tasks[1].reset()
    again.tasks[1].send()
    await office.save(again)
    await ask(office, again, 2)
    assert (await office.hear(2))[1:] == answered("True", 2)


# ── starting and stopping ─────────────────────────────────────────────────────────────────────────────────────────


async def test_starting_tells_that_the_agent_is_ready(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await office.client.start(work)
    assert await office.hear() == of(AgentStarted("work-1"))
    assert Path(office.workspaces.path(work)).is_dir()


WAITING = """
    tell(began={"session_id": "s-1"})
    tell(text="I am here")
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    time.sleep(60)
"""


async def heard_text(office: Office, text: str = "I am here") -> None:
    async with asyncio.timeout(30):
        while not any(event == Text(text) for _, event in office.heard):
            await asyncio.sleep(0.01)


async def test_stopping_ends_everything_and_nothing_more_is_told(office: Office) -> None:
    work = await office.hire("telling", office.telling(WAITING), task())
    await ask(office, work)
    await heard_text(office)
    assert office.alive()
    await office.client.stop("work-1")
    assert office.alive() == set()
    assert await office.hear() == of(AgentStopped("work-1"))


async def test_stopping_while_it_starts_leaves_nothing(office: Office) -> None:
    work = await office.hire("telling", office.telling(WAITING), task())
    for rounds in range(4):
        await ask(office, work)
        for _ in range(rounds * 3):
            await asyncio.sleep(0)
        await office.client.stop("work-1")
        assert office.alive() == set()
        work.tasks[0].reset()
        work.tasks[0].send()
        await office.save(work)
    assert {event.type for event in await office.told()} == {"AgentStopped"}


async def test_stopping_while_a_limit_is_waited_for(office: Office) -> None:
    work = await office.hire("scripted", {"script": [{"rate_limit": {"seconds": 3600}}]}, task())
    await ask(office, work)
    await asyncio.to_thread(_wait_for, office.barracks.folder("work-1.task-1.1") / "outcome.json")
    await office.client.stop("work-1")
    assert await office.hear() == of(AgentStopped("work-1"))


def _wait_for(path: Path) -> None:
    for _ in range(3000):
        if path.exists():
            return
        time.sleep(0.01)
    raise AssertionError(path)


async def test_stopping_a_work_that_is_gone_or_has_no_agent_tells_nothing(office: Office) -> None:
    await office.client.stop("work-9")
    work = await office.hire("scripted", {"script": DONE}, task())
    work.agent_stopped()
    await office.save(work)
    await office.client.stop("work-1")
    assert await office.told() == []


async def test_an_answer_of_an_attempt_that_is_over_is_not_told(office: Office) -> None:
    gate = office.barracks.fifo()
    source = f"wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'late'}})"
    work = await office.hire("telling", office.telling(source), task())
    await ask(office, work)
    kept = await office.work()
    kept.tasks[0].reset()
    await office.save(kept)
    await asyncio.to_thread(let_go, gate)
    await office.quiet()
    assert await office.told() == []


async def test_a_query_that_is_put_twice_is_one_run(office: Office) -> None:
    gate = office.barracks.fifo()
    source = f"wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'once'}})"
    work = await office.hire("telling", office.telling(source), task())
    await asyncio.gather(*(ask(office, work) for _ in range(3)))
    await asyncio.to_thread(let_go, gate)
    assert await office.hear() == answered("once")
    await office.quiet()
    await ask(office, work)
    await office.quiet()
    assert (office.runs(), len(await office.told())) == (["work-1.task-1.1"], 1)


# ── after a restart ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_run_that_lives_is_found_again_and_not_begun_twice(office: Office) -> None:
    gate = office.barracks.fifo()
    source = f"tell(text='I am here'); wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'once'}})"
    work = await office.hire("telling", office.telling(source), task())
    await ask(office, work)
    await heard_text(office)
    await office.client.close()
    office.restart()
    await office.client.recover([work])
    await ask(office, work)
    await asyncio.to_thread(let_go, gate)
    assert await office.hear() == answered("once")
    assert office.runs() == ["work-1.task-1.1"]


async def test_a_run_that_ended_meanwhile_is_told_once(office: Office) -> None:
    gate, marker = office.barracks.fifo(), office.folder / "ended"
    source = (
        f"wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'once'}}); open({str(marker)!r}, 'w').close()"
    )
    work = await office.hire("telling", office.telling(source), task())
    await ask(office, work)
    await asyncio.to_thread(_wait_for, office.barracks.folder("work-1.task-1.1") / "identity.json")
    await office.client.close()
    await asyncio.to_thread(let_go, gate)
    await asyncio.to_thread(_wait_for, office.barracks.folder("work-1.task-1.1") / "exit.json")
    for _ in range(2):
        office.restart()
        work = await office.work()
        await office.client.recover([work])
        await ask(office, work)
        assert await office.hear() == answered("once")
        await office.quiet()
        await office.client.close()
    assert office.runs() == ["work-1.task-1.1"]


async def test_a_run_that_died_with_its_engine_is_sent_again(office: Office) -> None:
    work = await office.hire("scripted", {"script": [{"say": "begun"}, {"wait": 60}]}, task())
    await ask(office, work)
    await heard_text(office, "begun")
    await office.client.close()
    office.restart()
    work.engine_options = {"script": DONE}
    await office.client.recover([work])
    await asyncio.sleep(0.05)
    assert await office.told() == [], "it waits to be told what to ask"
    await ask(office, work)
    assert await office.hear() == answered()
    assert office.runs() == ["work-1.task-1.1", "work-1.task-1.1.2"]


async def test_a_query_that_brings_every_engine_down_fails_in_the_end(office: Office) -> None:
    work = await office.hire("scripted", {"script": [{"say": "begun"}, {"wait": 60}]}, task())
    for _ in range(4):
        await office.client.recover([work])
        await ask(office, work)
        office.heard.clear()
        await heard_text(office, "begun")
        await office.client.close()
        office.restart()
    await office.client.recover([work])
    await ask(office, work)
    ((kind, payload),) = await office.hear()
    assert kind == "QueryFailed"
    assert str(payload["error"]).startswith("killed: it ended and nobody saw how")
    assert len(office.runs()) == 4


async def test_a_query_that_was_never_begun_is_begun_now(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await office.client.recover([work])
    assert office.runs() == []
    await ask(office, work)
    assert await office.hear() == answered()


async def test_another_engine_stops_what_the_former_one_began(office: Office) -> None:
    work = await office.hire("telling", office.telling(WAITING), task())
    await ask(office, work)
    await heard_text(office)
    await office.client.close()
    assert office.alive()
    office.restart()
    await office.client.stop("work-1")
    assert office.alive() == set()
    assert await office.hear() == of(AgentStopped("work-1"))


async def test_an_outage_of_the_store_loses_nothing(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await office.client.start(work)
    real, failures = office.store.transaction, iter(range(2))

    def failing() -> Any:
        if next(failures, None) is not None:
            raise StoreError("the disk is full")
        return real()

    monkeypatch.setattr(office.store, "transaction", failing)
    await ask(office, work)
    assert await office.hear(2) == [*of(AgentStarted("work-1")), *answered()]
    await office.quiet()
    assert len(await office.told()) == 2


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
    assert office.runs() == ["work-1.task-1.1-report"]


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
    run = office.barracks.folder("work-1.task-1.1-report")
    await office.client.write_report(work, work.tasks[0], report)
    await asyncio.to_thread(_wait_for, run / "identity.json")
    await asyncio.to_thread(let_go, gate)
    await asyncio.to_thread(_wait_for, run / "outcome.json")
    kept = await office.hear()
    office.restart()
    stale = await office.work()
    stale.tasks[0].heard = None
    await office.save(stale)
    await office.client.recover([stale])
    assert await office.hear(2) == [*kept, *kept], "as if the first engine had died before it could tell"
    assert office.runs() == ["work-1.task-1.1-report", "work-1.task-1.1-report.2"]


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
    await ask(office, work)
    where = office.folder / cwd if cwd else Path(office.workspaces.path(work))
    assert await office.hear() == answered(f"{where} {named}")


async def test_a_work_beside_others_works_in_its_own_worktree(office: Office) -> None:
    work = await office.hire("telling", office.telling(WHERE), task(), after=("first",))
    async with office.store.transaction() as tx:
        await tx.works.save(Work("work-0", "wf-1", -1, "first", [task(2)]))
        await tx.works.save(Work("work-2", "wf-1", 1, "other", [task(3)], after=("first",)))
    await trees(office, ("app", None), ("app", "work-1"))
    await ask(office, work)
    assert await office.hear() == answered(f"{office.folder}/worktrees/app-work-1 False")


async def test_a_worktree_that_is_gone_is_an_agent_error(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await trees(office, ("app", None))
    (office.folder / "worktrees" / "app-None").rmdir()
    await office.client.start(work)
    ((kind, payload),) = await office.hear()
    assert kind == "AgentError"
    assert "the worktree of app is gone" in str(payload["error"])


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
    await ask(office, work)
    await heard_text(office)
    (file,) = office.mcp_folder.iterdir()
    assert office.barracks.document("order.json", "work-1.task-1.1")["mcp_config"] == str(file)
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


async def test_a_secret_that_is_not_there_is_an_agent_error(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await with_server(office, work, KEY="${MISSING}")
    await office.client.start(work)
    await ask(office, work)
    await office.quiet()
    ((kind, payload),) = await office.hear()
    assert kind == "AgentError"
    assert "needs the variable MISSING" in str(payload["error"])
