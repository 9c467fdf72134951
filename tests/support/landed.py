"""A workflow that was landed, and what people and checks say of its pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kingdom.web.context import WebContext
from kingdom.workflow.domain.landing import Landing
from tests.support.github_server import GitHubServer
from tests.support.web_work import Desk, scripted

GITHUB_TOKEN = "t0ken-of-the-robot"
_SHA = "c0ffee" * 6 + "c0ff"


def _comment(login: str, body: str, at: str, **more: Any) -> dict[str, Any]:
    return {
        "user": {"login": login},
        "body": body,
        "created_at": at,
        "html_url": f"https://example.org/{login}",
        **more,
    }


SAID: dict[str, Any] = {
    "/pulls/1": {"number": 1, "state": "open", "merged": False, "head": {"sha": _SHA}},
    f"/commits/{_SHA}/check-runs": {
        "check_runs": [
            {"name": "tests", "status": "completed", "conclusion": "failure", "html_url": "https://example.org/tests"},
            {"name": "lint", "status": "completed", "conclusion": "success", "html_url": "https://example.org/lint"},
            {"name": "docs", "status": "in_progress", "conclusion": None, "html_url": None},
        ]
    },
    "/pulls/1/reviews": [
        {"user": {"login": "ann"}, "state": "COMMENTED", "body": "", "submitted_at": "2026-02-07T09:00:00Z"},
        {
            "user": {"login": "ben"},
            "state": "CHANGES_REQUESTED",
            "body": "Please test the empty case.",
            "submitted_at": "2026-02-07T10:00:00Z",
        },
    ],
    "/pulls/1/comments": [_comment("ben", "Off by one?", "2026-02-07T09:30:00Z", path="ls.py", line=3)],
    "/issues/1/comments": [_comment("cem", "<script>alert(1)</script> nice", "2026-02-07T11:00:00Z")],
}


def use_token(github: GitHubServer, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository, and a home whose settings name the token for it."""
    github.create("acme/app", {"ls.py": "print\n"})
    github.grant(GITHUB_TOKEN, "robot")
    github.said = dict(SAID)
    monkeypatch.setenv("ROBOT_TOKEN", GITHUB_TOKEN)
    settings = home / "workflows" / "settings.yaml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"git:\n  credentials:\n    {github.host}: {{env: ROBOT_TOKEN}}\n")


async def land_in_store(context: WebContext, desk: Desk, github: GitHubServer) -> str:
    """A workflow whose pull request is number 1; returns its id."""
    url = f"{github.url}/acme/app.git"
    git = await desk.post("gits", {"name": "app", "url": url, "check": False})
    made = await desk.post("workflows", {"templateId": await desk.template(scripted("fix"), git=git["id"])})
    landing = Landing("land-1", made["id"], git["id"], url, "kingdom/fix", "main")
    landing.number, landing.url = 1, f"{github.url}/acme/app/pull/1"
    async with context.parts.store.transaction() as tx:
        await tx.landings.save(landing)
    return str(made["id"])
