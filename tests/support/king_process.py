"""A king in a process of its own, to be killed: ``python -m tests.support.king_process HOME``."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from kingdom.court.loop import Services, run_role
from kingdom.journal import Journal
from tests.support.kings import Realm


async def main(root: str) -> None:
    """Reign until killed."""
    realm = Realm(Path(root))
    realm.clock = time.time  # type: ignore[assignment]
    async with realm.open():
        services = Services(realm.home, realm.bus, Journal(realm.home.journal), time.time)
        await run_role(realm.king(), services, asyncio.Event())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
