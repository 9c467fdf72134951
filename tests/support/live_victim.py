"""Feeders of live events to be killed: ``python -m tests.support.live_victim ROOT``.

Each line on standard input makes one: ``wait`` (for somebody to kill it), ``inside N`` or ``after N``: it kills itself
in the transaction of its N-th batch, or when that is committed and nobody was told. ``ready PID`` and ``gone`` are the
answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kingdom.court.home import Home
from kingdom.web.live.feed import FeedFile
from kingdom.web.live.hub import open_hub
from kingdom.workflow.context import system_clock
from kingdom.workflow.store import open_store


async def feed(root: Path) -> None:
    """Feed until killed."""
    services: Any = SimpleNamespace(home=Home(root))
    async with open_store(f"sqlite://{root}/workflows.db", system_clock) as store, open_hub(root, store, services):
        print("ready", os.getpid(), flush=True)
        await asyncio.Event().wait()


def die(when: str, batch: int) -> None:
    """Have this process kill itself."""
    name = "_number" if when == "inside" else "append"
    real, left = getattr(FeedFile, name), [batch]

    def last_act(self: FeedFile, *arguments: Any) -> Any:
        done = real(self, *arguments)
        left[0] -= 1
        if left[0] < 0:  # the first one only says where the feed begins
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(FeedFile, name, last_act)


def main(root: Path) -> None:
    """Make one after the other."""
    for line in sys.stdin:
        when, _, batch = line.strip().partition(" ")
        pid = os.fork()  # far faster than a new interpreter
        if pid == 0:
            try:
                if when != "wait":
                    die(when, int(batch))
                asyncio.run(feed(root))
            finally:
                os._exit(1)
        os.waitpid(pid, 0)
        print("gone", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
