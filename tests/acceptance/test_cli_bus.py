"""``kingdom bus …`` as an operator uses it: each command on each transport, and the finer points on SQLite."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from kingdom.bus import Depth, Envelope, connect
from tests.support.command import COMMAND, environment, kingdom, kingdom_json, kingdom_tty

STREAM = "shop.orders"
NASTY = "it \x1b[31mbroke\x1b[0m [bold]here[/bold]\nand there"


@dataclass
class Shop:
    """A bus with two events waiting, one done, and three dead: two refunds and one order."""

    url: str
    done: str
    refunds: list[str]
    order: str


async def open_shop(url: str) -> Shop:
    async with connect(url) as bus:
        await bus.setup()
        refunds = [Envelope(type="Refund", payload={"sum": 5}) for _ in range(2)]
        order = Envelope(type="Order", payload={"note": "안녕"}, aggregate_type="Order", aggregate_id="7")
        done = Envelope(type="Order")
        await bus.publish(STREAM, refunds, order, done)
        held = {item.event_id: item for item in await bus.claim(STREAM, worker="w", limit=10)}
        await bus.settle(
            done=[held[done.event_id]],
            dead=[
                (held[refunds[0].event_id], "NO_FUNDS", "empty"),
                (held[refunds[1].event_id], "TIMEOUT", "late"),
                (held[order.event_id], "TIMEOUT", NASTY),
            ],
        )
        await bus.publish(STREAM, [Envelope(type="Order"), Envelope(type="Refund")])
    return Shop(url, done.event_id, [item.event_id for item in refunds], order.event_id)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return asyncio.run(open_shop(f"sqlite://{tmp_path}/bus.db"))


def counts(url: str) -> tuple[int, int, int]:
    """Pending, processing and dead in the shop's stream, as the bus itself says; there is no other stream."""

    async def look() -> dict[str, Depth]:
        async with connect(url) as bus:
            return await bus.depth()

    depths = asyncio.run(look())
    assert list(depths) == [STREAM]
    return depths[STREAM][:3]


def test_every_command_on_each_transport(bus_url: str) -> None:
    missing = kingdom("bus", "depth", "--url", bus_url)
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: ")
    assert "kingdom bus migrate" in missing.stderr
    assert kingdom_json("bus", "migrate", "--url", bus_url)["applied"] != []

    shop = asyncio.run(open_shop(bus_url))
    (stream,) = kingdom_json("bus", "depth", "--url", bus_url)["streams"]
    assert stream.pop("oldestPendingSeconds") >= 0
    assert stream == {"stream": STREAM, "pending": 2, "processing": 0, "dead": 3}
    waiting = kingdom_json("bus", "ls", STREAM, "--url", bus_url)["events"]
    assert [(item["type"], item["status"], item["attempts"]) for item in waiting] == [
        ("Order", "PENDING", 0),
        ("Refund", "PENDING", 0),
    ]
    letters = kingdom_json("bus", "dead", STREAM, "--code", "TIMEOUT", "--url", bus_url)["deadLetters"]
    assert {letter["eventId"] for letter in letters} == {shop.refunds[1], shop.order}
    assert kingdom_json("bus", "show", shop.order, "--url", bus_url)["errorMessage"] == NASTY
    assert kingdom_json("bus", "requeue", STREAM, "--all", "--url", bus_url, "--yes")["requeued"] == 3
    assert kingdom_json("bus", "purge", "--older-than", "0s", "--url", bus_url, "--yes")["purged"] == 1
    assert counts(bus_url) == (5, 0, 0)
    assert kingdom_json("bus", "doctor", "--url", bus_url)["ok"] is True


def test_bench_measures_and_leaves_nothing_behind(bus_url: str) -> None:
    asyncio.run(open_shop(bus_url))
    document = kingdom_json("bus", "bench", "--url", bus_url, "--events", "600", "--singles", "5", "--yes")
    assert document["stream"].startswith("kingdom.bench.")
    assert document["removed"] == 600 + 5 + 1
    assert document["latencySamples"] == 5
    assert document["publishEventsPerSecond"] > 0
    assert document["drainEventsPerSecond"] > 0
    assert 0 < document["latencyP50Ms"] <= document["latencyP99Ms"]
    assert counts(bus_url) == (2, 0, 3)


async def test_an_interrupted_bench_leaves_nothing_behind(bus_url: str) -> None:
    async with connect(bus_url) as bus:
        await bus.setup()
        command = (*COMMAND, "bus", "bench", "--url", bus_url, "--events", "20000", "--yes")
        process = await asyncio.create_subprocess_exec(*command, env=environment(), stderr=asyncio.subprocess.PIPE)
        assert process.stderr is not None
        async with asyncio.timeout(100):
            while not any(name.startswith("kingdom.bench.") for name in await bus.depth()):
                await asyncio.sleep(0.01)
            process.send_signal(signal.SIGINT)
            complaints = await process.stderr.read()
            assert (await process.wait(), complaints) == (130, b"")
        assert await bus.depth() == {}


def test_migrate_says_what_it_applied_and_may_be_repeated(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/bus.db"
    assert kingdom("bus", "migrate", "--url", url).stdout.startswith("applied 001_")
    assert "up to date" in kingdom("bus", "migrate", "--url", url).stdout
    assert kingdom_json("bus", "migrate", "--url", url) == {"applied": []}
    assert "no streams yet" in kingdom("bus", "depth", "--url", url).stdout


def test_depth_counts(shop: Shop) -> None:
    header, row = kingdom("bus", "depth", "--url", shop.url).stdout.splitlines()
    assert header.split() == ["stream", "pending", "processing", "dead", "oldest"]
    assert row.split()[:4] == [STREAM, "2", "0", "3"]


def test_ls_lists_what_can_be_claimed_and_claims_nothing(shop: Shop) -> None:
    header, *rows = kingdom("bus", "ls", STREAM, "--url", shop.url).stdout.splitlines()
    assert header.split() == ["event", "type", "priority", "attempts", "published"]
    assert [row.split()[1:4] for row in rows] == [["Order", "normal", "0"], ["Refund", "normal", "0"]]
    assert len(kingdom("bus", "ls", STREAM, "--limit", "1", "--url", shop.url).stdout.splitlines()) == 2
    (refund,) = kingdom_json("bus", "ls", STREAM, "--type", "Refund", "--url", shop.url)["events"]
    assert (refund["type"], refund["stream"]) == ("Refund", STREAM)
    assert "can be claimed now" in kingdom("bus", "ls", "nowhere", "--url", shop.url).stdout
    assert counts(shop.url) == (2, 0, 3)


def test_dead_lists_and_narrows(shop: Shop) -> None:
    def ids(*narrowed: str) -> set[str]:
        document = kingdom_json("bus", "dead", STREAM, "--url", shop.url, *narrowed)
        return {letter["eventId"] for letter in document["deadLetters"]}

    assert ids() == {*shop.refunds, shop.order}
    assert ids("--type", "Refund") == set(shop.refunds)
    assert ids("--code", "TIMEOUT") == {shop.refunds[1], shop.order}
    assert ids("--type", "Refund", "--code", "TIMEOUT") == {shop.refunds[1]}
    assert ids("--code", "NO_FUNDS", "--limit", "1") == {shop.refunds[0]}  # found beyond the first one looked at
    assert len(ids("--limit", "2")) == 2
    assert ids("--type", "Nothing") == set()


def test_dead_tells_people_why_and_no_text_can_touch_their_terminal(shop: Shop) -> None:
    for shown in (
        kingdom("bus", "dead", STREAM, "--url", shop.url).stdout,
        kingdom_tty("bus", "dead", STREAM, "--url", shop.url, NO_COLOR="1")[1],
        kingdom("bus", "show", shop.order, "--url", shop.url).stdout,
    ):
        assert "[bold]here[/bold]" in shown
        assert "\x1b[31m" not in shown
    assert "the streams here are: shop.orders" in kingdom("bus", "dead", "shop.order", "--url", shop.url).stdout


def test_show_tells_everything_about_one_event(shop: Shop) -> None:
    document = kingdom_json("bus", "show", shop.order, "--url", shop.url)
    assert document["status"] == "DEAD"
    assert document["stream"] == STREAM
    assert document["attempts"] == 1
    assert document["errorCode"] == "TIMEOUT"
    assert document["errorMessage"] == NASTY
    assert (document["aggregateType"], document["aggregateId"]) == ("Order", "7")
    assert document["envelope"]["payload"] == {"note": "안녕"}
    shown = kingdom("bus", "show", shop.order, "--url", shop.url).stdout
    assert '"note": "안녕"' in shown
    missing = kingdom("bus", "show", "nobody", "--url", shop.url, "--json")
    assert (missing.returncode, json.loads(missing.stdout)["error"]["code"]) == (1, "NOT_FOUND")


@pytest.mark.parametrize(
    ("choice", "moved", "left"),
    [
        (["--type", "Refund"], 2, 1),
        (["--code", "TIMEOUT"], 2, 1),
        (["--type", "Refund", "--code", "TIMEOUT"], 1, 2),
        (["--all"], 3, 0),
    ],
)
def test_requeue_by_type_by_code_and_all(shop: Shop, choice: list[str], moved: int, left: int) -> None:
    document = kingdom_json("bus", "requeue", STREAM, "--url", shop.url, *choice, "--yes")
    assert document == {"stream": STREAM, "requeued": moved}
    assert counts(shop.url) == (2 + moved, 0, left)


def test_requeue_by_id_takes_finished_events_too(shop: Shop) -> None:
    chosen = ["--id", shop.order, "--id", shop.done]
    assert kingdom_json("bus", "requeue", STREAM, "--url", shop.url, *chosen, "--yes")["requeued"] == 2
    assert counts(shop.url) == (4, 0, 2)


def test_purge_forgets_what_is_finished_and_with_dead_what_failed(shop: Shop) -> None:
    def purge(*more: str) -> int:
        return int(kingdom_json("bus", "purge", "--url", shop.url, "--yes", *more)["purged"])

    assert purge("--older-than", "7d") == 0
    assert purge("--older-than", "0s", "--stream", "another") == 0
    assert purge("--older-than", "0s", "--stream", STREAM) == 1
    assert purge("--older-than", "0s", "--dead") == 3
    assert counts(shop.url) == (2, 0, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("requeue", STREAM, "--all"),
        ("purge", "--older-than", "0s", "--dead"),
        ("bench", "--events", "10"),
    ],
)
def test_nothing_destructive_happens_unasked(shop: Shop, arguments: tuple[str, ...]) -> None:
    result = kingdom("bus", *arguments, "--url", shop.url)
    assert result.returncode == 2
    assert "--yes" in result.stderr
    code, screen = kingdom_tty("bus", *arguments, "--url", shop.url, answer="n\n")
    assert code == 1
    assert "[y/N]" in screen
    assert "nothing was changed" in screen
    assert counts(shop.url) == (2, 0, 3)


def test_a_yes_on_the_terminal_is_enough(shop: Shop) -> None:
    code, screen = kingdom_tty("bus", "requeue", STREAM, "--code", "TIMEOUT", "--url", shop.url, answer="y\n")
    assert code == 0
    assert "Requeue 2 dead event(s) with the code TIMEOUT of shop.orders?" in screen
    assert "2 events of shop.orders requeued" in screen


def test_doctor_finds_a_fresh_bus_healthy(shop: Shop) -> None:
    document = kingdom_json("bus", "doctor", "--url", shop.url)
    assert document["ok"] is True
    assert {frozenset(check) for check in document["checks"]} == {frozenset({"name", "level", "message", "hint"})}
    shown = kingdom("bus", "doctor", "--url", shop.url).stdout
    assert all(check["name"] in shown for check in document["checks"])


SICK = """
from kingdom.bus import Check
from kingdom.bus.transports import memory

class Sick:
    def __init__(self, url, options):
        self._inner = memory.open("memory:", options)
    def __getattr__(self, name):
        return getattr(self._inner, name)
    async def doctor(self):
        return [Check("clock", "ok", "right", "not needed"), Check("disk", "error", "full", "remove something")]
"""


def test_doctor_exits_1_on_an_error_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sick.py").write_text(SICK)
    described = tmp_path / "sick-1.0.dist-info"  # a transport of another distribution, found by its entry point
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: sick\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text("[kingdom.bus.transports]\nsick = sick:Sick\n")
    result = kingdom("bus", "doctor", "--url", "sick:", PYTHONPATH=str(tmp_path))
    assert result.returncode == 1
    assert result.stdout.splitlines()[-1] == "disk: remove something"
    assert "not needed" not in result.stdout
    document = kingdom("bus", "doctor", "--url", "sick:", "--json", PYTHONPATH=str(tmp_path))
    assert document.returncode == 1
    assert json.loads(document.stdout)["ok"] is False


def test_watch_keeps_looking(shop: Shop) -> None:
    with subprocess.Popen(
        [*COMMAND, "bus", "depth", "--url", shop.url, "--watch", "--every", "10ms"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        seen = [process.stdout.readline() for _ in range(6)]
        process.kill()
    assert sum(line.startswith(STREAM) for line in seen) == 3


def test_metrics_are_served_to_prometheus(shop: Shop) -> None:
    with subprocess.Popen(
        [*COMMAND, "bus", "metrics", "--url", shop.url, "--port", "0", "--prefix", "shop", "--json"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        address = json.loads("".join(process.stdout.readline() for _ in range(3)))["url"]
        with urllib.request.urlopen(address, timeout=10) as answer:
            text = answer.read().decode()
        process.terminate()
    assert f'shop_outbox_pending{{stream="{STREAM}"}} 2.0' in text
    assert f'shop_outbox_dead{{stream="{STREAM}"}} 3.0' in text
