"""Korean texts of the page of people and of roles."""

from __future__ import annotations

from typing import Final

PEOPLE_WORDS: Final[dict[str, str]] = {
    "people.title": "사람",
    "people.about": "사람마다 자신의 토큰을 가집니다. 역할은 무엇을 할 수 있는지 정하고, 한 일에는 그 이름이 남습니다.",
    "people.tokens": "접근 토큰",
    "people.none": "자신의 토큰을 가진 사람이 없습니다",
    "people.none.hint": "kingdom web --link가 보여 주는 링크는 모든 것을 할 수 있는 소유자의 것입니다.",
    "people.you": "나",
    "people.never": "없음",
    "people.times": "{created} 생성 · 마지막 사용 {used}",
    "people.revoke": "폐기",
    "people.revoke.of": "{name}의 토큰 폐기",
    "people.revoke.sure": "{name}의 토큰을 폐기할까요?",
    "people.revoke.detail": "그 토큰을 쓰는 페이지와 스트림까지 바로 끝납니다. "
    "{name}의 이름으로 남은 기록은 그대로입니다.",
    "people.revoked": "{name}의 토큰을 폐기했습니다.",
    "people.add": "사람 추가",
    "people.add.do": "토큰 만들기",
    "people.added": "{name}에게 토큰이 생겼습니다.",
    "people.name": "이름",
    "people.name.hint": "예: ann 또는 ann@example.org",
    "people.role": "역할",
    "people.roles": "역할",
    "people.new": "{name}의 토큰",
    "people.new.hint": "지금 링크나 토큰을 전해 주세요. 저장되지 않으며 다시 볼 수 없습니다.",
    "people.link": "브라우저에서 로그인하는 링크",
    "people.token": "프로그램용 토큰",
    "people.new.done": "복사했습니다",
    "access.look": "보기",
    "access.answer": "답변",
    "access.operate": "운영",
    "access.own": "소유",
    "access.look.may": "모든 것을 보고, 아무것도 바꾸지 않습니다.",
    "access.answer.may": "질문에 답할 수도 있습니다.",
    "access.operate.may": "이벤트 보내기, 워크플로 실행과 변경, 재시도, 취소, 확인, 알리지 않기도 할 수 있습니다.",
    "access.own.may": "장군 설치, MCP 서버 등록, 토큰 추가와 폐기도 할 수 있습니다.",
    "access.needed": "{role} 역할이 필요합니다. 지금 역할은 {yours}입니다. 소유자가 다른 토큰을 줄 수 있습니다.",
    "settings.you": "나",
    "settings.you.are": "{name} (역할: {role})",
    "settings.people": "사람과 토큰",
}
