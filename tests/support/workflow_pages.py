"""A place with workflows for tests of their pages: a real repository, and agents that play a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.browser import Visitor
from tests.support.repositories import plain_git

EVIL = "x <img src=x onerror='window.owned=1'> {{7*7}}"
"""As a name: these begin with a letter, and have no slash."""
BAD_LINK = "[bad](javascript:window.owned=1)"
WORSE = "<script>window.owned=1</script><img src=x onerror='window.owned=1'>"


def script(words: str) -> dict[str, Any]:
    """What the agents say and do, with these words wherever they can put some."""
    report = f"""## Findings

The **timeout** is `None`: [docs](https://example.org/x). {words}

![a picture](https://example.org/picture.png)

| file | line |
|---|---|
| net.py | 1 |
"""
    build = [
        {"tool": {"name": "Read", "detail": "net.py"}},
        {"say": "A request without a timeout waits for ever: 30 seconds are plenty."},
        {"wait": 0.3},
        {"write": {"path": "net.py", "text": f"timeout = 30\nretries = 3\n# {words}\n"}},
        {"usage": {"input": 1000, "output": 200, "cost_usd": 0.12}},
        {"say": "The timeout is set."},
    ]
    return {
        "plan/look/report": [{"say": report}],
        "plan/*": [
            {"say": f"I look around. {words}"},
            {"write": {"path": "PLAN.md", "text": "# Plan\n"}},
            {"usage": {"input": 800, "output": 90, "cost_usd": 0.03}},
            {"say": "The plan is written."},
        ],
        "build/*": build,
        "long/*": [{"say": "This takes a while."}, {"wait": 600}],
        "default": [{"say": "All is well."}],
    }


class Place:
    """Where the workflows are."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "acme"
        self.home.mkdir()
        self.script = folder / "script.json"
        self.script.write_text(json.dumps(script("Nothing else does this.")))
        self.evil_script = folder / "evil.json"
        self.evil_script.write_text(json.dumps(script(f"{BAD_LINK} {WORSE}")))
        self.repository = folder / "web"
        self.repository.mkdir()
        plain_git(self.repository, "init", "-q", "-b", "main")
        (self.repository / "net.py").write_text("timeout = None\nretries = 3\n")
        plain_git(self.repository, "add", ".")
        plain_git(self.repository, "commit", "-qm", "first")

    async def register(self, visitor: Visitor) -> None:
        """Have the repository known as ``web``."""
        await post(visitor, "/api/gits", {"name": "web", "url": str(self.repository)})

    async def template(
        self, visitor: Visitor, name: str, works: list[dict[str, Any]], script: Path | None = None
    ) -> str:
        """A template; its id."""
        plan = {
            "name": name,
            "repositories": ["web"],
            "engine": {"name": "scripted", "options": {"script": str(script or self.script)}},
            "works": works,
        }
        made = await post(visitor, "/api/workflow-templates/yaml", {"yaml": json.dumps(plan)})
        return str(made["id"])

    async def started(self, visitor: Visitor, template_id: str, **more: Any) -> str:
        """A workflow that was started; its id."""
        made = await post(visitor, "/api/workflows", {"templateId": template_id, **more})
        await post(visitor, f"/api/workflows/{made['id']}/start", {})
        return str(made["id"])


async def post(visitor: Visitor, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """What the API answers."""
    answered = await visitor.web.client.post(path, json=body)
    assert answered.status_code < 300, answered.text
    data: dict[str, Any] = answered.json()["data"]
    return data
