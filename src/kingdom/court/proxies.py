"""The proxy that the environment names (``HTTPS_PROXY``, ``NO_PROXY``), looked up once.

aiohttp would look for it, and for a file with passwords, at every request, each time in another thread: that takes
longer than the request itself.
"""

from __future__ import annotations

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_for(url: str) -> str | None:
    """The proxy to reach a place by; None when it is reached directly."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)
