"""A real Kafka broker for tests, installed once by scripts/kafka-broker."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kingdom.base.locks import exclusive

ROOT = Path(__file__).resolve().parents[2]
_JAVA = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
_START_SECONDS = 60.0
# A broker that is alone all the time need not tell itself several times a second that it is there.
_PATIENT = "broker.heartbeat.interval.ms=2000\nbroker.session.timeout.ms=9000\nmetadata.max.idle.interval.ms=10000\n"
# Below those that kernels give to outgoing connections: any connection could take one of these before a broker has it.
_PORTS = range(16_384, 32_768)
# An ApiVersions request of version 0 in its frame: a broker that answers it takes others too.
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, 0)


@functools.cache
def installed() -> Path:
    """The broker's folder; the test is skipped where it cannot be had, but for CI, where that is a failure."""
    # `make test` begins while it is still being installed: the timeout of one test is not for that.
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        done = subprocess.run([ROOT / "scripts" / "kafka-broker"], capture_output=True, text=True, check=False)
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
    if done.returncode == 3 and os.environ.get("CI") != "true":
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / ".tools" / "kafka"


class KafkaBroker:
    """One node, broker and controller, with its data in ``folder``. It can be killed and started again.

    ``more``: further lines of its properties file. ``node`` and ``controllers`` (their ports) are for clusters.
    """

    def __init__(self, folder: Path, more: str = "", *, node: int = 1, controllers: Sequence[int] = ()) -> None:
        self._kafka = installed()
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port, controller = _free_ports(2)
        if controllers:
            controller = controllers[node - 1]
        data = folder / "data"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self._kafka / "template", data)
        template = (self._kafka / "server.properties").read_text()
        text = template.format(port=self._port, controller=controller, data=data)
        text += f"group.min.session.timeout.ms=500\n{more}"  # for members that are killed
        if controllers:
            voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(controllers, 1))
            text += f"node.id={node}\ncontroller.quorum.voters={voters}\n"  # the last one counts
            identity = data / "meta.properties"
            lines = identity.read_text().replace("node.id=1", f"node.id={node}").splitlines()
            lines = [line for line in lines if not line.startswith("directory.id")]
            identity.write_text("\n".join([*lines, f"directory.id={node * 2}ingdomKafkaDirectoryw"]) + "\n")
        (folder / "server.properties").write_text(text)

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def url(self, prefix: str) -> str:
        """The URL of a bus of its own."""
        return bus_url(self.servers, prefix)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it answers."""
        archive = f"-XX:SharedArchiveFile={self._kafka / 'classes.jsa'}"
        libraries = f"{(self._kafka / 'libs').resolve()}/*"
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_JAVA, archive, "-cp", libraries, "kafka.Kafka", str(self.folder / "server.properties")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,  # for the report of a crash
            )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            told = (self.folder / "broker.log").read_text()[-2000:]
            assert self._process.poll() is None, f"the broker ended: {told}"
            assert time.monotonic() < deadline, f"the broker does not answer: {told}"
            time.sleep(0.05)

    def wait_for_end(self, seconds: float) -> None:
        """Wait until it has ended by itself, at most so long."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection:
                connection.sendall(_API_VERSIONS)
                return len(connection.recv(8)) == 8
        except OSError:
            return False

    def leave(self) -> int:
        """Have it run on without us; return its id."""
        assert self._process is not None
        self._process.returncode = 0  # a Popen that is dropped would complain
        return self._process.pid

    def stop(self) -> None:
        """Stop it; its data stay."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without warning."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


class KafkaCluster:
    """Three nodes, each broker and controller. Topics have three replicas, of which two must be in sync."""

    _MORE = (
        "default.replication.factor=3\nmin.insync.replicas=2\noffsets.topic.replication.factor=3\n"
        "replica.lag.time.max.ms=3000\n"
    )

    def __init__(self, folder: Path, advertised: Sequence[int] = ()) -> None:
        """``advertised``: the ports under which each node is reached, by others and by the other nodes."""
        ports = _free_ports(3)
        places = self.folders(folder)
        names = [f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}\n" for port in advertised] or ["", "", ""]
        self.nodes = [
            KafkaBroker(place, self._MORE + name, node=node, controllers=ports)
            for node, (place, name) in enumerate(zip(places, names, strict=True), 1)
        ]

    @staticmethod
    def folders(folder: Path) -> list[Path]:
        """Where its nodes keep their data."""
        return [folder / f"node-{node}" for node in (1, 2, 3)]

    @property
    def servers(self) -> str:
        return ",".join(node.servers for node in self.nodes)

    def url(self, prefix: str) -> str:
        """The URL of a bus of its own."""
        return bus_url(self.servers, prefix)

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:  # none answers before a majority of controllers runs
                node.start(wait=False)
            for node in self.nodes:
                node.wait()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            node.kill()


def bus_url(servers: str, prefix: str) -> str:
    """The URL of the bus with a prefix."""
    return f"kafka://{servers}/?prefix={prefix}."


def delete_topics(servers: str, prefix: str) -> None:
    """Delete the topics with a prefix: a small broker that many tests share cannot keep thousands of partitions."""
    admin = _admin(servers)
    names = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    for future in (admin.delete_topics(names) if names else {}).values():
        with contextlib.suppress(KafkaException):
            future.result()


@functools.cache
def _admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


@contextlib.contextmanager
def shared_broker(folder: Path) -> Iterator[str]:
    """The address of a broker that all processes with this folder share: the first starts it, the last ends it."""
    folder.mkdir(parents=True, exist_ok=True)
    users, address, own = folder / "users", folder / "address", folder / "users" / str(os.getpid())
    users.mkdir(exist_ok=True)
    with exclusive(folder / "lock"):
        if not address.exists():
            broker = KafkaBroker(folder / "broker", _PATIENT)
            broker.start()
            address.write_text(f"{broker.servers} {broker.leave()}")
        own.touch()
    try:
        yield address.read_text().split()[0]
    finally:
        with exclusive(folder / "lock"):
            own.unlink()
            if not any(_runs(int(user.name)) for user in users.iterdir()):
                _end_by_id(int(address.read_text().split()[1]))
                address.unlink()
                shutil.rmtree(folder / "broker")


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def _end_by_id(pid: int) -> None:
    for how in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + 20
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, how)
        while _runs(pid) and time.monotonic() < deadline:
            time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    """Ports that no other test process takes, by a locked file for each, until this process ends."""
    folder = Path(tempfile.gettempdir()) / "kingdom-test-ports"
    folder.mkdir(exist_ok=True)
    ports: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, 1000):
        if _taken(folder / str(port)) and _is_free(port):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise AssertionError(f"fewer than {count} of 1000 ports are free")


def _taken(name: Path) -> bool:
    lock = os.open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)  # never closed: the process's end frees the port
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return False
    return True


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
