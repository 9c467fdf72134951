"""Korean texts for the reasons of the court and of workflows, which are stored in English.

Each pattern matches a whole reason. A group whose name begins with ``reason`` is a reason itself; ``level`` and
``state`` are words of the load and of a role.
"""

from __future__ import annotations

from typing import Final

REASONS: Final[tuple[tuple[str, str], ...]] = (
    # the king's holds
    (r"health is (?P<level>\w+) \((?P<reason>.*)\)", "상태가 {level}입니다 ({reason})"),
    (r"health is (?P<level>\w+)", "상태가 {level}입니다"),
    (r"all (?P<n>\d+) soldiers are at work (?P<key>\(.*\))", "병사 {n}명이 모두 일하고 있습니다 {key}"),
    (r"(?P<general>\S+) is at its limit of (?P<n>\d+) at once", "{general} 장군이 동시 작업 한도 {n}개에 도달했습니다"),
    (
        r"(?P<general>\S+) is not installed, or its manifest cannot be used",
        "{general} 장군이 설치되어 있지 않거나 매니페스트를 쓸 수 없습니다",
    ),
    (
        r"(?P<subject>.+) has a task already: (?P<task>\S+) of (?P<general>\S+), which waits for an answer",
        "{subject}에 이미 작업이 있습니다: {general} 장군의 {task} (답변 대기)",
    ),
    (
        r"(?P<subject>.+) has a task already: (?P<task>\S+) of (?P<general>\S+)",
        "{subject}에 이미 작업이 있습니다: {general} 장군의 {task}",
    ),
    (
        r"the (?P<reason>.+) is (?P<all>.+): (?P<spent>.+) spent, (?P<kept>.+) reserved, this run may take (?P<n>.+)",
        "{reason} {all}: {spent} 사용, {kept} 예약, 이번 실행에 {n} 예상",
    ),
    (
        r"(?P<used>.+) of the (?P<reason>.+) of (?P<amount>.+) spent",
        "{reason} {amount} 중 {used} 사용",
    ),
    (
        r"(?P<reason>(?:daily|monthly) budget[^:]*): (?P<used>[^;]+) of (?P<amount>[^;]+)",
        "{reason} {amount} 중 {used} 사용",
    ),
    (r"daily budget of (?P<general>\S+)", "{general} 장군의 일일 예산"),
    (r"monthly budget of (?P<general>\S+)", "{general} 장군의 월 예산"),
    (r"daily budget", "일일 예산"),
    (r"monthly budget", "월 예산"),
    (r"(?P<n>\d+) more reasons", "그 밖의 이유 {n}개"),
    (r"the last (?P<level>\w+) is (?P<n>\d+) s old", "마지막 {level} 상태가 {n}초 전의 것입니다"),
    (r"(?P<file>\S+) is not readable", "{file} 파일을 읽을 수 없습니다"),
    (r"all resources are calm", "모든 자원에 여유가 있습니다"),
    # problems
    (r"failed: (?P<error>.*)", "실패: {error}"),
    (r"refused: (?P<error>.*)", "거부: {error}"),
    (r"waits: (?P<general>\S+) is not installed", "대기: {general} 장군이 설치되어 있지 않습니다"),
    (r"(?P<n>\d+) more tasks failed", "실패한 작업 {n}개 더"),
    (r"(?P<n>\d+) more tasks wait", "대기하는 작업 {n}개 더"),
    (r"(?P<n>\d+) more documents are invalid", "잘못된 문서 {n}개 더"),
    (r"(?P<n>\d+) more events were refused", "거부된 이벤트 {n}개 더"),
    (r"(?P<n>\d+) more dead letters", "데드 레터 {n}개 더"),
    (r"no reason given", "이유가 적혀 있지 않습니다"),
    (
        r"(?P<role>\S+) is (?P<state>failed|late)(?P<why> \(.*\))?: logs/system\.log has more",
        "{role} 역할: {state}{why}. 자세한 내용은 logs/system.log에 있습니다",
    ),
    # workflows
    (r"review after (?P<work>.+)", "{work} 단계 뒤의 검토"),
    (r"it went back to (?P<point>.+)", "되돌아간 곳: {point}"),
    (r"work (?P<work>.+?) asks: (?P<question>.*)", "{work} 단계의 질문: {question}"),
    (r"not landed yet, it is tried again: (?P<problem>.*)", "아직 내보내지 못해 다시 시도합니다: {problem}"),
    (
        r"task (?P<task>.+) of work (?P<work>.+) failed after (?P<n>\d+) tries: (?P<error>.*)",
        "{work} 단계의 태스크 {task}: {n}번 시도한 뒤 실패했습니다: {error}",
    ),
    (r"a worktree could not be made: (?P<error>.*)", "워크트리를 만들 수 없습니다: {error}"),
    (
        r"what work (?P<work>.+) left could not be committed: (?P<error>.*)",
        "{work} 단계의 결과를 커밋할 수 없습니다: {error}",
    ),
    (r"(?P<name>\w+) could not be handled: (?P<error>.*)", "{name} 이벤트를 처리할 수 없습니다: {error}"),
)
