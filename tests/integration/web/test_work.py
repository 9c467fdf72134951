"""Repositories, MCP servers, templates and workflows over the web, on a real store: what is kept, and what refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kingdom.workflow.domain.resources import GitRef, McpServerRef
from kingdom.workflow.domain.workflow import TaskDefinition, WorkDefinition, WorkflowTemplate
from tests.support.web import web_app
from tests.support.web_work import Desk, data, error, scripted, wait_for_refusals

SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with web_app(tmp_path / "home", court=False) as web:
        yield Desk(web)


# ── repositories ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_repository_is_registered_listed_and_deleted(desk: Desk) -> None:
    made = await desk.post("gits", {"name": "  web ", "url": "https://example.org/web.git", "check": False})
    assert (made["name"], made["url"], made["usedBy"]) == ("web", "https://example.org/web.git", [])
    assert await desk.get(f"gits/{made['id']}") == made
    assert (await desk.get("gits"))["items"] == [made]
    assert data(await desk.client.delete(f"/api/gits/{made['id']}")) == {"id": made["id"]}
    error(await desk.client.get(f"/api/gits/{made['id']}"), 404, "GIT_NOT_FOUND")
    error(await desk.client.delete(f"/api/gits/{made['id']}"), 404, "GIT_NOT_FOUND")


@pytest.mark.parametrize(
    "url",
    ["ext::sh -c touch% x", "--upload-pack=touch x", "git://example.org/x", "http://example.org/x", "https://u:p@h/x",
     "file://../x", "relative/path", "https://example.org", "ssh://-oProxyCommand=x/y", "user@host:-x"],
)  # fmt: skip
async def test_a_url_that_could_run_something_is_refused(desk: Desk, url: str) -> None:
    told = error(await desk.client.post("/api/gits", json={"name": "web", "url": url}), 422, "GIT_URL")
    assert "p@h" not in told["message"]


@pytest.mark.parametrize("name", ["", "   ", "x" * 101, "a/b", "-x", "a\nb", "a@b", "../x", "\x00"])
async def test_a_name_that_is_none_is_refused(desk: Desk, name: str) -> None:
    answer = await desk.client.post("/api/gits", json={"name": name, "url": "https://example.org/x"})
    assert error(answer, 422, "SYS_INVALID")["details"][0]["where"] == "body.name"


async def test_a_repository_that_cannot_be_read_is_refused(desk: Desk, tmp_path: Path) -> None:
    nothing = {"name": "web", "url": str(tmp_path / "nothing")}
    told = error(await desk.client.post("/api/gits", json=nothing), 422, "GIT_REFUSED")
    assert "cannot be read" in told["message"]
    assert (await desk.get("gits"))["items"] == []
    await desk.post("gits", nothing | {"check": False})


async def test_two_who_want_the_same_name_at_once_do_not_both_get_it(desk: Desk) -> None:
    body = {"name": "web", "url": "https://example.org/x", "check": False}
    answers = await asyncio.gather(*(desk.client.post("/api/gits", json=body) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409]
    error(await desk.client.post("/api/gits", json=body), 409, "GIT_NAME_TAKEN")


async def test_lists_come_in_pages_the_newest_first(desk: Desk) -> None:
    for number in range(5):
        await desk.post("gits", {"name": f"r{number}", "url": "https://example.org/x", "check": False})
    names, cursor = [], None
    while True:
        page = await desk.get("gits", limit=2, **({} if cursor is None else {"cursor": cursor}))
        names += [one["name"] for one in page["items"]]
        if (cursor := page["nextCursor"]) is None:
            break
    assert names == ["r4", "r3", "r2", "r1", "r0"]
    for wrong in ("x", "e30", "WzFd", "IgAi", "%%%"):
        error(await desk.client.get("/api/gits", params={"cursor": wrong}), 422, "SYS_CURSOR")
    for limit in (0, 101, "x"):
        error(await desk.client.get("/api/gits", params={"limit": limit}), 422, "SYS_INVALID")


# ── MCP servers ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_values_of_an_mcp_server_are_not_shown_and_references_are(desk: Desk) -> None:
    env = {"TOKEN": "${TRACKER_TOKEN}", "PLACE": "in the open", "MIXED": "x${A}"}
    made = await desk.post("mcp-servers", {"name": "tracker", "command": ["npx", "t"], "env": env})
    assert made["env"] == {"TOKEN": "${TRACKER_TOKEN}", "PLACE": "***", "MIXED": "***"}
    url = await desk.post(
        "mcp-servers",
        {"name": "far", "url": "https://example.org/mcp?key=abc", "env": {"Authorization": "Bearer ${TOKEN}"}},
    )
    assert (url["url"], url["env"]) == ("https://example.org/mcp?key=***", {"Authorization": "Bearer ${TOKEN}"})
    assert (await desk.get("mcp-servers"))["items"] == [url, made]
    assert await desk.get(f"mcp-servers/{made['id']}") == made
    data(await desk.client.delete(f"/api/mcp-servers/{made['id']}"))
    error(await desk.client.get(f"/api/mcp-servers/{made['id']}"), 404, "MCP_NOT_FOUND")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"command": ["x"], "env": {"TOKEN": SECRET}}, "MCP_SECRET"),
        ({"command": ["x", SECRET]}, "MCP_SECRET"),
        ({"command": ["x"], "env": {"A": "***"}}, "MCP_HIDDEN_VALUE"),
        ({"command": ["x"], "env": {"lower": "x"}}, "SYS_INVALID"),
        ({"command": ["x"], "url": "https://example.org"}, "SYS_INVALID"),
        ({}, "SYS_INVALID"),
        ({"url": "file:///etc/passwd"}, "SYS_INVALID"),
        ({"url": "https://u:p@example.org/"}, "SYS_INVALID"),
        ({"command": ["x"], "unknown": 1}, "SYS_INVALID"),
    ],
)
async def test_an_mcp_server_that_makes_no_sense_is_refused(desk: Desk, body: dict[str, Any], code: str) -> None:
    answer = await desk.client.post("/api/mcp-servers", json={"name": "tracker", **body})
    assert SECRET not in str(error(answer, 422, code)["message"])


# ── templates ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_template_is_the_same_as_fields_and_as_yaml(desk: Desk) -> None:
    git = (await desk.post("gits", {"name": "web", "url": "https://example.org/x", "check": False}))["id"]
    server = (await desk.post("mcp-servers", {"name": "tracker", "command": ["x"]}))["id"]
    work = scripted("fix", mcpServerRefs=[{"mcpServerId": server, "env": {"TOKEN": "${TOKEN}"}}], pauseAfter=True)
    kept = await desk.post(
        "workflow-templates", {"name": "fix", "description": "d", "gitRefs": [{"gitId": git}], "works": [work]}
    )
    path = f"workflow-templates/{kept['id']}"
    text = (await desk.get(f"{path}/yaml"))["yaml"]
    assert "repositories:\n  - web\n" in text
    both = await desk.post("workflow-templates/convert", {"yaml": text}, status=200)
    assert both["yaml"] == text
    assert {**both["fields"], "id": kept["id"], "version": 1} == kept
    fields = {name: kept[name] for name in both["fields"]}
    assert (await desk.post("workflow-templates/convert", {"fields": fields}, status=200))["yaml"] == text

    again = await desk.post("workflow-templates/yaml", {"yaml": text.replace("name: fix", "name: second", 1)})
    assert again["works"] == kept["works"]
    changed = data(await desk.client.put(f"/api/{path}/yaml", json={"yaml": text.replace("TOKEN", "OTHER")}))
    assert (changed["version"], changed["works"][0]["mcpServerRefs"][0]["env"]) == (2, {"OTHER": "${OTHER}"})
    same = data(await desk.client.put(f"/api/{path}", json={**fields, "description": "new"}))
    assert (same["version"], same["description"]) == (3, "new")
    assert [one["name"] for one in (await desk.get("workflow-templates", search="SEC"))["items"]] == ["second"]
    data(await desk.client.delete(f"/api/{path}"))
    error(await desk.client.get(f"/api/{path}/yaml"), 404, "TPL_NOT_FOUND")
    error(await desk.client.put(f"/api/{path}", json=fields), 404, "TPL_NOT_FOUND")


async def test_a_value_nobody_is_shown_survives_a_change(desk: Desk) -> None:
    """Of a template made elsewhere, where values may be written down."""
    store = desk.web.context.parts.store
    server = (await desk.post("mcp-servers", {"name": "tracker", "command": ["x"]}))["id"]
    ref = McpServerRef(server, {"PLACE": "the cellar"})
    work = WorkDefinition("fix", (TaskDefinition("one", "Do it."),), mcp_server_refs=(ref,))
    async with store.transaction() as tx:
        await tx.templates.save(WorkflowTemplate("tpl-1", "fix", (work,), mcp_server_refs=(ref,)))
    text = (await desk.get("workflow-templates/tpl-1/yaml"))["yaml"]
    assert "cellar" not in text
    data(await desk.client.put("/api/workflow-templates/tpl-1/yaml", json={"yaml": f"{text}description: d\n"}))
    async with store.reading() as tx:
        kept = await tx.templates.get("tpl-1")
    assert (kept.description, kept.mcp_server_refs, kept.works[0].mcp_server_refs) == ("d", (ref,), (ref,))
    error(await desk.client.post("/api/workflow-templates/yaml", json={"yaml": text.replace("fix", "new")}), 422,
          "MCP_HIDDEN_VALUE")  # fmt: skip


async def test_a_template_from_a_file_is_shown_though_a_request_could_not_make_it(desk: Desk) -> None:
    query, about = "x" * 10_001, "d" * 1001
    text = f"name: fix\ndescription: {about}\nworks:\n  - name: a\n    tasks: [{{query: {query}}}]\n"
    kept = await desk.post("workflow-templates/yaml", {"yaml": text})
    assert (kept["description"], kept["works"][0]["tasks"][0]["query"]) == (about, query)
    converted = await desk.post("workflow-templates/convert", {"yaml": text}, status=200)
    assert converted["fields"]["works"] == kept["works"]
    fields = {name: kept[name] for name in ("name", "description", "works")}
    error(await desk.client.put(f"/api/workflow-templates/{kept['id']}", json=fields), 422, "SYS_INVALID")


async def test_every_problem_of_a_template_is_told(desk: Desk) -> None:
    text = "name: fix\nrepositories: [nowhere]\nworks:\n  - name: a\n    engine: none\n    tasks: [{query: '{{'}]\n"
    answer = await desk.client.post("/api/workflow-templates/yaml", json={"yaml": text})
    problems = error(answer, 422, "TPL_INVALID")["details"]
    assert [problem.split(": ")[0] for problem in problems] == ["template:2", "template:4", "template:6"]
    circle = [scripted("a", after=["b"]), scripted("b", after=["a"])]
    told = error(
        await desk.client.post("/api/workflow-templates", json={"name": "x", "works": circle}), 422, "TPL_INVALID"
    )
    assert "wait for each other" in told["message"]
    await desk.template(scripted("fix"))
    error(
        await desk.client.post("/api/workflow-templates", json={"name": "fix", "works": [scripted("a")]}),
        409, "TPL_NAME_TAKEN",
    )  # fmt: skip
    for query in ("", "x" * 10_001, "{% for %}"):
        work = scripted("a") | {"tasks": [{"name": "one", "query": query}]}
        answer = await desk.client.post("/api/workflow-templates", json={"name": "y", "works": [work]})
        error(answer, 422, "SYS_INVALID")


# ── workflows ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_workflows_are_found_by_state_and_words(desk: Desk) -> None:
    template = await desk.template(scripted("fix"))
    made = [
        await desk.post("workflows", {"templateId": template, "name": name, "issueKey": key})
        for name, key in [("Fix it", "WEB-1"), ("고치기", "WEB-2"), ("Fix 100%", None)]
    ]
    found = await desk.get("workflows")
    assert [one["id"] for one in found["items"]] == [one["id"] for one in reversed(made)]
    for search, names in {
        "fix": ["Fix 100%", "Fix it"],
        "고치": ["고치기"],
        "web-1": ["Fix it"],
        "%": ["Fix 100%"],
    }.items():
        assert [one["name"] for one in (await desk.get("workflows", search=search))["items"]] == names
    assert (await desk.get("workflows", status=["RUNNING", "PAUSED"]))["items"] == []
    assert len((await desk.get("workflows", status="CREATED", limit=2))["items"]) == 2
    page = await desk.get("workflows", sort="oldest", limit=2)
    rest = await desk.get("workflows", sort="oldest", cursor=page["nextCursor"])
    assert [one["id"] for one in (*page["items"], *rest["items"])] == [one["id"] for one in made]
    for order, names in {
        "name": ["Fix 100%", "Fix it", "고치기"],
        "issue": ["Fix it", "고치기", "Fix 100%"],
        "status": ["Fix 100%", "고치기", "Fix it"],
        "progress": ["Fix 100%", "고치기", "Fix it"],
        "cost": ["Fix 100%", "고치기", "Fix it"],
    }.items():
        page = await desk.get("workflows", sort=order, limit=2)
        rest = await desk.get("workflows", sort=order, cursor=page["nextCursor"])
        assert [one["name"] for one in (*page["items"], *rest["items"])] == names, order
        assert rest["nextCursor"] is None
    for order, other in (("name", "cost"), ("newest", "name"), ("cost", "name"), ("name", "newest")):
        cursor = (await desk.get("workflows", sort=order, limit=1))["nextCursor"]
        foreign = await desk.client.get("/api/workflows", params={"sort": other, "cursor": cursor})
        error(foreign, 422, "SYS_CURSOR")
    assert len((await desk.get("workflows", since=found["items"][0]["createdAt"][:11] + "00:00:00Z"))["items"]) == 3
    assert (await desk.get("workflows", until="2020-01-01T00:00:00Z"))["items"] == []
    error(await desk.client.get("/api/workflows", params={"status": "ASLEEP"}), 422, "SYS_INVALID")
    error(await desk.client.get("/api/workflows", params={"search": "\x00"}), 422, "SYS_INVALID")


async def test_a_workflow_takes_what_it_is_given_instead_of_the_templates(desk: Desk) -> None:
    git = (await desk.post("gits", {"name": "web", "url": "https://example.org/x", "check": False}))["id"]
    template = await desk.template(scripted("fix"))
    made = await desk.post(
        "workflows",
        {"templateId": template, "description": "d", "variables": {"issue": {"title": "T"}}, "onFailure": "fail",
         "gitRefs": [{"gitId": git, "base": "develop"}], "land": {"squash": "all"}},
    )  # fmt: skip
    assert made["land"] == {"how": "pull-request", "squash": "all", "branch": None, "title": None, "body": None,
                            "draft": False}  # fmt: skip
    error(await desk.client.post("/api/workflows", json={"templateId": template, "land": {"body": "{% x"}}), 422,
          "TPL_INVALID")  # fmt: skip
    assert (made["description"], made["variables"], made["onFailure"]) == ("d", {"issue": {"title": "T"}}, "fail")
    assert made["repositories"][0]["base"] == "develop"
    unknown = scripted("fix", tasks=[{"name": "one", "query": "Do {{ issue.key }}"}])
    wrong = {"templateId": await desk.template(unknown, name="unknown")}
    told = error(await desk.client.post("/api/workflows", json=wrong), 422, "TPL_QUERY")
    assert "task fix/one: its query: the workflow has no issue.key" in told["message"]
    wrong = {"templateId": template, "gitRefs": [{"gitId": "git-nowhere"}]}
    error(await desk.client.post("/api/workflows", json=wrong), 422, "GIT_NOT_FOUND")
    wrong = {"templateId": template, "mcpServerRefs": [{"mcpServerId": "mcp-nowhere"}]}
    error(await desk.client.post("/api/workflows", json=wrong), 422, "MCP_NOT_FOUND")
    error(await desk.client.post("/api/workflows", json={"templateId": "tpl-nowhere"}), 404, "TPL_NOT_FOUND")
    for variables in ('{"a": NaN}', '{"a": "\\ud800"}'):
        body = f'{{"templateId": "{template}", "variables": {variables}}}'
        answer = await desk.client.post("/api/workflows", content=body, headers={"Content-Type": "application/json"})
        error(answer, 422, "SYS_INVALID")


async def test_every_kind_of_change_is_made_in_one_go(desk: Desk) -> None:
    git = (await desk.post("gits", {"name": "web", "url": "https://example.org/x", "check": False}))["id"]
    server = (await desk.post("mcp-servers", {"name": "tracker", "command": ["x"]}))["id"]
    made = await desk.post(
        "workflows", {"templateId": await desk.template(scripted("a"), scripted("b"), scripted("c"))}
    )
    a, b, c = (work["id"] for work in made["works"])
    one = made["works"][0]["tasks"][0]["id"]
    changes = [
        {"type": "addTask", "workId": a, "task": {"name": "two", "query": "More."}, "at": 0},
        {"type": "updateTask", "taskId": one, "values": {"retries": 5, "outline": ["Findings"]}},
        {"type": "removeWork", "workId": b},
        {"type": "addWork", "work": scripted("d")},
        {"type": "updateWork", "workId": c, "values": {"name": "cc", "model": None, "pauseAfter": True,
                                                       "mcpServerRefs": [{"mcpServerId": server}]}},
        {"type": "setGitRefs", "gitRefs": [{"gitId": git}]},
        {"type": "setMcpServerRefs", "mcpServerRefs": [{"mcpServerId": server, "env": {"A": "${A}"}}]},
        {"type": "updateWork", "workId": c, "values": {"continues": "a", "after": ["a"]}},
        {"type": "setDetails", "name": "other"},
        {"type": "setLandPlan", "land": {"how": "push", "title": "{{ workflow.name }}"}},
    ]  # fmt: skip
    path = f"/api/workflows/{made['id']}"
    changed = data(await desk.client.patch(path, json={"changes": changes}))
    assert [work["name"] for work in changed["works"]] == ["a", "cc", "d"]
    assert [task["name"] for task in changed["works"][0]["tasks"]] == ["two", "one"]
    assert (changed["works"][0]["tasks"][1]["retries"], changed["works"][1]["pauseAfter"]) == (5, True)
    assert (changed["repositories"][0]["gitId"], changed["mcpServers"]) == (git, [server])
    assert (changed["works"][1]["continues"], changed["works"][1]["after"]) == ("a", ["a"])
    assert (changed["name"], changed["land"]["how"], changed["land"]["squash"]) == ("other", "push", "work")
    back = {"type": "updateWork", "workId": c, "values": {"continues": None, "after": []}}
    changed = data(await desk.client.patch(path, json={"changes": [back, {"type": "setLandPlan", "land": None}]}))
    assert (changed["works"][1]["continues"], changed["land"]) == (None, None)
    order = {
        "changes": [
            {"type": "reorderWorks", "workIds": [c, changed["works"][2]["id"], a]},
            {"type": "reorderTasks", "workId": a, "taskIds": [one, changed["works"][0]["tasks"][0]["id"]]},
            {"type": "removeTask", "taskId": changed["works"][0]["tasks"][0]["id"]},
        ]
    }
    last = data(await desk.client.patch(path, json=order))
    assert [work["name"] for work in last["works"]] == ["cc", "d", "a"]
    assert [task["name"] for task in last["works"][2]["tasks"]] == ["one"]


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"type": "removeTask", "taskId": "task-nowhere"}, 404, "MOD_NOT_FOUND"),
        ({"type": "removeTask", "taskId": "TASK"}, 422, "TPL_INVALID"),
        ({"type": "updateTask", "taskId": "TASK", "values": {"query": None}}, 422, "MOD_INVALID"),
        ({"type": "updateWork", "workId": "WORK", "values": {"engine": "none"}}, 422, "MOD_INVALID"),
        ({"type": "addTask", "workId": "WORK", "task": {"name": "x", "query": "y"}, "at": 9}, 409, "MOD_NOT_NOW"),
        ({"type": "reorderWorks", "workIds": []}, 409, "MOD_NOT_NOW"),
        ({"type": "setGitRefs", "gitRefs": [{"gitId": "git-nowhere"}]}, 422, "GIT_NOT_FOUND"),
        ({"type": "updateWork", "workId": "WORK", "values": {"continues": "nobody"}}, 422, "TPL_INVALID"),
        ({"type": "updateWork", "workId": "WORK", "values": {"continues": "a"}}, 422, "TPL_INVALID"),
        ({"type": "updateWork", "workId": "WORK", "values": {"merge": True}}, 422, "TPL_INVALID"),
        ({"type": "addWork", "work": scripted("b", continues="nobody")}, 422, "TPL_INVALID"),
        ({"type": "addWork", "work": scripted("b", merge=True, after=["a"])}, 422, "SYS_INVALID"),
        ({"type": "setLandPlan", "land": {"title": "{{"}}, 422, "TPL_INVALID"),
        ({"type": "setLandPlan", "land": {"branch": " "}}, 422, "TPL_INVALID"),
        ({"type": "setLandPlan", "land": {"how": "pray"}}, 422, "SYS_INVALID"),
        ({"type": "explode"}, 422, "SYS_INVALID"),
    ],
)
async def test_a_change_that_cannot_be_made_leaves_the_plan_as_it_was(
    desk: Desk, change: dict[str, Any], status: int, code: str
) -> None:
    made = await desk.post("workflows", {"templateId": await desk.template(scripted("a"))})
    names = {"TASK": made["works"][0]["tasks"][0]["id"], "WORK": made["works"][0]["id"]}
    change = {key: names.get(value, value) if isinstance(value, str) else value for key, value in change.items()}
    before = {"type": "addWork", "work": scripted("new")}
    body = {"changes": [before, change]}
    error(await desk.client.patch(f"/api/workflows/{made['id']}", json=body), status, code)
    assert await desk.get(f"workflows/{made['id']}") == made


async def test_a_plan_is_changed_as_a_whole(desk: Desk) -> None:
    made = await desk.post("workflows", {"templateId": await desk.template(scripted("a"), scripted("b"))})
    path = f"workflows/{made['id']}"
    text = (await desk.get(f"{path}/plan"))["yaml"].replace("- name: b", "- name: c")
    wished = data(await desk.client.put(f"/api/{path}/plan", json={"yaml": text, "dryRun": True}))
    assert wished == {"changes": ["work b is removed", "work c is added"], "made": False}
    assert data(await desk.client.put(f"/api/{path}/plan", json={"yaml": text}))["made"] is True
    assert [work["name"] for work in (await desk.get(path))["works"]] == ["a", "c"]
    assert data(await desk.client.put(f"/api/{path}/plan", json={"yaml": text})) == {"changes": [], "made": False}
    error(await desk.client.put(f"/api/{path}/plan", json={"yaml": "works: 1"}), 422, "TPL_INVALID")


async def test_what_does_not_belong_to_a_workflow_is_not_found_there(desk: Desk) -> None:
    template = await desk.template(scripted("a"))
    made = await desk.post("workflows", {"templateId": template})
    for path in ("checkpoints/cp-1/diff", "reports/report-1", "output?work=work-1"):
        error(await desk.client.get(f"/api/workflows/{made['id']}/{path}"), 404, "WFL_NOT_FOUND")
    for path in ("", "/events", "/checkpoints", "/reports", "/output", "/usage", "/verify", "/plan"):
        error(await desk.client.get(f"/api/workflows/wf-nowhere{path}"), 404, "WFL_NOT_FOUND")
    for act in ("start", "pause", "resume", "cancel"):
        error(await desk.client.post(f"/api/workflows/wf-nowhere/{act}"), 404, "WFL_NOT_FOUND")
    body = {"checkpointId": "cp-1"}
    error(await desk.client.post(f"/api/workflows/{made['id']}/fork", json=body), 404, "WFL_NOT_FOUND")
    error(await desk.client.post("/api/workflows/wf-nowhere/fork", json=body), 404, "WFL_NOT_FOUND")


@pytest.mark.parametrize("engine", [False, True])
async def test_whether_an_engine_runs_is_told(tmp_path: Path, engine: bool) -> None:
    async with web_app(tmp_path / "home", court=False, engine=engine) as web:
        desk = Desk(web)
        made = await desk.post("workflows", {"templateId": await desk.template(scripted("a"))})
        async with asyncio.timeout(60):
            while web.context.control.is_engine is not engine:
                await asyncio.sleep(0.01)
        assert (await desk.get(f"workflows/{made['id']}"))["engineRunning"] is engine


async def test_a_repository_that_was_deleted_meanwhile_is_told_when_the_workflow_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_refusals(monkeypatch)
    async with web_app(tmp_path / "home", court=False, engine=True) as web:
        desk = Desk(web)
        made = await desk.post("workflows", {"templateId": await desk.template(scripted("a"))})
        store = web.context.parts.store
        async with store.transaction() as tx:
            workflow = await tx.workflows.get(made["id"])
            workflow.git_refs = (GitRef("git-gone"),)
            await tx.workflows.save(workflow)
        told = error(await web.client.post(f"/api/workflows/{made['id']}/start"), 404, "WFL_NOT_FOUND")
        assert "git-gone" in told["message"]
