"""The operator's settings of git: who commits, and which tokens open which hosts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kingdom.gitops.checkpoint_remote import CheckpointRemote
from kingdom.gitops.commits import CommitAuthor
from kingdom.gitops.credentials import ANY_HOST, CredentialRule, Credentials
from kingdom.gitops.remotes import RemoteAccess
from kingdom.gitops.runner import GitRunner

DEFAULT_MAX_FILE_MB: Final = 50


@dataclass(frozen=True)
class GitSettings:
    """See the section ``git`` of the configuration."""

    author: CommitAuthor | None = None
    """Who commits; None if nobody is named."""
    co_authors: tuple[CommitAuthor, ...] = ()
    credentials: Credentials = field(default_factory=Credentials)
    max_file_mb: int = DEFAULT_MAX_FILE_MB
    """The largest file that a checkpoint may add or change."""
    checkpoint_remote: CheckpointRemote | None = None
    """Where checkpoints are pushed to, for other machines; None: nowhere."""

    @classmethod
    def read(cls, section: Mapping[str, Any]) -> GitSettings:
        """Read the section; raise :class:`~kingdom.gitops.errors.InvalidInput`."""
        author, remote = section.get("author"), section.get("checkpoint_remote")
        return cls(
            None if author is None else CommitAuthor.parse(author),
            tuple(CommitAuthor.parse(text) for text in section.get("co_authors") or ()),
            Credentials(read_rules(section.get("credentials") or {})),
            section.get("max_file_mb", DEFAULT_MAX_FILE_MB),
            None if remote is None else CheckpointRemote(remote),
        )

    @property
    def identity(self) -> CommitAuthor:
        """The author and committer of our own commits, with the co-authors their messages name."""
        author = self.author or CommitAuthor()
        return CommitAuthor(author.name, author.email, self.co_authors)

    @property
    def agents_identity(self) -> dict[str, str] | None:
        """The git settings under which agents commit; None if nobody is named."""
        return None if self.author is None else {"user.name": self.author.name, "user.email": self.author.email}

    def runner(self) -> GitRunner:
        """Return a git that reaches remotes with these credentials."""
        return GitRunner(access=RemoteAccess(self.credentials))


def read_rules(section: str | Mapping[str, Any]) -> dict[str, CredentialRule]:
    """Read the rules of credentials: one word for all hosts, or a word or a variable for each."""
    by_host = {ANY_HOST: section} if isinstance(section, str) else section
    return {host: _read_rule(rule) for host, rule in by_host.items()}


def _read_rule(rule: str | Mapping[str, Any]) -> CredentialRule:
    if isinstance(rule, str):
        return CredentialRule(rule)  # type: ignore[arg-type]
    return CredentialRule("env", rule["env"], rule.get("username"))
