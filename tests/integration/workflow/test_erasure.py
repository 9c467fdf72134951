"""Workflows that name a person, or use a repository, are exported and removed; others stay as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kingdom.court.erasure.names import SubjectNames
from kingdom.workflow.erasure import KnownWorkflows, find_workflows, remove_workflows
from kingdom.workflow.usecases.lifecycle import pause_workflow, record_person
from tests.support.workflow_fakes import House, World, house
from tests.support.workflow_plans import REPORTED, started, work

ANN = SubjectNames("person", ("ann-lee",))
SHOP = SubjectNames("repository", ("example.org/b",))


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | str:
    return tmp_path / "w.db" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


async def events(here: House) -> str:
    return json.dumps([[one.type, dict(one.payload)] for one in await here.parts.store.events(None, 0, 10_000)])


async def test_a_workflow_of_a_person_is_exported_and_removed_and_others_stay(place: Path | str) -> None:
    async with house(place, World()) as here:
        store = here.parts.store
        hers = await started(here, work("a", "ask ann-lee", REPORTED), gits=0)
        his = await started(here, work("b", "b1"), gits=0)
        await record_person(here.parts, his, "ann-lee", "startWorkflow")  # in an event of another workflow
        numbers = [one.position for one in await store.events(None, 0, 10_000)]
        found = await find_workflows(store, ANN.are_in, repository=False)
        assert set(found.workflows) == {hers}
        assert [event["type"] for event in found.events[his]] == ["PersonActed"]
        assert found.workflows[hers]["works"][0]["tasks"][0]["query"] == "do ask ann-lee"
        assert len(found.workflows[hers]["reports"]) == 1
        for _ in range(2):  # it may be repeated
            await remove_workflows(here.parts, [hers], [], ANN.hide)
            await here.engine.idle()
        left = await events(here)
        assert "ann-lee" not in left
        assert '"user": "xxxxxxx"' in left
        assert [one.position for one in await store.events(None, 0, 10_000)][: len(numbers)] == numbers
        assert await find_workflows(store, ANN.are_in, repository=False) == KnownWorkflows(left=["the template plan"])
        async with store.reading() as tx:
            assert await tx.workflows.find(hers) is None
            assert await tx.workflows.find(his) is not None


async def test_a_repository_goes_with_the_workflows_that_use_it(tmp_path: Path) -> None:
    async with house(tmp_path / "w.db", World(silences={"a1"})) as here:
        store = here.parts.store
        workflow_id = await started(here, work("a", "a1"))
        found = await find_workflows(store, SHOP.are_in, repository=True)
        assert (list(found.workflows), list(found.gits), found.running) == ([workflow_id], ["git-0"], [workflow_id])
        await pause_workflow(here.parts, workflow_id)
        assert (await find_workflows(store, SHOP.are_in, repository=True)).running == []
        await remove_workflows(here.parts, [workflow_id], ["git-0"], SHOP.hide)
        async with store.reading() as tx:
            assert await tx.gits.list() == []
            assert await tx.workflows.list() == []
