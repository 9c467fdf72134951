"""What git may read and run when we call it: almost nothing.

git runs programs that its configuration, its environment and the repository name: hooks, the fsmonitor, filters,
diff and merge drivers, ssh, credential helpers, editors, pagers. An agent can write all of a repository and parts of
its configuration. So git gets an environment made from nothing, no configuration of the system or the user, and every
setting that could run something is overridden on the command line. Settings with free names (``filter.<name>.clean``)
cannot be overridden one by one; for these, git is pointed at a configuration file that no agent writes (``control``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=false",
    "credential.helper=",
    "diff.ignoreSubmodules=all",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "protocol.allow=never",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "log.showSignature=false",
    "gpg.program=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "color.ui=false",
    "advice.detachedHead=false",
)
"""Overrides for every call."""

_ALWAYS: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_FLUSH": "1",
    "LC_ALL": "C",
    "TZ": "UTC",
}
# What reaching a remote needs from its caller's environment, and nothing that names a program.
_FOR_REMOTES: Final = (
    "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY",
)  # fmt: skip


@dataclass(frozen=True)
class RemoteAccess:
    """How the operator lets git reach remotes. Nothing here comes from a repository."""

    credential_helper: str | None = None
    """A git credential helper, for private repositories over https (as in ``git config credential.helper``)."""
    ssh_command: str = "ssh -o BatchMode=yes"
    """The ssh to run, as in ``GIT_SSH_COMMAND``. It must not ask questions."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """More variables for clone and fetch, such as a token the helper reads."""


def local_environment(path: str | None = None) -> dict[str, str]:
    """The environment for a call that reaches no remote."""
    return {**_ALWAYS, "PATH": path or os.environ.get("PATH", os.defpath), "GIT_ALLOW_PROTOCOL": "none"}


def remote_environment(protocol: str, access: RemoteAccess, path: str | None = None) -> dict[str, str]:
    """The environment for a call that reaches a remote over one protocol."""
    passed = {name: os.environ[name] for name in _FOR_REMOTES if name in os.environ}
    return {
        **local_environment(path),
        **passed,
        **access.environment,
        "GIT_ALLOW_PROTOCOL": protocol,
        "GIT_SSH_COMMAND": access.ssh_command,
        "GIT_SSH_VARIANT": "ssh",
    }


def remote_settings(access: RemoteAccess) -> list[str]:
    """The overrides a call to a remote gets after those of every call."""
    return ["credential.helper=", f"credential.helper={access.credential_helper}"] if access.credential_helper else []


def as_options(settings: Iterable[str]) -> list[str]:
    """Settings as ``-c`` options."""
    return [word for setting in settings for word in ("-c", setting)]
