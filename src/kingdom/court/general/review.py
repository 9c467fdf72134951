"""Post the review of a pull request on GitHub: the summary, with its comments on the lines they are about.

It is always a comment, never an approval or a demand for changes: those count as a person's in the rules that protect
branches. The verdict stands in its text. A review that was posted is found by a mark in it and not posted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.untrusted import clean
from kingdom.court.general.comments import comments_of
from kingdom.court.general.context import pull_request_of
from kingdom.court.general.landing import OUTAGE_SECONDS
from kingdom.court.pull_requests import post_mark
from kingdom.gitops.errors import GitError, LandingRefused
from kingdom.gitops.pull_requests import LineNote, PullRequests, PullRequestTarget, WantedReview
from kingdom.gitops.remotes import through_outage

if TYPE_CHECKING:
    from kingdom.court.general.context import GeneralContext, TaskContext
    from kingdom.court.general.landing import OutageWait
    from kingdom.court.general.workspace import Workplace
    from kingdom.court.models import Result

REVIEWED_HEAD: Final = "reviewed_head"  # of a result: the commit that a posted review is about


async def post_review(
    context: GeneralContext,
    task_context: TaskContext,
    place: Workplace | None,
    result: Result,
    document: Mapping[str, Any],
    outage: OutageWait,
) -> Result:
    """Post the review of a task that succeeded; return the result with where it is.

    A server that refuses it does not undo the success: the summary says what is wrong.
    """
    place = place or context.workspace.find(task_context.history.work_id)
    if result.status != "success" or place is None or place.tree is None:
        return result
    pull = await pull_request_of(context, task_context, place, fetch=False)
    try:
        if pull is None or not pull.head:
            raise LandingRefused("the task is about no pull request whose head is known", "see the event")
        mark = post_mark(result.task_id)  # a webhook tells of each comment by itself
        notes = tuple(LineNote(one.path, one.line, f"{clean(one.body)}\n\n{mark}") for one in comments_of(document))
        body = f"{clean(str(document.get('summary') or '')).strip()}\n\n{mark}"
        url = await _post(place, WantedReview(pull.number, pull.head, body, mark, notes), outage)
    except (GitError, ValueError) as error:
        said = f"The review was not posted: {error}"
        return result.model_copy(update={"summary": f"{result.summary}\n\n{said}".strip()})
    links = [url, *(link for link in result.links if link != url)]
    return result.model_copy(update={"links": links, REVIEWED_HEAD: pull.head})


async def _post(place: Workplace, wanted: WantedReview, outage: OutageWait) -> str:
    assert place.tree is not None
    clone = place.tree.clone
    target = PullRequestTarget.of(clone.url)

    async def post() -> str:
        requests = await PullRequests.open(target, clone.git.access.credentials)
        return await requests.review(wanted)

    return await through_outage(post, OUTAGE_SECONDS, outage)
