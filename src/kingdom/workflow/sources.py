"""The names by which templates know repositories and MCP servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kingdom.workflow.templates import Sources

if TYPE_CHECKING:
    from kingdom.workflow.ports import Store

MOST: Final = 100_000  # of one kind: names are compared with all of them


async def read_sources(store: Store) -> Sources:
    """The names of all repositories and MCP servers there are."""
    async with store.reading() as tx:
        gits = await tx.gits.list(limit=MOST)
        servers = await tx.mcp_servers.list(limit=MOST)
    return Sources({git.name: git.id for git in gits}, {server.name: server.id for server in servers})
