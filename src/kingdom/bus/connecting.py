"""From a URL to a bus."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from kingdom.bus.envelope import DEFAULT_MAX_BYTES
from kingdom.bus.errors import InvalidOption, UnknownTransport
from kingdom.bus.eventbus import EventBus
from kingdom.bus.transport import Clock, Transport, TransportOptions

if TYPE_CHECKING:
    from collections.abc import Callable

ALIASES: Final = {"postgres": "postgresql", "file": "files"}
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):")
_GROUP: Final = "kingdom.bus.transports"


def connect(
    url: str,
    *,
    max_bytes: int = DEFAULT_MAX_BYTES,
    clock: Clock | None = None,
    connect_timeout: float = 15.0,
) -> EventBus:
    """Return the bus at ``url``, to be used as ``async with connect(url) as bus``.

    ========================== ====================================================================================
    ``files:///var/bus``       a directory; ``files:queue`` for one relative to the working directory
    ``sqlite:///var/bus.db``   an SQLite file; ``sqlite:bus.db`` for a relative one
    ``postgresql://…``         a PostgreSQL database, in the form libpq takes
    ``memory:``                this process's memory only, for tests and demos: nothing is durable
    ========================== ====================================================================================

    ``max_bytes`` limits one envelope's JSON form. ``connect_timeout`` is how long a store that is away is tried, with
    back-off, before ``TransportUnavailable`` is raised. ``clock`` replaces ``time.time`` where the store has no clock.
    """
    if max_bytes < 1024:
        raise InvalidOption(f"connect(max_bytes={max_bytes}): must be 1024 or more")
    match = _SCHEME.match(url) if isinstance(url, str) else None
    if not match:
        shown = shown_url(url) if isinstance(url, str) else url
        raise UnknownTransport(f"{shown!r} is not a URL; {_known()}")
    scheme = match.group(1).lower()
    options = TransportOptions(
        max_bytes=max_bytes,
        clock=clock,
        connect_timeout=connect_timeout,
        query=dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)),
    )
    return EventBus(_opener(ALIASES.get(scheme, scheme), url)(url, options), url)


def url_path(url: str) -> str:
    """The path of a ``files:`` or ``sqlite:`` URL: absolute after ``//``, else relative to the working directory."""
    parts = urlsplit(url)
    if parts.netloc not in ("", ".", "localhost"):
        raise InvalidOption(
            f"{url!r}: a path starts after three slashes ({parts.scheme}:///absolute/path), "
            f"or after none ({parts.scheme}:relative/path)"
        )
    path = "." + parts.path if parts.netloc == "." else parts.path
    if not path or path == "/":
        raise InvalidOption(f"{url!r} names no path: write {parts.scheme}:///absolute/path")
    return "/" + path.lstrip("/") if path.startswith("/") else path


def _opener(scheme: str, url: str) -> Callable[[str, TransportOptions], Transport]:
    """Find the module ``kingdom.bus.transports.<scheme>``, or another distribution's entry point of that name."""
    module: Any
    if re.fullmatch(r"[a-z][a-z0-9]*", scheme):
        try:
            module = importlib.import_module(f"{_GROUP}.{scheme}")
        except ModuleNotFoundError as error:
            if error.name != f"{_GROUP}.{scheme}":
                raise
        else:
            return module.open  # type: ignore[no-any-return]
    from importlib.metadata import entry_points

    for entry in entry_points(group=_GROUP, name=scheme):
        return entry.load()  # type: ignore[no-any-return]
    raise UnknownTransport(f"{scheme}: is no transport this installation knows (in {shown_url(url)!r}); {_known()}")


def _known() -> str:
    return "use files:///dir, sqlite:///file.db, postgresql://… or memory:"


def shown_url(url: str) -> str:
    """The URL without user, password and the like, fit to be shown."""
    return re.sub(r"(password=)[^&]*", r"\1…", re.sub(r"[^/@]*@", "…@", url, count=1))
