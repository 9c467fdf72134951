"""Two machines run workflows from one store, by the command line, as its page in docs/how-to says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.command import COMMAND, environment, kingdom
from tests.support.courts import until
from tests.support.repositories import Remote

pytestmark = [pytest.mark.postgres, pytest.mark.walk, pytest.mark.timeout(240)]
PLAN = """\
name: relay
works:
  - name: one
    engine: {{name: command, options: {{argv: [sh, -c, "echo 1 > one.txt"]}}}}
    tasks: [Do one.]
  - name: two
    engine:
      name: command
      options: {{argv: [sh, -c, "until [ -e {gate} ]; do sleep 0.1; done; cat one.txt > two.txt"]}}
    tasks: [Do two.]
"""


class Machine:
    """A home of its own on the shared store, and the command there."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        (folder / "workflows").mkdir(parents=True)
        (folder / "workflows" / "settings.yaml").write_text("git:\n  checkpoint_remote: origin\n")
        self._variables = {
            "KINGDOM_HOME": str(folder), "KINGDOM_WORKFLOW_STORE": url, "KINGDOM_WORKFLOW_LEASE": "4",
        }  # fmt: skip

    def run(self, *arguments: str, code: int = 0) -> str:
        done = kingdom(*arguments, **self._variables)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def show(self) -> dict[str, object]:
        shown: dict[str, object] = json.loads(self.run("workflow", "show", "relay", "--json"))
        return shown

    @contextmanager
    def engine(self) -> Iterator[subprocess.Popen[bytes]]:
        """``kingdom workflow engine``, until the end of the block."""
        with (self.folder / "engine.txt").open("ab") as log:
            process = subprocess.Popen(
                [*COMMAND, "workflow", "engine"], stdout=log, stderr=log, env=environment(**self._variables)
            )
        try:
            until(lambda: b"the engine runs on" in (self.folder / "engine.txt").read_bytes(), "the engine")
            yield process
        finally:
            process.terminate()
            process.wait(60)


def test_another_machine_goes_on_with_a_workflow_and_everything_is_seen_from_both(
    tmp_path: Path, postgres_url: str
) -> None:
    here, there, gate = (
        Machine(tmp_path / "here", postgres_url),
        Machine(tmp_path / "there", postgres_url),
        tmp_path / "gate",
    )
    remote = Remote(tmp_path / "app")
    remote.commit({"README": "hello\n"})
    (tmp_path / "relay.yaml").write_text(PLAN.format(gate=gate))
    here.run("git", "add", remote.url, "--name", "app")
    here.run("workflow", "create", str(tmp_path / "relay.yaml"), "--repo", "app")
    with there.engine() as engine:
        here.run("workflow", "start", "relay", "--detach")
        until(lambda: len(here.show()["checkpoints"]) == 1, "the first checkpoint")  # type: ignore[arg-type]
        assert f"machine     {os.uname().nodename}:{there.folder}/workflows\n" in here.run("workflow", "show", "relay")
        here.run("workflow", "pause", "relay")
        assert here.show()["status"] == "PAUSED"
        here.run("workflow", "resume", "relay", "--detach")
        engine.send_signal(signal.SIGKILL)
        engine.wait(60)
    with here.engine():
        until(lambda: here.show()["heldBy"] == f"{os.uname().nodename}:{here.folder}/workflows", "its takeover")
        gate.touch()
        until(lambda: here.show()["status"] == "COMPLETED", "its end")
        shown = here.show()
        refused = there.run("workflow", "land", "relay", "--push", code=1)
        assert f"has its worktrees on {os.uname().nodename}:{here.folder}/workflows: do this there" in refused
    assert [work["attempt"] for work in shown["works"]] == [1, 3]  # type: ignore[attr-defined]
    (tree,) = [Path(one["path"]) for one in shown["repositories"]]  # type: ignore[attr-defined]
    assert tree.is_relative_to(here.folder)
    assert (tree / "two.txt").read_text() == "1\n"
