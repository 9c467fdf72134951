"""Which repository a task works on, and where it is cloned from."""

from __future__ import annotations

import re
from typing import Any, Final

from kingdom.court.general.errors import TaskRefused

# A part may start with a dot (owner/.github), but is never . or .. and never looks like an option.
_PART: Final = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.][A-Za-z0-9_.\-]{0,99}"
_is_name = re.compile(rf"{_PART}/{_PART}\Z").match


def url_of(repo: Any, base_url: str) -> str:
    """The URL of a repository that an event names as ``owner/name``; :class:`TaskRefused` for anything else."""
    if isinstance(repo, str) and _is_name(repo):
        return f"{base_url.rstrip('/')}/{repo}"
    raise TaskRefused(f"the repository {repo!r:.120} is not usable: owner/name is needed, of A-Z a-z 0-9 . _ -")


def configured_url(repo: str, base_url: str) -> str:
    """The same for a repository from a manifest, which may be a URL or a local folder as well."""
    return url_of(repo, base_url) if _is_name(repo) else repo


def is_local(url: str) -> bool:
    """Whether a URL that the operator configured leads to this machine."""
    return url.startswith(("/", "file://"))
