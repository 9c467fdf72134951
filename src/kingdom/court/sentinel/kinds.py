"""Every type of event the sentinel makes, as data: what generals can subscribe to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kingdom.court.models import Priority


class Kind(NamedTuple):
    """One type of event."""

    type: str
    meaning: str
    priority: Priority = "normal"


KINDS: Final = (
    Kind("github.pr.opened", "a pull request was opened, without asking this account for anything"),
    Kind("github.pr.updated", "new commits: its head is another one than before"),
    Kind("github.pr.review_requested", "this account, or a team of it, was asked for a review", "high"),
    Kind("github.pr.assigned", "the pull request was assigned to this account"),
    Kind("github.pr.mentioned", "this account was mentioned in the description, a comment or a review", "high"),
    Kind("github.pr.commented", "a comment, or a review that neither approves nor asks for changes"),
    Kind("github.pr.reviewed", "a review that approves or asks for changes"),
    Kind("github.pr.labeled", "a label was added"),
    Kind("github.pr.ready_for_review", "a draft became ready"),
    Kind("github.pr.closed", "closed without being merged"),
    Kind("github.pr.merged", "merged"),
    Kind("github.pr.reopened", "opened again"),
    Kind("github.issue.opened", "an issue was opened, without asking this account for anything"),
    Kind("github.issue.assigned", "the issue was assigned to this account"),
    Kind("github.issue.mentioned", "this account was mentioned in the description or a comment", "high"),
    Kind("github.issue.commented", "a comment"),
    Kind("github.issue.labeled", "a label was added"),
    Kind("github.issue.closed", "closed"),
    Kind("github.issue.reopened", "opened again"),
    Kind("github.notification.*", "any other subject, by its type: release, discussion, check_suite, commit …", "low"),
    Kind("jira.ticket.created", "a ticket was made, and not for this account"),
    Kind("jira.ticket.assigned", "the ticket was assigned to this account"),
    Kind("jira.ticket.updated", "fields of it were changed; the payload says which, from what to what"),
    Kind("jira.ticket.commented", "a comment"),
    Kind("jira.ticket.mentioned", "this account was mentioned in a comment", "high"),
)
_BY_TYPE: Final = {kind.type: kind for kind in KINDS}


def priority_of(event_type: str) -> Priority:
    """How urgent events of a type are, unless a subscription says otherwise."""
    kind = _BY_TYPE.get(event_type) or _BY_TYPE.get(event_type.rpartition(".")[0] + ".*")
    return kind.priority if kind else "normal"
