"""Those who asked for a task on GitHub or Jira hear of its end also when a person cancels it, or GitHub was away."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.agents.port import Order, Outcome
from kingdom.court.cancellations import cancel_requests, request_cancel
from kingdom.court.general import General
from kingdom.court.general.landing import land_again
from kingdom.court.loop import Services
from kingdom.court.models import Event, Task
from kingdom.court.packages.manifest import Manifest
from kingdom.court.pull_requests import is_marked
from kingdom.court.queues import put_documents
from kingdom.court.sentinel.jira_events import adf_text
from tests.support.fake_agents import FakeAgents
from tests.support.fake_jira import FakeJira
from tests.support.forking import fate
from tests.support.general_victim import Deadly, DeadlyAgents
from tests.support.generals import NOW, Post, posted
from tests.support.github_server import GitHubServer, github_of_a_court
from tests.support.kings import Realm, looks
from tests.support.repositories import plain_git

ISSUE = {"repo": "acme/app", "type": "github.issue.assigned", "payload": {"number": 5, "title": "Sort"}}
TICKET = {"repo": "acme/app", "type": "jira.ticket.assigned", "payload": {"key": "APP-7", "title": "Sort"}}
QUESTION = {"status": "needs_human", "summary": "", "question": {"text": "By name or by size?"}}


@pytest.fixture
def github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubServer]:
    with github_of_a_court(tmp_path / "github", monkeypatch, "acme/app") as server:
        yield server


@pytest.fixture
async def post(tmp_path: Path, github: GitHubServer) -> AsyncIterator[Post]:
    async with posted(tmp_path / "court", land="pull-request", retries=0) as post:
        settle(post, github.url, github.host)
        yield post


def settle(post: Post, url: str, host: str) -> None:
    """Have a court work with GitHub."""
    post.base_url = url
    post.system = {"git": {"credentials": {host: {"env": "HUB_TOKEN"}}}}


@pytest.fixture
async def jira(post: Post, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeJira]:
    async with FakeJira(lambda: NOW) as server:
        server.create("APP-7")
        post.home.config.mkdir(exist_ok=True)
        section = {"url": server.url, "email": "bot@x.example"}
        (post.home.config / "sentinel.yaml").write_text(json.dumps({"jira": section}))
        monkeypatch.setenv("JIRA_API_TOKEN", "jira-token")
        yield server


def fake(post: Post) -> FakeAgents:
    assert isinstance(post.agents, FakeAgents)
    return post.agents


def lands(post: Post, **land: Any) -> None:
    """Change how the general lands."""
    manifest = {**post.manifest.model_dump(exclude_defaults=True), "land": {"how": "pull-request", **land}}
    post.manifest = Manifest.model_validate(manifest)


async def at_work(post: Post, number: int = 1, **fields: Any) -> tuple[General, Task]:
    """A general whose soldier works on a task."""
    fake(post).gate.clear()
    task = await post.task(number, **fields)
    general = post.general()
    await general.start()
    await post.work(general, lambda: len(fake(post).orders) == 1)
    return general, task


def waiting(post: Post) -> list[str]:
    """The replies that are not posted yet."""
    return sorted(path.stem for path in (post.home.role("gen-test") / "replies").glob("task-*"))


def nothing_waits_later(post: Post) -> bool:
    """Whether all replies are posted or given up. Each look is at a later time."""
    post.uptime += 30.0
    return waiting(post) == []


async def cancelled(post: Post, general: General, task: Task, note: str | None) -> None:
    """A task that is cancelled by the king's request, until nothing is left to do."""
    request_cancel(post.home, "gen-test", task.id, "cancelled by ann", note)
    await post.work(
        general,
        lambda: post.state(task) == "completed" and not cancel_requests(post.home, "gen-test") and waiting(post) == [],
    )
    await general.stop()


def said(github: GitHubServer) -> list[str]:
    """What the court has said on issue 5, without its marks."""
    bodies = [one["body"] for one in github.comments.get(("acme/app", 5), [])]
    assert all(is_marked(body) for body in bodies), "the court does not hear itself"
    return [body.partition("\n\n<!--")[0] for body in bodies]


# ── a person cancels a task ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("locale", "note", "text"),
    [
        ("en", "", "I stopped working on this: it was cancelled."),
        ("en", "We do it next week.", "I stopped working on this: it was cancelled. We do it next week."),
        ("ko", "", "작업이 취소되어 중단했습니다."),
        ("ko", "다음 주에 합니다.", "작업이 취소되어 중단했습니다. 다음 주에 합니다."),
    ],
)
async def test_who_asked_hears_that_the_work_was_stopped_and_why(
    post: Post, github: GitHubServer, locale: str, note: str, text: str
) -> None:
    post.system = {**post.system, "locale": locale}
    general, task = await at_work(post, **ISSUE)
    await cancelled(post, general, task, note)
    assert (post.result(task)["status"], said(github)) == ("cancelled", [text])


async def test_nothing_is_said_where_they_did_it_themselves_or_replies_are_off(
    post: Post, github: GitHubServer
) -> None:
    general, task = await at_work(post, **ISSUE)
    await cancelled(post, general, task, None)
    lands(post, replies=False)
    fake(post).orders.clear()
    general, second = await at_work(post, 2, **ISSUE)
    await cancelled(post, general, second, "No.")
    assert [post.result(one)["status"] for one in (task, second)] == ["cancelled", "cancelled"]
    assert said(github) == []


async def test_of_a_task_that_was_never_begun_nobody_hears_as_nobody_saw_a_sign_of_it(
    post: Post, github: GitHubServer
) -> None:
    general, running = await at_work(post, **{**ISSUE, "payload": {"number": 6}})
    task = await post.task(2, **ISSUE)
    await cancelled(post, general, task, "")
    assert (post.result(task)["status"], said(github)) == ("cancelled", [])
    assert post.state(running) == "in_progress"


@pytest.mark.parametrize(("kind", "count"), [("opened", 0), ("review_requested", 1), ("check_failed", 0)])
async def test_only_a_review_that_somebody_asked_for_is_missed(
    post: Post, github: GitHubServer, kind: str, count: int
) -> None:
    if kind != "check_failed":
        lands(post, how="review")
    general, task = await at_work(post, **{**ISSUE, "type": f"github.pr.{kind}"})
    await cancelled(post, general, task, "")
    assert len(said(github)) == count


async def test_a_request_that_comes_too_late_says_nothing(post: Post, github: GitHubServer) -> None:
    done = Outcome("success", {"status": "success", "summary": "Done."})
    fake(post).script = lambda order, number: done
    task = await post.task(**ISSUE)
    await post.finish(task)
    general = post.general()
    await general.start()
    await cancelled(post, general, task, "")
    assert (post.result(task)["status"], said(github)) == ("success", [])


async def test_a_question_that_nobody_needs_to_answer_is_taken_back(post: Post, github: GitHubServer) -> None:
    fake(post).script = lambda order, number: Outcome("needs_human", QUESTION)
    task = await post.task(**ISSUE)
    await post.finish(task)
    general = post.general()
    await general.start()
    await cancelled(post, general, task, "")
    taken_back = "I stopped working on this: it was cancelled.\n\nMy question needs no answer any more."
    assert said(github)[1:] == [taken_back]


async def test_it_is_said_once_however_often_a_general_that_was_killed_says_it(
    post: Post, github: GitHubServer
) -> None:
    general, task = await at_work(post, **ISSUE)
    await cancelled(post, general, task, "")
    general = post.general()
    await general.start()
    await cancelled(post, general, task, "")  # the king's log was applied again
    assert len(said(github)) == 1


async def test_while_github_is_away_the_task_ends_and_the_reply_waits_for_the_next_process(
    post: Post, github: GitHubServer
) -> None:
    general, task = await at_work(post, **ISSUE)
    await post.work(general, lambda: bool(github.reactions))
    github.fail_next = [503]
    request_cancel(post.home, "gen-test", task.id, "cancelled by ann", "")
    await post.work(general, lambda: post.state(task) == "completed" and github.fail_next == [])
    await general.stop()
    assert (waiting(post), said(github)) == ([f"{task.id}-stopped"], [])
    general = post.general()
    await general.start()
    await post.work(general, lambda: waiting(post) == [])
    await general.stop()
    assert said(github) == ["I stopped working on this: it was cancelled."]


async def test_a_reply_that_is_refused_or_old_is_given_up(post: Post, github: GitHubServer) -> None:
    github.refuse.append("/comments")
    general, task = await at_work(post, **ISSUE)
    await cancelled(post, general, task, "")
    github.refuse.clear()
    github.reactions.clear()
    fake(post).orders.clear()
    general, second = await at_work(post, 2, **ISSUE)
    await post.work(general, lambda: bool(github.reactions))
    github.fail_next = [503]
    request_cancel(post.home, "gen-test", second.id, "cancelled by ann", "")
    await post.work(general, lambda: waiting(post) != [] and github.fail_next == [])
    github.fail_next = [503] * 9
    post.now += 2 * 86400.0
    await post.work(general, lambda: nothing_waits_later(post))
    await general.stop()
    assert said(github) == []


async def test_a_ticket_says_that_the_work_was_stopped_after_it_said_that_it_had_begun(
    post: Post, jira: FakeJira
) -> None:
    general, task = await at_work(post, **TICKET)
    await cancelled(post, general, task, "Not now.")
    comments = [adf_text(one["body"]) for one in jira.issues["APP-7"]["comments"]]
    stopped = f"I stopped working on this: it was cancelled. Not now.\n({task.id}, stopped)"
    assert comments == [f"I have begun. ({task.id})", stopped]


MANIFEST: dict[str, Any] = {"land": "pull-request", "retries": 0, "fetch_repo": False}


async def cancel_at_work(post: Post, task_id: str) -> None:
    """Have a task cancelled once its soldier works, unless it was before, and all be said that is to be said."""
    agents, result, asked = fake(post), post.home.result(task_id), False
    agents.gate.clear()
    general = post.general()
    await general.start()

    def ended() -> bool:
        nonlocal asked
        if not asked and not result.exists() and (agents.orders or agents.adopted):
            asked = True
            request_cancel(post.home, "gen-test", task_id, "cancelled by ann", "")
        posted_all = nothing_waits_later(post)  # a try fails on a busy machine
        left = cancel_requests(post.home, "gen-test") or not posted_all
        return result.exists() and not left and not list(post.home.queue.glob("tasks/in_progress/*"))

    await post.work(general, ended)
    await general.stop()


async def _mortal(root: Path, url: str, host: str, task_id: str, when: int) -> None:
    deadly = Deadly(root / "home", when)
    async with posted(root, **MANIFEST) as post:
        settle(post, url, host)
        post.agents = agents = DeadlyAgents(root / "agents")
        agents.deadly = deadly
        for name in ("claim", "settle"):
            setattr(post.bus, name, deadly.around(getattr(post.bus, name)))
        sys.addaudithook(deadly.watch)
        await cancel_at_work(post, task_id)


def mortal(root: str, url: str, host: str, task_id: str, when: int) -> None:
    """A process with a general in it that is killed at one point."""
    asyncio.run(_mortal(Path(root), url, host, task_id, when))


@pytest.mark.walk
@pytest.mark.timeout(300)
async def test_a_general_that_is_killed_at_any_point_says_it_once(tmp_path: Path, github: GitHubServer) -> None:
    for when in range(1, 500):
        root = tmp_path / f"at-{when}"
        async with posted(root, **MANIFEST) as post:
            task = await post.task(**{**ISSUE, "payload": {"number": when}})
        code = await asyncio.to_thread(fate, mortal, str(root), github.url, github.host, task.id, when)
        assert code in (0, -signal.SIGKILL)
        async with posted(root, **MANIFEST) as post:
            settle(post, github.url, github.host)
            await cancel_at_work(post, task.id)
            assert (post.result(task)["status"], post.status(task)) == ("cancelled", "cancelled")
        texts = [one["body"].partition("\n")[0] for one in github.comments[("acme/app", when)]]
        assert texts == ["I stopped working on this: it was cancelled."], f"killed at {when}"
        if code == 0:
            print(f"killed at {when - 1} points")
            assert when > 20, "the walk was too short to mean anything"
            return
    pytest.fail("the story never ends")


# ── what the king asks for ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
async def realm(tmp_path: Path) -> AsyncIterator[Realm]:
    async with Realm(tmp_path).open() as realm:
        realm.install("gen-fix", subscribes=["github.issue.assigned"], cancel_on=["github.issue.closed"])
        yield realm


async def reign(realm: Realm) -> None:
    king = realm.king()
    await king.start()
    await looks(king)
    await king.stop()


async def asking(realm: Realm) -> Task:
    """A task that asks; returns it."""
    await realm.event(1, "github.issue.assigned", repo="acme/app", payload={"number": 5})
    await reign(realm)
    (task,) = await realm.work("gen-fix", status="needs_human", question={"text": "red or blue?"})
    await reign(realm)
    return task


async def cancels(realm: Realm, task_id: str, note: str = "Too dear.") -> None:
    payload = {"task_id": task_id, "user": "ann", "note": note}
    await realm.event(f"cancel-{task_id}-1", "console.task_cancel", payload=payload)
    await reign(realm)


async def test_an_open_question_is_cancelled_and_the_general_is_to_say_so(realm: Realm) -> None:
    asked = await asking(realm)
    await cancels(realm, asked.id)
    assert cancel_requests(realm.home, "gen-fix") == {asked.id: ("cancelled by ann: Too dear.", "Too dear.")}
    assert realm.messages()[-1].content.splitlines()[-1] == "cancelled by ann: Too dear."
    await reign(realm)
    assert len(realm.messages()) == 3


async def test_a_task_that_was_to_go_on_is_cancelled_and_the_general_says_so_where_it_asked(realm: Realm) -> None:
    asked = await asking(realm)
    await realm.answer(asked.id, "red")
    await reign(realm)
    (resumed,) = realm.tasks()
    await cancels(realm, resumed.id)
    assert cancel_requests(realm.home, "gen-fix") == {asked.id: ("cancelled by ann: Too dear.", "Too dear.")}


async def test_of_a_waiting_task_and_of_what_was_closed_there_nothing_is_to_be_said(realm: Realm) -> None:
    await realm.event(1, "github.issue.assigned", repo="acme/app", payload={"number": 5})
    await reign(realm)
    (waiting_task,) = realm.tasks()
    await cancels(realm, waiting_task.id)
    assert cancel_requests(realm.home, "gen-fix") == {}
    await realm.event(2, "github.issue.assigned", repo="acme/app", payload={"number": 6})
    await reign(realm)
    await realm.work("gen-fix", status="needs_human", question={"text": "red or blue?"})
    await realm.event(3, "github.issue.closed", repo="acme/app", payload={"number": 6, "actor": "ann"})
    await reign(realm)
    assert realm.where("evt-github-2") == ("completed", "cancelled")
    assert cancel_requests(realm.home, "gen-fix") == {}


# ── a question that could not be posted ───────────────────────────────────────────────────────────────────────────────


async def unposted(post: Post, github: GitHubServer) -> tuple[General, Task]:
    """A task that asks while GitHub is away."""
    fake(post).script = lambda order, number: Outcome("needs_human", QUESTION)
    general, task = await at_work(post, **ISSUE)
    await post.work(general, lambda: bool(github.reactions))
    github.fail_next = [503]
    fake(post).gate.set()
    await post.work(general, lambda: post.state(task) == "completed")
    assert ("asked_at" in post.result(task), waiting(post), said(github)) == (False, [f"{task.id}-reply"], [])
    return general, task


async def test_a_question_is_posted_when_github_is_back_and_the_king_learns_when(
    post: Post, github: GitHubServer
) -> None:
    general, task = await unposted(post, github)
    github.fail_next = [503, 503]
    await post.work(general, lambda: nothing_waits_later(post))
    await general.stop()
    assert github.fail_next == []
    (question,) = said(github)
    assert question.startswith("I have a question before I go on: By name or by size?")
    assert post.home.asked(task.id).read_text() == github.now


async def test_a_question_that_was_answered_elsewhere_meanwhile_is_not_posted(post: Post, github: GitHubServer) -> None:
    general, task = await unposted(post, github)
    answer = {
        "id": f"evt-console-response-{task.id}-1",
        "type": "console.human_response",
        "source": "console",
        "created_at": "2026-09-21T12:00:00Z",
        "payload": {"task_id": task.id, "text": "name"},
    }
    await put_documents(post.bus, [Event.model_validate(answer)])
    await post.work(general, lambda: nothing_waits_later(post))
    await general.stop()
    assert (said(github), post.home.asked(task.id).exists()) == ([], False)


async def test_the_task_that_goes_on_takes_an_unposted_question_back(post: Post, github: GitHubServer) -> None:
    general, asked = await unposted(post, github)
    fake(post).script = lambda order, number: Outcome("failed", {"status": "failed", "error": "No."})
    payload = {"number": 5, "original_task_id": asked.id, "answer": "name", "user": "ada"}
    task = await post.task(2, repo="acme/app", type="resume", payload=payload)
    await post.work(general, lambda: post.state(task) == "completed")
    await general.stop()
    assert (waiting(post), said(github)) == ([], ["I could not do this: No."])


async def test_a_comment_after_a_question_that_was_posted_late_is_its_answer(realm: Realm) -> None:
    realm.install("gen-fix", subscribes=["github.issue.*"], notify="silent")
    asked = await asking(realm)
    for event, at in ((2, "12:00"), (3, "12:02"), (4, "12:03")):
        payload = {"number": 5, "actor": "ann", "comment": {"author": "ann", "body": f"red, at {at}"}}
        fields = {"repo": "acme/app", "payload": payload, "created_at": f"2026-02-07T{at}:00Z"}
        await realm.event(event, "github.issue.mentioned", **fields)
    await reign(realm)
    assert realm.tasks() == [], "nobody has seen the question"
    realm.home.asked(asked.id).write_text("2026-02-07T12:01:00Z")
    await reign(realm)
    (resumed,) = realm.tasks()
    assert (resumed.type, resumed.payload["answer"]) == ("resume", "red, at 12:02")
    assert realm.ids("events", "pending") == ["evt-github-2", "evt-github-4"], "they are tasks of their own, later"


# ── work that is landed later ─────────────────────────────────────────────────────────────────────────────────────────


def commits(order: Order, number: int) -> Outcome:
    """A soldier that commits a file."""
    (order.cwd / "ls.py").write_text("pass\n")
    plain_git(order.cwd, "add", "ls.py")
    plain_git(order.cwd, "commit", "--quiet", "--message", "Sort the list")
    return Outcome("success", {"status": "success", "summary": "The list is sorted."})


def installed(post: Post, github: GitHubServer) -> Services:
    """What ``kingdom task land`` reads."""
    (post.home.config / "system.yaml").write_text(json.dumps(post.system | {"repos": {"base_url": github.url}}))
    package = {**post.manifest.model_dump(mode="json", exclude_defaults=True), "subscribes": ["test.happened"]}
    (post.folder / "manifest.yaml").write_text(json.dumps(package))
    return Services(post.home, post.bus, post.journal, lambda: post.now)


async def test_a_ticket_gets_the_link_of_what_was_landed_later_once(
    post: Post, jira: FakeJira, github: GitHubServer
) -> None:
    github.refuse.append("/pulls")
    fake(post).script = commits
    task = await post.task(**TICKET)
    (result,) = await post.finish(task)
    assert "was not landed" in result["summary"]
    github.refuse.clear()
    services = installed(post, github)
    post.now += 3 * 86400.0  # it is done after some days
    landed = await land_again(services, task.id)
    note = json.loads(post.home.landing(task.id).read_text())
    assert (note["links"], note["pull_requests"][0]["opened_for"]) == ([landed.url], "APP-7")
    post.home.landing(task.id).unlink()
    general = post.general()
    await general.start()
    await post.work(general, lambda: waiting(post) == [])
    await land_again(services, task.id)
    assert (waiting(post), post.home.landing(task.id).exists()) == ([], False)
    await general.stop()
    comments = [adf_text(one["body"]) for one in jira.issues["APP-7"]["comments"]]
    link = f"The list is sorted.\n{landed.url}\n{task.id}, gen-test"
    assert comments == [f"I have begun. ({task.id})", link]


async def test_a_message_about_what_was_landed_later_is_in_the_thread_that_the_question_was_in(realm: Realm) -> None:
    asked = await asking(realm)
    await realm.answer(asked.id, "red")
    await reign(realm)
    (task,) = await realm.work("gen-fix", not_landed="the remote refused it")
    await reign(realm)
    (landed,) = [message for message in realm.messages() if "gen-fix finished" in message.content]
    note = {"task_id": task.id, "summary": "Mended.", "branch": "kingdom/x", "links": []}
    realm.home.landings.mkdir()
    realm.home.landing(task.id).write_text('{"task_id": ')  # a report that is being taken in
    await reign(realm)
    assert realm.messages()[-1] == landed
    realm.home.landing(task.id).write_text(json.dumps(note))
    await reign(realm)
    later = realm.messages()[-1]
    assert later.content == "gen-fix landed acme/app#5\nkingdom/x"
    assert later.context["original_task_id"] == landed.context["original_task_id"] == asked.id
    assert later.context["follows"] == landed.id
