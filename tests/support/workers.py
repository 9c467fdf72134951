"""Run the tests in several processes: ``pytest -p tests.support.workers --workers 4``.

The tests are collected once, and each worker is a fork of the process that did. A worker takes the tests of one file
after another: what they share is made once.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import pickle
import random
import select
import selectors
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest
from _pytest.config import create_terminal_writer

_END_SECONDS = 30.0  # for what tests and fixtures do at an interruption
_NUMBER = struct.Struct("<I")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--workers``."""
    parser.addoption("--workers", type=int, default=1, metavar="N", help="run the tests in N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run what was collected, unless pytest does it by itself."""
    options = session.config.option
    if options.workers < 2 or options.collectonly or session.testsfailed or not session.items:
        return None
    with Pool(session) as pool:
        pool.run(options.workers)
    return True


def units(items: Sequence[pytest.Item]) -> list[list[int]]:
    """Return what is given to one worker at once: the tests of a file, but each walk alone, for it takes long."""

    def unit(number: int) -> object:
        item = items[number]
        return number if item.get_closest_marker("walk") else item.path

    return [list(numbers) for _, numbers in itertools.groupby(range(len(items)), unit)]


class Worker:
    """A fork that runs tests, as the process that collected them sees it."""

    def __init__(self, name: str, pid: int, pipe: int) -> None:
        self.pid = pid
        self.pipe = pipe
        self.handle = os.pidfd_open(pid)
        self.taken: list[int] = []  # tests that it has not done
        self.running: int | None = None
        self.done = False
        # The name as pytest shows it, beside progress and above a failure.
        self.node = SimpleNamespace(gateway=SimpleNamespace(id=name), _workerinfocache=f"[{name}]")
        self._received = bytearray()

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Read what the pipe has."""
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.pipe, 1 << 20):
                self._received += piece
        start = _NUMBER.size
        while len(self._received) >= start:
            (size,) = _NUMBER.unpack_from(self._received)
            if len(self._received) < start + size:
                return
            message = pickle.loads(self._received[start : start + size])
            del self._received[: start + size]
            yield message

    def close(self) -> None:
        """Let go of it."""
        os.close(self.pipe)
        os.close(self.handle)


class Pool:
    """The workers of a run, and the queue of units that they take from."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._units = units(session.items)
        self._queue, writer = os.pipe()
        # Less than a pipe holds. One read takes one number: the kernel lets one reader at a time in.
        os.write(writer, b"".join(map(_NUMBER.pack, range(len(self._units)))))
        os.close(writer)
        self._workers: set[Worker] = set()
        self._names = itertools.count()
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._queue)
        for worker in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
        for worker in self._workers:
            if not select.select([worker.handle], [], [], _END_SECONDS)[0]:
                os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
            worker.close()
        self._selector.close()

    def run(self, count: int) -> None:
        """Return when all tests are done."""
        config = self._session.config
        config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # one for all workers
        reporter = config.pluginmanager.getplugin("terminalreporter")
        reporter.showfspath = False
        for _ in range(min(count, len(self._units))):
            self._start([])
        while self._workers:
            for key, _ in self._selector.select():
                worker: Worker = key.data
                if worker in self._workers:
                    ended = key.fd == worker.handle
                    for message in worker.messages():
                        self._take(worker, *message)
                    if ended:
                        self._end(worker)

    def _start(self, first: list[int]) -> None:
        name = f"w{next(self._names)}"
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            _be_worker(self._session, name, lambda: self._next(first), writer)
        os.close(writer)
        os.set_blocking(reader, False)
        worker = Worker(name, pid, reader)
        self._workers.add(worker)
        self._selector.register(worker.pipe, selectors.EVENT_READ, worker)
        self._selector.register(worker.handle, selectors.EVENT_READ, worker)

    def _next(self, first: list[int]) -> list[int]:
        if first:
            numbers = first.copy()
            first.clear()
            return numbers
        number = os.read(self._queue, _NUMBER.size)
        return self._units[_NUMBER.unpack(number)[0]] if number else []

    def _take(self, worker: Worker, kind: str, value: Any) -> None:
        session, hook = self._session, self._session.config.hook
        if kind == "taken":
            worker.taken.extend(value)
        elif kind == "started":
            worker.running = value
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=session.config, data=value)
            self._report(worker, report)
        elif kind == "finished":
            worker.running = None
            worker.taken.remove(value)
        elif kind == "failed":
            raise RuntimeError(value)
        else:
            worker.done = True

    def _report(self, worker: Worker, report: pytest.TestReport) -> None:
        session = self._session
        report.node = worker.node  # type: ignore[attr-defined]
        session.config.hook.pytest_runtest_logreport(report=report)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _end(self, worker: Worker) -> None:
        self._workers.remove(worker)
        self._selector.unregister(worker.pipe)
        self._selector.unregister(worker.handle)
        _, status = os.waitpid(worker.pid, 0)
        worker.close()
        if worker.done:
            return
        how = f"its process ended: {os.waitstatus_to_exitcode(status)}"
        if worker.running is not None:
            worker.taken.remove(worker.running)
            item = self._session.items[worker.running]
            self._report(worker, pytest.TestReport(item.nodeid, item.location, {}, "failed", how, "call"))
        elif not worker.taken:
            raise RuntimeError(f"worker {worker.node.gateway.id} had no test, and {how}")
        self._start(worker.taken)


class _Messenger:
    """Tells the process that collected the tests what a worker does."""

    def __init__(self, session: pytest.Session, pipe: int) -> None:
        self._config = session.config
        self._pipe = pipe

    def send(self, kind: str, value: Any = None) -> None:
        message = pickle.dumps((kind, value))
        message = _NUMBER.pack(len(message)) + message
        while message:
            message = message[os.write(self._pipe, message) :]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.send("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def _be_worker(session: pytest.Session, name: str, take: Callable[[], list[int]], pipe: int) -> None:
    """Run tests until there are none. Does not return."""
    status = 1
    try:
        messenger = _Messenger(session, pipe)
        try:
            _prepare(session, name, messenger)
            _run(session, take, messenger)
            messenger.send("done")
            status = 0
        except (KeyboardInterrupt, BrokenPipeError):  # the run is given up
            session._setupstate.teardown_exact(None)
        except BaseException:  # noqa: BLE001 - raised again there
            messenger.send("failed", traceback.format_exc())
        _save_coverage()
        atexit._run_exitfuncs()
    finally:
        os._exit(status)


def _prepare(session: pytest.Session, name: str, messenger: _Messenger) -> None:
    """Share nothing with the other workers that changes."""
    os.setpgid(0, 0)  # Ctrl-C reaches the process that collected, and it tells us
    os.environ["KINGDOM_TEST_WORKER"] = name
    random.seed()
    manager = session.config.pluginmanager
    capture = manager.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files are those of the others, too
    capture.start_global_capturing()
    capture.suspend_global_capture()
    reporter = manager.getplugin("terminalreporter")
    reporter._tw = create_terminal_writer(session.config, open(os.devnull, "w"))  # noqa: SIM115 - to the end
    manager.register(messenger)


def _save_coverage() -> None:
    """Store what ``--cov`` has counted here; the process that collected adds it up."""
    if "coverage" in sys.modules and (counted := sys.modules["coverage"].Coverage.current()) is not None:
        counted.stop()
        counted.save()


def _run(session: pytest.Session, take: Callable[[], list[int]], messenger: _Messenger) -> None:
    def numbers() -> Iterator[int]:
        while unit := take():
            messenger.send("taken", unit)
            yield from unit

    following = numbers()
    number = next(following, None)
    while number is not None:
        messenger.send("started", number)
        after = next(following, None)  # which fixtures stay depends on the next test
        session.config.hook.pytest_runtest_protocol(
            item=session.items[number], nextitem=None if after is None else session.items[after]
        )
        messenger.send("finished", number)
        number = after
