"""Find the token of a git host, and hand it to one git process.

A token comes from an environment variable, from ``gh auth token``, or from the user's own credential helper. Rules say
which, per host. It is found when it is needed and kept nowhere.

git gets it through a credential helper that is set in the environment of that one process, for that one host. So the
token is in no argument list, no URL, no file and no configuration, and git sends it to no other host: not after a
redirect, and not to a submodule. git asks for it only when the host refuses to answer without.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import urlsplit

from kingdom.gitops.errors import InvalidInput

GITHUB: Final = "github.com"
ANY_HOST: Final = "*"
"""The rule for hosts that are not named."""
DEFAULT_USERNAME: Final = "x-access-token"
"""The user name that goes with a token. GitHub wants this one; GitLab and Gitea take any."""

Source = Literal["default", "env", "gh", "helper", "none"]
_GITHUB_VARIABLES: Final = ("GITHUB_TOKEN", "GH_TOKEN")
_PROGRAM_SECONDS: Final = 30.0
_is_host = re.compile(r"(?:[a-z0-9](?:[a-z0-9._\-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?\Z").match
_bad_in_value = re.compile(r"[\x00-\x1f\x7f]").search


@dataclass(frozen=True)
class CredentialRule:
    """Where the token of a host comes from."""

    source: Source
    """``env``: a variable. ``gh``: the GitHub CLI. ``helper``: the user's git credential helper. ``none``: nowhere.

    ``default``: for github.com a variable or the GitHub CLI, for others nowhere.
    """
    variable: str = ""
    """The variable, for ``env``."""
    username: str | None = None
    """The user name that goes with the token; else the one in the URL, else ``x-access-token``."""


@dataclass(frozen=True)
class Credential:
    """What a git host accepts as proof of who asks."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class CredentialLookup:
    """The credential of a host, or what is missing."""

    credential: Credential | None = None
    source: str = ""
    """Where the credential comes from, for a message: ``the variable GITHUB_TOKEN``."""
    advice: str = ""
    """Without a credential: what to do to have one."""


class Credentials:
    """The credentials of git hosts, by rules. Without a rule for a host, ``*`` decides, then the default."""

    def __init__(
        self, rules: Mapping[str, CredentialRule] | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        self._rules = {check_host(host): rule for host, rule in (rules or {}).items()}
        self._environ = environ
        everywhere = self._rules.get(ANY_HOST)
        if everywhere is not None and everywhere.source not in ("helper", "none"):
            raise InvalidInput(
                f"credentials of {ANY_HOST}: a token belongs to one host; only helper or none is allowed"
            )

    @property
    def named_hosts(self) -> list[str]:
        """The hosts that have a rule of their own."""
        return [host for host in self._rules if host != ANY_HOST]

    def expects(self, host: str) -> bool:
        """Whether a rule says that there is a credential for a host."""
        rule = self._rules.get(check_host(host)) or self._rules.get(ANY_HOST)
        return rule is not None and rule.source != "none"

    async def find(self, host: str, *, username: str | None = None, path: str = "") -> CredentialLookup:
        """Find the credential of a host (``host`` or ``host:port``). Never raises for one that is missing.

        ``username`` and ``path`` are those of the repository's URL.
        """
        host = check_host(host)
        rule = self._rules.get(host) or self._rules.get(ANY_HOST) or CredentialRule("default")
        match rule.source:
            case "env":
                found = self._from_variables((rule.variable,))
            case "gh":
                found = await self._from_gh(host)
            case "helper":
                return await self._from_helper(host, rule.username or username, path)
            case "none":
                return CredentialLookup(advice=f"git.credentials says none for {host}")
            case "default":
                found = await self._default(host)
        if isinstance(found, str):
            return CredentialLookup(advice=found)
        source, token = found
        if problem := _problem(token):
            return CredentialLookup(advice=f"{source} {problem}")
        return CredentialLookup(Credential(rule.username or username or DEFAULT_USERNAME, token), source)

    async def token(self, host: str) -> str | None:
        """Return the token of a host, for its API; None if there is none."""
        found = (await self.find(host)).credential
        return None if found is None else found.password

    async def _default(self, host: str) -> tuple[str, str] | str:
        if host != GITHUB:
            return f"name where its token is in git.credentials, such as {host}: {{env: MY_TOKEN}}"
        found = self._from_variables(_GITHUB_VARIABLES)
        if not isinstance(found, str):
            return found
        found = await self._from_gh(host)
        return "set GITHUB_TOKEN, or log in with gh auth login" if isinstance(found, str) else found

    def _from_variables(self, names: tuple[str, ...]) -> tuple[str, str] | str:
        for name in names:
            if token := self._variables.get(name, "").strip():
                return f"the variable {name}", token
        return f"set the variable {' or '.join(names)}"

    async def _from_gh(self, host: str) -> tuple[str, str] | str:
        program = shutil.which("gh", path=self._variables.get("PATH"))
        if program is None:
            return f"install gh, and log in with gh auth login --hostname {host}"
        environment = {**self._variables, "GH_PROMPT_DISABLED": "1"}
        token = (await _output([program, "auth", "token", "--hostname", host], environment)).strip()
        return (f"gh auth token for {host}", token) if token else f"log in with gh auth login --hostname {host}"

    async def _from_helper(self, host: str, username: str | None, path: str) -> CredentialLookup:
        asked = {"protocol": "https", "host": host, "path": path.strip("/"), "username": username or ""}
        lines = "".join(f"{name}={value}\n" for name, value in asked.items() if value)
        program = shutil.which("git", path=self._variables.get("PATH")) or "git"
        answer = await _output([program, "credential", "fill"], _helper_environment(self._variables), lines + "\n")
        given = dict(line.split("=", 1) for line in answer.splitlines() if "=" in line)
        if not given.get("password"):
            return CredentialLookup(advice=f"your git credential helper has none for {host}: store one in it")
        credential = Credential(given.get("username") or username or DEFAULT_USERNAME, given["password"])
        return CredentialLookup(credential, "your git credential helper")

    @property
    def _variables(self) -> Mapping[str, str]:
        return os.environ if self._environ is None else self._environ


def check_host(host: str) -> str:
    """Return a host in the form rules are found by (small letters, no :443); raise :class:`InvalidInput`."""
    name = host.lower().removesuffix(":443") if isinstance(host, str) else ""
    if name != ANY_HOST and not _is_host(name):
        raise InvalidInput(f"git host {host!r:.80}: a name such as github.com or git.example.com:8443 is needed")
    return name


def host_of(url: str) -> str | None:
    """Return the host of an https URL as rules name it; None for any other URL."""
    try:
        parts = urlsplit(url)
        return check_host(parts.netloc.rpartition("@")[2]) if parts.scheme == "https" else None
    except ValueError:
        return None


# ── handing it to git ────────────────────────────────────────────────────────────────────────────────────────────────


_USERNAME: Final = "KINGDOM_GIT_USERNAME"
_PASSWORD: Final = "KINGDOM_GIT_PASSWORD"  # noqa: S105 - the name of a variable
# git appends the action: get, store or erase. printf is built into the shell, so that no process has these arguments.
_HELPER: Final = (
    f'!f() {{ test "$1" = get || exit 0; printf "username=%s\\npassword=%s\\n" "${_USERNAME}" "${_PASSWORD}"; }}; f'
)


def credential_environment(host: str | None, credential: Credential | None) -> dict[str, str]:
    """Return the variables that give a credential to git for one host, and reset every other credential helper."""
    settings = [("credential.helper", "")]
    secret = {}
    if host is not None and credential is not None:
        settings.append((f"credential.https://{host}.helper", _HELPER))
        secret = {_USERNAME: credential.username, _PASSWORD: credential.password}
    numbered = {
        name: value
        for number, (key, setting) in enumerate(settings)
        for name, value in ((f"GIT_CONFIG_KEY_{number}", key), (f"GIT_CONFIG_VALUE_{number}", setting))
    }
    return {"GIT_CONFIG_COUNT": str(len(settings)), **numbered, **secret}


def hide_credential(text: str, credential: Credential | None) -> str:
    """Return a text without the password, in case a server repeats it."""
    return text.replace(credential.password, "***") if credential is not None else text


# ── programs that are asked ──────────────────────────────────────────────────────────────────────────────────────────


def _problem(token: str) -> str:
    """Return what is wrong with a token, without showing it; empty if nothing is."""
    return "holds more than one line, or control characters" if _bad_in_value(token) else ""


def _helper_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment, with their git configuration, in which git asks and traces nothing."""
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith("GIT_") or name.startswith(("GIT_CONFIG", "GIT_EXEC_PATH", "GIT_SSL"))
    }
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "false", "SSH_ASKPASS": "false", "GCM_INTERACTIVE": "0"}


async def _output(argv: list[str], environment: Mapping[str, str], stdin: str = "") -> str:
    """Return what a program of the user prints; empty if it fails or does not end. Its errors may hold secrets."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=dict(environment), cwd="/", start_new_session=True
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(_PROGRAM_SECONDS):
            out, _ = await process.communicate(stdin.encode())
    except TimeoutError:
        return ""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return out.decode("utf-8", "replace") if process.returncode == 0 else ""
