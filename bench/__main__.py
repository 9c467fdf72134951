"""``python -m bench``: measure, print tables, write JSON."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from rich.console import Console

from bench.cases import CASES
from bench.context import Context, Mode, machine
from bench.report import CaseResult, show, show_tally, write_json


def main(arguments: Sequence[str]) -> int:
    """Run the cases asked for. The exit code says only whether the benchmark itself worked."""
    options = _parser().parse_args(arguments)
    mode: Mode = "quick" if options.quick else "full" if options.full else "default"
    reps = options.reps or (2 if options.quick else 5)
    console = Console(width=None if sys.stdout.isatty() else 170)
    if options.dir:
        options.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="kingdom-bench-", dir=options.dir))
    folder.chmod(0o755)  # the server may run as a user of its own
    context = Context(mode, reps, folder)
    about = machine(context, arguments)
    console.print(
        f"{about['cores']} cores, {about['platform']}, Python {about['python']}, {about['filesystem']} in {folder}, "
        f"load {about['load']:.2f}; {mode} run, {reps} repetitions in turns, median (min – max)",
        highlight=False,
    )
    results: list[CaseResult] = []
    try:
        for name in options.only or CASES:
            results.append(_run(name, context, console))
            show(console, results[-1])
            write_json(options.json, about, results)  # after each case: an interrupted run keeps what it measured
    finally:
        context.close()
        shutil.rmtree(folder, ignore_errors=True)
    show_tally(console, results)
    console.print(f"written to {options.json}", highlight=False)
    return 0


def _run(name: str, context: Context, console: Console) -> CaseResult:
    case = importlib.import_module(f"bench.cases.{CASES[name]}")
    result = CaseResult(name, case.TITLE, load=os.getloadavg()[0])
    started = monotonic()
    for part in case.PARTS:
        with console.status(f"{name}: {part.__name__}"):
            try:
                result.tables += part(context)
            except Exception as error:
                result.failures.append(f"{part.__name__}: {type(error).__name__}: {error}")
    result.seconds = monotonic() - started
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, metavar="NAME", help=f"only these: {', '.join(CASES)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small and rough, about two minutes")
    size.add_argument("--full", action="store_true", help="with 10 million rows of history; may take an hour")
    parser.add_argument("--reps", type=int, default=None, help="repetitions (5; with --quick 2)")
    parser.add_argument("--json", type=Path, default=Path("artifacts/bench.json"), help="where the results go")
    parser.add_argument("--dir", type=Path, default=None, help="measure on this file system (default: TMPDIR)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
