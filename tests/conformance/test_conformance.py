"""The public conformance suite, unchanged, on every transport of ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kingdom.bus.testing import ConformanceSuite, Harness, ManualClock
from tests.conformance.harnesses import PostgresHarness, memory_url


class TestMemory(ConformanceSuite):
    @pytest.fixture
    async def harness(self) -> AsyncIterator[Harness]:
        async with Harness(memory_url(), clock=ManualClock()) as harness:
            yield harness


class TestFiles(ConformanceSuite):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[Harness]:
        async with Harness(f"files://{tmp_path}/queue", clock=ManualClock()) as harness:
            yield harness


class TestSqlite(ConformanceSuite):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[Harness]:
        async with Harness(f"sqlite://{tmp_path}/bus.db", clock=ManualClock()) as harness:
            yield harness


@pytest.mark.postgres
class TestPostgresql(ConformanceSuite):
    @pytest.fixture
    async def harness(self, postgres_url: str) -> AsyncIterator[Harness]:
        async with PostgresHarness(postgres_url) as harness:
            yield harness


@pytest.mark.kafka
class TestKafka(ConformanceSuite):
    @pytest.fixture
    async def harness(self, kafka_url: str) -> AsyncIterator[Harness]:
        async with Harness(kafka_url, clock=ManualClock()) as harness:
            yield harness


@pytest.mark.kafka
@pytest.mark.walk  # a variant of the one above
class TestKafkaWithShards(ConformanceSuite):
    @pytest.fixture
    async def harness(self, kafka_url: str) -> AsyncIterator[Harness]:
        async with Harness(f"{kafka_url}&shards=4", clock=ManualClock()) as harness:
            yield harness
