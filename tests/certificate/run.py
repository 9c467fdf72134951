"""Run the parts of a certificate, keep what each found, and go on where an interruption left it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.certificate.children import adopt_orphans, end_strays, run_program
from tests.certificate.page import page
from tests.certificate.parts import Outcome, Part

Tell = Callable[[str], None]


class Refused(Exception):
    """No certificate can be written; the message says why."""


@dataclass(frozen=True)
class Tree:
    """The sources that are certified."""

    commit: str
    changes: str = ""  # what is not committed

    @classmethod
    def of(cls, folder: Path) -> Tree:
        """Read it from git."""

        def git(*words: str) -> str:
            done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Refused(f"{folder} is no git checkout, and a certificate is of a commit: {done.stderr.strip()}")
            return done.stdout.strip()

        return cls(git("rev-parse", "HEAD"), git("status", "--porcelain"))


def machine() -> dict[str, str]:
    """Return what the results may depend on, of this machine."""
    return {
        "machine": f"{platform.platform()}, {os.cpu_count()} cores",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


@dataclass
class Certifier:
    """Runs parts for one tree. Results lie under ``folder``, keyed by the commit."""

    folder: Path  # artifacts
    look: Callable[[], Tree]
    parts: Sequence[Part]
    seed: int | None  # None: that of the run which is gone on with, or a new one
    tell: Tell = print

    def __post_init__(self) -> None:
        self.tree = self.look()

    @property
    def page(self) -> Path:
        return self.folder / "certificate.md"

    @property
    def kept(self) -> Path:
        """Where results of finished parts are kept; those of uncommitted changes until the next run."""
        return self.folder / "certificate" / (f"{self.tree.commit}-changed" if self.tree.changes else self.tree.commit)

    def run(self, only: Sequence[str] = (), *, restart: bool = False, rehearse: bool = False) -> None:
        """Run what is not finished, and write the certificate; :class:`Refused` when it cannot be written.

        A rehearsal takes uncommitted changes, and the page names them.
        """
        if self.tree.changes and not rehearse:
            raise Refused(f"there are uncommitted changes: commit them, or use --rehearse\n{self.tree.changes}")
        if unknown := set(only) - {part.name for part in self.parts}:
            raise Refused(f"there is no part {', '.join(sorted(unknown))}; --list shows the names")
        if restart or self.tree.changes:
            shutil.rmtree(self.kept, ignore_errors=True)
        seed = self._begin()
        for path in (self.page, self.page.with_suffix(".json")):
            path.unlink(missing_ok=True)  # what is not proven again is not claimed
        adopting = adopt_orphans()
        chosen = [part for part in self.parts if not only or part.name in only]
        for number, part in enumerate(chosen, 1):
            head = f"[{number}/{len(chosen)}] {part.name}"
            if (result := self._result(part)) is None:
                self.tell(head)
                result = self._run_part(part, seed)
            self.tell(f"{head}: {_in_words(result)}")
        self._write(seed, adopting=adopting)

    def _begin(self) -> int:
        """Return the seed of this run; what an unlike run left is dropped."""
        path, here = self.kept / "run.json", machine()
        before = json.loads(path.read_text()) if path.exists() else None
        if before is not None and before["on"] == here and self.seed in (None, before["seed"]):
            self.tell(f"going on with the run of {before['started']} (seed {before['seed']})")
            return int(before["seed"])
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir(parents=True)
        seed = int.from_bytes(os.urandom(3)) if self.seed is None else self.seed
        _write_whole(path, json.dumps({"seed": seed, "started": _now(), "on": here}, indent=2))
        return seed

    def _result(self, part: Part) -> dict[str, Any] | None:
        path = self.kept / f"{part.name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def _run_part(self, part: Part, seed: int) -> dict[str, Any]:
        log, report = self.kept / f"{part.name}.log", self.kept / f"{part.name}.report"
        report.unlink(missing_ok=True)
        command, started, begin = part.command(seed, report), _now(), time.monotonic()
        environment = {**os.environ, "CHAOS_SEED": str(seed), **dict(part.environment)}
        code = run_program(command, log, environment, part.limit, self.tell)
        seconds = time.monotonic() - begin
        try:
            outcome = part.read(report)
        except (OSError, ValueError, KeyError, SyntaxError) as error:  # SyntaxError: of XML
            outcome = Outcome(failures=[f"it left no report that can be read: {error}"])
        if code is None:
            outcome.failures.append(f"stuck: it took longer than {part.limit:.0f} seconds")
        elif code and not outcome.failures:
            outcome.failures.append(f"it ended with exit code {code}")
        if not outcome.failures and not outcome.counts and not outcome.uncovered:
            outcome.failures.append("it did nothing")
        outcome.failures += [f"stray process {text}" for text in end_strays()]
        result = {
            "name": part.name,
            "kind": part.kind,
            "command": " ".join([Path(command[0]).name, *command[1:]]).replace(f"{self.folder}", self.folder.name),
            "started": started,
            "seconds": round(seconds, 1),
            "log": str(log),
            **asdict(outcome),
        }
        _write_whole(self.kept / f"{part.name}.json", json.dumps(result, indent=2))
        return result

    def _write(self, seed: int, *, adopting: bool) -> None:
        if self.look() != self.tree:
            raise Refused("no certificate: the sources were changed while the parts ran; start over with --restart")
        results = [self._result(part) for part in self.parts]
        finished = [result for result in results if result is not None]
        if failed := [result for result in finished if result["failures"]]:
            lines = [
                f"{result['name']}: {text}\n    log: {result['log']}"
                for result in failed
                for text in result["failures"]
            ]
            raise Refused("\n".join(["no certificate, because these failed:", *lines, _ONCE_MORE]))
        if len(finished) < len(results):
            missing = [part.name for part, result in zip(self.parts, results, strict=True) if result is None]
            raise Refused(f"no certificate yet: {len(missing)} parts have not run: {', '.join(missing)}")
        content = {
            "commit": self.tree.commit,
            "changes": self.tree.changes.splitlines(),
            "made": _now(),
            "seed": seed,
            **machine(),
            "tools": _tools(),
            "seconds": round(sum(result["seconds"] for result in finished), 1),
            "findings": {"lost": 0, "doubled": 0, "stuck": 0, "strays": 0},
            "strays_looked_for_after_each_part": adopting,
            "parts": finished,
        }
        _write_whole(self.page.with_suffix(".json"), json.dumps(content, indent=2) + "\n")
        _write_whole(self.page, page(content))
        self.tell(f"{self.page} has the certificate of {self.tree.commit}")


_ONCE_MORE = (
    "A failure stands for its commit, and is not tried again until it passes: mend it and commit. "
    "If the machine was to blame, start over with --restart."
)


def _in_words(result: dict[str, Any]) -> str:
    counts = ", ".join(f"{count:,} {name}" for name, count in result["counts"].items()) or "nothing counted"
    if result["failures"]:
        counts = f"FAILED ({len(result['failures'])}): {result['failures'][0][:200]}"
    return f"{counts} ({result['seconds'] / 60:.1f} min)"


def _tools() -> list[str]:
    """Return the versions of programs that parts use, as they say themselves."""
    found = []
    for command in (["git", "--version"], ["strace", "--version"], ["bwrap", "--version"], ["java", "-version"]):
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found.append((done.stdout or done.stderr).strip().splitlines()[0])
        else:
            found.append(f"no {command[0]}")
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _write_whole(path: Path, text: str) -> None:
    """Write a file so that an interruption leaves the former one, or none."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    os.replace(temporary, path)
