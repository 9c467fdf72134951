"""The access token of a server, and the cookie and CSRF values derived from it."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from kingdom.base.files import write_atomic, write_once
from kingdom.web.record import STATE_FOLDER

if TYPE_CHECKING:
    from pathlib import Path


# The token of a server: who has it may do everything. It lies in ``state/web/token``, for its owner's eyes only.


_TOKEN_PATTERN: Final = re.compile(r"[A-Za-z0-9_\-]{32,200}")
_TOKEN_BYTES: Final = 32
_OTHERS_MODE: Final = 0o077


def token_path(root: Path) -> Path:
    """Where the token of a root lies."""
    return root / STATE_FOLDER / "token"


def read_token(root: Path) -> str | None:
    """The token of a root; None when there is none, or none that makes sense."""
    try:
        text = token_path(root).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _TOKEN_PATTERN.fullmatch(text) else None


def obtain_token(root: Path) -> str:
    """The token of a root, made when there is none yet. Two who ask at once get the same."""
    path = token_path(root)
    if (found := read_token(root)) is None:
        if path.exists():  # cut short or spoiled: nobody can have logged in with it
            return renew_token(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_once(path, _new_token(), mode=0o600)
        return obtain_token(root)
    if path.stat().st_mode & _OTHERS_MODE:
        path.chmod(0o600)
    return found


def renew_token(root: Path) -> str:
    """Make a new token in the place of the old one, which opens nothing from then on."""
    path = token_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, _new_token(), mode=0o600)
    found = read_token(root)
    assert found is not None
    return found


def login_link(url: str, token: str) -> str:
    """The address that logs a browser in. It holds the token: show it, do not write it down."""
    return f"{url.rstrip('/')}/login?{urlencode({'token': token})}"


def _new_token() -> str:
    return f"{secrets.token_urlsafe(_TOKEN_BYTES)}\n"


# What is derived from the token, so that the token itself is kept by nobody but its owner.


COOKIE_PREFIX: Final = "kingdom_session"
"""What the names of our cookies begin with."""
CSRF_HEADER: Final = "X-CSRF-Token"
"""What a browser sends with everything that changes something."""


def secrets_equal(given: str, wanted: str) -> bool:
    """Whether two secrets are the same, in a time that tells nothing about them."""
    return hmac.compare_digest(given.encode(errors="surrogateescape"), wanted.encode())


def cookie_name(token: str) -> str:
    """The name of the cookie. Cookies do not know ports, so servers of one machine need names of their own."""
    return f"{COOKIE_PREFIX}_{_derive(token, 'cookie name')[:8]}"


def cookie_value(token: str) -> str:
    """The value of the cookie: proves that the token was known once, and does not give it away."""
    return _derive(token, "session")


def csrf_token(token: str) -> str:
    """What a page of ours knows and a page of somebody else's does not."""
    return _derive(token, "csrf")


@lru_cache(maxsize=64)
def _derive(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), f"kingdom web {purpose}".encode(), hashlib.sha256).hexdigest()
