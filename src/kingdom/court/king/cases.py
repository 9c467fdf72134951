"""Cases: what the king has in hand. A case begins with an event or a slot of a schedule and ends when all is said.

One case has one task at a time: a killed run, an answer to a question gives it the next. The events it began with and
those that answered it stay dispatched until it ends, and are completed together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(slots=True)
class Asked:
    """A question that waits for a person."""

    question: str
    default: str | None
    deadline: float  # seconds since the epoch
    reminded: bool = False


@dataclass(slots=True)
class Case:
    """One piece of work, from its cause to its last message."""

    root: str  # the id of the event or slot it began with
    task: str  # the task it is at
    general: str
    type: str  # of the event, or of the schedule's tasks
    priority: str
    title: str  # what it is about, for people: one short line
    thread: str  # its first task: what people read of it hangs together by this id
    subject: str | None = None
    scheduled: bool = False
    events: list[str] = field(default_factory=list)  # dispatched for it
    former: list[str] = field(default_factory=list)  # its tasks before this one
    killed: int = 0  # how often its soldier was killed
    asked: Asked | None = None

    @property
    def active(self) -> bool:
        """Whether its task is queued or running; one that waits for an answer needs no soldier."""
        return self.asked is None

    def next_task(self, task_id: str) -> None:
        """Go on with another task."""
        self.former.append(self.task)
        self.task = task_id

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {**fields, "asked": None if self.asked is None else asdict(self.asked)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Case:
        """The case of a JSON form."""
        asked = document.get("asked")
        return cls(**{**document, "asked": None if asked is None else Asked(**asked)})


class Cases:
    """All cases in hand, found by what is known of them. After a change in a case, :meth:`put` it again."""

    def __init__(self) -> None:
        self._by_root: dict[str, Case] = {}
        self._by_task: dict[str, Case] = {}
        self._active: Counter[str] = Counter()  # by general
        self._counted: dict[str, str] = {}  # the roots counted as active, and for which general
        self._subjects: dict[str, str] = {}

    def put(self, case: Case) -> None:
        """Take a case in, or note that it changed."""
        self._by_root[case.root] = case
        for task in (case.task, *case.former):
            self._by_task[task] = case
        if case.subject is not None:
            self._subjects[case.subject] = case.root
        self._uncount(case.root)
        if case.active:
            self._counted[case.root] = case.general
            self._active[case.general] += 1

    def close(self, root: str) -> Case | None:
        """Let go of a case."""
        case = self._by_root.pop(root, None)
        if case is None:
            return None
        for task in (case.task, *case.former):
            self._by_task.pop(task, None)
        if case.subject is not None and self._subjects.get(case.subject) == root:
            del self._subjects[case.subject]
        self._uncount(root)
        return case

    def get(self, root: str) -> Case | None:
        """The case that began with this event or slot."""
        return self._by_root.get(root)

    def of_task(self, task_id: str) -> Case | None:
        """The case a task belongs, or belonged, to."""
        return self._by_task.get(task_id)

    def of_subject(self, subject: str) -> Case | None:
        """The case that is on a subject."""
        root = self._subjects.get(subject)
        return None if root is None else self._by_root.get(root)

    def active_of(self, general: str) -> int:
        """How many tasks of a general are queued or running."""
        return self._active[general]

    @property
    def active_count(self) -> int:
        """How many tasks are queued or running."""
        return len(self._counted)

    def active(self) -> Iterator[Case]:
        """The cases whose task is queued or running."""
        return (self._by_root[root] for root in list(self._counted))

    def asking(self) -> Iterator[Case]:
        """The cases that wait for a person's answer."""
        return (case for case in list(self._by_root.values()) if case.asked is not None)

    def __iter__(self) -> Iterator[Case]:
        return iter(list(self._by_root.values()))

    def __len__(self) -> int:
        return len(self._by_root)

    def _uncount(self, root: str) -> None:
        general = self._counted.pop(root, None)
        if general is not None:
            self._active[general] -= 1
