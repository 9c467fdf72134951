"""What the chamberlain says to people, in the court's language."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kingdom.court.config.system import Locale

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
        "en": "{role} has given no sign of life for {seconds:.0f} s (last seen: {last_seen})",
        "ko": "{role}이(가) {seconds:.0f}초 동안 응답이 없습니다 (마지막 신호: {last_seen})",
    },
    "silent-over": {
        "en": "{role} gives signs of life again",
        "ko": "{role}이(가) 다시 응답합니다",
    },
    "failures": {
        "en": "{general} has failed {count} tasks in a row",
        "ko": "{general}이(가) 작업에 {count}번 연속 실패했습니다",
    },
    "failures-over": {
        "en": "{general} no longer fails one task after the other",
        "ko": "{general}의 연속 실패가 끝났습니다",
    },
    "timeouts": {
        "en": "{count} soldiers took too long within an hour",
        "ko": "1시간 안에 병사 타임아웃이 {count}번 발생했습니다",
    },
    "timeouts-over": {
        "en": "Soldiers end in time again",
        "ko": "병사 타임아웃이 잦아들었습니다",
    },
    "stale": {
        "en": "{count} event(s) have waited over {minutes:g} min to be dispatched, first of all {oldest}; king: {king}",
        "ko": "이벤트 {count}건이 {minutes:g}분 넘게 배정되지 않았습니다. 가장 오래된 것: {oldest}; 왕: {king}",
    },
    "stale-over": {
        "en": "No event waits too long to be dispatched any more",
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
        "en": "A configuration file cannot be used; what held before goes on.\n{problem}",
        "ko": "설정 파일을 사용할 수 없어 이전 설정으로 계속합니다.\n{problem}",
    },
    "config-over": {
        "en": "The configuration can be used again",
        "ko": "설정 파일을 다시 사용할 수 있습니다",
    },
    "king-alive": {"en": "alive", "ko": "정상"},
    "king-silent": {"en": "no sign of life", "ko": "응답 없음"},
    "never": {"en": "never", "ko": "없음"},
    "report-title": {"en": "Daily report {date}", "ko": "일일 리포트 {date}"},
    "report-tasks": {
        "en": "Tasks: {created} created, {completed} completed, {failed} failed, {needs_human} asked a person",
        "ko": "작업: 생성 {created}, 완료 {completed}, 실패 {failed}, 사람 확인 {needs_human}",
    },
    "report-soldiers": {
        "en": "Soldiers: {spawned} started, {timeout} timed out",
        "ko": "병사: 시작 {spawned}, 타임아웃 {timeout}",
    },
    "report-cost": {"en": "Cost: ${usd}, {tokens:,} tokens", "ko": "비용: ${usd}, 토큰 {tokens:,}개"},
    "report-durations": {"en": "Average time of a completed task", "ko": "완료한 작업의 평균 시간"},
    "report-table": {
        "en": "| General | Created | Completed | Failed | Asked | Timed out | Average |",
        "ko": "| 장군 | 생성 | 완료 | 실패 | 사람 확인 | 타임아웃 | 평균 |",
    },
}


class Texts:
    """The sentences of one language."""

    def __init__(self, locale: Locale) -> None:
        self._locale: Locale = locale

    def say(self, key: str, /, **fields: object) -> str:
        """A sentence with its blanks filled in."""
        return _TEXTS[key][self._locale].format(**fields)
