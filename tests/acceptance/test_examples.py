"""The small examples run, on the transports they take, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import environment

FOLDER = Path(__file__).resolve().parents[2] / "examples"
PRINTED = {
    "hello_bus": ["published 3 events", "hello, Ada", "hello, Grace", "hello, Barbara"],
    "transaction_sqlalchemy": ["rolled back: the payment for the chair failed", "on the bus: ['lamp']"],
    "flask_like_sync": ["welcome, grace@example.org", "mails written: ['ada@example.org', 'grace@example.org']"],
    "django_orders": ["rolled back: the payment for the chair failed", "packed: lamp"],
    "ordered_stream": [
        "account A: the deposit fails once and is retried",
        "account A: ['open', 'deposit', 'close']",
        "account B: ['open', 'deposit', 'close']",
    ],
    "retries_and_dead_letters": [
        "  slow bank, attempt 3",
        "dead: bad card (CARD_REFUSED: the card is not valid)",
        "requeued: 1",
        "dead now: 0",
    ],
    "metrics_endpoint": [
        'kingdom_outbox_pending{stream="reports"} 0.0',
        'kingdom_outbox_processed_total{result="done",stream="reports"} 10.0',
    ],
}
TAKE_A_URL = ("hello_bus", "ordered_stream", "retries_and_dead_letters", "metrics_endpoint")


def run(example: str, *arguments: str) -> list[str]:
    """Run an example as its docstring says, with every warning an error; return the lines it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"examples.{example}", *arguments],
        cwd=FOLDER.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("example", sorted(PRINTED))
def test_an_example_needs_nothing_and_prints_what_it_promises(example: str) -> None:
    assert set(PRINTED[example]) <= set(run(example))


@pytest.mark.postgres
@pytest.mark.parametrize("example", TAKE_A_URL)
def test_an_example_that_takes_a_url_runs_on_postgresql_as_well(example: str, postgres_url: str) -> None:
    assert set(PRINTED[example]) <= set(run(example, postgres_url))


@pytest.mark.parametrize("example", ["ordered_stream", "retries_and_dead_letters"])
def test_an_example_that_takes_a_url_runs_on_files_as_well(example: str, tmp_path: Path) -> None:
    assert set(PRINTED[example]) <= set(run(example, f"files://{tmp_path}/queue"))


def test_every_small_example_is_run_here_and_stays_small() -> None:
    found = {path.stem: len(path.read_text("utf-8").splitlines()) for path in FOLDER.glob("[!_]*.py")}
    assert set(found) == set(PRINTED)
    assert {name: lines for name, lines in found.items() if lines >= 60} == {}
