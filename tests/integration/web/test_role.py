"""The web as a part of the court, and as the engine of its workflows."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx
import pytest

from kingdom.court.bootstrap import available_roles, make_role, open_services, stop_order
from kingdom.court.config import load_system
from kingdom.court.errors import InvalidConfig
from kingdom.court.home import Home
from kingdom.court.init_home import create_home
from kingdom.court.loop import run_role
from kingdom.court.overview import read_overview
from kingdom.web.record import running_server
from kingdom.web.role import WebRole
from tests.support.web import served
from tests.support.workflow_courts import WorkflowCourt


@pytest.fixture
async def home(tmp_path: Path) -> Home:
    await create_home(tmp_path, ())
    return Home(tmp_path)


def configured(home: Home, text: str) -> None:
    with (home.root / "config" / "system.yaml").open("a") as file:
        file.write(f"\nweb:\n  {text}\n")


async def test_the_web_is_a_role_unless_it_is_switched_off(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "web" not in available_roles(home), "the whole suite has it off"
    monkeypatch.delenv("KINGDOM_WEB")
    assert "web" in available_roles(home)
    configured(home, "enabled: false")
    assert "web" not in available_roles(home)


def test_it_stops_first_with_whoever_brings_work_in() -> None:
    assert stop_order("web") == stop_order("sentinel") < stop_order("king")


async def test_a_port_that_is_taken_is_told_and_tried_again(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        configured(home, f"port: {port}")
        async with open_services(home) as services:
            role = make_role("web", services)
            assert isinstance(role, WebRole)
            assert await role.tick() == 5.0
            assert f"port {port} is in use" in role.report()["trouble"]
            assert role.report()["url"] is None
            other.close()
            assert await role.tick() is None
            assert role.report() == {"url": f"http://127.0.0.1:{port}", "trouble": ""}
            assert running_server(home.root) is not None
            await role.stop()
            assert running_server(home.root) is None


async def test_a_start_that_breaks_lets_go_of_the_port(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    configured(home, f"port: {port}")
    async with open_services(home) as services:
        role = make_role("web", services)
        with monkeypatch.context() as patched:
            patched.setattr("kingdom.web.bootstrap.open_home", lambda *_, **__: pytest.fail("the disk is gone"))
            with pytest.raises(pytest.fail.Exception, match="the disk is gone"):
                await role.tick()
        with socket.create_server(("127.0.0.1", port)):
            pass


async def test_the_status_says_why_there_is_no_dashboard(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KINGDOM_WEB")
    with socket.create_server(("127.0.0.1", 0)) as other:
        configured(home, f"port: {other.getsockname()[1]}")
        async with open_services(home) as services:
            stop = asyncio.Event()
            running = asyncio.create_task(run_role(make_role("web", services), services, stop))
            while not home.heartbeat("web").exists():
                await asyncio.sleep(0.01)
            (web,) = [role for role in (await read_overview(services)).roles if role.name == "web"]
            stop.set()
            await running
        assert web.state == "running"
        assert "is in use" in web.reason


async def test_an_address_open_to_the_network_is_not_listened_on_without_a_name(home: Home) -> None:
    configured(home, "host: 0.0.0.0\n  port: 0")
    async with open_services(home) as services:
        role = make_role("web", services)
        assert await role.tick() == 5.0
        assert "open to the network" in role.report()["trouble"]


async def test_a_configuration_that_makes_no_sense_is_told(home: Home) -> None:
    configured(home, "port: 70000")
    with pytest.raises(InvalidConfig, match=r"system\.yaml.*web\.port"):
        load_system(home)


async def test_a_general_hands_its_workflow_to_the_engine_of_the_web(tmp_path: Path) -> None:
    court = WorkflowCourt(tmp_path)
    script = {"fix/write": [{"write": {"path": "fix.txt", "text": "fixed"}}, {"say": "Mended."}]}
    engine = {"name": "scripted", "options": {"script": script}}
    court.found([{"name": "fix", "engine": engine, "tasks": [{"name": "write", "query": "Fix it."}]}])
    async with served(court.home.root, court=False, engine=True) as web:
        async with asyncio.timeout(30):
            while not web.context.control.is_engine:
                await asyncio.sleep(0.01)
        async with court.reigning() as reign:
            court.report()
            await reign.until(court.completed)
        assert web.context.control.is_engine, "it was the engine all the time"
        (workflow,) = await court.workflows()
        answer = await web.client.get(f"/api/workflows/{workflow.id}")
        assert answer.json()["data"]["status"] == "COMPLETED"
    (result,) = court.results()
    assert result["status"] == "success"


async def test_two_roots_are_served_side_by_side(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    async with (
        served(first, court=False) as one,
        served(second, court=False, token="s" * 32) as two,
        httpx.AsyncClient(trust_env=False) as browser,
    ):
        for web, token in ((one, "t" * 32), (two, "s" * 32)):
            await browser.get(f"{web.url}/login", params={"token": token})
        assert len(browser.cookies) == 2, "cookies know no ports, so each has a name of its own"
        for web in (one, two):
            assert (await browser.get(f"{web.url}/api/session")).status_code == 200
