"""What a certificate stands on: parts that run one after the other, each a program with a report of its own."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from tests.chaos.git.operations import OPERATIONS

CONFORMANCE, WALKS, CAMPAIGNS, ESCAPES = "conformance", "crash points and faults", "campaigns", "sandbox escapes"
TRANSPORTS = ("files", "sqlite", "postgresql")  # whose crash points are walked; Kafka has a campaign
_LIMIT_SECONDS = 45 * 60.0  # of one part: one that hangs has failed

_ESCAPES = (
    "tests/unit/agents/test_sandbox_rules.py",
    "tests/integration/agents/test_escapes.py",
    "tests/integration/agents/test_confined_killed.py",
    "tests/integration/agents/test_gateway.py",
    "tests/integration/court/test_hostile.py",
    "tests/integration/court/test_poisoned.py",
    "tests/acceptance/test_cli_sandbox.py",
    "tests/acceptance/test_cli_workflow_confined.py",
)
# Walks that are a part each. The part "walks elsewhere" has all others, so that none can be forgotten.
_WALKED = {name: f"tests/integration/{name}" for name in ("bus", "court", "gitops", "workflow", "agents", "web")}
# The full campaigns do all that the short ones of tests/chaos do, and more; conformance runs whole in its own part.
_ELSEWHERE = ("tests/chaos", "tests/conformance")


@dataclass
class Outcome:
    """What a part counted, what it could not do, and what went wrong."""

    counts: dict[str, int] = field(default_factory=dict)
    uncovered: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Part:
    """A program to run, and how to read the report that it writes."""

    name: str
    kind: str
    command: Callable[[int, Path], list[str]]  # of a seed, and of the report to write
    read: Callable[[Path], Outcome]
    limit: float = _LIMIT_SECONDS
    environment: tuple[tuple[str, str], ...] = ()


def all_parts(workers: int) -> list[Part]:
    """Return every part, the quickest proofs first."""
    tests = [
        _tests("conformance", CONFORMANCE, ["tests/conformance"], workers, read_conformance),
        _tests("escapes", ESCAPES, list(_ESCAPES), workers, read_tests),
    ]
    known = [*_ESCAPES, *_ELSEWHERE]
    for name, folder in _WALKED.items():
        tests.append(_walks(f"walks-{name}", [folder], known, workers))
    tests.append(_walks("walks-elsewhere", ["tests"], [*known, *_WALKED.values()], workers))
    campaigns = [
        _campaign(f"{part}-{transport}", kind, "--only", part, "--transport", transport, *words)
        for part, kind, *words in (
            ("points", WALKS),
            ("faults", WALKS),
            ("disk", WALKS),
            ("lives", CONFORMANCE),
            ("campaign", CAMPAIGNS, "--kills", "167"),  # 500 over three transports
            ("court", CAMPAIGNS, "--kills", "50"),  # 150 over three
        )
        for transport in TRANSPORTS
    ]
    git = [_campaign(f"git-{name}", WALKS, "--only", "git", "--operation", name) for name in OPERATIONS]
    single = [_campaign(part, CAMPAIGNS, "--only", part) for part in ("kafka", "workflow", "day", "outage")]
    single.append(_campaign("machines", CAMPAIGNS, "--only", "machines", "--kills", "40"))  # on the court and workflows
    return [*tests, *campaigns, *git, *single]


def _tests(name: str, kind: str, words: list[str], workers: int, read: Callable[[Path], Outcome] | None = None) -> Part:
    def command(seed: int, report: Path) -> list[str]:
        parallel = ["-n", str(workers), "--dist", "worksteal"] if workers > 1 else []
        given = ["-q", "-p", "no:cacheprovider", f"--hypothesis-seed={seed}", f"--junitxml={report}"]
        return [sys.executable, "-m", "pytest", *given, *parallel, *words]

    return Part(name, kind, command, read or read_tests, environment=(("KINGDOM_SEARCH_FACTOR", "10"),))


def _walks(name: str, folders: list[str], without: list[str], workers: int) -> Part:
    ignored = [f"--ignore={path}" for path in without if any(path.startswith(folder) for folder in folders)]
    return _tests(name, WALKS, ["-m", "walk or search", *folders, *ignored], workers)


def _campaign(name: str, kind: str, *words: str) -> Part:
    def command(seed: int, report: Path) -> list[str]:
        return [sys.executable, "-m", "tests.chaos", *words, "--seed", str(seed), "--report", str(report)]

    return Part(name, kind, command, read_campaign)


# Reports


def read_campaign(report: Path) -> Outcome:
    """Read what ``python -m tests.chaos --report`` wrote."""
    said = json.loads(report.read_text())
    return Outcome(said["counts"], said["skipped"], said["failures"])


def read_tests(report: Path) -> Outcome:
    """Read what pytest wrote (JUnit's form): tests that passed, those skipped with their reasons, and failures."""
    return _read_cases(report, lambda case: "tests")


def read_conformance(report: Path) -> Outcome:
    """Read the same, and count the behaviours of each transport: a class of the suite each."""
    return _read_cases(report, _transport)


def _transport(case: ET.Element) -> str:
    module, _, name = case.get("classname", "").rpartition(".")
    if module.endswith("test_conformance"):
        return f"behaviours on {name.removeprefix('Test').lower()}"
    return "searches beside the model"


def _read_cases(report: Path, name: Callable[[ET.Element], str]) -> Outcome:
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    failures = []
    for case in ET.parse(report).getroot().iter("testcase"):
        broken = next((found for found in (case.find("failure"), case.find("error")) if found is not None), None)
        if broken is not None:
            failures.append(f"{case.get('classname')}::{case.get('name')}: {(broken.get('message') or '')[:300]}")
        elif (skipped := case.find("skipped")) is not None:
            reasons[f"{skipped.get('message') or 'no reason'} ({name(case)})"] += 1
        else:
            counts[name(case)] += 1
    return Outcome(
        dict(sorted(counts.items())), [f"{count} skipped: {reason}" for reason, count in reasons.items()], failures
    )
