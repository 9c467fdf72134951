"""Check what becomes a ref, a path or an argument of git: ids, ref names, hashes and repository URLs.

Ids of workflows, worktrees and checkpoints become parts of refs and paths, so the rule is strict: ``A-Z a-z 0-9 . _ +
-``, starting with a letter, a digit or ``_``, at most 100 characters, no ``..``, no ``.`` or ``.lock`` at the end.
Branch names come from people and may be anything git allows, but never an option.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kingdom.base.text import looks_secret
from kingdom.gitops.credentials import host_of
from kingdom.gitops.errors import InvalidInput

_MAX_ID_CHARS: Final = 100
_MAX_REF_BYTES: Final = 250
_is_id = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+\-]*\Z").match
_is_hash = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z").match
_bad_in_ref = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//").search


def check_id(what: str, value: str) -> str:
    """Return ``value`` if it may name a workflow, worktree or checkpoint; otherwise raise :class:`InvalidInput`."""
    if not isinstance(value, str) or not _is_id(value):
        reason = "use A-Z a-z 0-9 . _ + - and start with a letter, a digit or _"
    elif len(value) > _MAX_ID_CHARS:
        reason = f"it is longer than {_MAX_ID_CHARS} characters"
    elif ".." in value or value.endswith((".", ".lock")):
        reason = 'no "..", and no "." or ".lock" at the end'
    else:
        return value
    raise InvalidInput(f"{what} {_shortened(value)}: {reason}")


def check_ref(what: str, value: str) -> str:
    """Return ``value`` if it may name a branch, tag or ref; otherwise raise :class:`InvalidInput`.

    This is the rule of ``git check-ref-format`` plus: no leading dash, and at most 250 bytes.
    """
    if not isinstance(value, str) or not value:
        reason = "it is empty or not a string"
    elif value.startswith("-"):
        reason = "it starts with a dash and would be read as an option"
    elif len(value.encode("utf-8", "replace")) > _MAX_REF_BYTES:
        reason = f"it is longer than {_MAX_REF_BYTES} bytes"
    elif bad := _bad_in_ref(value):
        reason = f"{bad.group()!r} is not allowed in a ref"
    elif value.startswith("/") or value.endswith(("/", ".")) or value == "@":
        reason = "it must not start with a slash nor end with a slash or a dot"
    elif any(part.startswith(".") or part.endswith(".lock") for part in value.split("/")):
        reason = "no part of it may start with a dot or end with .lock"
    elif not _encodable(value):
        reason = "it cannot be written as UTF-8"
    else:
        return value
    raise InvalidInput(f"{what} {_shortened(value)}: {reason}")


def is_hash(value: str) -> bool:
    """Return whether ``value`` is a full object name (SHA-1 or SHA-256)."""
    return isinstance(value, str) and _is_hash(value) is not None


def check_hash(what: str, value: str) -> str:
    """Return ``value`` if it is a full object name; otherwise raise :class:`InvalidInput`."""
    if not is_hash(value):
        raise InvalidInput(f"{what} {_shortened(value)}: a full commit hash of 40 or 64 hexadecimal digits is needed")
    return value


def check_line(what: str, value: str) -> str:
    """Return ``value`` if it fits on one line (a name, an e-mail address, a trailer)."""
    if not isinstance(value, str) or not value.strip() or any(c in value for c in "\n\r\x00<>"):
        raise InvalidInput(f"{what} {_shortened(value)}: one line of text without < and > is needed")
    return value


def _encodable(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"


# ── our refs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


OWN_REFS: Final = "refs/kingdom/"
"""The prefix of our own refs: no fetch from a remote creates or prunes them."""


def checkpoints_of(workflow: str) -> str:
    """Return the prefix of a workflow's checkpoints."""
    return f"refs/kingdom/checkpoints/{check_id('workflow', workflow)}/"


def checkpoint_ref(workflow: str, checkpoint: str) -> str:
    """Return the ref that holds a checkpoint's commit."""
    return checkpoints_of(workflow) + check_id("checkpoint", checkpoint)


def pending_of(workflow: str) -> str:
    """Return the prefix of a workflow's prepared, incomplete checkpoints."""
    return f"refs/kingdom/pending/{check_id('workflow', workflow)}/"


def pending_ref(workflow: str, checkpoint: str) -> str:
    """Return the ref that holds a prepared checkpoint's commit until it is completed or undone."""
    return pending_of(workflow) + check_id("checkpoint", checkpoint)


def pull_ref(number: int) -> str:
    """Return the ref that holds the last fetched head of a pull request."""
    return f"{OWN_REFS}pulls/{number}/head"


def all_of(workflow: str) -> tuple[str, ...]:
    """Return the prefixes of all refs of a workflow, its branches among them."""
    checked = check_id("workflow", workflow)
    kinds = ("checkpoints", "pending", "landed", "rescue")
    return (f"refs/heads/kingdom/{checked}/", *(f"{OWN_REFS}{kind}/{checked}/" for kind in kinds))


def rescues_of(workflow: str) -> str:
    """Return the prefix of a workflow's rescues."""
    return f"refs/kingdom/rescue/{check_id('workflow', workflow)}/"


def rescue_ref(workflow: str, name: str) -> str:
    """Return the ref that holds one rescue."""
    return rescues_of(workflow) + check_id("rescue", name)


# ── repository URLs ──────────────────────────────────────────────────────────────────────────────────────────────────
# A URL reaches programs that run other programs (``ext::``, ssh options), so only harmless forms are allowed:
# ``https://``, ``ssh://``, ``user@host:path``, and, if the operator allows it, ``file://`` or an absolute path.


_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_is_host = re.compile(_HOST + r"\Z").match
_is_user = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+\-]*\Z").match
_scp_like = re.compile(rf"([A-Za-z0-9_][A-Za-z0-9._+\-]*)@({_HOST}):(?!/{{2}})([^\-].*)\Z").match
_control_or_space = re.compile(r"[\x00-\x20\x7f]").search
_ALLOWED_URLS: Final = "use https://…, ssh://… or user@host:path"


@dataclass(frozen=True)
class RepositoryUrl:
    """A URL that passed the checks."""

    text: str
    protocol: str
    """``https``, ``ssh`` or ``file``, as git calls it."""

    @property
    def host(self) -> str | None:
        """The host, and its port if it is not the usual one, of an https URL; None for other protocols."""
        return host_of(self.text)

    @property
    def user(self) -> str | None:
        """The user name in an https URL."""
        return urlsplit(self.text).username if self.protocol == "https" else None

    @property
    def path(self) -> str:
        """The path on the host of an https URL, without slashes around it."""
        return urlsplit(self.text).path.strip("/") if self.protocol == "https" else ""

    @property
    def key(self) -> str:
        """The name of the clone's folder: readable and unique per URL."""
        last = re.split(r"[/:]", self.text.rstrip("/"))[-1].removesuffix(".git")
        readable = re.sub(r"[^A-Za-z0-9_]+", "-", last).strip("-")[:40] or "repository"
        return f"{readable}-{hashlib.sha256(self.text.encode()).hexdigest()[:16]}"


def check_url(url: str, *, allow_local: bool = False) -> RepositoryUrl:
    """Return the checked URL; raise :class:`InvalidInput` if it is not allowed."""
    if not isinstance(url, str) or not url:
        raise InvalidInput(f"repository URL: it is empty or not a string; {_ALLOWED_URLS}")
    if url.startswith("-"):
        raise _refused(url, "it starts with a dash and would be read as an option")
    local = url.startswith(("/", "file://"))
    if (_control_or_space(url) and not local) or any(c in url for c in "\n\r\x00"):
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
    """Return the URL without its password."""
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
        raise _refused(
            url, "a password in a URL would be stored and shown: name its variable in git.credentials instead"
        )
    if parts.username is not None and looks_secret(parts.username):
        raise _refused(
            url.replace(parts.username, "***"),
            "a token in a URL would be stored and shown: name its variable in git.credentials instead",
        )
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
    return InvalidInput(f"repository URL {hide_password(url)[:200]!r}: {reason}; {_ALLOWED_URLS}")
