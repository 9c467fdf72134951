"""The tables of the embedded queues: what each reaches, and what a power cut would cost it."""

from __future__ import annotations

from bench.bars import Bar
from bench.harness import Outcome, Table


def tables(outcomes: list[Outcome], *, ours: tuple[str, ...], same: tuple[str, ...], remark: str = "") -> list[Table]:
    """Put, and get with acknowledgement. ``same`` names the peers as durable as we are: only those are a bar."""
    bars = {name: [Bar(">", 1.0, of=other) for other in same] for name in ours}
    return [
        Table(
            f"Beside embedded queues: {title}",
            "events/s",
            outcomes,
            metric=metric,
            bars=bars,
            note_title="durability of a put",
            remarks=[text for text in (*remarks, remark) if text],
        )
        for metric, title, remarks in (
            ("put", "put, one event for each call", ()),
            ("get", "get and acknowledge", ("Kingdom with Worker(batch=500); the peers take one at a time",)),
        )
    ]
