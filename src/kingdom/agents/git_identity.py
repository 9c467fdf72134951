"""The name and address under which agents commit.

Those of the configuration, else the user's own, else Kingdom's: without any, git refuses to commit. They are passed as
settings in the environment, which count more than a repository's own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Final

NAME: Final = "user.name"
EMAIL: Final = "user.email"
_FALLBACK: Final = {NAME: "Kingdom", EMAIL: "kingdom@localhost"}
_GIT_SECONDS: Final = 5.0


def identity_of(environment: Mapping[str, str], configured: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings ``user.name`` and ``user.email`` for a program with this environment."""
    return dict(configured) if configured else {**_FALLBACK, **users_identity(environment)}


def missing_identity(environment: Mapping[str, str], configured: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings that an agent needs which reads the user's own; empty if it needs none."""
    if configured:
        return dict(configured)
    own = users_identity(environment)
    return {key: value for key, value in _FALLBACK.items() if key not in own}


def users_identity(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the name and address in the git settings of the user and the machine."""
    wanted = ("git", "config", "-z", "--get-regexp", r"^user\.(name|email)$")
    try:
        found = subprocess.run(  # noqa: S603
            wanted,
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_SECONDS,
            check=False,
        ).stdout.decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (entry.partition("\n") for entry in found.split("\0") if entry)
    return {key: value for key, _, value in pairs if value}


def as_variables(settings: Mapping[str, str]) -> dict[str, str]:
    """Return git settings as variables of its environment."""
    made = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return made
