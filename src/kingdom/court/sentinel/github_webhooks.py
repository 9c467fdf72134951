"""Webhooks of GitHub: what to read again, or what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kingdom.court.sentinel.events import clean_text, parse_epoch
from kingdom.court.sentinel.github_api import SubjectRef, int_at, is_repo_name, login_of, text_at
from kingdom.court.sentinel.github_checks import failed_check
from kingdom.court.sentinel.github_events import (
    GitHubAccount,
    GitHubAction,
    comment_action,
    line_comment_action,
    make_action_event,
    review_action,
)
from kingdom.court.sentinel.webhook_requests import (
    ParsedWebhook,
    WebhookRefused,
    check_signature,
    delivery_id,
    lower_keys,
    parse_body,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kingdom.court.models import Event

_UNFILTERED_ACTIONS: Final = {"reopened", "ready_for_review", "labeled"}


def parse_github_webhook(
    headers: Mapping[str, str], body: bytes, *, secret: str, account: GitHubAccount
) -> ParsedWebhook:
    """Parse a webhook of GitHub. Raises :class:`WebhookRefused` if its signature is wrong or it makes no sense."""
    named = lower_keys(headers)
    check_signature(named.get("x-hub-signature-256"), body, secret)
    delivery = delivery_id(named.get("x-github-delivery"), body)
    payload, kind = parse_body(body), named.get("x-github-event", "")
    repo, repo_id = text_at(payload, "repository", "full_name"), int_at(payload, "repository", "id")
    if kind == "check_run" and is_repo_name(repo) and repo_id is not None:
        return ParsedWebhook(delivery, unpolled=list(_failed_checks(payload, repo, repo_id)))
    subject = payload.get("pull_request") or payload.get("issue")
    number = int_at(subject, "number")
    if not is_repo_name(repo) or repo_id is None or not isinstance(subject, dict) or number is None:
        return ParsedWebhook(delivery)
    is_pr = "pull_request" in payload or "pull_request" in subject
    ref = SubjectRef(repo, number, is_pr, repo_id)
    actions = [action for action in _actions(kind, payload, subject, account) if not account.made(action)]
    hint = {"repo": repo, "repo_id": repo_id, "number": number, "is_pr": is_pr}
    return ParsedWebhook(delivery, hint, [make_action_event(ref, subject, action) for action in actions])


def _failed_checks(payload: dict[str, Any], repo: str, repo_id: int) -> Iterator[Event]:
    """Yield an event for each pull request whose check has failed."""
    run = _object(payload, "check_run")
    if payload.get("action") != "completed":
        return
    site = text_at(payload, "repository", "html_url") or f"https://github.com/{repo}"
    for pull in _list(run, "pull_requests"):
        if (number := int_at(pull, "number")) is not None:
            ref = SubjectRef(repo, number, True, repo_id)
            if (failed := failed_check(run, ref, pull, site, login_of(payload, "sender"))) is not None:
                yield make_action_event(*failed)


def _actions(
    kind: str, payload: dict[str, Any], subject: dict[str, Any], account: GitHubAccount
) -> Iterator[GitHubAction]:
    """Yield the actions of a webhook.

    Comments and reviews get the same ids as when they are polled. Other actions have no id in a webhook: theirs is made
    of what was done and the time of the update, which are the same when the webhook is delivered again.
    """
    what = str(payload.get("action") or "")
    if kind == "issue_comment" and what == "created":
        yield comment_action(_object(payload, "comment"), account)
    elif kind == "pull_request_review_comment" and what == "created":
        yield line_comment_action(_object(payload, "comment"), account)
    elif kind == "pull_request_review" and what == "submitted":
        review = review_action(_object(payload, "review"), (), account)
        # The comments on lines have webhooks of their own. A review that consists of them alone says nothing more.
        if review is not None and (review.what != "commented" or review.details["comment"]["body"]):
            yield review
    elif kind in ("pull_request", "issues"):
        action = _lifecycle_action(what, payload, subject, account)
        if action is not None:
            yield action


def _lifecycle_action(
    what: str, payload: dict[str, Any], subject: dict[str, Any], account: GitHubAccount
) -> GitHubAction | None:
    def action(name: str, about: object = None, **details: Any) -> GitHubAction:
        parts = [name, *([str(about)] if about is not None else []), str(at)]
        return GitHubAction(name, "-".join(parts), login_of(payload, "sender"), parse_epoch(at), details)

    at = subject.get("updated_at")
    reviewer, assignee = text_at(payload, "requested_reviewer", "login"), text_at(payload, "assignee", "login")
    if what in ("review_requested", "review_request_removed"):
        team = payload.get("requested_team")
        wanted = account.is_team(team) if isinstance(team, dict) else account.is_me(reviewer)
        asked = reviewer or text_at(team, "slug")
        return action(what, asked, reviewer=asked) if wanted else None
    if what in ("assigned", "unassigned"):
        return action(what, assignee, assignee=assignee) if account.is_me(assignee) else None
    if what == "opened":
        return _opening_action(payload, subject, account)
    if what == "synchronize":  # with the time: a head may return to an earlier commit
        return action("updated", (text_at(subject, "head", "sha") or "")[:16], previous_sha=payload.get("before"))
    if what == "closed":
        return action("merged" if subject.get("merged") else "closed")
    if what == "labeled":
        label = text_at(payload, "label", "name")
        return action("labeled", int_at(payload, "label", "id") or label, label=label)
    return action(what) if what in _UNFILTERED_ACTIONS else None


def _opening_action(payload: dict[str, Any], subject: dict[str, Any], account: GitHubAccount) -> GitHubAction | None:
    """Return the opening, unless it came with a request to us, which has a webhook of its own."""
    asked = [*_list(subject, "requested_reviewers"), *_list(subject, "assignees")]
    mine = account.login is not None and any(account.is_me(text_at(user, "login")) for user in asked)
    if mine and not account.for_anyone:
        return None
    name = "mentioned" if account.mentioned_in(clean_text(subject.get("body"))) else "opened"
    return GitHubAction(name, "opened", login_of(payload, "sender"), parse_epoch(subject.get("updated_at")))


def _object(payload: dict[str, Any], name: str) -> dict[str, Any]:
    found = payload.get(name)
    if not isinstance(found, dict):
        raise WebhookRefused(f"{name} must be a JSON object: this is not a webhook of GitHub", 400)
    return found


def _list(document: dict[str, Any], name: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else []
