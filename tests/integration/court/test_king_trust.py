"""Trust at the king's: who is let in, to which general, and what their task may use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.court.history import read_history
from kingdom.court.king.king import King
from kingdom.court.loop import Services
from kingdom.court.overview import read_overview_without_queues
from kingdom.journal import Journal
from tests.support.kings import Realm, looks

RULES = """
tiers:
  visitor: {generals: [gen-triage], profile: read, mcp: false}
rules:
  - {source: github, repos: [acme/*], associations: [MEMBER], tier: trusted}
  - {source: github, users: [pest], tier: refuse}
  - {source: github, repos: [acme/*], tier: visitor}
  - {source: slack, users: [U2], tier: visitor}
"""
MEMBER = {"actor": "ann", "actor_association": "MEMBER", "opened_by": "ann", "association": "MEMBER"}
STRANGER = {"actor": "mallory", "opened_by": "mallory", "association": "NONE", "actor_association": "NONE"}


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path).open() as realm:
        yield realm


def rule(realm: Realm, text: str = RULES) -> None:
    (realm.home.config / "trust.yaml").write_text(text)


async def reigning(realm: Realm) -> King:
    king = realm.king()
    await king.start()
    await looks(king)
    return king


async def test_each_gets_the_general_and_the_tools_of_their_tier(realm: Realm) -> None:
    rule(realm)
    realm.install("gen-pr", order=1)
    realm.install("gen-triage", order=2)
    await realm.event(1, repo="acme/shop", payload=MEMBER)
    await realm.event(2, repo="acme/shop", payload=STRANGER)
    await reigning(realm)
    mine, theirs = sorted(realm.tasks(), key=lambda task: task.event_id)
    assert mine.target_general == "gen-pr"
    assert mine.document()["trust"]["profile"] == "full"
    assert theirs.target_general == "gen-triage"
    assert theirs.document()["trust"] == {
        "tier": "visitor",
        "by": "github user mallory",
        "profile": "read",
        "sandbox": False,
        "mcp": False,
        "sandboxed": [],
    }


async def test_who_is_refused_is_told_in_the_journal_the_trace_and_the_status(realm: Realm) -> None:
    rule(realm)
    realm.install("gen-pr", subscribes=["github.pr.*", "jira.ticket.assigned"])
    pest = await realm.event(1, repo="acme/shop", payload={**STRANGER, "actor": "pest"})
    visitor = await realm.event(2, repo="acme/shop", payload=STRANGER)
    jira = await realm.event(3, "jira.ticket.assigned", payload={"author_id": "a1"})
    unheard = await realm.event(4, "jira.ticket.created", payload={"author_id": "a1"})
    await reigning(realm)
    assert realm.tasks() == []
    assert [realm.where(one) for one in (pest, visitor, jira, unheard)] == [("completed", "completed")] * 4
    reasons = {data["event_id"]: data["reason"] for kind, data in realm.journal() if kind == "event.discarded"}
    line = '- {source: github, users: ["pest"], repos: ["acme/shop"], tier: visitor}'
    refused = "github user pest is refused (config/trust.yaml: rule 2)"
    assert reasons[pest] == f"{refused}; to allow it, add above rule 2 {line}"
    assert reasons[visitor].endswith("is of the tier 'visitor' (config/trust.yaml), which may not use gen-pr")
    assert reasons[jira].startswith(
        "jira user a1 is refused (config/trust.yaml: no rule names them); to allow it, add "
    )
    services = Services(realm.home, realm.bus, Journal(realm.home.journal, realm.clock), realm.clock)
    assert any(reasons[pest] in line.what for line in await read_history(services, pest))
    told = {problem.what: problem.why for problem in read_overview_without_queues(realm.home, realm.clock()).problems}
    assert told[visitor] == f"refused: {reasons[visitor]}"
    assert (reasons[unheard], unheard in told) == ("no general subscribes to it", False)


async def test_a_change_of_the_file_holds_at_once_also_for_those_who_wait(realm: Realm) -> None:
    realm.install("gen-pr", concurrency=1)
    await realm.event(1, repo="acme/shop", payload=STRANGER)
    second = await realm.event(2, repo="acme/shop", payload=STRANGER)
    king = await reigning(realm)
    (task,) = realm.tasks()
    assert "trust" not in task.document()
    rule(realm)
    await looks(king)
    assert realm.where(second) == ("completed", "completed")


async def test_while_the_file_cannot_be_used_from_the_start_everything_from_outside_waits(realm: Realm) -> None:
    rule(realm, "rules: [")
    realm.install("gen-pr", subscribes=["github.pr.*", "console.wish"])
    event = await realm.event(1, repo="acme/shop", payload=MEMBER)
    wish = await realm.event(2, "console.wish")
    king = await reigning(realm)
    assert [task.event_id for task in realm.tasks()] == [wish]
    report: Any = king.report()
    assert any("trust.yaml" in reason for reason in report["holds"])
    assert any("trust.yaml:1" in problem for problem in report["problems"])
    rule(realm)
    await looks(king)
    assert {task.event_id for task in realm.tasks()} == {event, wish}


async def test_who_may_not_do_anything_cancels_nothing(realm: Realm) -> None:
    rule(realm)
    realm.install("gen-pr")
    await realm.event(1, repo="acme/shop", payload=MEMBER)
    king = await reigning(realm)
    (task,) = realm.tasks()
    await realm.event("x", "webhook_ci.task_cancel", payload={"task_id": task.id})
    realm.clock.now += king.interval
    await looks(king)
    assert realm.where("evt-webhook_ci-x") == ("completed", "completed")
    assert [one.id for one in realm.tasks()] == [task.id]


async def test_an_answer_gives_nothing_that_the_question_had_not_and_takes_away_what_the_answerer_has_not(
    realm: Realm,
) -> None:
    rule(realm)
    realm.install("gen-pr")
    await realm.event(1, repo="acme/shop", payload={**MEMBER, "title": "x"})
    king = await reigning(realm)
    (task,) = await realm.work(status="needs_human", question={"text": "which?"})
    await looks(king)
    answer = {"task_id": task.id, "text": "that", "user": "U2"}
    await realm.event(f"response-{task.id}-1", "slack.human_response", payload=answer)
    realm.clock.now += king.interval
    await looks(king)
    (resumed,) = realm.tasks()
    assert resumed.type == "resume"
    assert resumed.document()["trust"] == {
        "tier": "trusted",
        "by": "github user ann",
        "profile": "read",
        "sandbox": False,
        "mcp": False,
        "sandboxed": [],
    }
