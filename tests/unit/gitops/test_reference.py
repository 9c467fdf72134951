"""The reference page of the git layer has what the code has."""

from __future__ import annotations

import inspect
from pathlib import Path

from kingdom import gitops
from kingdom.gitops import CheckpointMark, errors, names

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "git.md").read_text("utf-8")


def test_it_has_the_tree_of_errors() -> None:
    tree = (errors.__doc__ or "").partition("::\n\n")[2]
    lines = [line.strip() for line in tree.splitlines() if line.strip()]
    assert len(lines) > 10
    assert [line for line in lines if line not in PAGE] == []
    raised = [name for name, item in vars(errors).items() if inspect.isclass(item) and issubclass(item, Exception)]
    assert [name for name in raised if name not in PAGE or not hasattr(gitops, name)] == []


def test_it_has_every_ref_and_trailer() -> None:
    for ref in (names.checkpoint_ref, names.pending_ref):
        assert ref("W", "C").replace("W", "<workflow>").replace("C", "<checkpoint>") in PAGE
    assert names.pull_ref(7).replace("7", "<number>") in PAGE
    assert names.rescue_ref("W", "T").replace("W", "<workflow>").replace("T", "<time>") in PAGE
    assert [trailer for trailer in CheckpointMark("w", "c", "k").trailers if f"`{trailer}`" not in PAGE] == []
