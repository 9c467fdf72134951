"""Counting a log block by block gives what decoding each of its lines gives, whatever stands in it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kingdom.court.chamberlain.tally import JournalTally
from kingdom.journal import CATALOG, Problem, Reader
from tests.support.searching import examples

KATHMANDU = ZoneInfo("Asia/Kathmandu")  # its days begin at a quarter past
TEXTS = st.one_of(st.sampled_from(["a", "b", "gen-pr", "", 'a "b" \\ c', "끝", "}}", "{", "\t"]), st.text(max_size=8))
NUMBERS = st.one_of(st.integers(-5, 10**6), st.floats(0, 1e6), st.sampled_from([1e300, 0, -0.0, 10**400]))
TIMES = st.one_of(
    st.builds("2026-02-07T{:02}:{:02}:{:02}Z".format, st.integers(17, 18), st.integers(0, 59), st.integers(0, 59)),
    st.sampled_from(["2026-02-07T18:10:00+09:00", "2026-99-07T18:10:00Z", "2026-02-07T18:10Z", "now", "2026-02-30"]),
)


def written(kind: str, ts: str, actor: str, texts: list[str], number: float) -> bytes:
    """A line as the journal writes it, with these values in its fields."""
    fields = CATALOG[kind].fields
    data = {
        field.key: number if str not in field.kinds else texts[place % len(texts)] for place, field in enumerate(fields)
    }
    document = {"ts": ts, "type": kind, "actor": actor, "data": data}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


WRITTEN = st.builds(written, st.sampled_from(sorted(CATALOG)), TIMES, TEXTS, st.lists(TEXTS, min_size=1), NUMBERS)
ODD = st.one_of(
    st.binary(max_size=20).filter(lambda line: b"\n" not in line),
    st.sampled_from(
        [
            b"",
            b"[]",
            b'{"ts": "2026-02-07T18:00:00Z", "type": "task.started", "actor": "gen-a", "data": {}}',
            b'{"ts":"2026-02-07T18:00:00Z","type":"made.up","actor":"gen-a","data":{}}',
            b'{"ts":"2026-02-07T18:00:00Z","type":"task.completed","actor":"gen-a","data":{"duration_seconds":1}}',
            b'{"ts":"2026-02-07T18:00:00Z","type":"task.completed","actor":"gen-a","data":[]}',
            b'{"ts":"2026-02-07T18:00:00Z","type":"event.detected","actor":"x","data":{"event_id":"a","event_id":"b"}}',
            b'{"ts":"2026-02-07T18:00:00Z","type":"task.started","actor":"x","data":{"task_id":01}}',
            b'{"ts":"2026-02-07T18:00:00Z","type":"task.started","actor":"x","data":{"task_id":"a",}}',
            b'{"ts":"2026-02-07T18:00:00Z","type":"task.started","actor":"x","data":{"task_id":"a"}',
            b'{"ts":"2026-02-07T18:00:00Z","type":"task.started","actor":"x","data":{"task_id":"a"}}}',
            b'{"ts":"2026-02-07T18:00:00Z","type":"task.st{"ts":"2026-02-07T18:00:00Z","type":"task.started"',
        ]
    ),
)


@st.composite
def torn(draw: st.DrawFn) -> bytes:
    """A line of which something is missing, or in which a byte is another."""
    line = draw(WRITTEN)
    at = draw(st.integers(0, len(line)))
    return (
        line[:at]
        + draw(st.sampled_from([b"", b"\xff", b'"', b"\\", b"}", b"{"]))
        + line[at + draw(st.integers(0, 9)) :]
    )


def count(lines: list[bytes]) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """What is counted from a log with these lines, and which of them are reported."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "events.log"
        log.write_bytes(b"".join(line.replace(b"\n", b"") + b"\n" for line in lines))
        tally, problems = JournalTally(KATHMANDU), list[Problem]()
        with Reader(log, report=problems.append) as reader:
            for records in reader.read_records():
                tally.feed(records)
    return tally.to_dict(), sorted((problem.kind, problem.offset) for problem in problems)


def count_one_by_one(lines: list[bytes]) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """The same, each line decoded by itself."""
    tally, problems, offset = JournalTally(KATHMANDU), [], 0
    for line in (line.replace(b"\n", b"") for line in lines):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            tally.feed([record])
        elif line.strip():
            problems.append(("not-event", offset))
        offset += len(line) + 1
    return tally.to_dict(), problems


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.one_of(WRITTEN, WRITTEN, ODD, torn()), max_size=30))
@example([b"", b"x", b"x", b""])
def test_lines_decoded_together_count_as_lines_decoded_one_by_one(lines: list[bytes]) -> None:
    assert count(lines) == count_one_by_one(lines)
