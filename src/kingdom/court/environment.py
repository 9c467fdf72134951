"""User name, proxy and missing tokens, from the environment."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shlex
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kingdom.court.home import Home

_ASSIGNMENT: Final = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=")


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


def unread_env_file(home: Home, *variables: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Say how to load variables that are not set although the file ``.env`` of the home names them; None otherwise.

    The file is for systemd and shells. Commands do not read it: a folder that somebody else made may have one, too.
    """
    path, env = home.root / ".env", os.environ if environ is None else environ
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    named = {found[1] for line in lines if (found := _ASSIGNMENT.match(line))}
    missing = [name for name in variables if name in named and not env.get(name, "").strip()]
    if not missing:
        return None
    load = f"set -a; . {shlex.quote(str(path))}; set +a"
    return f"{' and '.join(missing)} in {path} must be loaded into the shell that starts the court: {load}"
