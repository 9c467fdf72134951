"""The campaign's own judges: each must object to what it is there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from kingdom.bus import Envelope
from tests.chaos.checks import effect_complaints, order_complaints
from tests.chaos.grounds import Effect, FilesGround
from tests.chaos.recovery import Found
from tests.chaos.verdicts import complaints

LIFE = "begin open\nbegin publish\nok publish\nbegin claim\nok claim\nbegin done\nok done\nbegin close\nok close\n"


def told(until: str) -> str:
    """What a life had said when it was stopped just after saying ``until``."""
    return LIFE[: LIFE.index(until) + len(until) + 1]


def found(status: str | None, *, handled: int = 0, depth: tuple[int, int, int] = (0, 0, 0)) -> Found:
    there = {} if status is None else {"a": status}
    return Found(before=there, after=there, handled={"a": handled} if handled else {}, depth=list(depth))


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (told("begin publish"), found(None)),
        (told("begin publish"), found("DONE", handled=1)),
        (told("ok publish"), found("DONE", handled=1)),
        (told("ok claim"), found("DONE", handled=1)),
        (told("begin done"), found("DONE", handled=1)),
        (told("begin done"), found("DONE")),
        (told("ok done"), found("DONE")),
    ],
)
def test_every_lawful_outcome_of_a_life_cut_short_is_accepted(said: str, result: Found) -> None:
    assert complaints(said, ["a"], result) == []


@pytest.mark.parametrize(
    ("said", "result", "reason"),
    [
        (told("begin open"), found("DONE", handled=1), "nothing was published"),
        (told("ok publish"), found(None), "publish returned for 1 events, 0 are there"),
        (told("ok publish"), found("PENDING", depth=(1, 0, 0)), "PENDING, handled 0×"),
        (told("ok claim"), found("PROCESSING", depth=(0, 1, 0)), "processing"),
        (told("ok claim"), found("DONE"), "DONE, handled 0×"),
        (told("ok claim"), found("DONE", handled=2), "handled 2×"),
        (told("ok claim"), found("DEAD", depth=(0, 0, 1)), "DEAD, handled 0×"),
        (told("ok done"), found("DONE", handled=1), "handled 1× by recovery; expected DONE handled 0×"),
    ],
)
def test_every_broken_promise_of_a_life_cut_short_is_named(said: str, result: Found, reason: str) -> None:
    assert reason in "\n".join(complaints(said, ["a"], result))


def test_half_of_a_publish_is_named() -> None:
    half = Found(before={"a": "PENDING"}, after={"a": "DONE"}, handled={"a": 1}, depth=[0, 0, 0])
    assert "half of a publish is visible: 1 of 2" in "\n".join(complaints(told("begin publish"), ["a", "b"], half))


def test_an_event_accepted_twice_and_an_unhealthy_store_are_named() -> None:
    result = found("DONE")
    result.accepted_again, result.errors = ["a"], ["index: broken"]
    assert len(complaints(LIFE, ["a"], result)) == 2


def test_missing_and_doubled_effects_are_named() -> None:
    effects = [Effect("a", "w1"), Effect("b", "w1"), Effect("b", "w2")]
    assert "no effect of 1 events (c)" in effect_complaints({"a", "b", "c"}, effects, exactly_once=False)
    assert "more than one effect" in "".join(effect_complaints({"a", "b"}, effects, exactly_once=True))
    assert effect_complaints({"a", "b"}, effects, exactly_once=False) == []


def test_effects_out_of_order_within_an_aggregate_are_named() -> None:
    events = [Envelope(type="T", event_id=f"e{n}", aggregate_type="A", aggregate_id=str(n % 2)) for n in range(4)]
    in_order = [Effect(name, "w") for name in ("e1", "e0", "e2", "e3", "e0")]  # e0 again later: delivered twice
    assert order_complaints(events, in_order) == []
    swapped = [Effect(name, "w") for name in ("e2", "e0", "e1", "e3")]
    assert order_complaints(events, swapped) == ["aggregate 0: e2 took effect before e0"]


def test_a_stray_temporary_file_and_an_event_in_two_directories_are_named(tmp_path: Path) -> None:
    ground = FilesGround(tmp_path)
    for place in ("s/pending", "s/done"):
        (tmp_path / "queue" / place).mkdir(parents=True)
        (tmp_path / "queue" / place / "a.json").touch()
    (tmp_path / "queue/s/pending/.tmp-a").touch()
    text = "\n".join(ground.complaints({"a"}))
    assert "stray temporary file s/pending/.tmp-a" in text
    assert "a lies in 2 places" in text
