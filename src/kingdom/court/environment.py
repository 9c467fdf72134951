"""User name and proxy, from the environment."""

from __future__ import annotations

import contextlib
import getpass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

# Who sits at this machine.


def user_name() -> str:
    """The name of the user this process runs for; ``console`` when the system has none for it."""
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return "console"


# The proxy that the environment names (``HTTPS_PROXY``, ``NO_PROXY``), looked up once.
#
# aiohttp would look for it, and for a file with passwords, at every request, each time in another thread: that takes
# longer than the request itself.


def proxy_for(url: str) -> str | None:
    """The proxy to reach a place by; None when it is reached directly."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)
