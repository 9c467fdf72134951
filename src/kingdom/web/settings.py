"""How the web server is to behave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8700


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Set on the command line or in ``config/system.yaml``."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()
    """Further names the server may be called by (without port), as behind a proxy. Loopback names always may."""
    requests_per_second: float = 50.0
    """Of one token, on average; bursts may be four times as many."""
    idle_seconds: float = 60.0
    """A live connection whose client says nothing for that long is closed."""
    locale: str = "en"
    """The language of the dashboard until somebody chooses another."""
