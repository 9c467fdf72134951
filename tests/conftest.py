"""What every kind of test shares: a real PostgreSQL, and buses on each transport."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from kingdom.bus import EventBus

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # tests, examples and bench import as packages

from tests.support.searching import FACTOR, examples

# Hundreds of courts are started here, and none of them needs a web server; the tests that do switch it on.
os.environ["KINGDOM_WEB"] = "off"
# The same with the sandbox: their soldiers wait for files of the tests. Those that need it say "required".
os.environ["KINGDOM_SANDBOX"] = "off"

# How long an example takes says something about the machine, not about what is tested.
settings.register_profile(
    "kingdom", deadline=None, max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("kingdom")

# A shell starts background jobs with SIGINT ignored, and every process started by a test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_numbers = itertools.count(1)

# Only where to begin: see pytest_collection_modifyitems.
LONGEST = (
    "acceptance/test_install.py",
    "acceptance/test_upgrade.py",
    "integration/court/test_hostile.py",
    "browser/test_court_at_work.py",
    "browser/test_pages.py",
    "integration/workflow/test_with_agents.py",
    "integration/court/test_real_clis.py",
    "integration/agents/test_real_claude.py",
    "acceptance/test_cli_web.py",
    "acceptance/test_cli_court_up.py",
    "acceptance/test_demo.py",
    "acceptance/test_cli_workflow.py",
)


def pytest_configure() -> None:
    """In a run of many tests, have the server that forks started by us: that of the benchmark's tests would do less."""
    gc.disable()  # until all tests are there: the collector would look through them again and again
    if "PYTEST_XDIST_WORKER" in os.environ:
        from tests.support.forking import have_server

        have_server()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark random searches, and have every worker begin with some of the longest tests.

    None may be left with one at the end. Each worker gets a part of the list, in its order, and takes from others
    what they have not come to when it is done. What the tests of a file share is made once if one worker has them all.
    """
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("search")
        if FACTOR > 1 and item.get_closest_marker("search"):
            item.add_marker(pytest.mark.timeout(600))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1:
        return
    campaigns = [item for item in items if item.get_closest_marker("walk")]
    parts = [campaigns[worker::workers] for worker in range(workers)]
    rest = [item for item in items if not item.get_closest_marker("walk")]
    for name in LONGEST:
        file = Path(__file__).parent / name
        min(parts, key=len).extend(item for item in rest if item.path == file)
    chosen = set(map(id, itertools.chain(*parts)))
    others = iter([item for item in rest if id(item) not in chosen])
    share = -(-len(items) // workers)
    for part in parts:
        part.extend(itertools.islice(others, max(share - len(part), 0)))
    items[:] = [*itertools.chain(*parts), *others]


def pytest_collection_finish() -> None:
    """Collect garbage while tests run, but rarely, and leave out all that was made until now: it stays.

    Tests make much that lives as long as they do. At Python's thresholds the collector took a tenth of their time.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL 18 of our own, started for this run and stopped after it."""
    from tests.support.postgres import PostgresServer

    # Not below pytest's own folder: another run of root's may close that to the server's user at any time.
    with tempfile.TemporaryDirectory(prefix="kingdom-pg-") as folder, PostgresServer(Path(folder)) as server:
        yield server.url


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of an empty schema of its own, on the shared server."""
    from tests.support.postgres import create_schema

    return asyncio.run(create_schema(postgres_server, f"t{next(_numbers)}"))


@pytest.fixture
async def postgres_bus(postgres_url: str) -> AsyncIterator[EventBus]:
    """A bus on it, set up."""
    from kingdom.bus import connect

    async with connect(postgres_url) as bus:
        await bus.setup()
        yield bus


@pytest.fixture
async def sql(postgres_url: str) -> AsyncIterator[Any]:
    """A connection of asyncpg to that schema, for looking at the tables and changing them by hand."""
    import asyncpg

    from kingdom.bus.transports.postgresql._connections import split_url

    dsn, options = split_url(postgres_url)
    connection = await asyncpg.connect(dsn, server_settings={"search_path": options["schema"]})
    yield connection
    await connection.close()


@pytest.fixture(scope="session")
def kafka_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Kafka broker of our own, which the workers of this run share."""
    from tests.support.kafka import shared_broker

    own = tmp_path_factory.getbasetemp()
    with shared_broker((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "kafka") as servers:
        yield servers


@pytest.fixture
def kafka_url(kafka_servers: str) -> Iterator[str]:
    """The URL of an empty bus on the shared broker."""
    from tests.support.kafka import bus_url, delete_topics

    prefix = f"{os.environ.get('PYTEST_XDIST_WORKER', 't')}-{next(_numbers)}"
    yield bus_url(kafka_servers, prefix)
    delete_topics(kafka_servers, f"{prefix}.")


@pytest.fixture(scope="module")
def on_disk() -> Iterator[None]:
    """Have temporary files made on the disk, though ``make test`` works in memory: a sandbox hides what is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", "/var/tmp")
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(
    params=[7, pytest.param(1, marks=[pytest.mark.walk, pytest.mark.timeout(600)])],
    ids=["every seventh point", "every point"],
)
def stride(request: pytest.FixtureRequest) -> int:
    """How far it is from one point at which a walk stops something to the next: ``make walks`` stops at every one."""
    return int(request.param)


@pytest.fixture(params=["files", "sqlite", "postgresql"])
def bus_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty bus, on each transport in turn. Call ``setup()`` on it first."""
    return _url(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, on each transport that is a database."""
    return _url(request, tmp_path)


def _url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite://{tmp_path}/bus.db" if request.param == "sqlite" else f"files://{tmp_path}/queue"
