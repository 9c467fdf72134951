"""The token of a server: who has it may do everything. It lies in ``state/web/token``, for its owner's eyes only."""

from __future__ import annotations

import os
import re
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from kingdom.court.files import sync_folder
from kingdom.web.record import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

_SHAPE: Final = re.compile(r"[A-Za-z0-9_\-]{32,200}")
_BYTES: Final = 32
_OTHERS: Final = 0o077


def token_path(root: Path) -> Path:
    """Where the token of a root lies."""
    return root / FOLDER / "token"


def read_token(root: Path) -> str | None:
    """The token of a root; None when there is none, or none that makes sense."""
    try:
        text = token_path(root).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if _SHAPE.fullmatch(text) else None


def obtain_token(root: Path) -> str:
    """The token of a root, made when there is none yet. Two who ask at once get the same."""
    path = token_path(root)
    if (found := read_token(root)) is None:
        if path.exists():  # cut short or spoiled: nobody can have logged in with it
            return renew_token(root)
        temporary = _written(path)
        try:
            os.link(temporary, path)
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        sync_folder(path.parent)
        return obtain_token(root)
    if path.stat().st_mode & _OTHERS:
        path.chmod(0o600)
    return found


def renew_token(root: Path) -> str:
    """Make a new token in the place of the old one, which opens nothing from then on."""
    path = token_path(root)
    _written(path).rename(path)
    sync_folder(path.parent)
    found = read_token(root)
    assert found is not None
    return found


def login_link(url: str, token: str) -> str:
    """The address that logs a browser in. It holds the token: show it, do not write it down."""
    return f"{url.rstrip('/')}/login?{urlencode({'token': token})}"


def _written(path: Path) -> Path:
    """A new token in a file beside ``path``. Never, not even for a moment, can others read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{os.getpid()}-{secrets.token_hex(4)}-token")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, f"{secrets.token_urlsafe(_BYTES)}\n".encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return temporary
