"""Which repository a person means: the repositories that a court works with, and those that a text names."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kingdom.court.errors import InvalidConfig
from kingdom.court.packages.installed import load_generals
from kingdom.court.sentinel.config import load_sentinel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kingdom.court.home import Home

_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}"
_FULL_NAME: Final = re.compile(rf"{_NAME}/{_NAME}\Z")
# Not a part of a path or of an address, as in src/app/cart.py.
_MENTIONED: Final = re.compile(rf"(?<![A-Za-z0-9_/.:@\-])({_NAME}/{_NAME})(?![A-Za-z0-9_/\-])")
_ADDRESS: Final = re.compile(rf"(?:https?://|ssh://git@|git@)([\w.\-]+(?::\d+)?)[/:]({_NAME}/{_NAME})")
_PUBLIC_HOST: Final = "github.com"


def known_repositories(home: Home) -> list[str]:
    """Return the repositories that the configuration of a court names, as ``owner/name`` or as addresses."""
    found: list[str] = []
    with contextlib.suppress(InvalidConfig):  # kingdom doctor reports it
        config = load_sentinel(home)
        found += config.github.repos if config.github is not None else []
        found += config.jira.repos.values() if config.jira is not None else []
    for general in load_generals(home).by_name.values():
        manifest = general.manifest
        found += [] if manifest.default_repo is None else [manifest.default_repo]
        found += (repo for one in manifest.subscribes for repo in one.repos if _FULL_NAME.match(repo))
    return list({repo.lower(): repo for repo in reversed(found)}.values())[::-1]


def only_repository(home: Home) -> str | None:
    """Return the repository that a court works with, if there is one and only one."""
    known = known_repositories(home)
    return known[0] if len(known) == 1 and _FULL_NAME.match(known[0]) else None


def named_repository(text: str, known: Sequence[str], base_url: str, *, any_owner: bool = False) -> str | None:
    """Return the repository that a text names first, by an address or as ``owner/name``.

    Much that people write has that form, as in ``src/cart`` or "and/or". So a name counts when the court knows it or
    another one of its owner; any name does when the court knows none, and with ``any_owner``, for an answer.
    """
    hosts = {_PUBLIC_HOST, urlsplit(base_url).netloc.lower()}
    for host, name in _ADDRESS.findall(text):
        if host.lower().removeprefix("www.") in hosts:
            return _spelled(_stripped(name), known)
    mentioned = [_stripped(name) for name in _MENTIONED.findall(text)]
    mentioned = [name for name in mentioned if _FULL_NAME.match(name)]
    names = {repo.lower() for repo in known}
    owners = {repo.partition("/")[0] for repo in names if _FULL_NAME.match(repo)}
    for counts in (
        lambda name: name.lower() in names,
        lambda name: name.partition("/")[0].lower() in owners,
        lambda _: any_owner or not owners,
    ):
        if (found := next(filter(counts, mentioned), None)) is not None:
            return _spelled(found, known)
    return None


def _stripped(name: str) -> str:
    return name.rstrip(".-").removesuffix(".git")


def _spelled(name: str, known: Iterable[str]) -> str:
    """Return a name as the court spells it."""
    return next((repo for repo in known if repo.lower() == name.lower()), name)
