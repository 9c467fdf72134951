"""The certificate: refused when a part fails, gone on with after an interruption, of one commit only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.certificate.parts import Part, all_parts, read_campaign, read_conformance, read_tests
from tests.certificate.run import Certifier, Refused, Tree
from tests.chaos.engine import Tally
from tests.chaos.report import Report
from tests.chaos.walk import Walk
from tests.support.pages import ROOT

COMMIT = Tree("c0ffee")
NOTES = """import json, sys
with open(sys.argv[1], "a") as file:
    print(sys.argv[2], file=file)
"""
PASSES = NOTES + 'json.dump({"counts": {"kills": 3}, "skipped": ["no tool"], "failures": []}, open(sys.argv[3], "w"))'
FAILS = (
    NOTES + 'json.dump({"counts": {}, "skipped": [], "failures": ["lost one"]}, open(sys.argv[3], "w")); sys.exit(1)'
)


class Ground:
    """Parts of a few lines of Python, which note that they ran."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ran = folder / "ran"
        self.said: list[str] = []

    def part(self, name: str, code: str = PASSES, limit: float = 60.0) -> Part:
        def command(seed: int, report: Path) -> list[str]:
            return [sys.executable, "-c", code, str(self._ran), f"{name} {seed}", str(report)]

        return Part(name, "a kind", command, read_campaign, limit)

    def certifier(self, *parts: Part, tree: Tree = COMMIT, seed: int | None = 7) -> Certifier:
        return Certifier(self.folder / "artifacts", lambda: tree, parts, seed, self.said.append)

    @property
    def ran(self) -> list[str]:
        return self._ran.read_text().splitlines() if self._ran.exists() else []

    @property
    def written(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "artifacts").glob("certificate.*"))


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    # The children of this process are servers of other tests.
    monkeypatch.setattr("tests.certificate.run.adopt_orphans", lambda: True)
    monkeypatch.setattr("tests.certificate.run.end_strays", list)
    return Ground(tmp_path)


def test_the_page_names_commit_machine_seed_counts_and_what_was_not_covered(ground: Ground) -> None:
    ground.certifier(ground.part("one"), ground.part("two")).run()
    assert ground.written == ["certificate.json", "certificate.md"]
    said = json.loads((ground.folder / "artifacts" / "certificate.json").read_text())
    assert (said["commit"], said["changes"], said["seed"]) == ("c0ffee", [], 7)
    assert said["findings"] == {"lost": 0, "doubled": 0, "stuck": 0, "strays": 0}
    assert [part["counts"] for part in said["parts"]] == [{"kills": 3}, {"kills": 3}]
    page = (ground.folder / "artifacts" / "certificate.md").read_text()
    for words in (
        "`c0ffee`",
        said["machine"],
        said["python"],
        "| Seed | 7 |",
        "| a kind | 2 | 6 kills |",
        "| stuck | 0 |",
        "one: no tool",
    ):
        assert words in page, words


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (FAILS, "bad: lost one"),
        ("import sys; sys.exit(3)", "bad: it left no report that can be read"),
        (PASSES + "; sys.exit(3)", "bad: it ended with exit code 3"),
        (PASSES.replace('{"kills": 3}', "{}").replace('["no tool"]', "[]"), "bad: it did nothing"),
    ],
)
def test_it_is_refused_when_one_part_fails_and_the_others_run_all_the_same(code: str, why: str, ground: Ground) -> None:
    with pytest.raises(Refused, match=why):
        ground.certifier(ground.part("bad", code), ground.part("good")).run()
    assert ground.ran[-1] == "good 7"
    assert ground.written == []


def test_what_failed_is_not_tried_again_until_it_passes(ground: Ground) -> None:
    with pytest.raises(Refused):
        ground.certifier(ground.part("one", FAILS)).run()
    with pytest.raises(Refused, match="lost one"):
        ground.certifier(ground.part("one")).run()
    assert ground.ran == ["one 7"]
    ground.certifier(ground.part("one")).run(restart=True)
    assert ground.written == ["certificate.json", "certificate.md"]


def test_a_part_that_takes_too_long_is_stuck(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.certificate.children._SECONDS_OF_SILENCE", 0.05)
    with pytest.raises(Refused, match="one: stuck: it took longer than"):
        ground.certifier(ground.part("one", "import time; time.sleep(600)", limit=0.2)).run()
    assert [line for line in ground.said if "no output yet" in line]


@contextmanager
def in_a_process(ground: Ground, *parts: tuple[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Certify in a process of its own: its children are those of the parts only, and it may be interrupted."""
    program = f"""
import sys
from pathlib import Path
from tests.certificate import children, run
from tests.certificate.test_certificate import Ground
run.end_strays = lambda: children.end_strays(grace=0)
ground = Ground(Path({str(ground.folder)!r}))
try:
    ground.certifier(*(ground.part(*part) for part in {parts!r})).run()
except run.Refused as reason:
    sys.exit(str(reason))
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans are adopted on Linux")
def test_a_process_that_a_part_leaves_is_a_stray_and_is_ended(ground: Ground) -> None:
    leaves = f"{PASSES}\nimport subprocess; subprocess.Popen(['sleep', '599'], start_new_session=True)"
    with in_a_process(ground, ("one", leaves)) as process:
        said = process.communicate()[1]
    assert "stray process" in said
    with pytest.raises(ProcessLookupError):
        os.kill(int(said.partition("stray process ")[2].partition(":")[0]), 0)
    assert ground.written == []


def test_after_an_interruption_the_finished_parts_are_kept(ground: Ground) -> None:
    waits = f"{NOTES}\nimport time; time.sleep(600)"
    with in_a_process(ground, ("one", PASSES), ("two", waits), ("three", PASSES)) as process:
        while "two 7" not in ground.ran:
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in process.communicate()[1]
    assert ground.written == []
    ground.certifier(ground.part("one"), ground.part("two"), ground.part("three"), seed=None).run()
    assert ground.ran == ["one 7", "two 7", "two 7", "three 7"], "with the same seed, and the first part only once"
    assert ground.written == ["certificate.json", "certificate.md"]


def test_another_commit_and_another_seed_start_again(ground: Ground) -> None:
    ground.certifier(ground.part("one")).run()
    ground.certifier(ground.part("one"), tree=Tree("decade")).run()
    assert json.loads((ground.folder / "artifacts" / "certificate.json").read_text())["commit"] == "decade"
    ground.certifier(ground.part("one"), seed=8).run()
    assert ground.ran == ["one 7", "one 7", "one 8"]


def test_a_certificate_goes_when_another_commit_fails(ground: Ground) -> None:
    ground.certifier(ground.part("one")).run()
    with pytest.raises(Refused):
        ground.certifier(ground.part("one", FAILS), tree=Tree("decade")).run()
    assert ground.written == []


def test_single_parts_are_kept_and_the_rest_is_named(ground: Ground) -> None:
    parts = ground.part("one"), ground.part("two")
    with pytest.raises(Refused, match="1 parts have not run: two"):
        ground.certifier(*parts).run(["one"])
    with pytest.raises(Refused, match="there is no part three"):
        ground.certifier(*parts).run(["three"])
    ground.certifier(*parts).run()
    assert ground.ran == ["one 7", "two 7"]


def test_uncommitted_changes_are_refused_or_named_and_their_results_not_kept(ground: Ground) -> None:
    changed = Tree("c0ffee", "M src/kingdom/a.py")
    with pytest.raises(Refused, match="uncommitted changes"):
        ground.certifier(ground.part("one"), tree=changed).run()
    for _ in range(2):
        ground.certifier(ground.part("one"), tree=changed).run(rehearse=True)
    assert ground.ran == ["one 7", "one 7"]
    assert "with 1 uncommitted changes" in (ground.folder / "artifacts" / "certificate.md").read_text()


def test_sources_that_change_meanwhile_are_not_certified(ground: Ground) -> None:
    trees = iter([COMMIT, Tree("decade")])
    certifier = Certifier(ground.folder / "artifacts", lambda: next(trees), [ground.part("one")], 7, ground.said.append)
    with pytest.raises(Refused, match="changed while the parts ran"):
        certifier.run()


# What the parts are


def test_every_walk_and_every_campaign_is_in_a_part() -> None:
    parts = {part.name: part.command(1, Path("report")) for part in all_parts(2)}
    elsewhere = [word.removeprefix("--ignore=") for word in parts["walks-elsewhere"] if word.startswith("--ignore=")]
    others = " ".join(word for name, words in parts.items() if name != "walks-elsewhere" for word in words)
    for path in elsewhere:
        assert (ROOT / path).exists(), path
        assert path in others.replace(f"--ignore={path}", "") or path == "tests/chaos"
    asked = {words[words.index("--only") + 1] for words in parts.values() if "--only" in words}
    from tests.chaos import __main__ as chaos

    assert asked == {*chaos.PARTS, *chaos.SINGLE}


def test_reports_of_tests_are_read(tmp_path: Path) -> None:
    (tmp_path / "report").write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.conformance.test_conformance.TestFiles" name="test_a"/>
        <testcase classname="tests.conformance.test_conformance.TestKafka" name="test_a"><skipped message="no broker"/>
        </testcase>
        <testcase classname="tests.conformance.test_state_machine" name="test_b"/>
        <testcase classname="tests.x" name="test_c"><failure message="assert 1 == 2"/></testcase>
        </testsuite></testsuites>"""
    )
    found = read_conformance(tmp_path / "report")
    assert found.counts == {"behaviours on files": 1, "searches beside the model": 1}
    assert found.uncovered == ["1 skipped: no broker (behaviours on kafka)"]
    assert found.failures == ["tests.x::test_c: assert 1 == 2"]
    assert read_tests(tmp_path / "report").counts == {"tests": 2}


def test_reports_of_campaigns_count_what_was_done_and_name_what_was_missed(tmp_path: Path) -> None:
    report, walked = Report(), Walk("files", "publish", "strace")
    walked.points.update(write=3, fsync=2)
    walked.missed.update(write=1)
    report.count(Tally(kills=4, events=50))
    report.count(walked, points="crash points")
    report.write(tmp_path / "report")
    found = read_campaign(tmp_path / "report")
    assert (found.counts["kills"], found.counts["events"], found.counts["crash points"]) == (4, 50, 5)
    assert "missed" not in found.counts
    assert found.uncovered == ["files publish: no stop fell upon 1 × write"]


def test_campaigns_run_without_the_sandbox_and_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their soldiers write what they did where a sandbox would not let them."""
    from tests.chaos import __main__ as chaos

    for name in ("KINGDOM_SANDBOX", "KINGDOM_WEB"):
        monkeypatch.setenv(name, "auto")
    words = ["--only", "lives", "--lives", "0", "--transport", "files", "--report", str(tmp_path / "report")]
    monkeypatch.setattr(sys, "argv", ["chaos", *words])
    assert chaos.main() == 0
    assert (os.environ["KINGDOM_SANDBOX"], os.environ["KINGDOM_WEB"]) == ("off", "off")
    assert read_campaign(tmp_path / "report").counts == {"random lives": 0}
