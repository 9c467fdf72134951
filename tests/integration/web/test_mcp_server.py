"""The court as an MCP server, asked by the official client."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.memory import create_connected_server_and_client_session

from kingdom import __version__
from kingdom.web.context import WebContext
from kingdom.web.mcp_server import make_server
from tests.support.command import environment
from tests.support.web import opened, web_app
from tests.support.web_court import web_court
from tests.support.web_work import Desk, scripted

ACTING = {
    "emit_event", "answer_question", "cancel_task", "retry_task",
    "start_workflow", "pause_workflow", "resume_workflow", "cancel_workflow",
}  # fmt: skip


class Agent:
    """What an agent does with the tools."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session

    async def use(self, tool: str, **arguments: Any) -> Any:
        """Use a tool that has to work; returns what it gave."""
        result = await self.session.call_tool(tool, arguments)
        texts = [part.text for part in result.content if part.type == "text"]
        assert not result.isError, texts
        found = [json.loads(text) if text[:1] in "{[" else text for text in texts]
        return found[0] if len(found) == 1 else found

    async def refused(self, tool: str, **arguments: Any) -> str:
        """Use a tool that has to fail; returns its words."""
        result = await self.session.call_tool(tool, arguments)
        assert result.isError
        return "".join(part.text for part in result.content if part.type == "text")


@contextlib.asynccontextmanager
async def agent(context: WebContext, **options: Any) -> AsyncIterator[Agent]:
    async with create_connected_server_and_client_session(make_server(context, **options)) as session:
        yield Agent(session)


async def test_an_agent_has_work_done_and_follows_it(tmp_path: Path) -> None:
    async with web_court(tmp_path) as court, court.working("gen-good"), agent(court.context) as it:
        assert "gen-good" in json.dumps(await it.use("list_generals"))
        emitted = await it.use("emit_event", type="test.good", payload={"title": "<b>the roof</b>"})
        done = await court.task_of(emitted["eventId"], "completed")
        listed = await it.use("list_tasks", general="gen-good")
        assert listed["total"] == 1
        (task,) = listed["items"]
        assert task["id"] == done
        shown = await it.use("show_task", task_id=task["id"])
        assert shown["result"]["summary"] == "All of <b>the roof</b> is well."
        assert "Looking at" in json.dumps(await it.use("read_transcript", task_id=task["id"]))
        story = await it.use("trace", any_id=emitted["eventId"])
        assert task["id"] in json.dumps(story)
        assert (await it.use("court_status"))["questions"] == []


async def test_an_agent_answers_a_question_once(tmp_path: Path) -> None:
    async with web_court(tmp_path) as court, court.working("gen-ask"), agent(court.context) as it:
        emitted = await it.use("emit_event", type="test.ask", payload={"title": "a door"})
        question = await court.task_of(emitted["eventId"], "needs_human")
        await court.until("/api/questions", lambda page: page["items"])  # when the king has noticed
        asked = await it.use("list_questions")
        assert question in json.dumps(asked)
        await it.use("answer_question", task_id=question, answer="blue")
        await court.until(f"/api/events/{emitted['eventId']}", lambda event: event["status"] == "completed")
        assert "ANSWERED" in await it.refused("answer_question", task_id=question, answer="red")


async def test_what_is_not_there_is_told_with_its_code(tmp_path: Path) -> None:
    async with opened(tmp_path) as context, agent(context) as it:
        assert "NOT_FOUND" in await it.refused("show_task", task_id="task-20260101-001")
        assert "WFL_NOT_FOUND" in await it.refused("show_workflow", workflow_id="wf-none")
        assert "INVALID_ID" in await it.refused("show_task", task_id="../../etc/passwd")
        assert "limit" in await it.refused("list_tasks", limit=0)


async def test_a_mistake_in_what_an_agent_asks_for_is_told_to_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as context, agent(context) as it:
        both = await it.refused("resume_workflow", workflow_id="wf-1", checkpoint_id="cp-1", retry=True)
        assert "SYS_INVALID" in both
        assert both.count("give one of checkpointId, retry and discard, not several") == 1
        assert "name: " in await it.refused("start_workflow", template_id="tpl-1", name="x" * 200)
    async with web_court(tmp_path / "court") as court, agent(court.context) as it:
        deep: dict[str, Any] = {}
        for _ in range(70):
            deep = {"in": deep}
        assert "cannot be stored as JSON" in await it.refused("emit_event", type="test.good", payload=deep)


async def test_an_agent_is_refused_what_http_would_refuse(tmp_path: Path) -> None:
    async with opened(tmp_path) as context, agent(context) as it:
        unknown = await it.refused("list_tasks", stauts="failed")
        assert unknown.startswith("SYS_INVALID")
        assert "stauts: Extra inputs are not permitted" in unknown
        assert "status: Input should be" in await it.refused("list_tasks", status="lost")
        assert "status: Input should be" in await it.refused("list_workflows", status="lost")
        assert (await it.use("list_workflows", status="running"))["items"] == []
        assert "search: String should have at most 10000" in await it.refused("list_tasks", search="x" * 10_001)
        assert "search: String should have at most 100" in await it.refused("list_workflows", search="x" * 101)
        long = await it.refused("emit_event", type="test.good", payload={}, repo="x" * 201)
        assert "repo: String should have at most 200" in long
        assert "SYS_TOO_LARGE" in await it.refused("emit_event", type="test.good", payload={"text": "x" * 2**22})
        tools = (await it.session.list_tools()).tools
    assert all(tool.inputSchema["additionalProperties"] is False for tool in tools)


async def test_who_may_only_look_is_offered_nothing_else(tmp_path: Path) -> None:
    async with opened(tmp_path) as context:
        async with agent(context) as it:
            everything = {tool.name: tool for tool in (await it.session.list_tools()).tools}
        async with agent(context, read_only=True) as it:
            looking = {tool.name: tool for tool in (await it.session.list_tools()).tools}
    assert everything.keys() - looking.keys() == ACTING
    assert all(tool.description and tool.annotations for tool in everything.values())
    assert all(tool.annotations and tool.annotations.readOnlyHint for tool in looking.values())


async def test_without_a_court_there_are_the_tools_of_workflows(tmp_path: Path) -> None:
    async with opened(tmp_path, court=False) as context, agent(context) as it:
        names = {tool.name for tool in (await it.session.list_tools()).tools}
    assert "list_workflows" in names
    assert "list_tasks" not in names


async def test_the_command_serves_it_and_a_workflow_started_there_is_worked_on(tmp_path: Path) -> None:
    async with web_app(tmp_path, court=False) as web:
        template = await Desk(web).template(scripted("first"), name="fix")
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "kingdom", "mcp", "serve", "--home", str(tmp_path)], env=environment()
    )
    async with (
        stdio_client(command) as (reading, writing),
        ClientSession(reading, writing) as session,
    ):
        told = await session.initialize()
        assert (told.serverInfo.name, told.serverInfo.version) == ("kingdom", __version__)
        it = Agent(session)
        assert (await it.use("list_templates"))["items"][0]["id"] == template
        started = await it.use("start_workflow", template_id=template, issue_key="WEB-42")
        status = ""
        while status != "COMPLETED":
            status = (await it.use("show_workflow", workflow_id=started["workflowId"]))["status"]
            assert status in ("CREATED", "PREPARING", "READY", "RUNNING", "COMPLETED")
