"""Settings of the web server."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kingdom.court.config import load_system
from kingdom.court.errors import InvalidConfig
from kingdom.court.home import Home
from kingdom.homes import is_court

if TYPE_CHECKING:
    from pathlib import Path

    from kingdom.court.config_web import OidcSection

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8700


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Settings from the command line or ``config/system.yaml``."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    allowed_hosts: tuple[str, ...] = ()
    """Further host names (without port) that are accepted, for example behind a proxy. Loopback names always are."""
    requests_per_second: float = 50.0
    """Average rate per client; bursts may be four times as high."""
    idle_seconds: float = 60.0
    """A live connection is closed if its client sends nothing for this long."""
    locale: str = "en"
    """Default language of the dashboard."""
    oidc: OidcSection | None = None
    """The provider whose accounts may log in."""
    oidc_secret: str | None = field(default=None, repr=False)

    def check(self) -> None:
        """Refuse to listen on the network by accident, or without a secret that is configured.

        Raises :class:`~kingdom.court.errors.InvalidConfig`.
        """
        if not is_loopback(self.host) and not self.allowed_hosts:
            raise InvalidConfig(
                f"the address {self.host!r:.80} is open to the network: give the accepted host names with "
                "--allow-host NAME (web.allowed_hosts in config/system.yaml), or listen on 127.0.0.1"
            )
        if self.oidc is not None and self.oidc.client_secret_env is not None and not self.oidc_secret:
            raise InvalidConfig(
                f"web.oidc.client_secret_env in config/system.yaml names {self.oidc.client_secret_env}, but that "
                "environment variable is not set: set it to the client secret, or remove web.oidc"
            )


def settings_of(root: Path) -> WebSettings:
    """Return the settings in the court's ``config/system.yaml``; defaults if there is no court."""
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
        oidc=web.oidc,
        oidc_secret=_secret(web.oidc),
    )


def _secret(oidc: OidcSection | None) -> str | None:
    return None if oidc is None or oidc.client_secret_env is None else os.environ.get(oidc.client_secret_env)


def is_loopback(name: str) -> bool:
    """Return whether a name or address is always this machine."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
