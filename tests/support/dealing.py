"""Which test goes to which worker first: what everybody waits for in the end should not be what began last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def deal(items: Sequence[T], workers: int, is_long: Callable[[T], bool]) -> Iterator[T]:
    """The same items, so that each worker begins with its share of the long ones.

    ``--dist worksteal`` cuts the list into as many even parts as there are workers. They work through them from the
    beginning, and whoever is through takes from the end of another's, but never the last two.
    """
    long = [item for item in items if is_long(item)]
    short = iter([item for item in items if not is_long(item)])
    left = len(items)
    for worker in range(workers):
        share = left // (workers - worker)
        mine = long[worker::workers]
        yield from mine
        yield from islice(short, max(0, share - len(mine)))
        left -= share
    yield from short
