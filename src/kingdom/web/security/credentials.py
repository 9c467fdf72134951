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


# ── Token ──


_TOKEN_PATTERN: Final = re.compile(r"[A-Za-z0-9_\-]{32,200}")
_TOKEN_BYTES: Final = 32
_OTHERS_MODE: Final = 0o077
SESSIONS_FILE: Final = "sessions.json"
"""The file of the sessions, in the folder of the token."""


def token_path(root: Path) -> Path:
    return root / STATE_FOLDER / "token"


def read_token(root: Path) -> str | None:
    """Return the token of a root; None if it is missing or malformed."""
    try:
        text = token_path(root).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _TOKEN_PATTERN.fullmatch(text) else None


def obtain_token(root: Path) -> str:
    """Return the token of a root; create it if there is none. Concurrent callers get the same token."""
    path = token_path(root)
    if (found := read_token(root)) is None:
        if path.exists():  # malformed: nobody can have logged in with it
            return renew_token(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_once(path, _new_token(), mode=0o600)
        return obtain_token(root)
    if path.stat().st_mode & _OTHERS_MODE:
        path.chmod(0o600)
    return found


def renew_token(root: Path) -> str:
    """Replace the token with a new one. The old one is invalid from then on, and all browsers are logged out."""
    path = token_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, _new_token(), mode=0o600)
    (root / STATE_FOLDER / SESSIONS_FILE).unlink(missing_ok=True)
    found = read_token(root)
    assert found is not None
    return found


def login_link(url: str, token: str) -> str:
    """Return the URL that logs a browser in. It contains the token: show it, do not store it."""
    return f"{url.rstrip('/')}/login?{urlencode({'token': token})}"


def _new_token() -> str:
    return f"{secrets.token_urlsafe(_TOKEN_BYTES)}\n"


# ── Values derived from the token ──


COOKIE_PREFIX: Final = "kingdom_session"
"""Prefix of the cookie names."""
CSRF_HEADER: Final = "X-CSRF-Token"
"""Header with the CSRF token, required from browsers for requests that change something."""


def secrets_equal(given: str, wanted: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode(errors="surrogateescape"), wanted.encode())


def cookie_name(token: str) -> str:
    """Return the cookie name. It depends on the token because cookies ignore ports: servers need different names."""
    return f"{COOKIE_PREFIX}_{_derive(token, 'cookie name')[:8]}"


def cookie_value(token: str, session_id: str) -> str:
    """Return the cookie value of a session. It proves knowledge of the token without revealing it.

    The proof is derived from the home's own token: who can read the file of the sessions cannot make a cookie of it.
    """
    return f"{session_id}.{_derive(token, f'session {session_id}')}"


def cookie_session(token: str, value: str) -> str | None:
    """Return the id of the session that a cookie value proves; None for a wrong proof."""
    session_id = value.partition(".")[0]
    return session_id if session_id and secrets_equal(value, cookie_value(token, session_id)) else None


def csrf_token(token: str, key: str = "") -> str:
    """Return the CSRF token of a person, which only pages of this server know."""
    return _derive(token, f"csrf {key}" if key else "csrf")


@lru_cache(maxsize=1024)
def _derive(token: str, purpose: str) -> str:
    return hmac.new(token.encode(), f"kingdom web {purpose}".encode(), hashlib.sha256).hexdigest()
