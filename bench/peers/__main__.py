"""``python -m bench.peers MODULE FUNCTION DESCRIPTOR``: measure one peer, in the environment of this interpreter."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import pickle
import signal
import sys

from bench.harness import taken

_PR_SET_PDEATHSIG = 1


def main(module: str, function: str, descriptor: int) -> None:
    """Read the arguments, measure, and write figures and failure, one of which is null."""
    if sys.platform == "linux":  # the process that waits for us may be killed, when we take too long
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    arguments, options = pickle.load(sys.stdin.buffer)
    answer = taken(lambda: getattr(importlib.import_module(f"bench.peers.{module}"), function)(*arguments, **options))
    with os.fdopen(descriptor, "w") as writing:
        json.dump(answer, writing)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
