"""Failed checks of the court's own open pull requests. No list and no notification shows them, so they are asked for.

A check has the same id here as in a webhook: however it is heard, it is one event.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kingdom.court.sentinel.events import clean_text, parse_epoch
from kingdom.court.sentinel.github_api import SubjectRef, int_at, is_repo_name, text_at
from kingdom.court.sentinel.github_events import GitHubAction
from kingdom.court.sentinel.watcher import CircuitOpen, SourceError, SourceUnauthorized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kingdom.court.sentinel.config import GitHubSection
    from kingdom.court.sentinel.github_events import GitHubAccount
    from kingdom.court.sentinel.http import Params, SourceClient

_FAILED_CONCLUSIONS: Final = ("failure", "timed_out")
_INTERVAL_SECONDS: Final = 300.0  # two requests for each pull request: more often would use up the quota
_MAX_PULLS: Final = 30  # the most recently updated ones
_PAGE_SIZE: Final = 100
log = logging.getLogger("kingdom.court.sentinel")


class CheckedPull(NamedTuple):
    """A pull request and one of its checks, which failed."""

    ref: SubjectRef
    subject: dict[str, Any]
    action: GitHubAction


def failed_check(
    run: dict[str, Any], ref: SubjectRef, pull: dict[str, Any], site: str, actor: str
) -> CheckedPull | None:
    """Return the failure of a check run, or None if it has not failed."""
    if run.get("conclusion") not in _FAILED_CONCLUSIONS:
        return None
    check = {
        "name": clean_text(run.get("name"), 200),
        "conclusion": run["conclusion"],
        "url": run.get("html_url"),
        "title": clean_text(text_at(run, "output", "title"), 1000),
        "summary": clean_text(text_at(run, "output", "summary")),
    }
    subject = {**pull, "title": f"{check['name']} failed", "html_url": f"{site}/pull/{ref.number}"}
    at, app = parse_epoch(run.get("completed_at")), text_at(run, "app", "slug")
    return CheckedPull(
        ref, subject, GitHubAction("check_failed", f"check_failed-{run.get('id')}", app or actor, at, {"check": check})
    )


class OwnPullChecks:
    """Reads the failed checks of the pull requests that the court's accounts have open, every few minutes."""

    def __init__(self, client: SourceClient, section: GitHubSection, clock: Callable[[], float]) -> None:
        self._client = client
        self._section = section
        self._clock = clock
        self._next = 0.0
        self._failing = False

    async def read(self, account: GitHubAccount, since: float) -> list[CheckedPull]:
        """Return the checks that have failed since this time, if they are due."""
        now = self._clock()
        if not self._section.checks or self._next - _INTERVAL_SECONDS <= now < self._next:
            return []
        self._next = now + _INTERVAL_SECONDS
        try:
            found = [check for name in sorted(account.own) for check in await self._of_author(name)]
        except (CircuitOpen, SourceUnauthorized):
            raise
        except (SourceError, AttributeError, TypeError, ValueError) as error:
            if not self._failing:
                log.warning("github: checks of own pull requests cannot be read now: %s", error)
            self._failing = True
            return []
        self._failing = False
        return [check for check in found if check.action.at >= since]

    async def _of_author(self, name: str) -> list[CheckedPull]:
        query: Params = {"q": f"is:pr is:open author:{name}", "sort": "updated", "per_page": _MAX_PULLS}
        listed = (await self._client.get("/search/issues", query)).body
        found: list[CheckedPull] = []
        for repo, number in _own_pulls(listed.get("items") or []):
            if self._section.watches(repo):
                found += await self._of_pull(repo, number)
        return found

    async def _of_pull(self, repo: str, number: int) -> list[CheckedPull]:
        pull = (await self._client.get(f"/repos/{repo}/pulls/{number}")).body
        sha, repo_id = text_at(pull, "head", "sha"), int_at(pull, "base", "repo", "id")
        if sha is None or repo_id is None:
            return []
        answer = await self._client.get(f"/repos/{repo}/commits/{sha}/check-runs", {"per_page": _PAGE_SIZE})
        site = str(pull.get("html_url") or "").removesuffix(f"/pull/{number}")
        ref = SubjectRef(repo, number, True, repo_id)
        runs = [run for run in answer.body.get("check_runs") or [] if isinstance(run, dict)]
        return [check for run in runs if (check := failed_check(run, ref, pull, site, "github")) is not None]


def _own_pulls(items: Iterable[Any]) -> Iterator[tuple[str, int]]:
    for item in items:
        repo = "/".join(str(text_at(item, "repository_url")).split("/")[-2:])
        number = int_at(item, "number")
        if is_repo_name(repo) and number is not None:
            yield repo, number
