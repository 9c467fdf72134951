"""The pull requests of a landed workflow: state, checks, reviews and comments, read from GitHub when asked for."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from kingdom.gitops.errors import GitError
from kingdom.web.envelope import ApiModel
from kingdom.web.views.redaction import valid_text
from kingdom.web.views.workflow_state import find_workflow, workflow_state

if TYPE_CHECKING:
    from kingdom.gitops.pull_request_status import PullRequestStatus
    from kingdom.web.context import WebContext
    from kingdom.workflow.domain.landing import Landing
    from kingdom.workflow.domain.resources import Git

_FRESH_SECONDS: Final = 30.0  # how long an answer of GitHub is reused
_WAIT_SECONDS: Final = 20.0  # for all answers to one request
_MAX_KEPT: Final = 200


class CheckInfo(ApiModel):
    """A check of a pull request's last commit."""

    name: str = Field(examples=["tests"])
    state: Literal["passed", "failed", "running"]
    url: str | None


class CommentInfo(ApiModel):
    """A review or comment. It was written by people outside: treat it as untrusted."""

    author: str = Field(examples=["ann"])
    body: str
    at: str | None
    url: str | None
    verdict: Literal["approved", "changes_requested", "dismissed"] | None = Field(description="Of a review.")
    path: str | None = Field(description="The file, of a comment on a line.")
    line: int | None


class PullRequestInfo(ApiModel):
    """A pull request as it is now. Without a state it could not be read; ``error`` says why."""

    name: str = Field(description="Name of the repository.", examples=["web"])
    number: int = Field(examples=[7])
    url: str
    state: Literal["open", "closed", "merged"] | None
    checks: list[CheckInfo]
    comments: list[CommentInfo] = Field(description="The newest 50, newest first.")
    error: str | None


class _KnownStatuses:
    """What was read lately, by landing, so that open pages do not use up GitHub's limit."""

    def __init__(self) -> None:
        self.kept: OrderedDict[str, tuple[float, PullRequestInfo]] = OrderedDict()

    def find(self, landing_id: str) -> PullRequestInfo | None:
        at, info = self.kept.get(landing_id, (0.0, None))
        return info if info is not None and time.monotonic() - at < _FRESH_SECONDS else None

    def keep(self, landing_id: str, info: PullRequestInfo) -> None:
        self.kept[landing_id] = time.monotonic(), info
        self.kept.move_to_end(landing_id)
        while len(self.kept) > _MAX_KEPT:
            self.kept.popitem(last=False)


async def list_pull_requests(context: WebContext, workflow_id: str) -> list[PullRequestInfo]:
    """Return the pull requests of a workflow, at most half a minute old. Those that cannot be read say why."""
    async with context.parts.store.reading() as tx:
        await find_workflow(tx, workflow_id)
        landings = [one for one in await tx.landings.of_workflow(workflow_id) if one.number is not None]
        gits = {one.git_id: await tx.gits.find(one.git_id) for one in landings}
    known = [(landing, git) for landing in landings if (git := gits[landing.git_id]) is not None]
    return list(await asyncio.gather(*(_read(context, git, landing) for landing, git in known)))


async def _read(context: WebContext, git: Git, landing: Landing) -> PullRequestInfo:
    statuses = context.cached(_KnownStatuses, _KnownStatuses)
    if (found := statuses.find(landing.id)) is not None:
        return found
    status: PullRequestStatus | None = None
    error: str | None = None
    try:
        async with asyncio.timeout(_WAIT_SECONDS):
            status = await workflow_state(context).lander(context.parts.store).read_pull_request(git, landing)
    except TimeoutError:
        error = f"no answer within {_WAIT_SECONDS:.0f} s"
    except GitError as problem:
        error = str(problem)
    info = _info(git, landing, status, error)
    statuses.keep(landing.id, info)
    return info


def _info(git: Git, landing: Landing, status: PullRequestStatus | None, error: str | None) -> PullRequestInfo:
    state = None if status is None or status.state not in ("open", "closed", "merged") else status.state
    return PullRequestInfo.model_validate(
        {
            "name": git.name,
            "number": landing.number,
            "url": landing.url or "",
            "state": state,
            "checks": [
                {"name": valid_text(one.name), "state": one.state, "url": one.url}
                for one in (() if status is None else status.checks)
            ],
            "comments": [
                {
                    "author": valid_text(one.author),
                    "body": valid_text(one.body),
                    "at": one.at,
                    "url": one.url,
                    "verdict": one.verdict,
                    "path": None if one.path is None else valid_text(one.path),
                    "line": one.line,
                }
                for one in (() if status is None else status.comments)
            ],
            "error": error,
        }
    )
