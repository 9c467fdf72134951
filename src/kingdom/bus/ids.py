"""Event ids that sort by the time they were made (UUID version 7)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

_AT_ONCE: Final = 128  # random tails made at a time: one call of the system for all of them
_HEX: Final = 20  # digits of each
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


class _Ids:
    """Makes ids: the part that is the time is written once a millisecond, the random one drawn in advance."""

    __slots__ = ("_tails", "_time")

    def __init__(self) -> None:
        self._time = (0, "")
        self.forget()

    def forget(self) -> None:
        """Draw anew: a process that was forked must not use what its parent has drawn."""
        self._tails: Iterator[str] = iter(())

    def __call__(self) -> str:
        millis = time.time_ns() // 1_000_000
        last, head = self._time
        if millis != last:
            head = f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-7"  # version 7 leads the third group
            self._time = (millis, head)  # one assignment: threads see both or neither
        for tail in self._tails:  # of a list: two threads never get the same one
            return head + tail
        self._tails = iter(_tails())
        return self()


def _tails() -> list[str]:
    noise = os.urandom(_AT_ONCE * _HEX // 2).hex()
    # The variant of RFC 9562 (one of 8, 9, a, b) leads the fourth group.
    return [
        f"{noise[at : at + 3]}-{_VARIANT[noise[at + 3]]}{noise[at + 4 : at + 7]}-{noise[at + 7 : at + 19]}"
        for at in range(0, len(noise), _HEX)
    ]


_ids: Final = _Ids()
os.register_at_fork(after_in_child=_ids.forget)


def new_event_id() -> str:
    """Return a new UUIDv7 as text.

    Its leading bits are the time, so ids made one after another lie side by side in every index: with random
    ids, each insert into a large table touches a page of its own.
    """
    return _ids()
