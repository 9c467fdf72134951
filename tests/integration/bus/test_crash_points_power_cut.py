"""A power cut just after publish returned: everything that matters had been synced by then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import strace
from tests.chaos.durability import judge_trace, undurable
from tests.chaos.sites import open_site
from tests.chaos.strace import Call

pytestmark = [pytest.mark.walk, pytest.mark.timeout(120)]


@pytest.mark.skipif(not strace.available(), reason="strace is not installed: system calls cannot be seen")
@pytest.mark.parametrize("transport", ["files", "sqlite"])
def test_publish_returns_only_after_everything_was_synced(transport: str, tmp_path: Path) -> None:
    with open_site(transport, tmp_path) as site:
        for events in (1, 3, 100):  # alone, a small batch, and one large enough for other ways of syncing
            wrong, syncs = undurable(site, events)
            assert wrong == []
            assert syncs > 0, f"publishing {events} synced nothing at all"


def test_what_was_not_synced_in_time_is_named() -> None:
    def trace(*lines: tuple[str, str]) -> list[Call]:
        return [Call(1, name, text, injected=False, began=at, ended=at) for at, (name, text) in enumerate(lines)]

    write, sync = ("write", "3</q/.tmp-a.json>, ..."), ("fsync", "3</q/.tmp-a.json>) = 0")
    rename, folder = ("rename", '"/q/.tmp-a.json", "/q/pending/a.json") = 0'), ("fsync", "4</q/pending>) = 0")
    assert judge_trace(trace(write, sync, rename, folder)) == []
    assert judge_trace(trace(write, sync, rename)) == ["a name in /q/pending was never synced"]
    assert judge_trace(trace(write, sync, folder, rename)) == ["a name in /q/pending was never synced"]
    assert judge_trace(trace(write, rename, folder)) == ["/q/.tmp-a.json got its name before its contents were synced"]
    assert judge_trace(trace(("pwrite64", "3</q/bus.db-wal>, ..."))) == [
        "the contents of /q/bus.db-wal were never synced"
    ]
