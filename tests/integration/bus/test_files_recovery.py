"""Processes die between any two steps, and ledgers get damaged. What is left must heal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kingdom.base.files import temporary_prefix
from kingdom.base.syncer import Syncer
from kingdom.bus import connect
from kingdom.bus.delivery import DeadVerdict, Delivery, DoneVerdict, RetryVerdict
from kingdom.bus.stream_entry import entry_row
from kingdom.bus.testing import ManualClock
from kingdom.bus.transports.files import operations, stream
from kingdom.bus.transports.files.directories import FileMover
from kingdom.bus.transports.files.layout import set_up
from kingdom.bus.transports.files.publisher import publish_now
from kingdom.bus.transports.files.stream import FileStream
from tests.support.queue_files import STREAM, QueueFiles, event

IDS = ["a", "b", "c"]


class Died(BaseException):
    """What a process is after SIGKILL, as far as its files can tell: it stops, and its locks are gone."""


class Bench:
    """Three processes on one stream: one that dies, one that knew the stream before, and one that comes later."""

    def __init__(self, folder: Path) -> None:
        self.files = QueueFiles(folder / "queue")
        self.clock = ManualClock()
        set_up(str(self.files.root))
        self.victim, self.survivor = self.process(), self.process()

    def process(self) -> FileStream:
        return FileStream(str(self.files.root), STREAM, self.clock, 5.0, 1 << 20)

    def publish(self, process: FileStream, ids: list[str] = IDS) -> None:
        assert publish_now(process, Syncer(), [event(event_id) for event_id in ids]) == ids

    def claim(self, process: FileStream) -> list[Delivery]:
        return operations.claim(process, operations.ClaimRequest("w", 10, 30, types=None, ids=None, max_attempts=3))

    def places(self) -> dict[str, list[str]]:
        return {state: self.files(state) for state in ("pending", "processing", "done", "dead") if self.files(state)}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def known(process: FileStream) -> dict[str, list[Any]]:
    """Everything a process knows of the active events."""
    with process.locked() as state:
        return {entry.event_id: entry_row(entry) for entry in state}


OPERATIONS: dict[str, tuple[str, Callable[[Bench, list[Delivery]], object]]] = {
    "publish": ("pending", lambda bench, _: bench.publish(bench.victim)),
    "claim": ("processing", lambda bench, _: bench.claim(bench.victim)),
    "done": ("done", lambda bench, held: operations.settle(bench.victim, [*map(DoneVerdict, held)], [], [])),
    "retry": ("pending", lambda bench, held: operations.settle(bench.victim, [], [*map(RetryVerdict, held)], [])),
    "dead": ("dead", lambda bench, held: operations.settle(bench.victim, [], [], [*map(DeadVerdict, held)])),
    "release": ("pending", lambda bench, held: operations.release(bench.victim, held)),
    "requeue": ("pending", lambda bench, _: operations.requeue(bench.victim, IDS, None, None)),
    "purge": ("nowhere", lambda bench, _: operations.purge(bench.victim, -1, with_dead=True)),
}


@pytest.mark.parametrize("moves", range(4))
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_a_dead_process_had_begun_is_finished(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, moves: int
) -> None:
    target, operation = OPERATIONS[name]
    held: list[Delivery] = []
    if name != "publish":
        bench.publish(bench.victim)
    if name not in ("publish", "claim"):
        held = bench.claim(bench.victim)
    if name in ("requeue", "purge"):
        operations.settle(bench.victim, [], [], [*map(DeadVerdict, held)])
    known(bench.survivor)

    real, made = FileMover._rename, 0

    def dying(self: FileMover, move: Any) -> bool:
        nonlocal made
        if self is bench.victim.mover and made == moves:
            if name == "publish":  # the dead do not clean up behind themselves
                monkeypatch.setattr(os, "unlink", lambda _: None)
            raise Died
        made += 1
        return real(self, move)

    monkeypatch.setattr(FileMover, "_rename", dying)
    if moves < len(IDS):
        with pytest.raises(Died):
            operation(bench, held)
    else:
        operation(bench, held)

    expected = {} if target == "nowhere" else {target: IDS}
    first, second = known(bench.survivor), known(bench.process())
    assert bench.places() == expected
    assert first == second
    assert set(first) == (set() if target in ("nowhere", "done") else set(IDS))
    assert known(bench.survivor) == first, "what was healed once stays as it is"
    if target == "processing":
        bench.clock.advance(31)
        assert [item.attempt for item in bench.claim(bench.survivor)] == [2, 2, 2]


def test_dying_before_the_line_is_written_changes_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.publish(bench.victim)
    before = known(bench.survivor)

    def dying(_: object, line: object) -> int:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(bench.victim.ledger, "append", dying.__get__(bench.victim.ledger))
        with pytest.raises(Died):
            bench.claim(bench.victim)
    assert known(bench.survivor) == before == known(bench.process())
    assert bench.places() == {"pending": IDS}


@pytest.mark.parametrize("keep", [1, 20, -1])
def test_a_line_without_its_end_never_happened(bench: Bench, keep: int) -> None:
    bench.publish(bench.victim)
    before = known(bench.survivor)
    ledger = Path(bench.victim.paths.ledger)
    whole = ledger.read_bytes()
    bench.claim(bench.victim)
    torn = ledger.read_bytes()[len(whole) :][:keep]
    for name in IDS:
        bench.files.move(name, "processing", "pending")
    ledger.write_bytes(whole + torn)
    fresh = bench.process()
    assert known(fresh) == before
    assert [item.attempt for item in bench.claim(fresh)] == [1, 1, 1]
    assert [item["op"] for item in bench.files.ledger()] == ["publish", "claim"]


@pytest.mark.parametrize("written", [0, 10])
def test_a_line_that_does_not_fit_is_taken_back(bench: Bench, monkeypatch: pytest.MonkeyPatch, written: int) -> None:
    bench.publish(bench.victim)
    before, lines = known(bench.survivor), bench.files.ledger()
    real, calls = os.write, 0

    def filling(fd: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 1 and written:
            return real(fd, data[:written])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", filling)
        with pytest.raises(OSError, match="No space left"):
            bench.claim(bench.victim)
    assert bench.files.ledger() == lines
    assert known(bench.victim) == before == known(bench.survivor)
    assert [item.attempt for item in bench.claim(bench.victim)] == [1, 1, 1]


def test_garbled_lines_are_skipped_and_the_directories_tell(bench: Bench) -> None:
    bench.publish(bench.victim, ["a"])
    bench.publish(bench.victim, ["b"])
    ledger = Path(bench.victim.paths.ledger)
    first, second = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(
        b"\0" * 50 + b"\n" + first + b'{"op":"claim"}\n[1]\n{"op":"from the future"}\n{"op"\n' + second[5:]
    )
    fresh = bench.process()
    assert sorted(known(fresh)) == ["a", "b"]
    assert [item.event_id for item in bench.claim(fresh)] == ["a", "b"], "in the order their documents tell"


def test_without_a_ledger_every_event_is_still_there(bench: Bench) -> None:
    bench.publish(bench.victim)
    (first, second, third) = bench.claim(bench.victim)
    operations.settle(bench.victim, [DoneVerdict(first)], [], [DeadVerdict(second)])
    bench.publish(bench.victim, ["d"])
    os.unlink(bench.victim.paths.ledger)
    fresh = bench.process()
    assert {key: fields[7:8] for key, fields in known(fresh).items()} == {"b": ["DEAD"], "c": [], "d": []}
    assert bench.places() == {"pending": ["c", "d"], "done": ["a"], "dead": ["b"]}
    assert third.event_id == "c"


def test_a_ledger_deleted_under_a_running_process_is_written_anew(bench: Bench) -> None:
    bench.publish(bench.victim)
    bench.claim(bench.victim)
    known(bench.survivor)
    os.unlink(bench.victim.paths.ledger)
    before = known(bench.survivor)
    assert {fields[8] for fields in before.values()} == {1}, "attempts were not forgotten"
    assert known(bench.process()) == before == known(bench.victim)


def test_a_lock_file_deleted_under_running_processes_keeps_locking(bench: Bench) -> None:
    bench.publish(bench.victim)
    known(bench.survivor)
    os.unlink(bench.victim.paths.lock)
    with bench.victim.locked():
        inode = os.stat(bench.victim.paths.lock).st_ino
        other = bench.process()
        other._guard._timeout = 0.05
        with pytest.raises(ConnectionError, match="locked by another process"), other.locked():
            pass
    with bench.survivor.locked():
        assert os.stat(bench.victim.paths.lock).st_ino == inode


def test_a_rename_that_fails_undoes_the_others(bench: Bench, tmp_path: Path) -> None:
    bench.publish(bench.victim)
    held = bench.claim(bench.victim)
    before = known(bench.survivor)
    real = os.rename

    def failing(source: str, target: str) -> None:
        if target.endswith("done/c.json"):
            raise OSError(5, "Input/output error", target)
        real(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", failing)
        with pytest.raises(OSError, match="Input/output"):
            operations.settle(bench.victim, [*map(DoneVerdict, held)], [], [])
    assert bench.places() == {"processing": IDS}
    assert known(bench.survivor) == before == known(bench.victim) == known(bench.process())
    assert operations.settle(bench.victim, [*map(DoneVerdict, held)], [], []) == ([], False)
    assert bench.places() == {"done": IDS}


def test_attempts_are_counted_across_deaths_and_a_poison_event_ends_dead(bench: Bench) -> None:
    bench.publish(bench.victim, ["poison"])
    for attempt in (1, 2, 3):
        assert [item.attempt for item in bench.claim(bench.process())] == [attempt]
        bench.clock.advance(31)
    assert bench.claim(bench.process()) == []
    (letter,) = operations.dead(bench.process(), 10)
    assert (letter.event_id, letter.attempts, letter.error_code) == ("poison", 3, "LEASE_EXPIRED")
    assert bench.places() == {"dead": ["poison"]}


# ── compaction ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_ledgers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "COMPACT_BYTES", 1000)
    monkeypatch.setattr(stream, "_ROW_BYTES", 0)


@pytest.mark.usefixtures("small_ledgers")
def test_a_compacted_ledger_says_the_same(bench: Bench) -> None:
    bench.publish(bench.victim, ["a", "b", "c", "d"])
    first, second, third, _ = bench.claim(bench.victim)
    later = [RetryVerdict(second, 60.0, "SLOW", "try later")]
    operations.settle(bench.victim, [DoneVerdict(first)], later, [DeadVerdict(third, "BAD", "no use")])
    before = known(bench.victim)
    known(bench.survivor)
    late = bench.process()
    known(late)
    for _ in range(40):
        bench.publish(bench.survivor, ["x"])
        operations.settle(bench.survivor, [*map(DoneVerdict, bench.claim(bench.survivor))], [], [])
        operations.purge(bench.survivor, -1, with_dead=False)
    assert os.stat(bench.victim.paths.ledger).st_size < 3000, "it does not grow with history"
    header = bench.files.ledger()[0]
    assert header["generation"] > 2
    assert known(bench.victim) == before == known(late) == known(bench.process())
    assert [item.event_id for item in operations.dead(bench.process(), 5)] == ["c"]
    assert bench.files.temporary() == []


@pytest.mark.usefixtures("small_ledgers")
def test_a_process_that_kept_up_skips_the_snapshot(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.publish(bench.victim)
    known(bench.survivor)
    held = bench.claim(bench.victim)
    while bench.files.ledger()[0].get("generation") != 1:
        operations.extend(bench.victim, held, 30)
    read: list[str] = []
    real = FileStream._apply
    monkeypatch.setattr(FileStream, "_apply", lambda self, line: (read.append(line["op"]), real(self, line))[1])
    assert known(bench.survivor) == known(bench.victim)
    assert read[0] == "claim"
    assert read[-1] == "replaced"
    assert "set" not in read


def test_a_full_disk_does_not_stop_a_stream_from_working_with_its_old_ledger(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.publish(bench.victim)
    held = bench.claim(bench.victim)
    bench.victim._compact_at = 0

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bench.victim.ledger, "replace", full)
    operations.settle(bench.victim, [*map(DoneVerdict, held)], [], [])
    assert "could not be compacted" in caplog.text
    assert bench.places() == {"done": IDS}


# ── temporary files ───────────────────────────────────────────────────────────────────────────────────────────────


def test_temporary_files_of_the_dead_are_removed_and_those_of_the_living_kept(bench: Bench) -> None:
    bench.publish(bench.victim)
    code = "from kingdom.base.files import temporary_prefix; print(temporary_prefix())"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    mine = temporary_prefix()
    names = {"dead": f"{dead}x.json", "mine": f"{mine}x.json", "strange": ".tmp-elsewhere-1-x", "old": ".tmp-older-1-x"}
    paths = {key: bench.files.home / name for key, name in names.items()}
    for path in paths.values():
        path.write_text("{")
    os.utime(paths["old"], (0, 0))
    known(bench.process())
    assert {key for key, path in paths.items() if path.exists()} == {"mine", "strange"}


async def test_a_zombie_does_not_hold_its_temporary_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.publish(bench.victim)
    code = "from kingdom.base.files import temporary_prefix; print(temporary_prefix(), flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        path = bench.files.home / f"{child.stdout.read().strip()}x.json"
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is dead, and nobody has asked for its end
        path.write_text("{")
        async with connect(bench.files.url) as bus:
            await bus.depth()
        assert not path.exists()
