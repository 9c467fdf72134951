"""The servers of the tests leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket

import pytest

from tests.support.proxy import CuttingProxy
from tests.support.serving import listening


def _is_closed(client: socket.socket) -> bool:
    """Say whether the other side has ended a connection; waits until it says something."""
    with contextlib.suppress(ConnectionResetError):
        return client.recv(1) == b""
    return True


@pytest.mark.parametrize("rounds", range(6))
async def test_a_connection_made_as_the_server_ends_is_closed(rounds: int) -> None:
    """However far it has come in the loop: accepted, with a task that has not begun, or served."""
    ended = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        try:
            await reader.read()
        finally:
            ended += 1

    with contextlib.ExitStack() as stack:
        async with listening(serve) as listener:
            address = ("127.0.0.1", listener.port)
            clients = [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(3)]
            for _ in range(rounds):
                await asyncio.sleep(0)
        assert all(_is_closed(client) for client in clients)
    assert ended in (0, 3)
    gc.collect()  # a connection that was forgotten is a warning, and with that an error


def test_connections_made_as_a_proxy_ends_are_closed() -> None:
    """Their way on may be under way: nobody answers at the target."""
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with CuttingProxy() as proxy:
            proxy.target = full.getsockname()[1]
            clients = [
                stack.enter_context(socket.create_connection(("127.0.0.1", proxy.port), timeout=30)) for _ in range(20)
            ]
        assert all(_is_closed(client) for client in clients)
    gc.collect()
