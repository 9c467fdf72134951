"""How the web server is to behave."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.court.config import load_system
from kingdom.court.errors import InvalidConfig
from kingdom.court.home import Home
from kingdom.homes import is_court

if TYPE_CHECKING:
    from pathlib import Path

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

    def check(self) -> None:
        """Refuse to be open to the network by mistake. Raises :class:`~kingdom.court.errors.InvalidConfig`."""
        if not is_loopback(self.host) and not self.allowed_hosts:
            raise InvalidConfig(
                f"the address {self.host!r:.80} is open to the network: say by which names the server may be called, "
                "with --allow-host NAME (web.allowed_hosts in config/system.yaml), or listen on 127.0.0.1"
            )


def settings_of(root: Path) -> WebSettings:
    """What the ``config/system.yaml`` of a court says; the usual where there is no court."""
    if not is_court(root):
        return WebSettings()
    system = load_system(Home(root))
    web = system.web
    return WebSettings(
        host=web.host,
        port=web.port,
        allowed_hosts=tuple(web.allowed_hosts),
        requests_per_second=web.requests_per_second,
        idle_seconds=web.idle_seconds,
        locale=system.locale,
    )


def is_loopback(name: str) -> bool:
    """Whether a name or address means this machine, whoever resolves it."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
