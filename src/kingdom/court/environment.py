"""User name and proxy, from the environment."""

from __future__ import annotations

import contextlib
import getpass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def user_name() -> str:
    """Return the name of the user that runs this process; ``console`` when the system knows none."""
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return "console"


def proxy_for(url: str) -> str | None:
    """Return the proxy for a URL from ``HTTPS_PROXY`` and ``NO_PROXY``; None for a direct connection.

    The callers look it up once: aiohttp would look it up, and a netrc file, for every request in another thread, which
    takes longer than the request itself.
    """
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)
