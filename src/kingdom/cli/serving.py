"""Serving metrics to Prometheus for as long as a command runs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kingdom.cli import output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import CollectorRegistry


@contextlib.contextmanager
def served(registry: CollectorRegistry, host: str, port: int, *, json: bool) -> Iterator[None]:
    """Serve a registry, and say where."""
    from prometheus_client import start_http_server

    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise output.Failure(
            "CANNOT_SERVE", f"cannot serve on {host}:{port}: {error.strerror or error}; choose another --port or --host"
        ) from error
    address: dict[str, Any] = {"url": f"http://{host}:{server.server_port}/metrics"}
    try:
        if json:
            output.emit(address)
        else:
            output.say(f"serving {address['url']} (Ctrl-C ends it)")
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
