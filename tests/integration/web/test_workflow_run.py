"""A whole workflow over the web: real git, a real store, agents that play a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.web import web_app
from tests.support.web_work import REPORT, Desk, data, error, remote, scripted, wait_for_refusals, write


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> str | None:
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgresql" else None


async def test_a_workflow_is_made_run_looked_at_gone_back_in_and_forked(tmp_path: Path, store: str | None) -> None:
    source = remote(tmp_path)
    async with web_app(tmp_path / "home", court=False, engine=True, store=store) as web:
        desk = Desk(web)
        git = (await desk.post("gits", {"name": "web", "url": source.url}))["id"]
        plan = scripted("plan", {"say": "I look around."}, write("plan.md", "one\ntwo\n"))
        plan["tasks"][0]["outline"] = ["Findings"]
        used = {"usage": {"input": 10, "output": 5, "cost_usd": 0.25}}
        template = await desk.template(plan, scripted("fix", write("plan.md", "one\n2\n"), used), git=git)
        made = await desk.post("workflows", {"templateId": template, "name": "Fix it", "issueKey": "WEB-42"})
        assert (made["status"], made["worksTotal"], made["allowed"]) == (
            "CREATED", 2, ["start", "cancel", "modify", "delete"],
        )  # fmt: skip
        path = f"workflows/{made['id']}"

        await desk.post(f"{path}/start", status=202)
        done = await desk.until(made["id"], "COMPLETED", "PAUSED", "FAILED")
        assert (done["status"], done["reason"], done["worksCompleted"]) == ("COMPLETED", None, 2)
        for action in ("start", "pause", "cancel"):
            error(await web.client.post(f"/api/{path}/{action}"), 409, "WFL_ILLEGAL_TRANSITION")
        assert done["allowed"] == ["goBack", "followUp", "modify", "land", "delete"]

        events = await desk.get(f"{path}/events", limit=3)
        assert [event["sequence"] for event in events["items"]] == [1, 2, 3]
        rest = await desk.get(f"{path}/events", after=events["nextCursor"])
        assert rest["items"][-1]["type"] == "WorkflowCompleted"

        first, second = (await desk.get(f"{path}/checkpoints"))["items"]
        assert [first["workName"], second["workName"]] == ["plan", "fix"]
        (changed,) = (await desk.get(f"{path}/checkpoints/{second['id']}/diff"))["repositories"]
        (file,) = changed["files"]
        assert (changed["older"], changed["newer"]) == (first["hashes"]["web"], second["hashes"]["web"])
        assert [(line["kind"], line["text"]) for line in file["hunks"][0]["lines"]] == [
            (" ", "one"), ("-", "two"), ("+", "2"),
        ]  # fmt: skip
        whole = await desk.get(f"{path}/checkpoints/{second['id']}/diff", against="base", form="patch")
        assert "+2" in whole["repositories"][0]["files"][0]["patch"]
        counts = await desk.get(f"{path}/checkpoints/{second['id']}/diff", against=first["id"], form="stat")
        assert (
            counts["repositories"][0]["files"][0] | {"added": 1, "removed": 1, "hunks": []}
            == (counts["repositories"][0]["files"][0])
        )
        assert await desk.get(f"{path}/verify", deep=True) == {"checked": 2, "problems": []}

        (report,) = (await desk.get(f"{path}/reports"))["items"]
        assert (await desk.get(f"{path}/reports/{report['id']}"))["text"] == REPORT
        said = await desk.get(f"{path}/output")
        assert "I look around." in [word["text"] for word in said["items"]]
        assert (await desk.get(f"{path}/output", cursor=said["cursor"]))["items"] == []
        last = await desk.get(f"{path}/output", limit=1)  # what was said before the last words is no news later
        assert (len(last["items"]), (await desk.get(f"{path}/output", cursor=last["cursor"]))["items"]) == (1, [])
        usage = await desk.get(f"{path}/usage")
        assert (usage["costUsd"], usage["tokens"]["total"], usage["byWork"]["fix"]) == (0.25, 15, 0.25)
        (listed,) = (await desk.get("workflows", search="web-42", status="COMPLETED"))["items"]
        assert (listed["id"], listed["costUsd"]) == (made["id"], 0.25)

        refused = error(await web.client.post(f"/api/{path}/land"), 409, "GIT_FAILED")
        assert "it has no pull requests" in refused["message"]
        landed = await desk.post(f"{path}/land", {"how": "push"}, status=200)
        assert [(one["branch"], one["base"], one["url"]) for one in landed["landings"]] == [
            ("kingdom/WEB-42-Fix-it", "main", None)
        ]
        assert source.git("log", "--format=%an", "main..kingdom/WEB-42-Fix-it").splitlines() == ["Kingdom"] * 2
        assert source.git("show", "kingdom/WEB-42-Fix-it:plan.md") == "one\n2"

        fork = await desk.post(f"{path}/fork", {"checkpointId": first["id"], "name": "Another way"})
        assert [work["status"] for work in fork["works"]] == ["COMPLETED", "PENDING"]
        fork_path = f"workflows/{fork['id']}"
        await desk.post(f"{fork_path}/start", status=202)
        assert (await desk.until(fork["id"], "COMPLETED", "PAUSED", "FAILED"))["status"] == "COMPLETED"
        saved = await desk.post(f"{fork_path}/template", {"name": "saved"})
        assert [work["name"] for work in saved["works"]] == ["plan", "fix"]

        assert (await desk.get(f"{path}/rescues"))["items"] == []
        await desk.post(f"{path}/resume", {"checkpointId": first["id"], "hold": True}, status=202)
        held = await desk.until(made["id"], "PAUSED", "FAILED")
        (tree,) = [Path(one["path"]) for one in held["repositories"]]
        assert (tree / "plan.md").read_text() == "one\ntwo\n"
        (dropped,) = (await desk.get(f"{path}/rescues"))["items"]
        assert (dropped["repository"], dropped["ref"].endswith(dropped["id"])) == ("web", True)
        restored = await desk.post(f"{path}/rescues/{dropped['id']}/restore", status=200)
        assert (restored["rescue"], restored["path"]) == (dropped, str(tree))
        assert (tree / "plan.md").read_text() == "one\n2\n"
        error(await web.client.post(f"/api/{path}/rescues/nothing/restore"), 404, "WFL_NOT_FOUND")

        data(await web.client.delete(f"/api/{path}"))
        error(await web.client.get(f"/api/{path}"), 404, "WFL_NOT_FOUND")
        assert (await desk.get(f"{path}/events", limit=100))["items"][-1]["type"] == "WorkflowDeleted"


async def test_a_completed_workflow_is_followed_up_and_lands_on_the_same_branch(tmp_path: Path) -> None:
    source = remote(tmp_path)
    async with web_app(tmp_path / "home", court=False, engine=True) as web:
        desk = Desk(web)
        git = (await desk.post("gits", {"name": "web", "url": source.url}))["id"]
        template = await desk.template(scripted("fix", write("fix.md", "one\n")), git=git)
        made = await desk.post("workflows", {"templateId": template, "name": "Fix it"})
        path = f"workflows/{made['id']}"
        refused = error(
            await web.client.post(f"/api/{path}/follow-up", json={"text": "More."}), 409, "WFL_ILLEGAL_TRANSITION"
        )
        assert "CREATED" in refused["message"]
        await desk.post(f"{path}/start", status=202)
        assert (await desk.until(made["id"], "COMPLETED", "PAUSED"))["status"] == "COMPLETED"
        await desk.post(f"{path}/land", {"how": "push"}, status=200)

        error(await web.client.post(f"/api/{path}/follow-up", json={"text": " \n "}), 422, "SYS_INVALID")
        wrong = {"text": "More.", "work": "nowhere"}
        error(await web.client.post(f"/api/{path}/follow-up", json=wrong), 404, "WFL_NOT_FOUND")
        await desk.post(f"{path}/follow-up", {"text": "Say it in {{ Korean }}, too"}, status=202)
        done = await desk.until(made["id"], "COMPLETED", "PAUSED", "FAILED", works=2)
        assert done["status"] == "COMPLETED", done["reason"]
        assert [(work["name"], work["continues"]) for work in done["works"]] == [
            ("fix", None), ("say-it-in-korean-too", "fix"),
        ]  # fmt: skip
        landed = await desk.post(f"{path}/land", {"how": "push"}, status=200)
        assert [one["branch"] for one in landed["landings"]] == ["kingdom/Fix-it"]


async def test_a_workflow_that_stopped_is_changed_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_refusals(monkeypatch)
    source = remote(tmp_path)
    async with web_app(tmp_path / "home", court=False, engine=True) as web:
        desk = Desk(web)
        git = (await desk.post("gits", {"name": "web", "url": source.url}))["id"]
        template = await desk.template(
            scripted("plan", write("plan.md", "one\n")), scripted("fix", {"fail": "I cannot."}), git=git
        )
        made = await desk.post("workflows", {"templateId": template, "issueKey": "WEB-1"})
        path = f"workflows/{made['id']}"
        await desk.post(f"{path}/start", status=202)
        stopped = await desk.until(made["id"], "PAUSED", "COMPLETED", "FAILED")
        assert (stopped["status"], stopped["worksFailed"]) == ("PAUSED", 1)
        assert "I cannot." in stopped["reason"]
        error(await web.client.delete(f"/api/gits/{git}"), 409, "GIT_IN_USE")
        fix = stopped["works"][1]

        better = {"script": [write("fix.md", "done\n")]}
        change = {"type": "updateWork", "workId": fix["id"], "values": {"engineOptions": better}}
        rename = {"type": "updateTask", "taskId": fix["tasks"][0]["id"], "values": {"query": "Do it well."}}
        changed = data(await web.client.patch(f"/api/{path}", json={"changes": [change, rename]}))
        assert changed["works"][1]["tasks"][0]["query"] == "Do it well."

        (point,) = stopped["checkpoints"]
        error(await web.client.post(f"/api/{path}/resume", json={"checkpointId": "cp-nowhere"}), 404, "WFL_NOT_FOUND")
        await desk.post(f"{path}/resume", {"checkpointId": point["id"]}, status=202)
        done = await desk.until(made["id"], "PAUSED", "COMPLETED", "FAILED")
        assert done["status"] == "COMPLETED", done["reason"]
        assert done["works"][1]["attempt"] == 2
        error(await web.client.post(f"/api/{path}/resume"), 409, "WFL_ILLEGAL_TRANSITION")


async def test_a_workflow_that_runs_is_paused_retried_and_cancelled(tmp_path: Path) -> None:
    async with web_app(tmp_path / "home", court=False, engine=True) as web:
        desk = Desk(web)
        template = await desk.template(scripted("wait", {"say": "I wait."}, {"wait": 60}))
        made = await desk.post("workflows", {"templateId": template, "issueKey": "WEB-1"})
        path = f"workflows/{made['id']}"
        await desk.post(f"{path}/start", status=202)
        running = await desk.until(made["id"], "RUNNING", "PAUSED", "FAILED")
        assert running["status"] == "RUNNING", running["reason"]
        error(await web.client.delete(f"/api/{path}"), 409, "MOD_NOT_NOW")
        change = {"type": "removeWork", "workId": running["works"][0]["id"]}
        error(await web.client.patch(f"/api/{path}", json={"changes": [change]}), 409, "MOD_NOT_NOW")

        paused = await desk.post(f"{path}/pause", {"reason": "lunch"}, status=200)
        assert (paused["status"], paused["reason"]) == ("PAUSED", "lunch")
        await desk.post(f"{path}/resume", {"retry": True}, status=202)
        await desk.until(made["id"], "RUNNING")
        cancelled = await desk.post(f"{path}/cancel", status=200)
        assert cancelled["status"] == "CANCELLED"
        error(await web.client.post(f"/api/{path}/cancel"), 409, "WFL_ILLEGAL_TRANSITION")


async def test_a_repository_that_cannot_be_cloned_shows_in_the_state_of_the_workflow(tmp_path: Path) -> None:
    async with web_app(tmp_path / "home", court=False, engine=True) as web:
        desk = Desk(web)
        git = (await desk.post("gits", {"name": "gone", "url": str(tmp_path / "nowhere"), "check": False}))["id"]
        made = await desk.post("workflows", {"templateId": await desk.template(scripted("fix"), git=git)})
        await desk.post(f"workflows/{made['id']}/start", status=202)
        failed = await desk.until(made["id"], "FAILED")
        assert failed["reason"].startswith("a worktree could not be made")
        assert failed["repositories"][0]["error"]
