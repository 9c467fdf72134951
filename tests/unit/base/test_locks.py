"""Locks between open files, with and without patience."""

from __future__ import annotations

import fcntl
import os
import random
from pathlib import Path

import pytest

from kingdom.base.backoff import backoff
from kingdom.base.locks import FileLock, exclusive, is_current, lock, lock_async, try_lock, unlock


@pytest.fixture
def pair(tmp_path: Path) -> tuple[int, int]:
    """Two descriptors of one file, each opened by itself."""
    path = tmp_path / "lock"
    return os.open(path, os.O_RDWR | os.O_CREAT), os.open(path, os.O_RDWR)


def test_a_lock_is_held_by_one_and_free_again_after_it(pair: tuple[int, int]) -> None:
    one, other = pair
    assert try_lock(one)
    assert not try_lock(other)
    assert not lock(other, 0.01)
    unlock(one)
    assert lock(other, 0.01)


async def test_waiting_does_not_block_the_loop(pair: tuple[int, int]) -> None:
    one, other = pair
    assert await lock_async(one, 0.0)
    assert not await lock_async(other, 0.01)
    unlock(one)
    assert await lock_async(other, 0.0)


def test_where_there_are_no_locks_it_says_so_unless_it_may_go_without(
    pair: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks"):
        try_lock(pair[0])
    assert not try_lock(pair[0], required=False)


def test_a_lock_file_is_taken_once(tmp_path: Path) -> None:
    held = FileLock.take(tmp_path / "lock")
    assert held is not None
    assert FileLock.take(tmp_path / "lock") is None
    held.release()
    held.release()
    with exclusive(tmp_path / "lock"):
        assert FileLock.take(tmp_path / "lock") is None
    assert FileLock.take(tmp_path / "lock") is not None


def test_a_deleted_lock_file_is_not_current(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    assert is_current(descriptor, path)
    path.unlink()
    assert not is_current(descriptor, path)


def test_pauses_grow_to_their_limit() -> None:
    assert [backoff(attempt, 0.5, 3.0) for attempt in range(4)] == [0.5, 1.0, 2.0, 3.0]
    assert backoff(10**6, 0.5, 3.0) == 3.0
    assert backoff(2, 1.0, 9.0, factor=1.5) == 2.25


def test_jitter_goes_both_ways() -> None:
    pauses = [backoff(0, 1.0, 9.0, jitter=0.2, rng=random.Random(seed)) for seed in range(50)]
    assert 0.8 <= min(pauses) < 1 < max(pauses) <= 1.2
