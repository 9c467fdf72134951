"""Parts of the views: what is fit to be sent, looking once for many, and samples of the streams."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any
from unittest.mock import Mock

import pytest

from kingdom.bus import Envelope, TransportUnavailable, connect
from kingdom.web.live.event import LiveEvent
from kingdom.web.views.court import CachedRead
from kingdom.web.views.court_state import BusSampler
from kingdom.web.views.redaction import MAX_NESTING, json_safe
from tests.support.live import PATIENCE


def test_markup_stays_what_it_is_and_what_json_cannot_say_is_replaced() -> None:
    document = {"a": "<script>&amp;</script>", "b": ["\ud800x", math.nan, 1, None, True], "\udfff": {"c": math.inf}}
    assert json_safe(document) == {"a": "<script>&amp;</script>", "b": ["?x", None, 1, None, True], "?": {"c": None}}
    assert json_safe("한국어 🜲") == "한국어 🜲"


def test_what_is_nested_too_deep_is_cut_off() -> None:
    deep: Any = "bottom"
    for _ in range(MAX_NESTING * 2):
        deep = [deep]
    found, depth = json_safe(deep), 0
    while isinstance(found, list):
        found, depth = found[0], depth + 1
    assert (found, depth) == ("…", MAX_NESTING)


async def test_many_who_ask_at_once_share_one_look() -> None:
    looks = 0
    go_on = asyncio.Event()

    async def look() -> int:
        nonlocal looks
        looks += 1
        await go_on.wait()
        return looks

    fresh = CachedRead(look, seconds=3600)
    asking = [asyncio.create_task(fresh.get()) for _ in range(10)]
    await asyncio.sleep(0)
    asking[0].cancel()  # who goes away takes nothing from the others
    go_on.set()
    assert await asyncio.gather(*asking[1:]) == [1] * 9
    assert await fresh.get() == 1


async def test_a_look_that_fails_is_told_to_all_who_wait_and_tried_again() -> None:
    failures = [OSError("no disk")]

    async def look() -> str:
        if failures:
            raise failures.pop()
        return "seen"

    fresh = CachedRead(look, seconds=60)
    with pytest.raises(OSError, match="no disk"):
        await fresh.get()
    assert await fresh.get() == "seen"


def news(kind: str, workflow: str | None = None) -> LiveEvent:
    source = "journal" if workflow is None else "workflow"
    return LiveEvent(1, source, kind, "2026-02-07T12:00:00Z", {}, workflow)


async def test_samples_tell_how_full_a_stream_was_and_what_came_and_went() -> None:
    now = [1000.0]
    async with connect("memory:") as bus:
        await bus.setup()
        for stream in ("events", "tasks", "messages"):
            await bus.declare(stream)
        sampler = BusSampler({"court": bus}, lambda: now[0])
        await sampler.sample()
        await bus.publish("events", [Envelope("a.b", event_id=f"e-{number}") for number in range(3)])
        await bus.publish("messages", [Envelope("note", event_id="m-1")])
        sampler.hear([news("event.detected")] * 3 + [news("event.dispatched"), news("soldier.spawned")])
        sampler.hear([news("message.sent")] * 2)
        now[0] += 30
        await sampler.sample()
        samples = sampler.samples("court", "events")
        assert [(one.pending, one.arrived, one.finished) for one in samples] == [(0, 0, 0), (3, 3, 1)]
        assert samples[-1].seconds == 30
        assert sampler.samples("court", "messages")[-1].arrived == 3  # two were sent, and there is one more than before
        arrived, finished = sampler.per_minute("court", "events", seconds=30)
        assert (arrived, finished) == (6, 2)
        assert sampler.samples("court", "nothing") == []


async def test_sampling_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Exception] = [OSError("no disk"), TransportUnavailable("away")]
    sampled = asyncio.Event()
    async with connect("memory:") as bus, asyncio.timeout(PATIENCE):
        await bus.setup()
        sampler, sample = BusSampler({"court": bus}, time.time, every=0), BusSampler.sample

        async def fail_first(self: BusSampler) -> None:
            if failures:
                raise failures.pop()
            await sample(self)
            sampled.set()

        monkeypatch.setattr(BusSampler, "sample", fail_first)
        async with sampler.sampling(Mock()):
            await sampled.wait()


async def test_of_workflows_what_was_finished_follows_from_what_came() -> None:
    now = [1000.0]
    async with connect("memory:") as bus:
        await bus.setup()
        await bus.declare("workflow")
        sampler = BusSampler({"workflow": bus}, lambda: now[0])
        await sampler.sample()
        await bus.publish("workflow", Envelope("WorkStarted"))
        sampler.hear([news("WorkStarted", "w-1")] * 5)
        now[0] += 5
        await sampler.sample()
        last = sampler.samples("workflow", "workflow")[-1]
        assert (last.arrived, last.finished) == (5, 4)
