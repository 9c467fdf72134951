"""Read the URLs of stores, and show them without their secrets."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from kingdom.bus.errors import InvalidOption

_HOST: Final = re.compile(r"(?:\[[^\]]*\]|[^\[\]:@]*)(?::(?P<port>\d{1,5}))?")
_QUOTE: Final = (
    "in a user name and in a password write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23, [ as %5B and % as %25 "
    "(urllib.parse.quote does it, with safe='')"
)


def url_parts(url: str) -> SplitResult:
    """Split any URL."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InvalidOption(f"{redact_url(url)!r} cannot be read ({error}): {_QUOTE}") from None


def server_url_parts(url: str) -> SplitResult:
    """Split the URL of one server or several; refuse one that would be split in the middle of its password."""
    parts = url_parts(url)
    user, _, hosts = parts.netloc.rpartition("@")
    if not all(map(_is_host, hosts.split(","))):
        raise InvalidOption(f"{redact_url(url)!r}: its host and port cannot be read; {_QUOTE}")
    if "@" in user or "@" in parts.path or parts.fragment:
        raise InvalidOption(f"{redact_url(url)!r} has an @ or a # that is not part of its form; {_QUOTE}")
    return parts


def _is_host(text: str) -> bool:
    match = _HOST.fullmatch(text)
    return match is not None and int(match["port"] or 0) < 65536


def url_path(url: str) -> str:
    """Return the path of a ``files:`` or ``sqlite:`` URL: absolute after ``//``, otherwise relative."""
    parts = url_parts(url)
    if parts.netloc not in ("", ".", "localhost"):
        raise InvalidOption(
            f"{url!r}: a path starts after three slashes ({parts.scheme}:///absolute/path), "
            f"or after none ({parts.scheme}:relative/path)"
        )
    path = "." + parts.path if parts.netloc == "." else parts.path
    if not path or path == "/":
        raise InvalidOption(f"{url!r} names no path: write {parts.scheme}:///absolute/path")
    return "/" + path.lstrip("/") if path.startswith("/") else path


def server_place(url: str) -> str:
    """Return where the server of a URL is: ``db.example:5432``, or the folder of its socket."""
    parts = url_parts(url)
    return parts.netloc.rpartition("@")[2] or parse_qs(parts.query).get("host", ["localhost"])[0]


def redact_url(url: str) -> str:
    """Return the URL without user, passwords and other secrets, for messages."""
    # What stands before the last @ of a server's URL may be a password with an @ or a slash that is not quoted.
    shown = re.sub(r"(?<=://)[^/].*@|[^/@]*@", "…@", url, count=1)
    return re.sub(r"((?:password|secret|config|pem)=)[^&]*", r"\1…", shown)
