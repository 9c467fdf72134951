"""``make release``: the same bytes from the same sources, with checksums and the notes of the version."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kingdom import __version__
from tests.support.pages import ROOT

pytestmark = [pytest.mark.walk, pytest.mark.timeout(300)]


def release(checkout: Path, *words: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "scripts" / "release"), *words]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False, timeout=timeout)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone of this repository with its present files, all of them committed."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout, and a release is made from one")
    folder = tmp_path / "checkout"
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(folder)], check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    commit(folder)
    return folder


def commit(folder: Path) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    subprocess.run(["git", *who, "commit", "--quiet", "--allow-empty", "-m", "x"], cwd=folder, check=True)


def test_a_release_is_built_reproducibly_with_checksums_and_notes(checkout: Path, tmp_path: Path) -> None:
    done = release(checkout, "--rehearse", "--build-only", "--without-docs", "--out", str(tmp_path / "dist"))
    assert done.returncode == 0, done.stdout + done.stderr
    dist = tmp_path / "dist"
    wheel, sdist = dist / f"kingdom-{__version__}-py3-none-any.whl", dist / f"kingdom-{__version__}.tar.gz"
    sums = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert sums == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (wheel, sdist)}
    notes = (dist / "RELEASE_NOTES.md").read_text()
    assert notes.startswith(f"# Kingdom {__version__}\n\n### Added\n")
    assert sums[wheel.name] in notes
    with zipfile.ZipFile(wheel) as packed:
        assert "kingdom/cli/app.py" in packed.namelist()
        assert not [name for name in packed.namelist() if name.startswith(("tests/", "docs/"))]
    with tarfile.open(sdist) as packed_source:
        assert f"kingdom-{__version__}/CHANGELOG.md" in packed_source.getnames()


def test_the_notes_carry_the_certificate_of_their_own_commit_only(checkout: Path, tmp_path: Path) -> None:
    def notes(commit: str, *changes: str) -> str:
        artifacts = checkout / "artifacts"
        artifacts.mkdir(exist_ok=True)
        (artifacts / "certificate.json").write_text(json.dumps({"commit": commit, "changes": changes}))
        (artifacts / "certificate.md").write_text("# Certificate\n\n0 lost\n\n## Parts\n")
        done = release(checkout, "--rehearse", "--build-only", "--without-docs", "--out", str(tmp_path / "dist"))
        assert done.returncode == 0, done.stdout + done.stderr
        return (tmp_path / "dist" / "RELEASE_NOTES.md").read_text()

    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True)
    assert "\n## Certificate\n\n0 lost\n\n### Parts\n" in notes(head.stdout.strip())
    assert "0 lost" not in notes("c0ffee")
    assert "0 lost" not in notes(head.stdout.strip(), "M a.py")


def test_a_release_is_refused_without_a_date_and_with_uncommitted_changes(checkout: Path, tmp_path: Path) -> None:
    out = ("--build-only", "--without-docs", "--out", str(tmp_path / "dist"))
    undated = release(checkout, *out)
    assert undated.returncode == 1
    assert f"CHANGELOG.md: {__version__} has no date yet" in undated.stderr
    changelog = checkout / "CHANGELOG.md"
    changelog.write_text(re.sub(r"(?m)^## (\S+) - \S+$", r"## \1 - 2026-12-01", changelog.read_text()))
    changed = release(checkout, *out)
    assert changed.returncode == 1
    assert "there are uncommitted changes" in changed.stderr
    changelog.write_text("# Changelog\n")
    assert f"no section '## {__version__} - " in release(checkout, *out).stderr
    assert not (tmp_path / "dist").exists()
