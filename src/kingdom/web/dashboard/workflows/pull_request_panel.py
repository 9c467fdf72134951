"""The pull requests of a landed workflow on its page. They are read from GitHub, so the page does not wait for them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from kingdom.web.dashboard.components import button, card, tag, text, web_element
from kingdom.web.dashboard.formats import format_datetime
from kingdom.web.dashboard.refresh import PageRefresher
from kingdom.web.dashboard.workflows.widgets import status_tone
from kingdom.web.views.pull_requests import list_pull_requests

if TYPE_CHECKING:
    from datetime import tzinfo

    from kingdom.web.dashboard.visit import Visit
    from kingdom.web.views.pull_requests import CommentInfo, PullRequestInfo

_REFRESH_SECONDS: Final = 120.0
_STATUS: Final = {"open": "RUNNING", "merged": "COMPLETED", "closed": "CANCELLED"}  # for the colour
_CHECK_STATUS: Final = {"passed": "COMPLETED", "failed": "FAILED", "running": "RUNNING"}


async def draw_pull_requests(visit: Visit, workflow_id: str, zone: tzinfo) -> None:
    """Draw a card that shows the pull requests of a workflow once they are read, and again every two minutes."""
    words = visit.words
    refresher = PageRefresher(
        visit,
        lambda event: event.workflow_id == workflow_id and event.type == "WorkflowLanded",
        every=_REFRESH_SECONDS,
    )
    with card(words("pull.title"), "k-pulls") as (body, side), side:
        button(words("pull.refresh"), refresher.wake)

    def draw(found: list[PullRequestInfo]) -> None:
        for pull in found:
            with tag("div", "k-stack", data_pull=f"{pull.name}#{pull.number}"):
                _draw(visit, pull, zone)

    await refresher.panel(body, partial(list_pull_requests, visit.context, workflow_id), draw)


def _draw(visit: Visit, pull: PullRequestInfo, zone: tzinfo) -> None:
    words = visit.words
    with tag("div", "k-row k-wrapping"):
        with web_element(pull.url):
            text(f"{pull.name}#{pull.number}", "k-strong")
        if pull.state is not None:
            _badge(words(f"pull.state.{pull.state}"), _STATUS[pull.state])
    if pull.error is not None:
        text(pull.error, "k-reason k-wrap", name="div")
        return
    text(words("pull.checks"), "k-strong k-small", name="h3")
    if not pull.checks:
        text(words("pull.checks.none"), "k-muted k-small", name="div")
    with tag("ul", "k-plain-list"):
        for check in pull.checks:
            with tag("li", "k-row"):
                _badge(words(f"pull.check.{check.state}"), _CHECK_STATUS[check.state])
                with web_element(check.url or ""):
                    text(check.name, "k-wrap")
    text(words("pull.comments"), "k-strong k-small", name="h3")
    if not pull.comments:
        text(words("pull.comments.none"), "k-muted k-small", name="div")
    with tag("ul", "k-plain-list k-stack"):
        for comment in pull.comments:
            _draw_comment(visit, comment, zone)


def _badge(shown: str, status: str) -> None:
    text(shown, f"k-badge k-tone-{status_tone(status)}")


def _draw_comment(visit: Visit, comment: CommentInfo, zone: tzinfo) -> None:
    with tag("li", "k-stack k-tight"):
        with tag("div", "k-row k-wrapping k-small"):
            with web_element(comment.url or ""):
                text(comment.author, "k-strong")
            if comment.verdict is not None:
                text(visit.words(f"pull.verdict.{comment.verdict}"), "k-muted")
            if comment.at is not None:
                text(format_datetime(comment.at, zone), "k-muted")
            if comment.path is not None:
                text(
                    comment.path if comment.line is None else f"{comment.path}:{comment.line}", "k-mono k-muted k-wrap"
                )
        if comment.body:
            text(comment.body, "k-wrap k-comment", name="div")
