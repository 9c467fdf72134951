"""Certify a commit: ``python -m tests.certificate``, or ``make certificate``.

Every conformance behaviour on every transport, every enumerated crash point and fault, the full campaigns and the
sandbox escapes run, part by part. When all of them pass, artifacts/certificate.md and .json are written; when one
fails, they are not. After an interruption the same command goes on with the next part.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from functools import partial
from pathlib import Path

from tests.certificate.parts import all_parts
from tests.certificate.run import Certifier, Refused, Tree

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    """Certify; 0 when the certificate was written."""
    options = _options()
    parts = all_parts(options.workers)
    if options.list:
        print("\n".join(f"{part.name:<24}{part.kind}" for part in parts))
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.chdir(ROOT)
    try:
        certifier = Certifier(options.out, partial(Tree.of, ROOT), parts, options.seed, _say)
        certifier.run(options.only or (), restart=options.restart, rehearse=options.rehearse)
    except Refused as reason:
        print(reason, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on with the part that was running", file=sys.stderr)
        return 130
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.certificate", description=(__doc__ or "").partition("\n\n")[0]
    )
    seed = os.environ.get("CHAOS_SEED")
    parser.add_argument("--seed", type=int, default=int(seed) if seed else None, help="of campaigns and searches")
    parser.add_argument(
        "--only", action="append", metavar="PART", help="run this part, and keep its result; repeatable"
    )
    parser.add_argument("--list", action="store_true", help="show the parts")
    parser.add_argument("--restart", action="store_true", help="drop the results that are kept for this commit")
    parser.add_argument("--rehearse", action="store_true", help="take uncommitted changes; their results are not kept")
    parser.add_argument("--workers", type=int, default=4, help="tests at once (4, for two cores: most of them wait)")
    parser.add_argument("--out", type=Path, default=ROOT / "artifacts", help="where the files go (default: artifacts)")
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
