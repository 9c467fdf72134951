"""What is derived from the token, so that the token itself is kept by nobody but its owner."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Final

COOKIE: Final = "kingdom_session"
"""What the names of our cookies begin with."""
CSRF_HEADER: Final = "X-CSRF-Token"
"""What a browser sends with everything that changes something."""


def same(given: str, wanted: str) -> bool:
    """Whether two secrets are the same, in a time that tells nothing about them."""
    return hmac.compare_digest(given.encode(errors="surrogateescape"), wanted.encode())


def cookie_name(token: str) -> str:
    """The name of the cookie. Cookies do not know ports, so servers of one machine need names of their own."""
    return f"{COOKIE}_{_derived(token, 'cookie name')[:8]}"


def cookie_value(token: str) -> str:
    """The value of the cookie: proves that the token was known once, and does not give it away."""
    return _derived(token, "session")


def csrf_token(token: str) -> str:
    """What a page of ours knows and a page of somebody else's does not."""
    return _derived(token, "csrf")


@lru_cache(maxsize=64)
def _derived(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), f"kingdom web {purpose}".encode(), hashlib.sha256).hexdigest()
