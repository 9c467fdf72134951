"""Live events over a WebSocket: what clients say and are told, and that nobody misses anything."""

from __future__ import annotations

import asyncio
import json
import socket as sockets
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kingdom.web import server as servers
from kingdom.web.live import feed as feeds
from kingdom.web.live import hub as clients
from kingdom.web.live import hub as hubs
from kingdom.web.live import subscription as subscriptions
from kingdom.workflow.domain.events import TaskStarted
from kingdom.workflow.ports import RecordedEvent
from tests.support.live import PATIENCE, Ear, Wanderer, finish, happen, numbers, socket, stream, write
from tests.support.web import SETTINGS, TOKEN, Served, served


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        yield made


async def test_who_subscribes_to_everything_hears_workflows_and_the_journal(web: Served) -> None:
    async with socket(web) as client:
        told = await client.subscribe()
        assert told == {"type": "subscribed", "workflowId": None, "sequenceNumber": 0}
        await happen(web.context.parts.store, "wf-a")
        (first,) = await client.events(1)
        write(web.context, 7)
        (second,) = await client.events(1)
    assert first["workflowId"] == first["event"]["workflowId"] == "wf-a"
    assert first["event"]["type"] == "TaskStarted"
    assert first["event"]["data"] == {"workId": "work-1", "taskId": "task-0"}
    assert second["event"]["source"] == "journal"
    assert second["event"]["data"] == {"task_id": "task-7"}
    assert numbers([first, second]) == [1, 2]


async def test_who_subscribes_to_a_workflow_hears_only_of_it_by_its_own_numbers(web: Served) -> None:
    store = web.context.parts.store
    await happen(store, "wf-a", 3)
    async with socket(web) as client:
        told = await client.subscribe(workflowId="wf-a", lastSequenceNumber=1)
        assert told["sequenceNumber"] == 1
        await happen(store, "wf-b", 2)
        write(web.context, 1)
        await happen(store, "wf-a", 2)
        events = await client.events(4)
    assert numbers(events) == [2, 3, 4, 5]
    assert {event["workflowId"] for event in events} == {"wf-a"}


async def test_without_a_number_events_begin_now(web: Served) -> None:
    store = web.context.parts.store
    ear = Ear(web.context.live)
    await happen(store, "wf-a", 3)
    await ear.until(3)
    async with socket(web) as client:
        assert (await client.subscribe())["sequenceNumber"] == 3
        assert (await client.subscribe(workflowId="wf-a"))["sequenceNumber"] == 3
        await happen(store, "wf-a")
        assert numbers(await client.events(1)) == [4]


async def test_a_workflow_that_does_not_exist_is_refused_and_the_connection_stays(web: Served) -> None:
    async with socket(web) as client:
        told = await client.subscribe(workflowId="wf-nowhere")
        assert (told["type"], told["error"]["code"]) == ("error", "WFL_NOT_FOUND")
        assert (await client.subscribe())["type"] == "subscribed"


async def test_another_subscription_takes_the_place_of_the_first(web: Served) -> None:
    store, ear = web.context.parts.store, Ear(web.context.live)
    await happen(store, "wf-a")
    await ear.until(1)  # the first subscription shall have nothing to hear
    async with socket(web) as client:
        await client.subscribe()
        await client.subscribe(workflowId="wf-a")
        await happen(store, "wf-b")
        await happen(store, "wf-a")
        (event,) = await client.events(1)
        assert (event["workflowId"], event["sequenceNumber"]) == ("wf-a", 2)


async def test_who_unsubscribes_hears_no_more(web: Served) -> None:
    ear = Ear(web.context.live)
    async with socket(web) as client:
        await client.subscribe()
        await client.say("unsubscribe")
        assert await client.hear() == {"type": "unsubscribed"}
        await happen(web.context.parts.store, "wf-a")
        await ear.until(1)
        await client.say("ping")
        assert await client.hear() == {"type": "pong"}


async def test_types_are_chosen_by_name_or_by_their_beginning(web: Served) -> None:
    store = web.context.parts.store
    async with socket(web) as client:
        await client.subscribe(types=["TaskCompleted", "task.*"])
        await happen(store, "wf-a", 3)
        await finish(store, "wf-a")
        (first,) = await client.events(1)
        write(web.context, 1)
        (second,) = await client.events(1)
    assert [first["event"]["type"], second["event"]["type"]] == ["TaskCompleted", "task.started"]
    assert numbers([first, second]) == [4, 5]


async def test_events_come_together_for_who_wants_that(web: Served) -> None:
    await happen(web.context.parts.store, "wf-a", 450)
    async with socket(web) as client:
        await client.subscribe(workflowId="wf-a", lastSequenceNumber=0, batch=True)
        message = await client.hear()
        assert message["type"] == "events"
        rest = await client.events(450 - len(message["items"]))
    assert numbers([*message["items"], *rest]) == list(range(1, 451))


async def test_a_message_that_is_not_understood_is_answered_and_the_connection_stays(web: Served) -> None:
    async with socket(web) as client:
        for message in (
            "not JSON",
            "[]",
            '"ping"',
            '{"action":"dance"}',
            "{}",
            '{"action":"subscribe","lastSequenceNumber":-1}',
            '{"action":"subscribe","lastSequenceNumber":"seven"}',
            '{"action":"subscribe","lastSequenceNumber":1e300}',
            '{"action":"subscribe","workflowId":7}',
            '{"action":"subscribe","types":"all"}',
            '{"action":"subscribe","unknown":1}',
            "[" * 5_000,
            b"\xff\xfe\x00",
        ):
            await client.connection.send(message)
            told = await client.hear()
            assert told["type"] == "error", (message, told)
            assert told["error"]["code"] == "SYS_INVALID"
            assert told["error"]["details"]
        await client.say("ping")
        assert await client.hear() == {"type": "pong"}


async def test_a_message_that_is_too_long_ends_the_connection(web: Served) -> None:
    async with socket(web) as client:
        await client.say("subscribe", types=["x" * 20_000])
        code, reason = await client.closed()
    assert code == 1009
    assert "16384 bytes" in reason


async def test_a_number_that_is_too_old_is_answered_with_a_reset_never_with_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "_PRUNE_EVERY_EVENTS", 1)
    monkeypatch.setattr(feeds.FeedFile.__init__, "__kwdefaults__", {**_defaults(), "kept_events": 10})
    async with served(tmp_path) as web:
        ear = Ear(web.context.live)
        for number in range(6):
            await happen(web.context.parts.store, "wf-a", 5)
            await ear.until(5 * number + 5)
        async with socket(web) as client:
            assert (await client.subscribe(lastSequenceNumber=3))["sequenceNumber"] == 30
            reset = await client.hear()
            assert reset == {"type": "reset", "workflowId": None, "oldestSequenceNumber": 21, "sequenceNumber": 30}
            await happen(web.context.parts.store, "wf-a")
            assert numbers(await client.events(1)) == [31]
            assert (await client.subscribe(lastSequenceNumber=0))["type"] == "subscribed"
            assert numbers(await client.events(10)) == list(range(22, 32))
            # A workflow keeps all of its events: there is nothing to reset.
            await client.subscribe(workflowId="wf-a", lastSequenceNumber=3)
            assert numbers(await client.events(28)) == list(range(4, 32))


async def test_a_number_that_was_never_given_is_answered_with_a_reset(web: Served) -> None:
    await happen(web.context.parts.store, "wf-a", 2)
    async with socket(web) as client:
        await client.subscribe(lastSequenceNumber=0)
        await client.events(2)  # they are told: nothing else comes in between
        await client.subscribe(lastSequenceNumber=1_000)
        assert (await client.hear())["type"] == "reset"
        await client.subscribe(workflowId="wf-a", lastSequenceNumber=3)
        reset = await client.hear()
        assert (reset["type"], reset["sequenceNumber"]) == ("reset", 2)


async def test_who_says_nothing_is_closed_and_who_pings_is_not(tmp_path: Path) -> None:
    settings = replace(SETTINGS, idle_seconds=2.0)
    async with served(tmp_path, settings=settings) as web, socket(web) as silent, socket(web) as alive:
        pongs: list[dict[str, Any]] = []

        async def ping() -> None:
            while True:
                await alive.say("ping")
                pongs.append(await alive.hear())
                await asyncio.sleep(0.2)

        pinging = asyncio.create_task(ping())
        code, reason = await silent.closed()
        pinging.cancel()
        await asyncio.gather(pinging, return_exceptions=True)
        assert (code, "send ping" in reason) == (4408, True)
        assert {pong["type"] for pong in pongs} == {"pong"}
        assert alive.connection.close_code is None


async def test_the_server_gives_signs_of_life_with_the_number_that_was_reached(tmp_path: Path) -> None:
    async with served(tmp_path, settings=replace(SETTINGS, idle_seconds=1.5)) as web, socket(web) as client:
        await client.subscribe(types=["nothing.of.this"])
        await happen(web.context.parts.store, "wf-a", 4)
        message: dict[str, Any] = {}
        while message.get("sequenceNumber") != 4:
            message = json.loads(await asyncio.wait_for(client.connection.recv(), PATIENCE))
            await client.say("pong")
        assert message == {"type": "ping", "sequenceNumber": 4}


async def test_a_client_that_does_not_read_is_closed_with_4429_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "MAX_BEHIND_EVENTS", 50)
    async with served(tmp_path) as web:
        store = web.context.parts.store
        async with socket(web) as good, stream(web.client) as listening:
            await good.subscribe()
            assert (await anext(listening))[1]["type"] == "subscribed"
            lazy = await _lazy(web)
            async with socket(web, sock=lazy, max_queue=1) as slow:
                await slow.subscribe()
                sent = 0
                while len(web.context.live.clients) == 3:  # megabytes go to it until the kernel has no room left
                    await _long(store, 20)
                    sent += 20
                    expected = list(range(sent - 19, sent + 1))
                    assert numbers(await good.events(20)) == expected
                    assert [(await anext(listening))[0] for _ in expected] == expected
                code, reason = await slow.closed()  # it reads again: what was on the way, and then why it was closed
                assert (code, "reading too slowly" in reason) == (4429, True)
            async with socket(web) as again:
                await again.subscribe(lastSequenceNumber=0)
                assert numbers(await again.events(sent)) == list(range(1, sent + 1))


async def test_a_client_that_never_reads_again_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_BEHIND_EVENTS", 50)
    monkeypatch.setattr(servers, "CLOSE_SECONDS", 0.0)
    async with served(tmp_path) as web, socket(web, sock=await _lazy(web), max_queue=1) as slow:
        await slow.subscribe()
        ear, sent = Ear(web.context.live), 0
        while web.context.live.clients:
            await _long(web.context.parts.store, 20)
            sent += 20
            await ear.until(sent)
        async with asyncio.timeout(PATIENCE):
            while any(isinstance(one, servers.WebSocketProtocol) for one in web.running.connections):
                await asyncio.sleep(0.01)
        slow.connection.transport.abort()


async def test_live_connections_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kingdom.web.live.websocket.MAX_LIVE_CLIENTS", 1)
    monkeypatch.setattr("kingdom.web.live.sse.MAX_LIVE_CLIENTS", 1)
    async with served(tmp_path) as web, socket(web) as client:
        await client.subscribe()
        async with socket(web) as other:
            assert (await other.closed())[0] == 1013
        answer = await web.client.get("/api/stream")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "SYS_BUSY")


async def test_clients_that_come_and_go_at_random_miss_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Little in memory, and little at once: so that most of what is missed comes from the disk, in several pieces.
    monkeypatch.setattr(hubs, "_MAX_RECENT_EVENTS", 20)
    monkeypatch.setattr(subscriptions, "_BATCH_EVENTS", 7)
    async with served(tmp_path) as web:
        wanderers = [
            Wanderer(web.url, TOKEN, seed, workflow_id="wf-a" if seed % 4 == 3 else None, batch=seed % 2 == 0)
            for seed in range(8)
        ]
        store = web.context.parts.store
        ear = Ear(web.context.live)
        await happen(store, "wf-a")
        producer = Producer(web)
        await asyncio.gather(*(wanderer.lives(25) for wanderer in wanderers))
        lines = await producer.stop()
        head = await store.last_event_number(None) + lines
        await ear.until(head)
        in_workflow = await store.last_event_number("wf-a")
        for seed, wanderer in enumerate(wanderers):
            last = in_workflow if seed % 4 == 3 else head
            await wanderer.until(last)
            assert wanderer.heard == list(range(1, last + 1)), f"client {seed}"


async def test_nothing_is_missed_across_a_restart_of_the_server(tmp_path: Path) -> None:
    heard: list[int] = []
    for start in range(3):
        async with served(tmp_path) as web:
            store = web.context.parts.store
            async with socket(web) as client:
                await client.subscribe(lastSequenceNumber=heard[-1] if heard else 0)
                await happen(store, "wf-a", 5)
                write(web.context, start)
                # Some of them are heard before the server is stopping, some are not.
                heard += numbers(await client.events(2 + start))
            ear = Ear(web.context.live)
            await happen(store, "wf-a")
            await ear.until(1)
    async with served(tmp_path) as web, socket(web) as client:
        await client.subscribe(lastSequenceNumber=heard[-1])
        heard += numbers(await client.events(21 - len(heard)))
    assert heard == list(range(1, 22))


async def test_a_server_that_stops_says_so_to_its_clients(tmp_path: Path) -> None:
    async with served(tmp_path) as web:
        client = socket(web)
        connected = await client.__aenter__()
        await connected.subscribe()
    assert (await connected.closed())[0] == 1012
    await client.__aexit__(None, None, None)


class Producer:
    """Has something happen in workflows and in the journal, again and again."""

    def __init__(self, web: Served) -> None:
        self._web = web
        self._stop = False
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> int:
        """Returns how many lines were written."""
        self._stop = True
        return await self._task

    async def _run(self) -> int:
        number = 0
        while not self._stop:
            await happen(self._web.context.parts.store, "wf-a" if number % 3 else "wf-b", 1 + number % 4)
            write(self._web.context, number)
            number += 1
            await asyncio.sleep(0.02)
        return number


async def _lazy(web: Served) -> sockets.socket:
    """A connection with next to no room for what is not read."""
    made = sockets.socket()
    made.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
    made.setblocking(False)
    host, port = web.url.removeprefix("http://").split(":")
    await asyncio.get_running_loop().sock_connect(made, (host, int(port)))
    return made


async def _long(store: Any, count: int) -> None:
    """Events with a lot to say."""
    async with store.transaction() as tx:
        for number in range(count):
            tx.record(RecordedEvent(TaskStarted("x" * 50_000, f"task-{number}"), "Workflow", "wf-long"))


def _defaults() -> dict[str, Any]:
    return dict(feeds.FeedFile.__init__.__kwdefaults__)
