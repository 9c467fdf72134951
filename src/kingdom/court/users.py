"""Who sits at this machine."""

from __future__ import annotations

import contextlib
import getpass


def user_name() -> str:
    """The name of the user this process runs for; ``console`` when the system has none for it."""
    with contextlib.suppress(OSError, KeyError):
        return getpass.getuser()
    return "console"
