"""Daemon, shim and the shim's child are killed at every point: no process, socket, mount or namespace is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kingdom.agents.runner import Runner
from tests.support import cell_victim
from tests.support.cells import ModelEngine, Upstream, bare_order, bare_runner
from tests.support.courts import until
from tests.support.forking import fate
from tests.support.workshop import alive


def sockets() -> set[str]:
    """The sockets that this process holds. One of a network namespace would keep the namespace alive."""
    found = set()
    for handle in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(handle)
        except OSError:
            continue
        found |= {target} if target.startswith("socket:") else set()
    return found


def mounts(folder: Path) -> list[str]:
    """What is mounted in a folder, outside all sandboxes."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]


def left(run_id: str) -> list[object]:
    """The processes and control groups of a run. A shim that was just started may take a moment to see its end."""
    return [*alive(run_id), *Path("/sys/fs/cgroup").glob(f"**/kingdom-run-{run_id}")]


async def end(runner: Runner, run_id: str) -> None:
    """Have the next daemon take over whatever is there."""
    running = await runner.adopt(run_id)
    if running is not None:
        await running.wait()
    await runner.close()


@pytest.mark.parametrize("who", ["daemon", "shim", "child"])
async def test_a_kill_leaves_nothing_behind(tmp_path: Path, who: str, stride: int) -> None:
    point, killed = 1, True
    with Upstream() as upstream:
        while killed:
            root = tmp_path / f"{who}-{point}"
            (root / "work").mkdir(parents=True)
            held = sockets()
            code = fate(cell_victim.run, root, upstream.port, who, point)
            points = (root / "points").read_text().splitlines()
            killed = len(points) >= point
            assert (code < 0) == (killed and who == "daemon")
            order, where = bare_order(root, ""), f"killed at point {point}: {points[-1]}"
            await end(bare_runner(root, ModelEngine(upstream.port)), order.run_id)
            until(lambda run_id=order.run_id: not left(run_id), f"the end of its processes, {where}")
            assert list(root.rglob("*.sock")) == [], where
            # The model server of this process may take a moment to see that a client was killed.
            until(lambda held=held: sockets() <= held, f"the end of its sockets, {where}")
            point += stride
    assert mounts(tmp_path) == []
    assert point > 3 * stride, "there were points"
