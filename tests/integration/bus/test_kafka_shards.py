"""Streams in several shards on a real Kafka broker: who takes part in which, and what holds while shards move."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from kingdom.bus import Envelope, EventBus, InvalidOption, Worker, connect
from kingdom.bus.transports.kafka import KafkaTransport, _membership, _stream
from kingdom.bus.transports.kafka._stream import KafkaStream
from kingdom.bus.transports.kafka._topics import topics_of
from tests.support.kafka import KafkaBroker

pytestmark = pytest.mark.kafka
STREAM = "orders"
PATIENCE = 60.0


@pytest.fixture
def url(kafka_url: str) -> str:
    return f"{kafka_url}&shards=4"


@pytest.fixture
async def bus(url: str) -> AsyncIterator[EventBus]:
    async with connect(url) as bus:
        await bus.setup()
        yield bus


def transport_of(bus: EventBus) -> KafkaTransport:
    assert isinstance(bus.transport, KafkaTransport)
    return bus.transport


async def stream_of(bus: EventBus, stream: str = STREAM) -> KafkaStream:
    return await transport_of(bus)._stream(stream)


async def own_shards(bus: EventBus, stream: str = STREAM) -> list[int]:
    """The shards that the groups assigned to a bus."""
    members = (await stream_of(bus, stream))._members.values()
    return sorted(shard for member in members for shard in member.assigned or ())


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await holds():
            await asyncio.sleep(0.05)


def events(count: int, aggregates: int = 20, first: int = 0) -> list[Envelope]:
    """Events in turn of several aggregates, each with its own numbers."""
    return [
        Envelope(type="Happened", aggregate_id=f"a{index % aggregates}", payload={"number": index // aggregates})
        for index in range(first, first + count)
    ]


@asynccontextmanager
async def working(bus: EventBus, name: str = "worker", **options: Any) -> AsyncIterator[list[str]]:
    """Run a worker; the ids of what it has handled."""
    seen: list[str] = []
    worker = Worker(bus, STREAM, name=name, signals=False, **{"poll": 0.1, **options})

    @worker.on("Happened")
    async def handle(event: Envelope) -> None:
        seen.append(event.event_id)

    task = asyncio.create_task(worker.run())
    try:
        yield seen
    finally:
        worker.stop()
        await task


# ── shards ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_publishing_needs_no_shard(bus: EventBus) -> None:
    await bus.publish(STREAM, events(40))
    assert transport_of(bus)._streams == {}
    topics = topics_of(transport_of(bus)._settings.prefix, STREAM)
    assert await transport_of(bus)._clients.partition_counts(topics) == dict.fromkeys(topics, 4)
    async with connect(bus.url) as other:
        assert (await other.depth())[STREAM].pending == 40


async def test_a_stream_keeps_the_number_of_shards_it_was_created_with(bus: EventBus, kafka_url: str) -> None:
    await bus.publish(STREAM, events(8))
    async with connect(f"{kafka_url}&shards=2") as other:
        assert len(await other.claim(STREAM, worker="anyone", limit=10, lease=60)) == 8
        assert (await stream_of(other)).count == 4
        await other.publish("new", events(1))
        assert (await stream_of(other, "new")).count == 2


async def test_processes_that_ask_for_other_numbers_of_shards_agree(bus: EventBus, kafka_url: str) -> None:
    urls = [f"{kafka_url}&shards={number}" for number in (2, 3, 4, 5)]
    buses = [await connect(one).__aenter__() for one in urls]
    try:
        await asyncio.gather(*(one.publish(STREAM, events(3)) for one in buses))
        assert len({(await stream_of(one)).count for one in buses}) == 1
        assert (await bus.depth())[STREAM].pending == 12
    finally:
        await asyncio.gather(*(one.close() for one in buses))


async def test_partitions_that_somebody_added_are_refused(bus: EventBus, url: str) -> None:
    from confluent_kafka.admin import NewPartitions

    await bus.publish(STREAM, events(1))
    clients = transport_of(bus)._clients
    topic = (await stream_of(bus)).topics.data
    for future in clients._admin.create_partitions([NewPartitions(topic, 6)]).values():
        await asyncio.wrap_future(future)

    async def is_seen() -> bool:
        return await clients.partition_counts([topic]) == {topic: 6}

    await until(is_seen)
    async with connect(url) as other:
        with pytest.raises(InvalidOption, match=r"has 6 partitions and .*-ledger 4: .* kingdom bus move"):
            await other.claim(STREAM, worker="anyone", limit=1, lease=60)


async def test_a_verdict_goes_to_the_shard_of_its_claim(bus: EventBus, url: str) -> None:
    """Also from a process that has opened no shard yet, as one that was assigned others."""
    await bus.publish(STREAM, events(40))
    held = await bus.claim(STREAM, worker="anyone", limit=100, lease=60)
    assert len(held) == 40
    async with connect(url) as other:
        assert await other.extend(held, 60) == []
        assert await other.settle(done=held[:20], retry=held[20:30], dead=held[30:]) == []
        assert await other.release(held) == held
        depth = (await other.depth())[STREAM]
    assert (depth.pending, depth.processing, depth.dead) == (10, 0, 10)


# ── assignment ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_who_is_alone_has_all_shards_and_shares_them_with_who_joins(bus: EventBus, url: str) -> None:
    async def share(*sizes: int) -> bool:
        found = [await own_shards(one) for one in (bus, other)]
        return sorted(map(len, found)) == sorted(sizes) and sorted(chain(*found)) == [0, 1, 2, 3]

    async with connect(url) as other, working(bus) as first:
        await until(lambda: share(4, 0))
        async with working(other) as second:
            await until(lambda: share(2, 2))
            await bus.publish(STREAM, events(200))
            await until(lambda: _is(len(first) + len(second) == 200))
            assert first
            assert second
        await until(lambda: share(4, 0))


async def _is(value: bool) -> bool:
    return value


async def test_a_process_keeps_only_its_own_shards_open(
    bus: EventBus, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_membership, "_HELP_SECONDS", 3600)
    await bus.publish(STREAM, events(40))
    async with connect(url) as other, working(bus), working(other):
        await other.depth()
        assert sorted((await stream_of(other)).opened()) == [0, 1, 2, 3]

        async def both_have_two() -> bool:
            return [len(await own_shards(one)) for one in (bus, other)] == [2, 2]

        await until(both_have_two)
        found = await stream_of(other)
        monkeypatch.setattr(_stream, "_UNUSED_SECONDS", 0)
        object.__setattr__(transport_of(other)._settings, "timeout", 0.0)

        async def only_its_own() -> bool:
            await found.close_unused()
            return sorted(found.opened()) == await own_shards(other)

        await until(only_its_own)


async def test_processes_that_claim_other_types_have_all_shards_each(bus: EventBus, url: str) -> None:
    """They are no substitute for each other."""
    async with connect(url) as other, working(bus):
        worker = Worker(other, STREAM, signals=False, poll=0.1)
        worker.on("Else")(lambda event: None)
        task = asyncio.create_task(worker.run())

        async def all_each() -> bool:
            return [await own_shards(one) for one in (bus, other)] == [[0, 1, 2, 3]] * 2

        await until(all_each)
        worker.stop()
        await task


async def test_who_does_not_claim_leaves_its_shards_to_others(
    bus: EventBus, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handlers run for long: what waits in its shards must not wait for them."""
    monkeypatch.setattr(_membership, "_HELP_SECONDS", 3600)
    started, go_on = asyncio.Event(), asyncio.Event()
    busy = Worker(bus, STREAM, name="busy", concurrency=1, poll=0.1, signals=False)

    @busy.on("Happened")
    async def wait(event: Envelope) -> None:
        started.set()
        await go_on.wait()

    task = asyncio.create_task(busy.run())
    await bus.publish(STREAM, events(1))
    await started.wait()
    monkeypatch.setattr(_membership, "_PATIENCE_SECONDS", 0.5)
    async with connect(url) as other, working(other, poll=0.05) as seen:

        async def has_all() -> bool:
            return await own_shards(other) == [0, 1, 2, 3]

        await until(has_all)
        await bus.publish(STREAM, events(40, first=20))
        await until(lambda: _is(len(seen) >= 38))  # the first of "a0" is still held; the stream is not ordered
    go_on.set()
    busy.stop()
    await task


async def test_who_has_nothing_to_do_helps_in_the_shards_of_others(
    bus: EventBus, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_membership, "_HELP_SECONDS", 0.2)
    started, go_on = asyncio.Event(), asyncio.Event()
    busy = Worker(bus, STREAM, name="busy", concurrency=1, poll=0.1, signals=False)

    @busy.on("Happened")
    async def wait(event: Envelope) -> None:
        started.set()
        await go_on.wait()

    task = asyncio.create_task(busy.run())
    async with connect(url) as other, working(other) as seen:

        async def both_have_two() -> bool:
            return [len(await own_shards(one)) for one in (bus, other)] == [2, 2]

        await until(both_have_two)
        await bus.publish(STREAM, events(200))
        await started.wait()
        await until(lambda: _is(len(seen) >= 190))
    go_on.set()
    busy.stop()
    await task


async def test_who_waits_for_the_group_takes_part_in_all_shards(bus: EventBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers wait three seconds for further members of a new group, by default."""
    monkeypatch.setattr(_membership.ShardMember, "_on_assign", lambda *_: None)
    monkeypatch.setattr(_membership, "_ANSWER_SECONDS", 0.0)
    await bus.publish(STREAM, events(40))
    async with working(bus) as seen:
        await until(lambda: _is(len(seen) == 40))


async def test_the_doctor_says_who_has_which_shards(bus: EventBus, url: str) -> None:
    async def told() -> str:
        return {check.name: check.message for check in await bus.doctor()}[f"shards of {STREAM}"]

    await bus.publish(STREAM, events(1))
    assert await told() == "4: no process claims its events now"

    async def says(start: str) -> bool:
        return (await told()).startswith(start)

    async with connect(url) as other, working(other, name="packer"):
        await until(lambda: says("4: 0, 1, 2, 3 at packer"))


# ── two processes ─────────────────────────────────────────────────────────────────────────────────────────────────────


class ShardWorkers:
    """Worker processes that share a stream, and what they have written down."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.processes: dict[str, Process] = {}

    async def start(self, name: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.support.shard_worker", self._url, STREAM, name, str(self._folder), stdout=PIPE
        )
        self.processes[name] = process
        return process

    def hold(self) -> None:
        (self._folder / "hold").touch()

    def go_on(self) -> None:
        (self._folder / "hold").unlink()

    def lines(self, what: str, name: str | None = None) -> list[tuple[str, int]]:
        """Aggregates and numbers of what was started or ended, by one process or by all."""
        path = self._folder / "log"
        words = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(line[2], int(line[3])) for line in words if line[0] == what and name in (None, line[1])]

    async def end(self, name: str, how: signal.Signals | None = signal.SIGTERM) -> str:
        """End a process, or wait until it ends; return what it printed."""
        process = self.processes.pop(name)
        if how is not None:
            process.send_signal(how)
        output, _ = await process.communicate()
        return output.decode().strip()

    async def has(self, bus: EventBus, **shards: int) -> bool:
        """Whether the processes have that many shards each, and nobody else has one."""
        message = {check.name: check.message for check in await bus.doctor()}.get(f"shards of {STREAM}", "")
        found = dict[str, int]()
        for part in message.partition(": ")[2].split("; "):
            numbers, _, where = part.partition(" at ")
            found[where.partition("@")[0]] = 0 if numbers == "none" else len(numbers.split(", "))
        return found == shards


@pytest.fixture
async def workers(url: str, tmp_path: Path) -> AsyncIterator[ShardWorkers]:
    workers = ShardWorkers(url, tmp_path)
    yield workers
    for name in list(workers.processes):
        await workers.end(name, signal.SIGKILL)


def assert_in_order(started: list[tuple[str, int]], count: int) -> None:
    """All events of all aggregates were started, and the first starts of an aggregate's events are in order."""
    firsts: dict[str, list[int]] = defaultdict(list)
    for aggregate, number in started:
        if number not in firsts[aggregate]:
            firsts[aggregate].append(number)
    assert sum(map(len, firsts.values())) == count
    assert all(numbers == sorted(numbers) for numbers in firsts.values()), firsts


async def is_drained(bus: EventBus) -> bool:
    depth = (await bus.depth())[STREAM]
    return depth.pending == depth.processing == 0


async def test_a_process_joins_while_another_works(bus: EventBus, workers: ShardWorkers) -> None:
    await bus.declare(STREAM, ordered=True)
    await workers.start("first")
    await until(lambda: workers.has(bus, first=4))
    await bus.publish(STREAM, events(400))
    await workers.start("second")
    await until(lambda: workers.has(bus, first=2, second=2))
    await bus.publish(STREAM, events(400, first=400))
    await until(lambda: is_drained(bus))
    assert len(workers.lines("start")) == len(workers.lines("end")) == 800  # each once
    assert_in_order(workers.lines("start"), 800)
    assert workers.lines("end", "second")
    assert await workers.end("first") == await workers.end("second") == "lost 0"


@pytest.mark.walk
async def test_a_lease_is_kept_though_its_shard_moves(bus: EventBus, workers: ShardWorkers) -> None:
    workers.hold()
    await bus.declare(STREAM, ordered=True)
    await bus.publish(STREAM, events(40, aggregates=8))
    await workers.start("first")
    await until(lambda: _is(len(workers.lines("start")) == 8))  # of all shards, longer than a lease
    await workers.start("second")

    async def moved() -> bool:  # the first leaves when it has not claimed for a while
        return await workers.has(bus, first=2, second=2) or await workers.has(bus, second=4)

    await until(moved)
    assert len(workers.lines("start")) == 8
    workers.go_on()
    await until(lambda: is_drained(bus))
    assert_in_order(workers.lines("start"), 40)
    assert len(workers.lines("end")) == 40
    assert await workers.end("first") == await workers.end("second") == "lost 0"


@pytest.mark.walk
async def test_the_shards_of_a_process_that_was_killed_move(bus: EventBus, workers: ShardWorkers) -> None:
    await bus.declare(STREAM, ordered=True)
    await workers.start("first")
    await workers.start("second")
    await until(lambda: workers.has(bus, first=2, second=2))
    workers.hold()
    await bus.publish(STREAM, events(400))
    await until(lambda: _is(bool(workers.lines("start", "first") and workers.lines("start", "second"))))
    await workers.end("first", signal.SIGKILL)
    workers.go_on()
    await until(lambda: is_drained(bus))
    assert_in_order(workers.lines("start"), 400)
    assert set(workers.lines("end")) == set(workers.lines("start"))
    assert len(workers.lines("end")) == 400  # what the first had started was not finished by it
    await until(lambda: workers.has(bus, second=4))
    assert (await bus.depth())[STREAM].dead == 0


@pytest.mark.walk
async def test_a_process_leaves_politely(bus: EventBus, workers: ShardWorkers) -> None:
    """Its running handlers finish, what it has not started is released, and its shards move at once."""
    await bus.declare(STREAM, ordered=True)
    await workers.start("first")
    await workers.start("second")
    await until(lambda: workers.has(bus, first=2, second=2))
    workers.hold()
    await bus.publish(STREAM, events(400))
    await until(lambda: _is(bool(workers.lines("start", "first") and workers.lines("start", "second"))))
    workers.processes["first"].send_signal(signal.SIGTERM)  # once: a second signal ends a process at once
    workers.go_on()
    assert await workers.end("first", None) == "lost 0"
    await until(lambda: workers.has(bus, second=4))
    await until(lambda: is_drained(bus))
    assert len(workers.lines("start")) == len(workers.lines("end")) == 400
    assert_in_order(workers.lines("start"), 400)
    assert await workers.end("second") == "lost 0"


# ── outages ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(tmp_path / "broker") as broker:
        yield broker


@pytest.mark.walk
async def test_a_bus_with_shards_goes_on_after_its_broker_was_killed(own_broker: KafkaBroker) -> None:
    url = f"{own_broker.url('shop')}&shards=4"
    async with connect(url, connect_timeout=60) as bus, connect(url, connect_timeout=60) as other:
        await bus.setup()
        async with working(bus) as first, working(other) as second:
            await bus.publish(STREAM, events(100))
            await until(lambda: _is(len(first) + len(second) == 100))
            own_broker.kill()
            own_broker.start()
            await bus.publish(STREAM, events(100))
            await until(lambda: _is(len({*first, *second}) == 200))
            await until(lambda: is_drained(bus))
