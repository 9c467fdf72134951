"""The agents of works: what comes of a run is told once, or not at all. Real programs and scripted agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.errors import StartFailed
from kingdom.agents.port import Text
from kingdom.workflow.adapters.orders import run_id
from kingdom.workflow.adapters.slots import AgentSlots
from kingdom.workflow.domain.events import AgentStopped, QueryFailed, QuestionAsked
from kingdom.workflow.domain.statuses import QueryStatus
from tests.support.agents import let_go
from tests.support.workflow_ground import DONE, STARTED, WORK, Office, answered, of, open_office, task


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with open_office(tmp_path) as opened:
        yield opened


# ── what comes of a query ─────────────────────────────────────────────────────────────────────────────────────────


async def test_an_answer_is_told_with_the_attempt_and_the_conversation_is_kept(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task())
    await office.ask(work)
    assert await office.hear() == answered()
    kept = await office.work()
    assert kept.session_id is not None
    assert kept.tasks[0].heard == run_id(work, work.tasks[0]) == f"{WORK}.task-1.1"
    (delivery,) = await office.store.bus.claim("workflow", worker="test", limit=1, lease=5)
    assert delivery.envelope.attributes["attempt"] == 1
    assert (f"{WORK}.task-1.1", Text("It is done.")) in office.heard


async def test_later_queries_go_on_with_the_conversation(office: Office) -> None:
    script = {"steps": [{"say": "new"}], "on_resume": [{"say": "the same"}]}
    work = await office.hire("scripted", {"script": script}, task(1), task(2))
    await office.ask(work)
    await office.hear(1)
    before = (await office.work()).session_id
    await office.ask(await office.respond("task-1"), 2)
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
    await office.ask(work)
    assert await office.hear() == answered(office.workspaces.path(work))


async def test_a_very_long_answer_is_cut(office: Office) -> None:
    work = await office.hire("scripted", {"script": [{"say": "a" * 20_000}]}, task())
    await office.ask(work)
    ((_, payload),) = await office.hear()
    assert len(str(payload["response"])) < 17_000
    assert "4000 bytes left out" in str(payload["response"])


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
    await office.ask(work)
    ((kind, payload),) = await office.hear()
    assert kind == "QueryFailed"
    assert error in str(payload["error"])
    assert (await office.work()).tasks[0].tries == 0, "whether it is tried again is for others to decide"


async def test_a_silent_agent_is_broken(office: Office) -> None:
    options = {"script": [{"wait": 60}], "timers": {"first_output": 0.2, "silence": 0.2}}
    await office.ask(await office.hire("scripted", options, task()))
    ((kind, payload),) = await office.hear()
    assert (kind, payload["error"]) == ("AgentError", "timeout: it was silent for 0.2 s")


async def test_an_agent_that_is_killed_from_outside_is_a_failure(office: Office) -> None:
    work = await office.hire("telling", office.telling("os.kill(os.getpid(), signal.SIGKILL)"), task())
    await office.ask(work)
    assert await office.hear() == of(QueryFailed(WORK, "task-1", "killed: it was ended by SIGKILL, not by us"))


async def test_a_question_is_told_and_the_conversation_goes_on_with_the_answer(office: Office) -> None:
    script = [{"ask": {"question": "Red or blue?", "choices": ["red", "blue"]}}]
    await office.ask(await office.hire("scripted", {"script": script}, task(retries=3)))
    assert await office.hear() == of(QuestionAsked(WORK, "task-1", "Red or blue?", ["red", "blue"]))
    kept = await office.work()
    assert kept.session_id is not None, "the conversation goes on with the answer"


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
    await office.ask(work)
    assert await office.hear() == answered("now")
    assert office.runs() == [f"{WORK}.task-1.1", f"{WORK}.task-1.1.2"]
    assert office.barracks.document("order.json", f"{WORK}.task-1.1.2")["session_id"] == "s-1"
    assert (await office.work()).tasks[0].attempt == 1


@pytest.mark.parametrize(
    ("engine", "options", "error"),
    [
        ("nonsense", {}, "there is no engine 'nonsense'"),
        ("command", {"argv": ["no-such-program-anywhere"]}, "no program 'no-such-program-anywhere'"),
        ("command", {"argv": "ls"}, "options.argv must be a list"),
        ("scripted", {"script": DONE, "profile": "root"}, "profile 'root' must be one of"),
        ("scripted", {"script": DONE, "timers": {"totl": 3}}, "timers: totl is not allowed here; use first_output"),
        ("scripted", {"script": DONE, "caps": {"turns": -1}}, "caps.turns: -1 must be a number above 0"),
        ("scripted", {"script": DONE, "caps": 3}, "caps: 3 is not allowed here"),
    ],
)
async def test_an_agent_that_cannot_be_started_is_an_agent_error(
    office: Office, engine: str, options: dict[str, Any], error: str
) -> None:
    work = await office.hire(engine, options, task())
    await office.ask(work)
    ((kind, payload),) = await office.hear()
    assert kind == "AgentError"
    assert error in str(payload["error"])
    await office.quiet()
    await office.ask(work)
    await office.quiet()
    assert len(await office.told()) == 1, "it is told once"


async def test_a_lost_conversation_is_told_what_was_done_before(office: Office) -> None:
    script = {"steps": [{"say": "{seen}"}], "on_resume": [{"fail": "no such conversation"}]}
    work = await office.hire("scripted", {"script": script}, task(1), task(2))
    work = await office.respond("task-1", "I chose blue.")
    work.session_id = "lost"
    work.tasks[1].tries = 1
    await office.save(work)
    await office.ask(work, 2)
    assert await office.hear() == of(QueryFailed(WORK, "task-2", "no such conversation"))
    again = await office.work()
    assert again.session_id is None
    again.engine, again.engine_options = (
        "telling",
        office.telling("tell(finished={'ok': True, 'text': str('I chose blue.' in sys.stdin.read())})"),
    )
    again.tasks[1].reset()
    again.tasks[1].send()
    await office.save(again)
    await office.ask(again, 2)
    assert (await office.hear(2))[1:] == answered("True", 2)


# ── starting and stopping ─────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_has_started_when_its_first_run_has(office: Office) -> None:
    work = await office.hire("scripted", {"script": DONE}, task(), starting=True)
    await office.client.start(work)
    assert await office.told() == [], "nothing runs yet"
    assert Path(office.workspaces.path(work)).is_dir()
    await office.ask(work)
    assert await office.hear(3) == [*STARTED, *answered()]


@pytest.mark.parametrize("starting", [True, False])
async def test_a_query_is_processed_while_a_process_works_on_it(office: Office, starting: bool) -> None:
    gate = office.barracks.fifo()
    source = f"tell(text='I am here'); wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'It is done.'}})"
    work = await office.hire("telling", office.telling(source), task(), starting=starting)
    await office.ask(work)
    async with asyncio.timeout(30):
        while (await office.work()).tasks[0].query_status is not QueryStatus.PROCESSING:
            await asyncio.sleep(0.01)
    assert len(await office.told()) == (2 if starting else 0)
    await office.heard_text()
    office.restart()
    await office.client.recover([await office.work()])
    await asyncio.to_thread(let_go, gate)
    began = STARTED if starting else []
    assert await office.hear(1 + len(began)) == [*began, *answered()], "each is recorded once"


async def test_an_agent_that_is_not_there_has_never_started(office: Office) -> None:
    work = await office.hire("nobody", {}, task(), starting=True)
    await office.client.start(work)
    await office.ask(work)
    ((kind, payload),) = await office.hear()
    assert kind == "AgentError"
    assert "there is no engine 'nobody'" in str(payload["error"])


WAITING = """
    tell(began={"session_id": "s-1"})
    tell(text="I am here")
    subprocess.Popen(["sleep", "60"], start_new_session=True)
    time.sleep(60)
"""


async def test_stopping_ends_everything_and_nothing_more_is_told(office: Office) -> None:
    work = await office.hire("telling", office.telling(WAITING), task())
    await office.ask(work)
    await office.heard_text()
    assert office.alive()
    await office.client.stop(WORK)
    assert office.alive() == set()
    assert await office.hear() == of(AgentStopped(WORK))


async def test_stopping_while_it_starts_leaves_nothing(office: Office) -> None:
    work = await office.hire("telling", office.telling(WAITING), task())
    for rounds in range(4):
        await office.ask(work)
        for _ in range(rounds * 3):
            await asyncio.sleep(0)
        await office.client.stop(WORK)
        assert office.alive() == set()
        work = await office.work()
        work.tasks[0].reset()
        work.tasks[0].send()
        await office.save(work)
    assert {event.type for event in await office.told()} == {"AgentStopped"}


async def test_stopping_while_a_limit_is_waited_for(office: Office) -> None:
    work = await office.hire("scripted", {"script": [{"rate_limit": {"seconds": 3600}}]}, task())
    await office.ask(work)
    await office.left("outcome.json")
    await office.client.stop(WORK)
    assert await office.hear() == of(AgentStopped(WORK))


async def test_stopping_a_work_that_is_gone_or_has_no_agent_tells_nothing(office: Office) -> None:
    await office.client.stop("work-9")
    work = await office.hire("scripted", {"script": DONE}, task())
    work.agent_stopped()
    await office.save(work)
    await office.client.stop(WORK)
    assert await office.told() == []


async def test_an_answer_of_an_attempt_that_is_over_is_not_told(office: Office) -> None:
    gate = office.barracks.fifo()
    source = f"wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'late'}})"
    work = await office.hire("telling", office.telling(source), task())
    await office.ask(work)
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
    await asyncio.gather(*(office.ask(work) for _ in range(3)))
    await asyncio.to_thread(let_go, gate)
    assert await office.hear() == answered("once")
    await office.quiet()
    await office.ask(work)
    await office.quiet()
    assert (office.runs(), len(await office.told())) == ([f"{WORK}.task-1.1"], 1)


async def test_the_same_holds_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    async with open_office(tmp_path, postgres_url) as office:
        work = await office.hire("scripted", {"script": DONE}, task(1), task(2), starting=True)
        await office.client.start(work)
        await office.ask(work)
        await office.hear(3)
        await office.ask(await office.respond("task-1"), 2)
        assert await office.hear(4) == [*STARTED, *answered(), *answered(number=2)]
        assert (await office.work()).session_id is not None


class NoticedSlots(AgentSlots):
    """Says that somebody has asked for a slot, and has it or waits by now."""

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.asked = asyncio.Queue[None]()

    async def enter(self) -> None:
        self.asked.put_nowait(None)
        await super().enter()


async def test_who_finds_no_room_waits_until_another_has_ended(office: Office) -> None:
    slots = NoticedSlots(1)
    office.client._deps = replace(office.client._deps, slots=slots)
    gate = office.barracks.fifo()
    source = f"tell(text='I am here'); wait_at({str(gate)!r}); tell(finished={{'ok': True, 'text': 'It is done.'}})"
    work = await office.hire("telling", office.telling(source), task(1), task(2), task(3))
    await office.ask(work)
    await office.heard_text()
    await office.ask(work, 2)
    for _ in range(2):
        await asyncio.wait_for(slots.asked.get(), 30)
    assert office.runs() == [f"{WORK}.task-1.1"]
    await asyncio.to_thread(let_go, gate)
    assert await office.hear() == answered()
    await office.left("identity.json", f"{WORK}.task-2.1")
    await office.ask(work, 3)
    await asyncio.wait_for(office.client.stop(work.id), 30)
    assert office.runs() == [f"{WORK}.task-1.1", f"{WORK}.task-2.1"], "one that waits is stopped as well"


async def test_a_run_that_cannot_be_started_now_is_a_query_that_failed(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise StartFailed("the shim said nothing")

    work = await office.hire("scripted", {"script": DONE}, task())
    monkeypatch.setattr(office.runner, "start", fail)
    await office.ask(work)
    assert await office.hear() == of(QueryFailed(WORK, "task-1", "the shim said nothing"))
