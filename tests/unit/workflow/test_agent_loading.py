"""When the agents of an engine are loaded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from kingdom.workflow.adapters.agent_loading import LoadedAgents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kingdom.workflow.adapters.agent_client import RunnerAgentClient
    from kingdom.workflow.domain.work import Work


class Client:
    """What is loaded, with the calls that it got."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.recovered = asyncio.Event()

    async def recover(self, works: Sequence[Work]) -> None:
        self.calls.append("recover")
        self.recovered.set()

    async def works_here(self) -> set[str]:
        self.calls.append("works_here")
        return set()

    async def close(self) -> None:
        self.calls.append("close")


def loaded(client: Client, made: list[Client]) -> LoadedAgents:
    def make() -> RunnerAgentClient:
        made.append(client)
        return cast("RunnerAgentClient", client)

    return LoadedAgents(make)


async def test_agents_are_loaded_when_git_writes_files_not_when_the_engine_starts() -> None:
    client, made = Client(), list[Client]()
    agents = loaded(client, made)
    await agents.recover(())
    assert not made
    agents.load()
    await client.recovered.wait()
    await agents.close()
    assert (made, client.calls) == ([client], ["recover", "close"])


async def test_agents_that_are_needed_earlier_recover_before_the_first_call() -> None:
    client, made = Client(), list[Client]()
    agents = loaded(client, made)
    await agents.recover(())
    await agents.works_here()
    agents.load()
    await agents.close()
    assert (made, client.calls) == ([client], ["recover", "works_here", "close"])


async def test_an_engine_that_ends_before_it_needs_agents_has_recovered_all_the_same() -> None:
    client, made = Client(), list[Client]()
    agents = loaded(client, made)
    await agents.recover(())
    await agents.close()
    assert (made, client.calls) == ([client], ["recover", "close"])


async def test_without_an_engine_nothing_is_loaded_for_git() -> None:
    client, made = Client(), list[Client]()
    agents = loaded(client, made)
    agents.load()
    await agents.close()
    assert not made
