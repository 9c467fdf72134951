"""한국어."""

from __future__ import annotations

from typing import Final

WORDS: Final[dict[str, str]] = {
    "nav.label": "페이지",
    "nav.skip": "본문으로 건너뛰기",
    "nav.open": "메뉴 열기",
    "nav.court": "궁정",
    "nav.tasks": "작업",
    "nav.workflows": "워크플로",
    "nav.templates": "템플릿",
    "nav.bus": "버스",
    "connection.live": "실시간",
    "connection.lost": "연결 끊김, 다시 시도 중",
    "choose.locale": "언어",
    "choose.theme": "테마",
    "theme.auto": "시스템 설정",
    "theme.light": "밝게",
    "theme.dark": "어둡게",
    "health.green": "정상",
    "health.yellow": "부담",
    "health.orange": "긴급 작업만",
    "health.red": "모두 대기",
    "error.title": "읽을 수 없습니다",
    "error.refused": "표시할 수 없습니다",
    "state.loading": "읽는 중…",
    "nocourt.title": "여기에는 궁정이 없습니다",
    "nocourt.hint": "{folder}에는 워크플로만 있습니다. 궁정을 세우면 작업과 이벤트가 여기에 나타납니다:",
    "action.back": "돌아가기",
    "action.close": "닫기",
}
