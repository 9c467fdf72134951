"""Names by which people and templates know things."""

from __future__ import annotations

from typing import Final

from kingdom.workflow.domain.errors import NameTaken
from kingdom.workflow.domain.sources import Git, McpServer
from kingdom.workflow.ports import Repository

_MOST: Final = 100_000  # of one kind: a name is compared with all of them


async def check_free(sources: Repository[Git] | Repository[McpServer], name: str, what: str) -> None:
    """Raise :class:`NameTaken` when there is one of this name. In the transaction that makes the new one."""
    if any(source.name == name for source in await sources.list(limit=_MOST)):
        raise NameTaken(f"there is {what} called {name} already: choose another name")
