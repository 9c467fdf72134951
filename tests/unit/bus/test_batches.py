"""Work that is cheaper together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from kingdom.base.batches import Batcher


class Work:
    """Notes its batches; waits at a gate, and refuses some pieces."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()

    def __call__(self, pieces: Sequence[str]) -> None:
        self.begun.set()
        self.gate.wait(10)
        self.batches.append(list(pieces))
        if bad := [piece for piece in pieces if piece.startswith("bad")]:
            raise ValueError(bad[0])


async def test_what_is_asked_for_while_a_batch_is_under_way_is_done_with_the_next_one() -> None:
    work = Work()
    batches = Batcher(work)
    work.gate.clear()
    first = asyncio.create_task(batches.do("a"))
    await asyncio.to_thread(work.begun.wait, 10)
    others = [asyncio.create_task(batches.do(piece)) for piece in "bcd"]
    await asyncio.sleep(0)
    work.gate.set()
    await asyncio.gather(first, *others)
    assert work.batches == [["a"], ["b", "c", "d"]]


async def test_everybody_gets_the_error_that_is_their_own() -> None:
    work = Work()
    batches = Batcher(work)
    done = await asyncio.gather(*(batches.do(piece) for piece in ("a", "bad 1", "b", "bad 2")), return_exceptions=True)
    assert [str(one) if isinstance(one, ValueError) else one for one in done] == [None, "bad 1", None, "bad 2"]
    assert work.batches[1:] == [["a"], ["bad 1"], ["b"], ["bad 2"]]


async def test_who_gives_up_waiting_does_not_take_the_piece_back() -> None:
    work = Work()
    batches = Batcher(work)
    work.gate.clear()
    waiting = asyncio.create_task(batches.do("a"))
    await asyncio.to_thread(work.begun.wait, 10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    work.gate.set()
    await batches.do("b")
    assert work.batches == [["a"], ["b"]]
