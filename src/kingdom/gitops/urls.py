"""Which repositories may be cloned, and the name of the folder each one gets.

A URL reaches programs that run other programs (``ext::``, ssh options), so only forms that are known to be harmless
pass: ``https://``, ``ssh://``, ``user@host:path``, and, where the operator allows it, ``file://`` or an absolute path.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kingdom.gitops.errors import InvalidInput

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_is_host = re.compile(_HOST + r"\Z").match
_is_user = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+\-]*\Z").match
_scp_like = re.compile(rf"([A-Za-z0-9_][A-Za-z0-9._+\-]*)@({_HOST}):(?!/{{2}})([^\-].*)\Z").match
_unwanted = re.compile(r"[\x00-\x20\x7f]").search
_ALLOWED: Final = "use https://…, ssh://… or user@host:path"


@dataclass(frozen=True)
class RepositoryUrl:
    """A URL that passed the checks."""

    text: str
    protocol: str
    """What git calls it: ``https``, ``ssh`` or ``file``."""

    @property
    def key(self) -> str:
        """The name of the clone's folder: readable, and different for different URLs."""
        last = re.split(r"[/:]", self.text.rstrip("/"))[-1].removesuffix(".git")
        readable = re.sub(r"[^A-Za-z0-9_]+", "-", last).strip("-")[:40] or "repository"
        return f"{readable}-{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"


def check_url(url: str, *, allow_local: bool = False) -> RepositoryUrl:
    """Return the checked URL; raise :class:`InvalidInput` that says what is wrong with it."""
    if not isinstance(url, str) or not url:
        raise InvalidInput(f"repository URL: it is empty or not a string; {_ALLOWED}")
    if url.startswith("-"):
        raise _refused(url, "it starts with a dash and would be read as an option")
    local = url.startswith(("/", "file://"))
    if (_unwanted(url) and not local) or any(c in url for c in "\n\r\x00"):
        raise _refused(url, "it contains a space or a control character")
    if local:
        return _local(url, allow_local)
    if "::" in url.partition("/")[0] and not url.startswith("["):
        raise _refused(url, "remote helpers (name::address) can run programs and are not allowed")
    if "://" not in url:
        if _scp_like(url):
            return RepositoryUrl(url, "ssh")
        raise _refused(url, "it is neither a URL nor user@host:path")
    return _remote(url)


def hide_password(url: str) -> str:
    """The URL as it may be shown: without what stands between user and host."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", url)


def _remote(url: str) -> RepositoryUrl:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _refused(url, f"it is not a URL ({error})") from None
    if parts.scheme not in ("https", "ssh"):
        raise _refused(url, f"the scheme {parts.scheme}:// is not allowed")
    if parts.password is not None:
        raise _refused(url, "a password in a URL would be stored and shown: configure a credential helper instead")
    if parts.username is not None and not _is_user(parts.username):
        raise _refused(url, "its user name has characters that are not allowed")
    host = parts.netloc.rpartition("@")[2]
    host = host.removesuffix(f":{port}") if port is not None else host
    if not _is_host(host):
        raise _refused(url, "its host name is not one")
    if parts.path.strip("/") == "" or parts.path.startswith("/-"):
        raise _refused(url, "it names no repository on the host")
    return RepositoryUrl(url, parts.scheme)


def _local(url: str, allowed: bool) -> RepositoryUrl:
    if not allowed:
        raise _refused(url, "local repositories are not allowed here (allow_local=True allows them)")
    path = url.removeprefix("file://")
    if not path.startswith("/") or ".." in Path(path).parts:
        raise _refused(url, "the path of a local repository must be absolute, without ..")
    return RepositoryUrl(url, "file")


def _refused(url: str, reason: str) -> InvalidInput:
    return InvalidInput(f"repository URL {hide_password(url)[:200]!r}: {reason}; {_ALLOWED}")
