"""How git reaches a remote, and what its errors mean."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from kingdom.gitops.credentials import CredentialLookup, Credentials, credential_environment
from kingdom.gitops.errors import CommandTimedOut, GitError, LockBusy, RemoteFailed, RemoteUnavailable

if TYPE_CHECKING:
    from kingdom.gitops.errors import RemoteReason
    from kingdom.gitops.names import RepositoryUrl

T = TypeVar("T")
log = logging.getLogger("kingdom.gitops")
RETRY_SECONDS: Final = (1.0, 4.0, 15.0)  # between two tries while a remote is away, if a person may wait
# Variables of our environment that reach a remote; none of them names a program.
_REMOTE_VARIABLES: Final = (
    "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH",
    "http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY",
)  # fmt: skip


@dataclass(frozen=True)
class RemoteAccess:
    """How git reaches remotes, set by the operator. Nothing here comes from a repository."""

    credentials: Credentials = field(default_factory=Credentials)
    """The tokens of private repositories over https."""
    ssh_command: str = "ssh -o BatchMode=yes"
    """The ssh to run, as in ``GIT_SSH_COMMAND``. It must not ask questions."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables for calls that reach a remote."""

    async def find(self, remote: RepositoryUrl) -> CredentialLookup:
        """Find the credential of a remote; none if it is not reached over https."""
        if remote.host is None:
            return CredentialLookup()
        return await self.credentials.find(remote.host, username=remote.user, path=remote.path)

    def variables(self, remote: RepositoryUrl, found: CredentialLookup) -> dict[str, str]:
        """Return the variables of a git process that may reach one remote."""
        return {
            **{name: os.environ[name] for name in _REMOTE_VARIABLES if name in os.environ},
            **self.environment,
            **credential_environment(remote.host, found.credential),
            "GIT_ALLOW_PROTOCOL": remote.protocol,
            "GIT_SSH_COMMAND": self.ssh_command,
            "GIT_SSH_VARIANT": "ssh",
        }


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


_UNREACHABLE: Final = (
    r"could(?: not|n't) resolve|failed to connect|couldn't connect|connection (?:refused|reset|timed out|closed)"
    r"|operation timed out|network is unreachable|no route to host|temporary failure|early eof|hung up unexpectedly"
    r"|gnutls_handshake|ssl_(?:connect|error_syscall)|returned error: (?:429|5\d\d)"
)
# The first that is found counts: a server that refuses also hangs up.
_REASONS: Final[tuple[tuple[RemoteReason, str], ...]] = (
    ("untrusted", r"certificate|host key verification failed"),
    ("missing", r"repository .*not found|returned error: 404|not appear to be a git repository|no such file or dir"),
    ("moved", r"returned error: 30[12378]"),
    ("no-credential", r"could not read (?:username|password)|terminal prompts disabled"),
    ("denied", r"authentication failed|permission denied|returned error: (?:401|403)|access denied|write access"),
    ("unreachable", _UNREACHABLE),
)
_COMPILED: Final = tuple((reason, re.compile(pattern, re.IGNORECASE)) for reason, pattern in _REASONS)


def reason_of(said: str) -> RemoteReason:
    """Return why a remote could not be used, by what git said."""
    return next((reason for reason, pattern in _COMPILED if pattern.search(said)), "unknown")


def remote_failure(
    command: tuple[str, ...], code: int | None, said: str, remote: RepositoryUrl, found: CredentialLookup
) -> RemoteFailed:
    """Return the error of a call to a remote, with its reason and what to do."""
    reason = reason_of(said)
    return RemoteFailed(command, code, said, _advice(reason, remote, found), reason)


def _advice(reason: RemoteReason, remote: RepositoryUrl, found: CredentialLookup) -> str:
    if remote.protocol == "ssh":
        return _ssh_advice(reason)
    host = remote.host
    if host is None:
        return "check the path, and that it is a git repository this user may read"
    match reason:
        case "unreachable":
            return f"{host} cannot be reached: check its name, the network and the proxy"
        case "untrusted":
            return f"the certificate of {host} is not trusted: name the file of your own authority in GIT_SSL_CAINFO"
        case "moved":
            return "the repository has moved: use its new URL"
        case "no-credential":
            return f"{host} asks for a token and there is none: {found.advice}"
        case "denied" if found.credential is not None:
            return (
                f"{host} refused {found.source}: it has expired, or has no right to this repository "
                "(GitHub: the scope repo, or contents of this repository)"
            )
        case "missing" if found.credential is not None:
            return f"check the URL; if it is right, {found.source} has no right to see this repository"
        case "missing" | "denied":
            return f"check the URL; a private repository needs a token: {found.advice}"
        case _:
            return "check the URL, the network, and that access needs no question to be answered"


def _ssh_advice(reason: RemoteReason) -> str:
    match reason:
        case "denied":
            return "no key was accepted: add one to the ssh agent (ssh-add), or use an https URL with a token"
        case "untrusted":
            return "the key of the host is not known: connect once with ssh, or add it to known_hosts"
        case "missing":
            return "check the URL; if it is right, your key has no right to see this repository"
        case _:
            return "check the URL, the network, and that access needs no question to be answered"


def is_outage(error: GitError) -> bool:
    """Whether a git host could not be reached, or git took too long; not that it refused, or has no such repository."""
    if isinstance(error, (CommandTimedOut, LockBusy, RemoteUnavailable)):
        return True
    return isinstance(error, RemoteFailed) and error.reason == "unreachable"


async def _wait(_: GitError, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def through_outage(
    work: Callable[[], Awaitable[T]],
    pauses: Sequence[float] = RETRY_SECONDS,
    wait: Callable[[GitError, float], Awaitable[None]] = _wait,
) -> T:
    """Return what some work at a remote returns; while that is away, try again after each of ``pauses``.

    ``wait`` waits for a pause; it gets the error, too.
    """
    for pause in pauses:
        try:
            return await work()
        except GitError as error:
            if not is_outage(error):
                raise
            log.warning("the remote is away, next try in %.0f s: %s", pause, error)
            away = error
        await wait(away, pause)
    return await work()
