from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from kingdom.bus.envelope import new_event_id


def test_ids_made_one_after_another_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for millisecond in (1_771_290_000_000, 1_771_290_000_001, 1_771_290_000_256, 1_900_000_000_000):
        monkeypatch.setattr("kingdom.bus.envelope.time.time_ns", lambda moment=millisecond: moment * 1_000_000)
        made.append(new_event_id())
    assert made == sorted(made)
    assert [int(UUID(item).hex[:12], 16) for item in made] == [
        1_771_290_000_000,
        1_771_290_000_001,
        1_771_290_000_256,
        1_900_000_000_000,
    ]


def test_every_id_is_a_uuid_of_version_7() -> None:
    made = [UUID(new_event_id()) for _ in range(1000)]
    assert {(item.version, item.variant) for item in made} == {(7, "specified in RFC 4122")}
    assert {item.hex[16] for item in made} == set("89ab")


def test_threads_never_get_the_same_one() -> None:
    with ThreadPoolExecutor(8) as threads:
        made = [item for ids in threads.map(lambda _: [new_event_id() for _ in range(5000)], range(8)) for item in ids]
    assert len(set(made)) == len(made) == 40_000


def test_a_forked_process_does_not_get_those_of_its_parent() -> None:
    script = """
import os
from kingdom.bus.envelope import new_event_id
first = new_event_id()  # the parent has drawn its random parts by now
child = os.fork()
drawn = [new_event_id() for _ in range(300)]
if child:
    os.waitpid(child, 0)  # one writes after the other: two at once would cut each other's lines in two
    drawn.append(first)
print(*drawn, sep="\\n")
"""
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    tails = [line[14:] for line in printed.split()]
    assert len(set(tails)) == len(tails) == 601


def test_a_program_that_seeds_random_does_not_repeat_ids() -> None:
    script = "import random\nfrom kingdom.bus.envelope import new_event_id\nrandom.seed(1)\nprint(new_event_id()[14:])"
    runs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] != runs[1]
