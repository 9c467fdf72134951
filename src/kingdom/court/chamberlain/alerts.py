"""Output of the chamberlain: texts, log warnings, journal events, alerts and messages."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kingdom.court.errors import CourtError
from kingdom.court.models import Message, MessageType, Urgency, timestamp
from kingdom.court.queues import parse_document, put_documents
from kingdom.journal import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kingdom.court.config import Locale
    from kingdom.court.loop import Services
    from kingdom.court.queues import IdSequences
    from kingdom.journal import EventData, Journal


_TEXTS: Final[dict[str, dict[Locale, str]]] = {
    "health": {
        "en": "Health is {level}: {reason}",
        "ko": "상태가 {level}입니다: {reason}",
    },
    "health-over": {
        "en": "Health is back to {level}: {reason}",
        "ko": "상태가 {level}(으)로 돌아왔습니다: {reason}",
    },
    "silent": {
        "en": "{role} has had no heartbeat for {seconds:.0f} s (last seen: {last_seen})",
        "ko": "{role}이(가) {seconds:.0f}초 동안 응답이 없습니다 (마지막 신호: {last_seen})",
    },
    "silent-over": {
        "en": "{role} has a heartbeat again",
        "ko": "{role}이(가) 다시 응답합니다",
    },
    "restarted": {
        "en": "{role} crashed and was restarted: {reason}",
        "ko": "{role}이(가) 비정상 종료되어 다시 시작했습니다: {reason}",
    },
    "failures": {
        "en": "{general} has failed {count} tasks in a row",
        "ko": "{general}이(가) 작업에 {count}번 연속 실패했습니다",
    },
    "failures-over": {
        "en": "{general} no longer fails repeatedly",
        "ko": "{general}의 연속 실패가 끝났습니다",
    },
    "timeouts": {
        "en": "{count} soldiers timed out within an hour",
        "ko": "1시간 안에 병사 타임아웃이 {count}번 발생했습니다",
    },
    "timeouts-over": {
        "en": "Soldiers no longer time out",
        "ko": "병사 타임아웃이 잦아들었습니다",
    },
    "stale": {
        "en": "{count} event(s) not dispatched for over {minutes:g} min, the oldest is {oldest} ({why}); king: {king}",
        "ko": "이벤트 {count}건이 {minutes:g}분 넘게 배정되지 않았습니다. 가장 오래된 것: {oldest} ({why}); 왕: {king}",
    },
    "stale-over": {
        "en": "All events are dispatched in time again",
        "ko": "오래 배정되지 않은 이벤트가 더 이상 없습니다",
    },
    "tokens": {
        "en": "The token budget is at {status}: {reason}",
        "ko": "토큰 예산 상태가 {status}입니다: {reason}",
    },
    "tokens-over": {
        "en": "The token budget is ok again",
        "ko": "토큰 예산이 다시 정상입니다",
    },
    "config": {
        "en": "A configuration file is invalid; the previous settings stay in effect.\n{problem}",
        "ko": "설정 파일을 사용할 수 없어 이전 설정으로 계속합니다.\n{problem}",
    },
    "config-over": {
        "en": "The configuration file is valid again",
        "ko": "설정 파일을 다시 사용할 수 있습니다",
    },
    "source": {
        "en": "A source cannot be read; what happens there is read when it can be. {problem}",
        "ko": "소스를 읽을 수 없습니다. 그동안의 일은 다시 읽을 수 있게 되면 읽습니다. {problem}",
    },
    "source-over": {
        "en": "{source} can be read again",
        "ko": "{source}을(를) 다시 읽을 수 있습니다",
    },
    "messages": {
        "en": "Messages cannot be sent, and wait. {problem}",
        "ko": "메시지를 보낼 수 없어 대기 중입니다. {problem}",
    },
    "messages-over": {
        "en": "Messages can be sent again",
        "ko": "메시지를 다시 보낼 수 있습니다",
    },
    "held": {
        "en": "{general} holds {count} task(s) back: {reason}. They go on by themselves when it is over",
        "ko": "{general}이(가) 작업 {count}건을 보류했습니다: {reason}. 해소되면 자동으로 계속합니다",
    },
    "held-over": {
        "en": "{general} works again: what was held back goes on",
        "ko": "{general}이(가) 다시 작업합니다: 보류했던 작업을 계속합니다",
    },
    "invalid": {
        "en": "{count} document(s) could not be used and were set aside, such as {path}: {reason}. To mend it: {hint}",
        "ko": "문서 {count}건을 사용할 수 없어 따로 두었습니다. 예: {path}: {reason}. 해결 방법: {hint}",
    },
    "invalid-over": {
        "en": "No document is set aside any more",
        "ko": "따로 둔 문서가 더 이상 없습니다",
    },
    "unknown-hold": {"en": "the king gives no reason", "ko": "왕이 밝힌 이유 없음"},
    "king-alive": {"en": "alive", "ko": "정상"},
    "king-silent": {"en": "no heartbeat", "ko": "응답 없음"},
    "never": {"en": "never", "ko": "없음"},
    "report-title": {"en": "Daily report {date}", "ko": "일일 리포트 {date}"},
    "report-tasks": {
        "en": "Tasks: {created} created, {completed} completed, {failed} failed, {cancelled} cancelled, "
        "{needs_human} asked a person",
        "ko": "작업: 생성 {created}, 완료 {completed}, 실패 {failed}, 취소 {cancelled}, 사람 확인 {needs_human}",
    },
    "report-soldiers": {
        "en": "Soldiers: {spawned} started, {timeout} timed out",
        "ko": "병사: 시작 {spawned}, 타임아웃 {timeout}",
    },
    "report-cost": {"en": "Cost: ${usd}, {tokens:,} tokens", "ko": "비용: ${usd}, 토큰 {tokens:,}개"},
    "report-durations": {"en": "Average time of a completed task", "ko": "완료한 작업의 평균 시간"},
    "report-table": {
        "en": "| General | Created | Completed | Failed | Cancelled | Asked | Timed out | Average |",
        "ko": "| 장군 | 생성 | 완료 | 실패 | 취소 | 사람 확인 | 타임아웃 | 평균 |",
    },
}


class ChamberlainTexts:
    """The texts of messages to people in one language."""

    def __init__(self, locale: Locale) -> None:
        self._locale: Locale = locale

    def format(self, key: str, /, **fields: object) -> str:
        """Return a text with its fields filled in."""
        return _TEXTS[key][self._locale].format(**fields)


log = logging.getLogger("kingdom.court.chamberlain")

ACTOR: Final = "chamberlain"
_MAX_PENDING_EVENTS: Final = 1_000  # while the journal cannot be written


class WarningLog:
    """Logs a problem when it begins or changes, not at every tick."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def __call__(self, about: str, message: str) -> None:
        """Report a problem of ``about``; an empty message says that the problem is over."""
        if message and self._said.get(about) != message:
            log.warning("%s: %s", about, message)
        if message:
            self._said[about] = message
        else:
            self._said.pop(about, None)

    @contextlib.contextmanager
    def around(self, about: str) -> Iterator[None]:
        """Run one part of a tick: log its errors, so that the other parts still run."""
        try:
            yield
        except OSError as error:
            self(about, f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        except CourtError as error:  # its message is meant for people
            self(about, str(error))
        except Exception as error:
            if str(error) != self._said.get(about):
                log.exception("%s failed; the other checks continue", about)
                self._said[about] = str(error)
        else:
            self(about, "")


class JournalEmitter:
    """Emits internal events of the chamberlain. Keeps events that the journal does not take, and retries later."""

    def __init__(self, journal: Journal, warn: WarningLog) -> None:
        self._journal = journal
        self._warn = warn
        self._waiting: deque[EventData] = deque(maxlen=_MAX_PENDING_EVENTS)

    def __call__(self, event: EventData) -> None:
        """Write an event, after the pending ones."""
        self._waiting.append(event)
        self.flush()

    def flush(self) -> None:
        """Write the pending events, as far as the journal takes them."""
        while self._waiting:
            try:
                self._journal.emit(self._waiting[0], ACTOR)
            except JournalError as error:
                self._warn("journal", str(error))
                return
            self._waiting.popleft()
        self._warn("journal", "")


@dataclass(frozen=True, slots=True)
class ChamberlainDraft:
    """A message without an id."""

    content: str
    type: MessageType = "notification"
    urgency: Urgency = "normal"
    context: dict[str, Any] = field(default_factory=dict)


class Alerts:
    """Turns changes of state into messages: one when a condition begins or changes, one when it ends.

    ``announced`` holds the last announced states. The caller stores it together with the drafts: a crash loses both or
    none.
    """

    def __init__(self, announced: dict[str, str], texts: dict[str, str] | None = None) -> None:
        self._announced = announced
        self._texts: dict[str, str] = {} if texts is None else texts  # of the announced states
        self.drafts: list[ChamberlainDraft] = []

    def update(
        self,
        key: str,
        state: str | None,
        text: Callable[[], str],
        over: Callable[[], str],
        *,
        urgency: Urgency = "high",
    ) -> None:
        """Update the state of the condition ``key``; None means that the condition is over."""
        if self._announced.get(key) == state:
            return
        context = {"alert": key, "state": state or "over"}
        if state is None:
            del self._announced[key]
            self._texts.pop(key, None)
            self.drafts.append(ChamberlainDraft(over(), context=context))
        else:
            self._announced[key] = state
            self._texts[key] = text()
            self.drafts.append(ChamberlainDraft(self._texts[key], urgency=urgency, context=context))

    def active(self, prefix: str) -> list[str]:
        """Return the active alerts with this prefix, without the prefix."""
        return [key.removeprefix(prefix) for key in self._announced if key.startswith(prefix)]

    def forget(self, prefix: str, keep: Iterable[str]) -> None:
        """Drop the alerts with this prefix that are not in ``keep``, without a message."""
        kept = {f"{prefix}{name}" for name in keep}
        for key in [key for key in self._announced if key.startswith(prefix) and key not in kept]:
            del self._announced[key]


class Outbox:
    """Puts messages into the queue, each exactly once; ``waiting`` is part of the memory.

    A message gets its id, is saved in the memory file, and then goes into the queue, which accepts an id once. After a
    kill in between, the next start finds the message in the memory and publishes it again, without effect if the queue
    already has it.
    """

    def __init__(self, services: Services, sequences: IdSequences, waiting: list[dict[str, Any]]) -> None:
        self._services = services
        self._sequences = sequences
        self._waiting = waiting

    def add(self, drafts: Sequence[ChamberlainDraft], channel: str) -> None:
        """Give drafts their ids, for the next :meth:`send`."""
        if not drafts:
            return
        created_at = timestamp(self._services.clock())
        for message_id, draft in zip(self._sequences.messages(len(drafts)), drafts, strict=True):
            self._waiting.append(
                {
                    "id": message_id,
                    "type": draft.type,
                    "channel": channel,
                    "urgency": draft.urgency,
                    "content": draft.content,
                    "context": draft.context,
                    "created_at": created_at,
                    "status": "pending",
                }
            )

    async def send(self, save: Callable[[], None]) -> None:
        """Put all waiting messages into the queue. ``save`` writes the memory durably."""
        if not self._waiting:
            return
        save()
        await put_documents(
            self._services.bus,
            [parse_document(Message, document, "a message of the chamberlain") for document in self._waiting],
        )
        self._waiting.clear()
        save()
