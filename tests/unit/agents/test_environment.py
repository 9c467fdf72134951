"""What an agent sees of our environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.agents.engine import run_environment
from kingdom.agents.errors import InvalidOrder
from kingdom.agents.port import Order

OURS = {
    "PATH": "/bin",
    "HOME": "/home/x",
    "LC_ALL": "C.UTF-8",
    "HTTPS_PROXY": "http://proxy",
    "GITHUB_TOKEN": "secret",
    "CLAUDECODE": "1",
    "CLAUDE_CODE_ENTRYPOINT": "cli",
    "KINGDOM_HOME": "/court",
    "LD_PRELOAD": "/x.so",
}


def order(**env: str) -> Order:
    return Order("run-1", "task-1", "command", "", Path("/work"), Path("/r.json"), env=env)


def test_only_listed_names_are_inherited() -> None:
    assert run_environment(order(), OURS) == {
        "PATH": "/bin",
        "HOME": "/home/x",
        "LC_ALL": "C.UTF-8",
        "HTTPS_PROXY": "http://proxy",
        "KINGDOM_TASK_ID": "task-1",
        "KINGDOM_RUN_ID": "run-1",
        "KINGDOM_RESULT_PATH": "/r.json",
    }


def test_the_order_and_the_engine_add_to_it_but_cannot_change_who_it_is() -> None:
    made = run_environment(
        order(GH_TOKEN="t", MODE="order", KINGDOM_RUN_ID="other"), OURS, {"MODE": "engine", "CLAUDE_CODE_X": "1"}
    )
    assert made["GH_TOKEN"] == "t"
    assert made["MODE"] == "order"
    assert made["CLAUDE_CODE_X"] == "1"
    assert made["KINGDOM_RUN_ID"] == "run-1"


def test_there_is_always_a_path() -> None:
    assert run_environment(order(), {})["PATH"]


@pytest.mark.parametrize("env", [{"A=B": "x"}, {"": "x"}, {"A": "x\0y"}])
def test_names_and_values_no_environment_can_hold_are_refused(env: dict[str, str]) -> None:
    with pytest.raises(InvalidOrder, match="run-1"):
        run_environment(order(**env), OURS)
