"""Several processes on one directory: they share the work, wake each other, and wait for the lock."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import pytest

from kingdom.base import inotify
from kingdom.base.files import TEMPORARY
from kingdom.base.filesystems import filesystem_type
from kingdom.bus import connect
from kingdom.bus.errors import TransportUnavailable
from tests.support.queue_files import STREAM, QueueFiles, event

# A process of its own: claims, handles and settles until it is told that nothing more will come. The ledger is
# compacted all the time.
DRAIN = """
import asyncio, sys
from kingdom.bus import connect
from kingdom.bus.transports.files import stream
stream.COMPACT_BYTES, stream._ROW_BYTES = 4000, 0

async def main(url, name, effects):
    async with connect(url) as bus:
        empty = 0
        while empty < 3:
            held = await bus.claim("orders", worker=name, limit=7)
            with open(effects, "a") as out:
                for item in held:
                    out.write(f"{name} {item.event_id}\\n")
            lost = await bus.settle(done=held)
            assert lost == [], lost
            empty = 0 if held else empty + 1

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def files(tmp_path: Path) -> QueueFiles:
    return QueueFiles(tmp_path / "queue")


async def test_processes_share_a_stream_and_each_event_is_handled_once(files: QueueFiles, tmp_path: Path) -> None:
    ids = [f"e{number:03}" for number in range(300)]
    effects = tmp_path / "effects"
    effects.touch()
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, [event(event_id) for event_id in ids])
        drains = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", DRAIN, files.url, name, str(effects), stderr=asyncio.subprocess.PIPE
            )
            for name in ("one", "two", "three")
        ]
        for drain in drains:
            _, errors = await drain.communicate()
            assert drain.returncode == 0, errors.decode()
        assert await bus.depth() == {}
    handled = Counter(line.split()[1] for line in effects.read_text().splitlines())
    assert handled == Counter(ids)
    assert files("done") == ids
    assert files.temporary() == []


async def woken(files: QueueFiles, act: Callable[[], object]) -> None:
    """Wait until what ``act`` does wakes a subscriber of another bus."""
    async with connect(files.url) as other:
        awake = asyncio.Event()
        undo = other.subscribe(STREAM, awake.set)
        act()
        async with asyncio.timeout(20):
            await awake.wait()
        undo()


async def test_a_publish_elsewhere_wakes_a_subscriber_who_never_looked(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        tasks = []
        await woken(files, lambda: tasks.append(asyncio.create_task(bus.publish(STREAM, event("a")))))
        assert await tasks[0] == ["a"]


async def test_without_inotify_subscribers_are_woken_by_polling(
    files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "_open_instance", lambda: None)
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, event("a"))
        tasks = []
        await woken(files, lambda: tasks.append(asyncio.create_task(bus.publish(STREAM, event("b")))))
        assert await tasks[0] == ["b"]


async def test_a_subscriber_hears_of_publishes_after_the_ledger_was_replaced(
    files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kingdom.bus.transports.files.stream.COMPACT_BYTES", 0)
    monkeypatch.setattr("kingdom.bus.transports.files.stream._ROW_BYTES", 0)
    async with connect(files.url) as bus, connect(files.url) as other:
        await bus.setup()
        await bus.publish(STREAM, event("a"))
        awake = asyncio.Event()
        other.subscribe(STREAM, awake.set)
        held = await other.claim(STREAM, worker="w")
        for name in ("b", "c", "d"):
            awake.clear()
            await bus.publish(STREAM, event(name))
            async with asyncio.timeout(20):
                await awake.wait()
            assert [item.event_id for item in await other.claim(STREAM, worker="w")] == [name]
        assert files.ledger()[0]["generation"] >= 3
        assert await other.settle(done=held) == []


async def test_nobody_is_woken_after_unsubscribing(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        calls: list[int] = []
        first = bus.subscribe(STREAM, lambda: calls.append(1))
        second = bus.subscribe(STREAM, lambda: calls.append(2))
        first()
        first()
        await bus.publish(STREAM, event("a"))
        assert set(calls) == {2}
        second()
        calls.clear()
        await bus.publish(STREAM, event("b"))
        assert calls == []


@contextmanager
def somebody_holds_the_lock(files: QueueFiles):  # type: ignore[no-untyped-def]
    with (files.home / ".lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


async def test_a_lock_that_cannot_be_had_is_an_error_that_passes(files: QueueFiles) -> None:
    async with connect(files.url, connect_timeout=0.1) as bus:
        await bus.setup()
        await bus.publish(STREAM, event("a"))
        with somebody_holds_the_lock(files):
            for call in (bus.claim(STREAM, worker="w"), bus.publish(STREAM, event("b")), bus.depth()):
                with pytest.raises(TransportUnavailable, match="locked by another process"):
                    await call
        assert await bus.publish(STREAM, event("b")) == ["b"]
        assert files("pending") == ["a", "b"]
        assert files.temporary() == []


async def test_a_lock_held_for_a_moment_is_waited_for(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, event("a"))
        with somebody_holds_the_lock(files) as lock:
            claiming = asyncio.create_task(bus.claim(STREAM, worker="w"))
            done, _ = await asyncio.wait([claiming], timeout=0.05)
            assert not done
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert [item.event_id for item in await claiming] == ["a"]


async def test_state_directories_on_another_file_system_are_refused_and_nothing_is_lost(
    files: QueueFiles, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here = files.root.parent.stat().st_dev
    places = [path for path in map(Path, ("/dev/shm", "/var/tmp")) if path.is_dir()]
    elsewhere = next((path for path in places if path.stat().st_dev != here), None)
    if elsewhere is None:
        pytest.skip("there is no second file system here")
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, event("a"), event("b"))
        held = await bus.claim(STREAM, worker="w", limit=2)
        (files.home / "done").rmdir()
        (files.home / "done").symlink_to(elsewhere)
        with pytest.raises(TransportUnavailable, match="cross-device"):
            await bus.settle(done=held)
        findings = {check.name: check for check in await bus.doctor()}
        assert findings[f"{STREAM}: one file system"].level == "error"
        (files.home / "done").unlink()
        assert await bus.settle(done=held) == []
        assert files("done") == ["a", "b"]


# ── doctor ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_healthy_directory_has_nothing_to_complain_about(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, event("a"))
        findings = {check.name: check for check in await bus.doctor()}
    assert {check.level for name, check in findings.items() if name != "file system"} == {"ok"}
    assert set(findings) == {"layout", "file system", "room", "wake-up", f"{STREAM}: lock"}


async def test_the_doctor_sees_what_tends_to_go_wrong(files: QueueFiles) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        await bus.publish(STREAM, event("a"))
        files.drop("pending", "broken", "?", age=10)
        await bus.depth()
        leftover = files.home / f"{TEMPORARY}older-1-2-x.json"
        leftover.touch()
        os.utime(leftover, (0, 0))
        findings = {check.name: check for check in await bus.doctor()}
        assert findings[f"{STREAM}: temporary files"].message.startswith("removed 1")
        assert not leftover.exists()
        assert findings[f"{STREAM}: invalid files"].level == "warning"
        assert "broken.json" in findings[f"{STREAM}: invalid files"].message
        with somebody_holds_the_lock(files):
            findings = {check.name: check for check in await bus.doctor()}
        assert findings[f"{STREAM}: lock"].level == "error"


async def test_the_doctor_warns_of_little_room_and_of_letter_case(
    files: QueueFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(files.url) as bus:
        await bus.setup()
        (files.root / ".KINGDOM-BUS.JSON").touch()  # as a file system that knows no case would have it
        monkeypatch.setattr("kingdom.bus.transports.files.doctor._LOW_BYTES", 1 << 62)
        findings = {check.name: check for check in await bus.doctor()}
    assert findings["letter case"].level == "warning"
    assert findings["room"].level == "error"


def test_the_kind_of_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/vda rw\n"
        f"2 1 0:9 / {tmp_path} rw - nfs4 server:/x rw\n"
        f"3 2 0:9 / {tmp_path}/with\\040space rw - tmpfs tmpfs rw\n"
        f"4 2 0:9 / {tmp_path}elsewhere rw - xfs /dev/vdb rw\n"
    )
    assert filesystem_type("/", str(mounts)) == "ext4"
    assert filesystem_type(str(tmp_path / "queue"), str(mounts)) == "nfs4"
    assert filesystem_type(str(tmp_path / "with space" / "queue"), str(mounts)) == "tmpfs"
    assert filesystem_type("/", str(tmp_path / "nothing")) is None


@pytest.mark.parametrize(("kind", "level"), [("nfs4", "error"), ("9p", "error"), ("tmpfs", "warning"), ("xfs", "ok")])
async def test_the_doctor_judges_the_file_system(
    files: QueueFiles, monkeypatch: pytest.MonkeyPatch, kind: str, level: str
) -> None:
    monkeypatch.setattr("kingdom.base.filesystems.filesystem_type", lambda _: kind)
    async with connect(files.url) as bus:
        await bus.setup()
        findings = {check.name: check for check in await bus.doctor()}
    assert findings["file system"].level == level
