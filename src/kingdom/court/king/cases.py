"""Cases that the king works on, and the messages that people get about them.

A case begins with an event or a slot of a schedule and ends with its last message. It has one task at a time: a killed
run or an answer to a question leads to the next. The event it began with and those that answered it stay dispatched
until it ends, and are completed together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from kingdom.base.text import one_line, storable
from kingdom.base.times import utc_datetime
from kingdom.court.days import local_minute
from kingdom.court.models import Message, timestamp
from kingdom.court.request_threads import is_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kingdom.court.config import SystemConfig
    from kingdom.court.models import MessageType, Question, Result, Urgency


_MAX_TEXT_CHARS: Final = 20_000  # of a summary, an error or a question
_TITLE_FIELDS: Final = ("title", "summary", "subject", "name")


@dataclass(slots=True)
class PendingQuestion:
    """A question that waits for a person's answer."""

    question: str
    default: str | None
    deadline: float  # seconds since the epoch
    reminded: bool = False
    posted: float | None = None  # when it was posted on the subject itself: a comment there since is the answer
    answered: bool = False  # by such a comment: the next one is something else


@dataclass(slots=True)
class Case:
    """One piece of work, from its cause to its last message."""

    root: str  # the id of the event or slot that it began with
    task: str  # its current task
    general: str
    type: str  # of the event, or of the schedule's tasks
    priority: str
    title: str  # one short line for people
    thread: str  # its first task; messages about the case are grouped by this id
    subject: str | None = None
    topic: str | None = None  # what was first asked for: the subject, or that for which the pull request was opened
    scheduled: bool = False
    events: list[str] = field(default_factory=list)  # dispatched for it
    former: list[str] = field(default_factory=list)  # its tasks before this one
    killed: int = 0  # how often its soldier was killed
    asked: PendingQuestion | None = None

    @property
    def active(self) -> bool:
        """Whether its task is queued or running. A case that waits for an answer needs no soldier."""
        return self.asked is None

    def next_task(self, task_id: str) -> None:
        self.former.append(self.task)
        self.task = task_id

    def to_dict(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "asked": None if self.asked is None else asdict(self.asked)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Case:
        asked = document.get("asked")
        return cls(**{**document, "asked": None if asked is None else PendingQuestion(**asked)})


class Cases:
    """All open cases, with indexes. :meth:`put` a case again after changing it."""

    def __init__(self) -> None:
        self._by_root: dict[str, Case] = {}
        self._by_task: dict[str, Case] = {}
        self._active: Counter[str] = Counter()  # by general
        self._counted: dict[str, str] = {}  # roots counted as active, with their generals
        self._subjects: dict[str, dict[str, None]] = {}  # roots by subject; several only while one of them asks

    def put(self, case: Case) -> None:
        """Add a case, or update its indexes."""
        self._by_root[case.root] = case
        for task in (case.task, *case.former):
            self._by_task[task] = case
        if case.subject is not None:
            self._subjects.setdefault(case.subject, {})[case.root] = None
        self._uncount(case.root)
        if case.active:
            self._counted[case.root] = case.general
            self._active[case.general] += 1

    def close(self, root: str) -> Case | None:
        case = self._by_root.pop(root, None)
        if case is None:
            return None
        for task in (case.task, *case.former):
            self._by_task.pop(task, None)
        if case.subject is not None and (roots := self._subjects.get(case.subject)) is not None:
            roots.pop(root, None)
            if not roots:
                del self._subjects[case.subject]
        self._uncount(root)
        return case

    def get(self, root: str) -> Case | None:
        return self._by_root.get(root)

    def of_task(self, task_id: str) -> Case | None:
        """Return the case of a task, also of one of its former tasks."""
        return self._by_task.get(task_id)

    def of_subject(self, subject: str) -> list[Case]:
        """Return the open cases about a subject: one, or more while some of them wait for an answer."""
        return [self._by_root[root] for root in self._subjects.get(subject, ()) if root in self._by_root]

    def active_of(self, general: str) -> int:
        """Return how many tasks of a general are queued or running."""
        return self._active[general]

    @property
    def active_count(self) -> int:
        return len(self._counted)

    def active(self) -> Iterator[Case]:
        """Iterate over the cases whose task is queued or running."""
        return (self._by_root[root] for root in list(self._counted))

    def asking(self) -> Iterator[Case]:
        """Iterate over the cases that wait for a person's answer."""
        return (case for case in list(self._by_root.values()) if case.asked is not None)

    def __iter__(self) -> Iterator[Case]:
        return iter(list(self._by_root.values()))

    def __len__(self) -> int:
        return len(self._by_root)

    def _uncount(self, root: str) -> None:
        general = self._counted.pop(root, None)
        if general is not None:
            self._active[general] -= 1


# Events that end a task, with words of their own.
_ENDINGS: Final = ("closed", "merged", "unassigned", "review_request_removed")
_TEXTS: Final[dict[str, dict[str, str]]] = {
    "en": {
        "started": "{general} started on {title}",
        "success": "{general} finished {title}",
        "skipped": "{general} had nothing to do for {title}",
        "failed": "{general} failed at {title}",
        "timeout": "{general} ran out of time at {title}",
        "question": "{general} asks about {title}",
        "default": "without an answer by {deadline}: {default}",
        "reminder": "{general} still waits for an answer about {title}",
        "cancelled": "{general} no longer works on {title}",
        "cancelled-by": "cancelled by {user}",
        "landed": "{general} landed {title}",
        "closed": "{subject} was closed by {user}",
        "merged": "{subject} was merged by {user}",
        "unassigned": "{subject} was unassigned by {user}",
        "review_request_removed": "{user} took back the request to review {subject}",
        "overtaken": "{subject}: {type} by {user}",
    },
    "ko": {
        "started": "{general}: {title} 작업을 시작했습니다",
        "success": "{general}: {title} 작업을 마쳤습니다",
        "skipped": "{general}: {title} 처리할 내용이 없습니다",
        "failed": "{general}: {title} 작업에 실패했습니다",
        "timeout": "{general}: {title} 작업이 시간을 초과했습니다",
        "question": "{general}: {title} 작업에 대해 질문이 있습니다",
        "default": "{deadline}까지 답이 없으면: {default}",
        "reminder": "{general}: {title} 작업이 아직 답을 기다리고 있습니다",
        "cancelled": "{general}: {title} 작업이 취소되었습니다",
        "cancelled-by": "{user} 님이 취소했습니다",
        "landed": "{general}: {title} 작업을 반영했습니다",
        "closed": "{user} 님이 {subject} 항목을 닫았습니다",
        "merged": "{user} 님이 {subject} 항목을 병합했습니다",
        "unassigned": "{user} 님이 {subject} 배정을 해제했습니다",
        "review_request_removed": "{user} 님이 {subject} 리뷰 요청을 취소했습니다",
        "overtaken": "{subject}: {user} 님의 {type}",
    },
}


def render_text(locale: str, name: str, **values: str) -> str:
    """Fill a message text in. Braces in the values have no meaning."""
    return _TEXTS[locale][name].format(**values)


@dataclass(slots=True)
class MessageDraft:
    """A message that has no id yet."""

    type: MessageType
    content: str
    context: dict[str, Any] = field(default_factory=dict)
    urgency: Urgency = "normal"

    def message(self, message_id: str, channel: str, now: float) -> Message:
        return Message(
            id=message_id,
            type=self.type,
            channel=channel,
            urgency=self.urgency,
            content=storable(self.content),
            context=storable(self.context),
            created_at=utc_datetime(now),
        )


def title_of(cause: Mapping[str, Any], subject: str | None) -> str:
    """Return a short line about an event: its subject and title, or its type."""
    payload = cause.get("payload")
    subject = None if is_request(cause.get("type")) else subject  # nobody knows a thread by its name
    given = (payload.get(name) for name in _TITLE_FIELDS) if isinstance(payload, dict) else ()
    title = next((line for text in given if isinstance(text, str) and (line := one_line(text))), "")
    named = " ".join(part for part in (one_line(subject or ""), title) if part)
    return one_line(named or str(cause.get("type")))


class MessageComposer:
    """Composes messages in the language of the court."""

    def __init__(self, config: SystemConfig) -> None:
        self._locale = config.locale
        self._zone = ZoneInfo(config.timezone)

    def started(self, case: Case, notify: str) -> list[MessageDraft]:
        """Open a thread for a case. Schedules have no thread: they end with a report."""
        if notify != "all" or case.scheduled:
            return []
        return [MessageDraft("thread_start", self._head("started", case), self._context(case))]

    def ended(self, case: Case, notify: str, result: Result) -> list[MessageDraft]:
        """Report the result of a case."""
        if notify == "silent":
            return []
        well = result.status in ("success", "skipped")
        name = result.status if result.status in ("success", "skipped", "timeout", "cancelled") else "failed"
        body = [result.summary, *result.links] if well else [result.error or result.summary, *result.links]
        content = "\n".join([self._head(name, case), *(one[:_MAX_TEXT_CHARS] for one in body if one)])
        context = {**self._context(case), "status": result.status, "links": list(result.links)}
        kind: MessageType = "thread_update" if notify == "all" else "notification"
        if case.scheduled:
            kind = "report" if well else "notification"
        urgency: Urgency = "normal" if well or result.status == "cancelled" else "high"
        return [MessageDraft(kind, content, context, urgency)]

    def landed(self, case: Case, notify: str, where: str, links: Sequence[str], last: str | None) -> list[MessageDraft]:
        """Say where the work of a case is that was landed after its ``last`` message, which closed its thread."""
        if notify == "silent":
            return []
        context = {**self._context(case), "status": "success", "links": list(links), "follows": last}
        kind: MessageType = "thread_update" if notify == "all" else "notification"
        return [MessageDraft(kind, "\n".join([self._head("landed", case), where]), context)]

    def question(self, case: Case, question: Question, deadline: float) -> MessageDraft:
        """Ask a person. The ``notify`` setting of the manifest does not suppress questions."""
        lines = [self._head("question", case), question.text[:_MAX_TEXT_CHARS]]
        if question.default is not None:
            until = local_minute(deadline, self._zone)
            lines.append(render_text(self._locale, "default", deadline=until, default=question.default))
        context = {
            **self._context(case),
            "question": question.text[:_MAX_TEXT_CHARS],
            "choices": list(question.choices),
            "default": question.default,
            "deadline": timestamp(deadline),
        }
        return MessageDraft("human_input_request", "\n".join(lines), context, "high")

    def reminder(self, case: Case, question: str) -> MessageDraft:
        """Remind of a question whose deadline has passed and which has no default."""
        content = "\n".join([self._head("reminder", case), question[:_MAX_TEXT_CHARS]])
        return MessageDraft("notification", content, {**self._context(case), "status": "needs_human"}, "high")

    def cancelled(self, user: str, note: str) -> str:
        """Say who cancelled a task, and why if they said so."""
        by = render_text(self._locale, "cancelled-by", user=one_line(user))
        return f"{by}: {note}" if note else by

    def overtaken(self, event_type: str, subject: str, user: str) -> str:
        """Say which event has ended a task."""
        what = event_type.rpartition(".")[2]
        known = what if what in _ENDINGS else "overtaken"
        values = {"subject": one_line(subject), "user": one_line(user), "type": event_type}
        return render_text(self._locale, known, **values)

    def _head(self, name: str, case: Case) -> str:
        return render_text(self._locale, name, general=case.general, title=case.title)

    def _context(self, case: Case) -> dict[str, Any]:
        context = {"task_id": case.task, "event_id": case.root, "general": case.general, "type": case.type}
        if case.thread != case.task:
            context["original_task_id"] = case.thread
        if case.topic is not None:
            context["topic"] = case.topic
        return context
