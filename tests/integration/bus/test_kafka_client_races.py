"""Threads of the Kafka client that come between two steps of a call do not end the process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kafka, pytest.mark.walk]
_SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def slow_unlock(tmp_path: Path) -> Path:
    """A library that widens the moment in which ``list_offsets`` and ``delete_records`` of librdkafka can crash."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux")
    library = tmp_path / "slow_unlock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, _SUPPORT / "slow_unlock.c", "-ldl"], check=True)
    return library


@pytest.mark.parametrize("what", ["ask", "delete"])
def test_a_call_for_topics_that_are_not_known_yet_survives_metadata_that_arrive_in_between(
    kafka_url: str, slow_unlock: Path, what: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.support.kafka_offsets", kafka_url, what],
        env={**os.environ, "LD_PRELOAD": str(slow_unlock)},
        cwd=_SUPPORT.parents[1],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
