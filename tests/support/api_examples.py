"""What GitHub, Atlassian and Slack publish as examples: fetched by scripts/api-examples, not kept here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_http import FakeServer, Request, Response

ROOT = Path(__file__).resolve().parents[2]


def fetched(name: str) -> Any:
    """One of the files; the test is skipped where they cannot be had, but for CI, where that is a failure."""
    done = subprocess.run([ROOT / "scripts" / "api-examples"], capture_output=True, text=True, check=False)
    if done.returncode == 3 and os.environ.get("CI") != "true":
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((ROOT / ".tools" / "api-examples" / name).read_bytes())


class Published(FakeServer):
    """Answers with published examples, by method and path; 404 for anything else."""

    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__()
        self._answers = answers

    def answer(self, request: Request) -> Response:
        found = self._answers.get(f"{request.method} {request.path}")
        return Response({"message": "Not Found"}, 404) if found is None else Response(found)
