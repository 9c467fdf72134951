"""Reply to the issue, pull request or ticket that a task is about: what it asks, why it failed, or was skipped.

Those who asked for the work may see nothing else of the court. A reaction to what they wrote, or on a ticket a comment,
shows that it has begun. A reply is an addition: one that cannot be posted changes nothing. What was done is seen on
GitHub already, in the pull request or in the answer to a review (:mod:`.landing`); a ticket, and an issue whose pull
request was there before, get the link.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from kingdom.agents.untrusted import clean, cut_middle
from kingdom.court.errors import CourtError
from kingdom.court.general.context import number_of
from kingdom.court.general.posting import KEPT_QUESTION_SECONDS, KEPT_SECONDS, REPLY, STOPPED, Reply
from kingdom.court.general.workspace import repository_url
from kingdom.court.models import RESUME_TYPE, is_ticket_key
from kingdom.court.patterns import type_matches
from kingdom.court.pull_requests import (
    GITHUB_EVENTS,
    TICKET_EVENTS,
    OpenedPullRequests,
    answered_mark,
    is_about_work,
    post_mark,
    stopped_mark,
)
from kingdom.court.questions import asked_at
from kingdom.gitops import GitError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kingdom.court.general.context import GeneralContext, TaskContext
    from kingdom.court.home import Home
    from kingdom.court.models import Question, Result
    from kingdom.court.packages.manifest import Manifest

_MAX_CHARS: Final = 10_000
_BEGUN: Final = "eyes"
_REQUESTS: Final = ("assigned", "labeled", "mentioned", "opened", "review_requested")  # of what has no comment
_ASKED: Final = (".assigned", ".mentioned", ".review_requested")
_HEARD_SOURCES: Final = ("github", "jira")
_TIMEOUT_SECONDS: Final = 30.0
_TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "begun": "I have begun. ({task})",
        "question": "I have a question before I go on: {text}",
        "choices": "Choices: {choices}.",
        "comment": "Answer in a comment.",
        "mention": "Answer in a comment that mentions this account.",
        "elsewhere": "Answer it in the court: `kingdom answer {task} …`",
        "answered": "The question was answered elsewhere. I go on.",
        "default": "Nobody answered the question in time. I go on with: {text}",
        "failed": "I could not do this: {text}",
        "ended": "I could not do this. What happened is in the court: `kingdom task show {task}`",
        "skipped": "I changed nothing: {text}",
        "not_reviewed": "I did not review this: {text}",
        "stopped": "I stopped working on this: it was cancelled.",
        "stopped_because": "I stopped working on this: it was cancelled. {text}",
        "no_answer": "My question needs no answer any more.",
    },
    "ko": {
        "begun": "시작했습니다. ({task})",
        "question": "계속하기 전에 질문이 있습니다: {text}",
        "choices": "선택지: {choices}.",
        "comment": "댓글로 답해 주세요.",
        "mention": "이 계정을 멘션하는 댓글로 답해 주세요.",
        "elsewhere": "궁정에서 답해 주세요: `kingdom answer {task} …`",
        "answered": "질문은 다른 곳에서 답을 받았습니다. 계속합니다.",
        "default": "시간 안에 답이 없었습니다. 다음 답으로 계속합니다: {text}",
        "failed": "처리하지 못했습니다: {text}",
        "ended": "처리하지 못했습니다. 무슨 일이 있었는지는 궁정에서 볼 수 있습니다: `kingdom task show {task}`",
        "skipped": "아무것도 바꾸지 않았습니다: {text}",
        "not_reviewed": "리뷰하지 않았습니다: {text}",
        "stopped": "작업이 취소되어 중단했습니다.",
        "stopped_because": "작업이 취소되어 중단했습니다. {text}",
        "no_answer": "질문에는 더 이상 답하지 않으셔도 됩니다.",
    },
}
log = logging.getLogger("kingdom.court")


async def post_reply(
    context: GeneralContext, task_context: TaskContext, result: Result, document: Mapping[str, Any]
) -> Result:
    """Post a reply, if the result needs one; return the result with the time at which its question was asked there.

    ``document`` is what the soldier reported. What cannot be posted now because its service is away is posted later.
    """
    text = reply_text(context.home, context.manifest, context.system.locale, task_context, result, document)
    now, name = context.clock(), context.name
    reply = None if text is None else reply_to(name, context.base_url, task_context, result, text, now)
    if reply is None or not _replies(context.manifest):
        return result
    posted = await context.replies.post(reply)
    if posted is None or not reply.asks:
        return result
    return result.model_copy(update={"asked_at": posted})


def reply_to(
    general: str, base_url: str, task_context: TaskContext, result: Result, text: str, now: float
) -> Reply | None:
    """Return the reply to a result, if there is something on which to comment."""
    asks = result.status == "needs_human"
    until = now + (KEPT_QUESTION_SECONDS if asks else KEPT_SECONDS)
    mark, signature = post_mark(result.task_id), f"{result.task_id}, {general}"
    return _addressed(
        base_url, task_context, REPLY, (text, mark, f"{text}\n\n{signature}", signature), until, asks=asks
    )


def stopped_reply(context: GeneralContext, task_context: TaskContext, asked: bool, note: str) -> Reply | None:
    """Return the reply to the requester of a cancelled task; None if the requester saw no sign that it began.

    ``asked``: the task waited for an answer. ``note``: the reason of the cancellation; may be empty.
    """
    task, words = task_context.task, _TEXTS[context.system.locale]
    begun = task.type == RESUME_TYPE or context.home.soldier_id(task.id).exists()
    said = _reaction_path(task_context) or _ticket_of(task_context) or "comment" in task.payload
    asked = asked and asked_at(context.home, task.id) is not None
    if not (asked or (begun and said)) or not _replies(context.manifest):
        return None
    if _is_unasked_review(context.manifest, task_context):
        return None
    text = words["stopped_because"].format(text=_cut(note)) if note else words["stopped"]
    text = "\n\n".join([text, *([words["no_answer"]] if asked else [])])
    signature = f"({task.id}, {STOPPED})"
    ways = text, stopped_mark(task.id), f"{text}\n\n{signature}", signature
    return _addressed(context.base_url, task_context, STOPPED, ways, context.clock() + KEPT_SECONDS)


def start_showing(context: GeneralContext, task_context: TaskContext) -> asyncio.Task[None]:
    """Start to show that a task has begun. Its replies come after that."""
    started = context.start_aside(_show_begun(context, task_context))
    context.replies.begin_with(task_context.task.id, started)
    return started


async def _show_begun(context: GeneralContext, task_context: TaskContext) -> None:
    """React on GitHub to what asked for a task, or comment on its ticket: Jira has no reactions.

    A task that goes on with an answer says so where the question was posted, unless the answer came from there.
    """
    task = task_context.task
    if not _replies(context.manifest):
        return
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            if task.type == RESUME_TYPE:
                await _show_answered(context, task_context)
            elif (path := _reaction_path(task_context)) is not None:
                requests = await context.workspace.pull_requests(repository_url(task_context.repo, context.base_url))
                await requests.react(path, _BEGUN)
            elif (ticket := _ticket_of(task_context)) is not None:
                text = _TEXTS[context.system.locale]["begun"].format(task=task.id)
                await context.replies.post(Reply(task.id, "begun", text, task.id, context.clock(), ticket=ticket))
    except (GitError, CourtError, TimeoutError) as error:
        log.info("%s: %s does not show that work has begun: %s", context.name, task_context.subject, error)


async def _show_answered(context: GeneralContext, task_context: TaskContext) -> None:
    """Say where a question was posted that it needs no answer any more. What people said elsewhere stays there."""
    task, source = task_context.task, str((task_context.event or {}).get("source"))
    context.replies.drop(str(task.continues), REPLY)  # the question, if it waits
    if asked_at(context.home, str(task.continues)) is None or source in _HEARD_SOURCES:
        return
    words = _TEXTS[context.system.locale]
    text = words["default"].format(text=_cut(task.payload.get("answer"))) if source == "king" else words["answered"]
    ways = text, answered_mark(task.id), f"{text} ({task.id})", f"({task.id})"
    until = context.clock() + KEPT_SECONDS
    if (reply := _addressed(context.base_url, task_context, "answered", ways, until)) is not None:
        await context.replies.post(reply)


def _replies(manifest: Manifest) -> bool:
    return manifest.land is not None and manifest.land.replies


def _addressed(
    base_url: str,
    task_context: TaskContext,
    name: str,
    ways: tuple[str, str, str, str],
    until: float,
    *,
    asks: bool = False,
) -> Reply | None:
    """Return a reply on what a task is about: ``ways`` are text and mark on GitHub, and on a ticket.

    None: it is about none of them, or works in a ``default_repo``.
    """
    task_id, (text, mark, ticket_text, ticket_mark) = task_context.task.id, ways
    if (number := number_of(task_context)) is not None:
        if not task_context.repo:
            return None
        url = repository_url(task_context.repo, base_url)
        return Reply(task_id, name, f"{text}\n\n{mark}", mark, until, url=url, number=number, asks=asks)
    if (ticket := _ticket_of(task_context)) is not None:
        return Reply(task_id, name, ticket_text, ticket_mark, until, ticket=ticket, asks=asks)
    return None


def _reaction_path(task_context: TaskContext) -> str | None:
    """Return the path of what asked for a task, if one can react to it: not to a review, nor to a check."""
    payload, number = task_context.task.payload, number_of(task_context)
    if not task_context.repo or number is None:
        return None
    comment = payload.get("comment")
    if isinstance(comment, dict):
        identity, of = comment.get("id"), "pulls" if "path" in comment else "issues"
        return f"/{of}/comments/{identity}" if type(identity) is int and "review_state" not in payload else None
    asked = str(task_context.type).rpartition(".")[2]
    return f"/issues/{number}" if asked in _REQUESTS else None


def reply_text(
    home: Home,
    manifest: Manifest,
    locale: str,
    task_context: TaskContext,
    result: Result,
    document: Mapping[str, Any],
) -> str | None:
    """Return the reply to a result; None when it needs none, or there is nothing on which to comment.

    Why a task failed is said in the soldier's words only: those of the court name files and machines.
    """
    words, ticket = _TEXTS[locale], _ticket_of(task_context) is not None
    if not ticket and number_of(task_context) is None:
        return None
    opened = (result.model_extra or {}).get("pull_requests")
    if result.status == "success" and opened and (ticket or _was_open_before(home, task_context, opened)):
        return "\n\n".join([_cut(str(document.get("summary") or result.summary)), *(one["url"] for one in opened)])
    if result.status == "needs_human" and result.question is not None:
        return _question(words, manifest, task_context, result.question)
    if _is_unasked_review(manifest, task_context):
        return None
    if result.status in ("failed", "timeout"):
        said = document.get("error") or document.get("summary") if document.get("status") == "failed" else None
        if isinstance(said, str) and said.strip():
            return words["failed"].format(text=_cut(said))
        return words["ended"].format(task=task_context.task.id)
    if result.status == "skipped" and task_context.follow_up is None:
        reviews = manifest.land is not None and manifest.land.how == "review"
        return words["not_reviewed" if reviews else "skipped"].format(text=_cut(result.summary))
    return None


def _is_unasked_review(manifest: Manifest, task_context: TaskContext) -> bool:
    """Whether a task reviews what nobody asked it to review, such as every new pull request."""
    asked = str(task_context.type).endswith(_ASKED)
    return manifest.land is not None and manifest.land.how == "review" and not asked


def _was_open_before(home: Home, task_context: TaskContext, opened: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a task about an issue went on with its pull request. A new one is shown on the issue by GitHub."""
    if not is_about_work(task_context.type):
        return False
    known = OpenedPullRequests(home)
    return task_context.follow_up is not None or any(known.find(one["url"]) is not None for one in opened)


def _question(words: Mapping[str, str], manifest: Manifest, task_context: TaskContext, question: Question) -> str:
    choices = [words["choices"].format(choices=", ".join(map(_cut, question.choices)))] if question.choices else []
    subject = next(one for one in (*GITHUB_EVENTS, TICKET_EVENTS) if str(task_context.type).startswith(one))
    heard = [
        name
        for name, event in (("comment", f"{subject}commented"), ("mention", f"{subject}mentioned"))
        if any(type_matches(subscription.type, event) for subscription in manifest.subscribes)
    ]
    how = words[next(iter(heard), "elsewhere")].format(task=task_context.task.id)
    return "\n\n".join([words["question"].format(text=_cut(question.text)), *choices, how])


def _ticket_of(task_context: TaskContext) -> str | None:
    """Return the key of the ticket that a task is about. A payload can name any text as its subject."""
    subject = task_context.subject or ""
    return subject if str(task_context.type).startswith(TICKET_EVENTS) and is_ticket_key(subject) else None


def _cut(text: Any) -> str:
    return cut_middle(clean(str(text)).strip(), _MAX_CHARS)
