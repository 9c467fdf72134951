"""Generals over HTTP: their record, enabling and disabling, installing; the types of events and their schemas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.web_court import WebCourt, web_court


@pytest.fixture
async def court(tmp_path: Path) -> AsyncIterator[WebCourt]:
    async with web_court(tmp_path / "home") as court:
        yield court


async def test_the_record_of_a_general_tells_outcomes_durations_and_cost(court: WebCourt) -> None:
    async with court.working("gen-good"):
        for title in ("one", "two"):
            await court.task_of(await court.inject("test.good", title=title), "completed")
    record = await court.get("/api/generals/gen-good/record")
    assert (record["outcomes"]["completed"], record["outcomes"]["failed"], record["successRate"]) == (2, 0, 1.0)
    assert record["durations"]["tasks"] == 2
    assert 0 <= record["durations"]["median"] <= record["durations"]["p95"]
    assert (record["dayUsd"], record["monthUsd"], record["monthRuns"]) == (0.5, 0.5, 2)
    assert record["limits"] == []
    other = await court.get("/api/generals/gen-slow/record")
    assert (other["successRate"], other["durations"]["median"], other["monthRuns"]) == (None, None, 0)
    assert await court.refused("GET", "/api/generals/gen-none/record") == (404, "SYS_NOT_FOUND")


async def test_schedules_and_limits_of_a_general_are_in_its_record(court: WebCourt) -> None:
    path = court.home.general("gen-good") / "manifest.yaml"
    path.write_text(
        "name: gen-good\ndescription: nightly\nengine: {name: scripted, options: {script: []}}\n"
        "schedules: [{name: nightly, cron: '0 3 * * *', timezone: Asia/Seoul}]\nbudget: {daily_usd: 4}\n"
    )
    record = await court.get("/api/generals/gen-good/record")
    (planned,) = record["planned"]
    assert (planned["name"], planned["cron"], planned["timezone"], planned["isDue"]) == (
        "nightly", "0 3 * * *", "Asia/Seoul", False,
    )  # fmt: skip
    assert planned["nextAt"].endswith("T18:00:00.000Z")
    assert record["limits"] == [{"name": "daily budget of gen-good", "shown": "$0.00 of $4.00", "part": 0.0}]


async def test_a_general_is_disabled_and_what_comes_for_it_waits(court: WebCourt) -> None:
    assert (await court.post("/api/generals/gen-good/disable", {"user": "ann"}))["enabled"] is False
    async with court.working("gen-good"):
        event_id = await court.inject("test.good")
        held = await court.until("/api/court", lambda state: state["holds"])
        assert any("gen-good is disabled" in reason for reason in held)
        assert (await court.post("/api/generals/gen-good/enable"))["enabled"] is True
        await court.task_of(event_id, "completed")
    assert await court.refused("POST", "/api/generals/gen-none/disable") == (404, "SYS_NO_GENERAL")


async def test_a_general_is_installed_from_a_folder_of_the_machine(court: WebCourt, tmp_path: Path) -> None:
    source = tmp_path / "gen-new"
    source.mkdir()
    (source / "prompt.md").write_text("Do it.\n{{ report }}\n")
    (source / "manifest.yaml").write_text("name: gen-new\ndescription: new\nsubscribes: [test.new]\n")
    made = await court.post("/api/generals", {"folder": str(source)})
    assert (made["name"], made["enabled"], made["hears"], made["problems"]) == ("gen-new", True, ["test.new"], [])
    assert await court.refused("POST", "/api/generals", {"folder": str(source)}) == (422, "SYS_INVALID_PACKAGE")
    assert await court.refused("POST", "/api/generals", {"folder": "gen-new"}) == (422, "SYS_INVALID")
    assert (await court.post("/api/generals", {"folder": "gen-issue"}))["hears"][0] == "github.issue.assigned"
    again = {"folder": str(source), "replace": True}
    assert (await court.post("/api/generals", again))["name"] == "gen-new"


async def test_the_types_of_events_are_those_of_sources_generals_and_the_queue(court: WebCourt) -> None:
    await court.inject("ci.build.failed", build=7, urgent=True, log="x" * 500, steps=["a"], none=None)
    known = {one["type"]: one for one in (await court.get("/api/event-types"))["items"]}
    assert known["github.pr.review_requested"]["priority"] == "high"
    assert "review was requested" in known["github.pr.review_requested"]["meaning"]
    assert known["test.good"]["generals"] == ["gen-good"]
    assert known["ci.build.failed"]["generals"] == []
    schema = await court.get("/api/event-types/ci.build.failed/schema")
    fields = schema["properties"]["payload"]["properties"]
    assert {name: field["type"] for name, field in fields.items()} == {
        "build": "integer", "urgent": "boolean", "log": "string", "steps": "array",
    }  # fmt: skip
    assert fields["build"]["examples"] == [7]
    assert "examples" not in fields["log"]
    pulls = (await court.get("/api/event-types/github.pr.opened/schema"))["properties"]
    assert pulls["payload"]["properties"]["number"]["type"] == "integer"
    assert pulls["priority"]["enum"] == ["high", "normal", "low"]
