"""Commands reach the engine of a web server through the store."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from kingdom.workflow.commands import COMMAND_STREAM
from tests.support.command import kingdom
from tests.support.web import TOKEN, Web, served
from tests.support.web_work import Desk, scripted


async def test_a_workflow_is_started_paused_resumed_and_cancelled_in_the_server(tmp_path: Path) -> None:
    (tmp_path / "state/web").mkdir(parents=True)
    (tmp_path / "state/web/token").write_text(TOKEN)

    async def said(*words: str) -> str:
        done = await asyncio.to_thread(kingdom, "workflow", *words, "--home", str(tmp_path))
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    async with served(tmp_path, court=False, engine=True) as web:
        desk = Desk(Web(web.context, web.app, web.client))
        asked: list[str] = []
        heard = web.context.live.listen(lambda events: asked.extend(event.type for event in events))
        template = await desk.template(scripted("first", {"wait": 600}))
        made = await desk.post("workflows", {"templateId": template, "issueKey": "WEB-42"})
        name = made["id"]
        assert "runs" in await said("start", name, "--detach")
        await desk.until(name, "RUNNING")
        assert "paused" in await said("pause", name)
        await desk.until(name, "PAUSED")
        await said("resume", name, "--retry", "--detach")
        await desk.until(name, "RUNNING")
        assert "cancelled" in await said("cancel", name, "--yes")
        await desk.until(name, "CANCELLED")
        refused = await asyncio.to_thread(kingdom, "workflow", "pause", name, "--home", str(tmp_path))
        assert refused.returncode == 1
        assert "CANCELLED" in refused.stderr
        heard()
    kinds = ["StartWorkflow", "PauseWorkflow", "ResumeWorkflow", "CancelWorkflow", "PauseWorkflow"]
    assert _commands(tmp_path) == kinds
    assert asked.count("WorkflowPaused") == 1


def _commands(root: Path) -> list[str]:
    """The commands in the store, executed or refused, in order."""
    with contextlib.closing(sqlite3.connect(root / "workflows/workflows.db")) as database:
        return [
            kind
            for (kind,) in database.execute("SELECT event_type FROM outbox_event WHERE stream = ?", (COMMAND_STREAM,))
        ]
