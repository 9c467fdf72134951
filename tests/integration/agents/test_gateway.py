"""The way out of the sandbox: named hosts, and the model with a key that the agent never has."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.port import Caps
from tests.support.cells import Cell, ModelEngine, Upstream, ask
from tests.support.serving import listen

PROXIED = "PROXY='-x http://127.0.0.1:3128'; export NO_PROXY= no_proxy=\n"


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return Cell(tmp_path)


@pytest.fixture
def upstream(cell: Cell) -> Iterator[Upstream]:
    with Upstream() as running:
        cell.engine = ModelEngine(running.port)
        yield running


async def test_the_gateway_adds_the_key_that_the_agent_never_has(cell: Cell, upstream: Upstream) -> None:
    outcome, said = await cell.run(ask(100) + "env; cat /proc/*/environ")
    assert outcome.status == "success", said
    ((path, headers, _),) = upstream.requests
    assert (path, headers["x-api-key"]) == ("/v1/messages", "the-real-key")
    assert "hello" in said
    assert "the-real-key" not in said


@pytest.mark.parametrize(
    "script",
    [
        "curl -s -m 20 http://127.0.0.1:3128/model/messages -H 'x-api-key: guessed' -d '{}'",
        "curl -s -m 20 http://127.0.0.1:3128/model/messages -d '{}'",
        "curl -s -m 20 --path-as-is http://127.0.0.1:3128/model/../admin -H \"x-api-key: $RUN_KEY\" -d '{}'",
        "curl -s -m 20 http://127.0.0.1:3128/other -H \"x-api-key: $RUN_KEY\" -d '{}'",
        "curl -s -m 20 $PROXY http://127.0.0.1:%d/ -d '{}'",
        "curl -s -m 20 -p $PROXY http://127.0.0.1:%d/ -d '{}'",
        "curl -s -m 20 -p $PROXY http://localhost:%d/ -d '{}'",
        "curl -s -m 20 $PROXY http://169.254.169.254/latest/meta-data",
        "curl -s -m 20 http://example.com",
        "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT 127.0.0.1:%d HTTP/1.1\\r\\n\\r\\n' >&3; head -c 99 <&3",
    ],
)
async def test_the_gateway_serves_nothing_else_and_says_so(cell: Cell, upstream: Upstream, script: str) -> None:
    await cell.run(PROXIED + script.replace("%d", str(upstream.port)))
    assert upstream.requests == []
    assert cell.refusals
    assert {task for task, _ in cell.refusals} == {"task-20260101-001"}


async def test_a_name_that_leads_to_this_machine_is_refused(
    cell: Cell, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()

    async def lead_home(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(loop, "getaddrinfo", lead_home)
    script = f"curl -s -m 20 -p $PROXY http://rebound.example.com:{upstream.port}/ -d '{{}}'"
    _, said = await cell.run(PROXIED + script, network=(f"rebound.example.com:{upstream.port}",))
    assert upstream.requests == [], said
    assert any("not a public address" in what for _, what in cell.refusals)


async def test_a_tunnel_is_only_for_the_host_it_names(cell: Cell, upstream: Upstream, monkeypatch: Any) -> None:
    """A connection to an allowed host with the name of another in its TLS handshake."""

    async def connect(*_: Any, **__: Any) -> Any:
        return await asyncio.open_connection("127.0.0.1", upstream.port)

    monkeypatch.setattr("kingdom.agents.sandbox.gateway.connect", connect)
    script = "curl -sk -m 20 $PROXY --connect-to evil.example.com:443:good.example.com:443 https://evil.example.com/"
    await cell.run(PROXIED + script, network=("good.example.com",))
    assert any("good.example.com that is for evil.example.com" in what for _, what in cell.refusals), cell.refusals


class OuterProxy:
    """The proxy of a company: all connections lead to a service on loopback."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        behind, ahead = await asyncio.open_connection("127.0.0.1", self._port)
        if head.startswith("CONNECT"):
            writer.write(b"HTTP/1.1 200 Go on\r\n\r\n")
        else:
            ahead.write(head.encode())

        async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65_536):
                target.write(data)
            target.close()

        try:
            await asyncio.gather(pass_on(reader, ahead), pass_on(behind, writer), return_exceptions=True)
        finally:
            ahead.close()


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_named_hosts_are_reached_by_the_proxy_of_a_company(
    cell: Cell, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, names often cannot be looked up at all."""

    async def unknown(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with Upstream() as service:
        company = OuterProxy(service.port)
        listener = await listen(company.serve)
        url = f"http://ann:s%20cret@127.0.0.1:{listener.port}"
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
            monkeypatch.setenv(name, url)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", unknown)
        how = "-p" if scheme == "https" else ""
        target = "http://api.example.com:80/x"
        _, said = await cell.run(
            PROXIED + f"curl -s -m 20 {how} $PROXY {target} -d '{{}}'", network=("api.example.com",)
        )
        await listener.close()
        assert "hello" in said
        assert [path for path, _, _ in service.requests][-1].endswith("/x")
        (head,) = company.asked
        assert head.splitlines()[0].startswith(
            "CONNECT api.example.com:80 " if scheme == "https" else "POST http://api"
        )
        assert "Basic YW5uOnMgY3JldA==" in head
        await cell.run(PROXIED + f"curl -s -m 20 {how} $PROXY http://evil.example.com/", network=("api.example.com",))
        assert len(company.asked) == 1, "what is not named does not reach it"
    assert [what for _, what in cell.refusals] == ["evil.example.com:80 is not among the hosts of this run"]


async def test_a_port_of_this_machine_that_is_named_is_reached_under_its_number(cell: Cell) -> None:
    with Upstream() as service:
        script = f"curl -s -m 20 http://127.0.0.1:{service.port}/x -d '{{}}'"
        _, said = await cell.run(script, network=(f"127.0.0.1:{service.port}",))
        assert "hello" in said
        assert [path for path, _, _ in service.requests] == ["/x"]


async def test_a_cap_cannot_be_overspent_by_one_answer(cell: Cell, upstream: Upstream) -> None:
    upstream.output = 700
    _, said = await cell.run(ask(100_000) * 5, caps=Caps(tokens=2000))
    asked = [body["max_tokens"] for _, _, body in upstream.requests]
    assert len(asked) == 3, said
    assert asked == sorted(asked, reverse=True), "an answer is limited to what is left"
    assert upstream.spent <= 2000
    assert "the cap of this run is used up (2000 tokens)" in said
    assert any("cap of this run" in what for _, what in cell.refusals)


async def test_the_key_of_a_run_dies_with_it(cell: Cell, upstream: Upstream) -> None:
    _, said = await cell.run("echo key=$RUN_KEY")
    key = said.partition("key=")[2].split()[0]
    assert key.startswith("kingdom-run-")
    await cell.run(f"RUN_KEY={key}\n" + ask(100))
    assert upstream.requests == []
    assert any("not this run's" in what for _, what in cell.refusals)


async def test_the_key_of_another_run_is_worth_nothing_while_that_runs(cell: Cell, upstream: Upstream) -> None:
    runner = cell.runner()
    order = cell.order("echo key=$RUN_KEY; exec sleep 600")
    said: list[str] = []
    ready = asyncio.Event()

    def listen(event: object) -> None:
        said.append(str(event))
        ready.set()

    other = await runner.start(order, listen)
    try:
        await asyncio.wait_for(ready.wait(), 60)
        key = "".join(said).partition("key=")[2].split("'")[0]
        assert key.startswith("kingdom-run-")
        await cell.run(f"RUN_KEY={key}\n" + ask(100))
    finally:
        await other.stop("enough")
        await other.wait()
        await runner.close()
    assert upstream.requests == []
    assert any("not this run's" in what for _, what in cell.refusals)


async def test_an_agent_cannot_fill_the_journal_with_refusals(cell: Cell) -> None:
    script = PROXIED + "for i in $(seq 150); do curl -s -m 20 $PROXY http://evil-$i.example.com; done"
    _, said = await cell.run(script)
    assert said.count("is not among the hosts of this run") == 150
    assert len(cell.refusals) == 100


async def test_a_run_goes_on_when_its_gateway_is_restarted(cell: Cell, upstream: Upstream) -> None:
    """The connections of an agent wait while no daemon is there."""
    order = cell.order("echo ready; while [ ! -e go ]; do sleep 0.05; done\n" + ask(100))
    first = cell.runner()
    ready = asyncio.Event()
    await first.start(order, lambda event: ready.set())
    await asyncio.wait_for(ready.wait(), 60)
    await first.close()
    (cell.cwd / "go").touch()
    second = cell.runner()
    try:
        running = await second.adopt(order.run_id)
        assert running is not None
        outcome = await running.wait()
    finally:
        await second.close()
    assert outcome.status == "success"
    assert [headers["x-api-key"] for _, headers, _ in upstream.requests] == ["the-real-key"]


async def test_a_restart_of_the_gateway_gives_no_second_cap(cell: Cell, upstream: Upstream) -> None:
    upstream.output = 700
    script = ask(700) + "echo ready; while [ ! -e go ]; do sleep 0.05; done\n" + ask(100_000) * 5
    order = cell.order(script, caps=Caps(tokens=2000))
    first = cell.runner()
    ready = asyncio.Event()
    await first.start(order, lambda event: ready.set())
    await asyncio.wait_for(ready.wait(), 60)
    await first.close()
    (cell.cwd / "go").touch()
    second = cell.runner()
    try:
        running = await second.adopt(order.run_id)
        assert running is not None
        await running.wait()
    finally:
        await second.close()
    assert len(upstream.requests) == 3
    assert upstream.spent <= 2000


async def test_the_sockets_of_a_run_end_with_it(cell: Cell, upstream: Upstream) -> None:
    order = cell.order("true")
    runner = cell.runner()
    outcome = await (await runner.start(order)).wait()
    await runner.close()
    assert outcome.status == "success"
    assert not (cell.root / "soldiers" / order.run_id / "net.sock").exists()
