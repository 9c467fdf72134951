"""Some random lives of a stream on each transport; the machine is in :mod:`tests.conformance.machine`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.bus.testing import ManualClock
from tests.conformance.harnesses import PostgresHarness, StoreHarness, memory_url
from tests.conformance.machine import live
from tests.support.searching import examples

LIVES = examples(10)
# It passes in seconds; a failure needs minutes to be made small.
pytestmark = [pytest.mark.search, pytest.mark.timeout(600)]


def test_memory_lives_like_the_model() -> None:
    live(StoreHarness(memory_url(), clock=ManualClock()), LIVES)


def test_files_live_like_the_model(tmp_path: Path) -> None:
    live(StoreHarness(f"files://{tmp_path}/queue", clock=ManualClock()), LIVES)


def test_sqlite_lives_like_the_model(tmp_path: Path) -> None:
    live(StoreHarness(f"sqlite://{tmp_path}/bus.db", clock=ManualClock()), LIVES)


@pytest.mark.postgres
def test_postgresql_lives_like_the_model(postgres_url: str) -> None:
    live(PostgresHarness(postgres_url), LIVES)


@pytest.mark.kafka
def test_kafka_lives_like_the_model(kafka_url: str) -> None:
    live(StoreHarness(kafka_url, clock=ManualClock()), max(4, examples(1)))  # of seconds each


@pytest.mark.walk
@pytest.mark.kafka
def test_kafka_lives_like_the_model_from_snapshot_to_snapshot(kafka_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that takes the place of one that died begins with a snapshot, and earlier records are gone."""
    from kingdom.bus.transports.kafka import _shard

    monkeypatch.setattr(_shard, "_GROWTH", 0)
    live(StoreHarness(f"{kafka_url}&snapshot=4000", clock=ManualClock()), max(2, examples(1) // 2))


@pytest.mark.walk
@pytest.mark.kafka
def test_kafka_with_shards_lives_like_the_model(kafka_url: str) -> None:
    live(StoreHarness(f"{kafka_url}&shards=4", clock=ManualClock()), max(2, examples(1) // 2))
