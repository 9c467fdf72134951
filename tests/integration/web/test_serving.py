"""A server: found by others, alone on its port, ended with grace, and with the token of the day."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from websockets.asyncio.client import connect

from kingdom.court.errors import InvalidConfig
from kingdom.web.app import create_app
from kingdom.web.record import record_path, running_server, url_of
from kingdom.web.security import login_link, obtain_token, read_token, renew_token
from kingdom.web.security.credentials import token_path
from kingdom.web.server import CannotServe, listen, serve
from kingdom.web.settings import WebSettings
from tests.support.web import BEARER, SETTINGS, opened, served


async def test_others_find_a_server_while_it_runs(tmp_path: Path) -> None:
    assert running_server(tmp_path) is None
    async with served(tmp_path, court=False) as web:
        found = running_server(tmp_path)
        assert found is not None
        assert (found.url, found.process.pid) == (web.url, os.getpid())
        assert set(json.loads(record_path(tmp_path).read_text())) == {"url", "pid", "start_time", "boot_id"}
        assert (await web.client.get("/healthz")).status_code == 200
    assert not record_path(tmp_path).exists()


def test_the_record_of_a_server_that_was_killed_is_not_believed(tmp_path: Path) -> None:
    record_path(tmp_path).parent.mkdir(parents=True)
    record_path(tmp_path).write_text('{"url": "http://127.0.0.1:8700", "pid": 1, "start_time": 1, "boot_id": "then"}')
    assert running_server(tmp_path) is None
    record_path(tmp_path).write_text("half a")
    assert running_server(tmp_path) is None


async def test_a_server_leaves_the_record_of_another_one_alone(tmp_path: Path) -> None:
    async with served(tmp_path, court=False):
        record_path(tmp_path).write_text('{"url": "http://127.0.0.1:1", "pid": 2, "start_time": null, "boot_id": ""}')
    assert record_path(tmp_path).exists()


async def test_a_port_that_this_folder_has_already_is_told_with_its_address(tmp_path: Path) -> None:
    async with served(tmp_path, court=False) as web:
        taken = replace(SETTINGS, port=int(web.url.rpartition(":")[2]))
        with pytest.raises(CannotServe, match=f"is already running at {web.url} .pid {os.getpid()}.*--link"):
            listen(tmp_path, taken)


def test_a_port_that_another_program_has_is_told_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(CannotServe, match=rf"port {port} is in use.*--port .*web\.port") as told:
            listen(tmp_path, WebSettings(port=port))
    assert "\n" not in str(told.value)


def test_an_address_that_is_not_of_this_machine_is_told(tmp_path: Path) -> None:
    with pytest.raises(CannotServe, match=r"cannot listen on 192\.0\.2\.1:0"):
        listen(tmp_path, WebSettings(host="192.0.2.1", port=0))


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::1", "http://[::1]:1")],
)
def test_the_address_is_one_that_a_browser_takes(host: str, url: str) -> None:
    assert url_of(host, 1) == url


def test_to_be_open_to_the_network_a_name_must_be_allowed() -> None:
    with pytest.raises(InvalidConfig, match="--allow-host"):
        WebSettings(host="0.0.0.0").check()
    WebSettings(host="0.0.0.0", allowed_hosts=("kingdom.example.com",)).check()
    WebSettings(host="::1").check()


async def test_a_stop_ends_live_connections_and_nothing_hangs(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        async with served(tmp_path, court=False) as web:
            websocket = await connect(f"{web.websocket_url}/ws/events", additional_headers=BEARER, proxy=None)
            streaming = await web.client.send(web.client.build_request("GET", "/api/stream"), stream=True)
            assert streaming.status_code == 200
            running = web.running
        await websocket.wait_closed()
        assert running.broken is not None
        with pytest.raises(httpx.ConnectError):
            await httpx.AsyncClient(trust_env=False).get(f"{running.url}/healthz")


async def test_an_application_that_does_not_start_says_why_and_lets_go_of_the_port(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @contextlib.asynccontextmanager
    async def failing(_: FastAPI) -> AsyncIterator[None]:
        raise RuntimeError("the assets are gone")
        yield

    async with opened(tmp_path, court=False) as context:
        app = create_app(context, pages=False)
        app.router.lifespan_context = failing
        listener = listen(tmp_path, SETTINGS)
        port = listener.getsockname()[1]
        with pytest.raises(CannotServe, match="did not start"):
            async with serve(app, context, listener):
                pytest.fail("it started")
        assert "the assets are gone" in caplog.text
        listen(tmp_path, replace(SETTINGS, port=port)).close()


async def test_a_new_token_counts_at_once_and_throws_out_whoever_had_the_old_one(tmp_path: Path) -> None:
    old = obtain_token(tmp_path)
    async with asyncio.timeout(30), served(tmp_path, court=False, token=old) as web:
        headers = {"Authorization": f"Bearer {old}"}
        websocket = await connect(f"{web.websocket_url}/ws/events", additional_headers=headers, proxy=None)
        new = renew_token(tmp_path)
        await websocket.wait_closed()
        assert (await web.client.get("/api/session")).status_code == 401
        given = await web.client.get("/api/session", headers={"Authorization": f"Bearer {new}"})
        assert given.status_code == 200


def test_the_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    token = obtain_token(tmp_path)
    assert len(token) >= 43
    assert obtain_token(tmp_path) == token == read_token(tmp_path)
    assert stat.S_IMODE(token_path(tmp_path).stat().st_mode) == 0o600
    assert [path.name for path in token_path(tmp_path).parent.iterdir()] == ["token"]
    assert login_link("http://127.0.0.1:1/", token) == f"http://127.0.0.1:1/login?token={token}"


def test_a_token_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    obtain_token(tmp_path)
    token_path(tmp_path).chmod(0o644)
    obtain_token(tmp_path)
    assert stat.S_IMODE(token_path(tmp_path).stat().st_mode) == 0o600


@pytest.mark.parametrize("spoiled", [b"", b"short\n", b"\xff" * 40, b"with a space in the middle of it all\n"])
def test_a_token_that_was_spoiled_is_made_anew(tmp_path: Path, spoiled: bytes) -> None:
    obtain_token(tmp_path)
    token_path(tmp_path).write_bytes(spoiled)
    assert read_token(tmp_path) is None
    token = obtain_token(tmp_path)
    assert read_token(tmp_path) == token


def test_a_new_token_is_another_one(tmp_path: Path) -> None:
    assert obtain_token(tmp_path) != renew_token(tmp_path) == read_token(tmp_path)
