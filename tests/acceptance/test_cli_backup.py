"""``kingdom backup`` and ``kingdom restore``: a court that is lost with its disk comes back from a file."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from kingdom.cli.app import run
from tests.support.command import Background, kingdom
from tests.support.courts import Court, until
from tests.support.full_disk import no_file_grows_beyond
from tests.support.repositories import plain_git


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("courts") / "founded"
    Court(root).make()
    return root


@pytest.fixture
def court(founded: Path, tmp_path: Path) -> Court:
    root = tmp_path / "home"
    shutil.copytree(founded, root)
    made = Court(root)
    made.install("gen-test", concurrency=3)
    return made


def stored(file: Path) -> set[str]:
    with tarfile.open(file) as archive:
        return {entry.name.removeprefix("home/") for entry in archive}


def test_a_court_that_is_lost_comes_back_with_everything_it_had_accepted(court: Court, tmp_path: Path) -> None:
    release, file = tmp_path / "release", tmp_path / "court.tar.gz"
    with court.up() as process:
        done = court.emit({"number": 1})
        court.wait_completed(done)
        held = [court.emit({"until": str(release)}) for _ in range(2)]
        court.soldier_at_work()
        made = court.ask("backup", str(file))
        assert made["info"]["home"] == str(court.root)
        assert process.poll() is None
        after = court.emit({"number": 2})
        court.wait_completed(court.emit({"number": 3}))  # it goes on after the backup
        court.lose(process)

    assert (file.stat().st_mode & 0o777) == 0o600
    refused = kingdom("restore", str(file), str(tmp_path / "elsewhere"))
    assert f"it was made of {court.root}, and its worktrees and records name that path" in refused.stderr
    assert kingdom("restore", str(file), str(court.root)).returncode == 0
    again = kingdom("restore", str(file), str(court.root))
    assert "is not empty: move what is there away first (nothing was changed)" in again.stderr
    release.touch()
    with court.up():
        for event_id in held:
            assert court.wait_completed(event_id)["status"] == "completed"
    assert court.document("events", "completed", done)
    events = {task["event_id"] for task in court.ask("task", "ls")["tasks"]}
    assert events == {done, *held}, f"{after} came after the backup"
    tasks = [task["event_id"] for task in court.ask("task", "ls", "--status", "completed")["tasks"]]
    assert sorted(tasks) == sorted({done, *held}), "each is done once"


def test_databases_and_repositories_are_in_a_backup(court: Court, tmp_path: Path) -> None:
    source = tmp_path / "source"
    plain_git(tmp_path, "init", "--quiet", "source")
    plain_git(source, "commit", "--quiet", "--allow-empty", "--message", "first")
    clone = court.root / "workspace/.clones/source.git"
    plain_git(tmp_path, "clone", "--quiet", "--bare", str(source), str(clone))
    (court.root / "workspace/.clones/dangling").symlink_to("nowhere")
    assert kingdom("git", "add", str(source), "--home", str(court.root)).returncode == 0
    file = tmp_path / "court.tar.gz"
    with court.up():
        court.ask("backup", str(file))
    names = stored(file)
    assert {"config/system.yaml", "workflows/workflows.db", "workspace/.clones/source.git/HEAD"} <= names
    assert not any(name.endswith(("-wal", "-shm")) or "supervisor/pid.json" in name for name in names)
    shutil.rmtree(court.root)
    assert kingdom("restore", str(file), str(court.root)).returncode == 0
    assert plain_git(clone, "log", "--format=%s") == "first"
    assert (court.root / "workspace/.clones/dangling").is_symlink()
    assert "source" in kingdom("git", "ls", "--home", str(court.root)).stdout


def test_a_backup_that_is_killed_leaves_the_court_at_work_and_no_file(court: Court, tmp_path: Path) -> None:
    for number in range(3000):  # enough to be killed in the middle
        (court.root / f"logs/sessions/{number}.log").write_text("said\n")
    file = tmp_path / "court.tar.gz"
    with court.up():
        court.wait_for_roles("king", "gen-test")
        with Background(tmp_path / "said.txt", "backup", str(file), KINGDOM_HOME=str(court.root)) as making:
            until(lambda: list(court.root.glob(".backup-*/logs")), "the files being taken")
            making.kill()
        assert not file.exists()
        court.wait_completed(court.emit({"number": 1}))  # nobody is stopped any more
        court.ask("backup", str(file))
    assert not list(court.root.glob(".backup-*"))
    assert "logs/sessions/2999.log" in stored(file)


@pytest.mark.parametrize("kept", [0.5, 0.999])
def test_a_damaged_backup_is_refused_and_leaves_nothing(court: Court, tmp_path: Path, kept: float) -> None:
    file = tmp_path / "court.tar.gz"
    court.ask("backup", str(file))
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * kept)])
    shutil.rmtree(court.root)
    done = kingdom("restore", str(file), str(court.root))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "is damaged or no backup of a court" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["court.tar.gz"]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda court: ["backup", str(court.root / "x.tar.gz")], "is in the home itself: name a file outside of it"),
        (lambda court: ["backup", str(court.root / "config/system.yaml")], "exists already: name another file"),
    ],
)
def test_a_backup_that_makes_no_sense_is_refused(court: Court, make: object, reason: str) -> None:
    done = court.call(*make(court))  # type: ignore[operator]
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("memory/large", "{folder} is full, of which {free} bytes were free: the backup needs up to {needed} bytes"),
        ("state/king/.book", "{home} is full, of which {free} bytes were free: a backup first copies databases and"),
    ],
)
def test_a_full_disk_is_named_with_what_a_backup_needs_and_nothing_is_left(
    court: Court, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    file, before = tmp_path / "court.tar.gz", {*court.root.rglob("*")}
    monkeypatch.setattr("kingdom.court.backup.shutil.disk_usage", lambda folder: SimpleNamespace(free=1_234_567))
    (court.root / name).write_bytes(os.urandom(3_000_000))
    with no_file_grows_beyond(1_000_000):
        done = court.call("backup", str(file))
    assert done.returncode == 1
    sizes = sum(path.stat().st_size for path in court.root.rglob("*") if path.is_file())
    words = {"folder": tmp_path, "home": court.root, "free": "1,234,567", "needed": f"{sizes:,}"}
    assert f"error: the disk of {reason.format(**words)}" in done.stderr
    assert "Free some space" in done.stderr
    assert done.stderr.endswith("nothing half-written is left\n")
    assert {*tmp_path.iterdir()} == {court.root}
    assert {*court.root.rglob("*")} == before | {court.root / name}


def test_a_backup_that_does_not_fit_is_not_restored_in_part(
    court: Court, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "court.tar.gz"
    (court.root / "memory/large").write_bytes(os.urandom(3_000_000))
    size = court.ask("backup", str(file))["info"]["bytes"]
    shutil.rmtree(court.root)
    monkeypatch.setattr("kingdom.court.backup.shutil.disk_usage", lambda folder: SimpleNamespace(free=1_234_567))
    with no_file_grows_beyond(1_000_000), contextlib.redirect_stderr(io.StringIO()) as said:
        assert run(["restore", str(file), str(court.root)]) == 1
    assert (
        f"the disk of {tmp_path} is full, of which 1,234,567 bytes were free: the backup has {size:,} bytes"
        in said.getvalue()
    )
    assert {*tmp_path.iterdir()} == {file}


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nosuch/court.tar.gz", "there is no folder {}/nosuch: create it first"), ("home", "{}/home exists already")],
)
def test_a_place_where_no_backup_can_be_is_refused_first(court: Court, tmp_path: Path, name: str, reason: str) -> None:
    assert reason.format(tmp_path) in court.call("backup", str(tmp_path / name)).stderr
