"""Event ids that sort by the time they were made (UUID version 7)."""

from __future__ import annotations

import os
import time

_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_event_id() -> str:
    """Return a new UUIDv7 as text.

    Its leading bits are the time, so ids made one after another lie side by side in every index: with random
    ids, each insert into a large table touches a page of its own.
    """
    millis = time.time_ns() // 1_000_000
    noise = os.urandom(10).hex()
    # Version 7 leads the third group; the variant of RFC 9562 (one of 8, 9, a, b) leads the fourth.
    return f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-7{noise[:3]}-{_VARIANT[noise[3]]}{noise[4:7]}-{noise[7:19]}"
