"""The real agent command lines, installed once by scripts/agent-clis."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class AgentClis:
    """Paths of the programs."""

    claude: str
    codex: str


def installed() -> AgentClis:
    """The programs; the test is skipped where they cannot be had, but for CI, where that is a failure."""
    done = subprocess.run([ROOT / "scripts" / "agent-clis"], capture_output=True, text=True, check=False)
    if done.returncode == 3 and os.environ.get("CI") != "true":
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    programs = ROOT / ".tools" / "agent-clis" / "node_modules" / ".bin"
    return AgentClis(claude=str(programs / "claude"), codex=str(programs / "codex"))
