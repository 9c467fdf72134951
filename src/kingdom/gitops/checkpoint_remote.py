"""A remote that other machines fetch checkpoints from: each is pushed there before it counts.

The refs have the same names as in the clone, ``refs/kingdom/checkpoints/…``: no branch, nothing that a person who
clones the repository gets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kingdom.gitops.errors import InvalidInput
from kingdom.gitops.names import RepositoryUrl, check_url, checkpoint_ref, checkpoints_of
from kingdom.gitops.runner import GitLocation

if TYPE_CHECKING:
    from kingdom.gitops.repository import Clone

ORIGIN: Final = "origin"
_NAME: Final = "{name}"
_NETWORK_SECONDS: Final = 600.0
_FETCH: Final = ("fetch", "--quiet", "--no-write-fetch-head", "--no-auto-maintenance", "--no-tags", "--force")


@dataclass(frozen=True)
class CheckpointRemote:
    """``address`` is ``origin``, or a URL in which ``{name}`` stands for the name of a repository's clone."""

    address: str = ORIGIN
    allow_local: bool = True

    def __post_init__(self) -> None:
        if self.address == ORIGIN:
            return
        if _NAME not in self.address:
            raise InvalidInput(
                f"the remote of checkpoints {self.address!r} is neither {ORIGIN} nor a URL with {_NAME} in it, "
                f"such as ssh://git@host/checkpoints/{_NAME}.git"
            )
        check_url(self.address.replace(_NAME, "name"), allow_local=self.allow_local)

    async def push(self, clone: Clone, workflow: str, checkpoint: str, commit: str) -> None:
        """Push a checkpoint. May be repeated. Raises :class:`~kingdom.gitops.errors.RemoteFailed`."""
        ref = checkpoint_ref(workflow, checkpoint)
        await self._run(clone, ("push", "--quiet", "--no-verify"), f"+{commit}:{ref}")

    async def fetch(self, clone: Clone, workflow: str) -> None:
        """Fetch all checkpoints of a workflow. Raises :class:`~kingdom.gitops.errors.RemoteFailed`."""
        refs = f"{checkpoints_of(workflow)}*"
        await clone.retry_past_locks(lambda: self._run(clone, _FETCH, f"+{refs}:{refs}"))

    async def forget(self, clone: Clone, workflow: str) -> None:
        """Delete all checkpoints of a workflow. May be repeated."""
        listed = await self._run(clone, ("ls-remote",), f"{checkpoints_of(workflow)}*")
        if refs := re.findall(r"^[0-9a-f]+\t(\S+)$", listed, re.MULTILINE):
            await self._run(clone, ("push", "--quiet", "--no-verify"), *(f":{ref}" for ref in refs))

    async def _run(self, clone: Clone, words: tuple[str, ...], *refs: str) -> str:
        url = self._url(clone)
        place = GitLocation(clone.control, remote=url)
        return (await clone.git.run_remote(place, *words, "--", url.text, *refs, limit=_NETWORK_SECONDS)).text

    def _url(self, clone: Clone) -> RepositoryUrl:
        if self.address == ORIGIN:
            return clone.url
        return check_url(self.address.replace(_NAME, clone.url.key), allow_local=self.allow_local)
