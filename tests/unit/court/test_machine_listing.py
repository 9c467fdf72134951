"""What the list of machines says about each."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from kingdom.cli.court.machines import machine_row
from kingdom.court.machines.listing import (
    Machine,
    MachineState,
    describe_machine,
    homeless_generals,
    machine_problems,
)
from kingdom.court.packages.manifest import Manifest


def machine(
    *, silent: float = 1.0, skew: float = 0.0, state: str = "active", leads: bool = False, **report: object
) -> Machine:
    return Machine("builder", not leads, None, silent, skew, state, report, leads)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (machine(), "active"),
        (machine(silent=61), "silent"),
        (machine(stopped=True), "stopped"),
        (machine(silent=3600, stopped=True), "stopped"),
        (machine(silent=61, state="leaving"), "leaving"),
        (machine(stopped=True, state="removed"), "removed"),
    ],
)
def test_the_state_of_a_machine_says_whether_a_person_stopped_it(found: Machine, state: str) -> None:
    assert describe_machine(found, "seat").state == state


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (machine(skew=59.9), None),
        (machine(skew=-59.9), None),
        (machine(skew=3 * 3600.0), "its clock is 180 min ahead of the database's"),
        (machine(skew=-90.0), "its clock is 2 min behind the database's"),
        (machine(silent=61, skew=3600.0), "it was not seen for a minute or longer"),
        (machine(stopped=True, skew=3600.0), None),
        (machine(leads=True), None),
        (machine(leads=True, stopped=True), "it led the court and was stopped: new events wait until kingdom up there"),
        (machine(leads=True, silent=61), "it led the court and was not seen for a minute or longer: new events wait"),
    ],
)
def test_a_machine_that_is_gone_or_whose_clock_is_wrong_is_a_problem(found: Machine, why: str | None) -> None:
    assert not [one for one in machine_problems([describe_machine(found, "builder")]) if "led" in one.why]
    problems = list(machine_problems([describe_machine(found, "seat")]))
    assert [one.what for one in problems] == ["machine builder"] * (why is not None)
    assert all(one.why.startswith(why or "") for one in problems)


GENERAL = Manifest.model_validate({"name": "gen-pr", "description": "-", "engine": {"name": "scripted"}})


def court(here: str, silent: float = 1.0, *, leader: str = "seat", away: str = "") -> list[MachineState]:
    """A court of two machines that may lead, of which only ``seat`` has a general, and of one that runs another."""
    rows = [("seat", False, ["gen-pr"]), ("spare", False, []), ("builder", True, ["gen-other"])]
    return [
        describe_machine(
            Machine(
                name, joined, None, 120.0 if name == away else silent, 0.0, "active", {"generals": has}, name == leader
            ),
            here,
        )
        for name, joined, has in rows
    ]


def test_a_general_of_a_machine_that_stands_by_is_run_by_nobody() -> None:
    assert not list(homeless_generals(court("seat"), [GENERAL]))
    (problem,) = homeless_generals(court("spare", leader="spare"), [GENERAL])
    assert problem.why == (
        "no machine runs it (seat may, but stands by), so its tasks wait: kingdom down on spare hands the lead to "
        "seat, which then runs it, kingdom join adds one that can"
    )
    (problem,) = homeless_generals(court("spare", leader="spare", away="seat"), [GENERAL])
    assert problem.why.startswith("no machine runs it, so its tasks wait: kingdom up on seat starts it, kingdom join")


def test_the_list_names_generals_where_they_run() -> None:
    shown = {one.name: machine_row(one)[3] for one in court("seat", leader="spare")}
    assert shown == {"seat": "-", "spare": "-", "builder": "gen-other"}


HELD = {"gen-x: no login": {"count": 5, "tasks": ["task-1", "task-2", "task-3"]}}
SUMMARY = {"health": "yellow", "budget": "ok", "questions": 1, "alerts": 2, "held": 3}


@pytest.mark.parametrize(
    ("said", "held"),
    [
        (HELD, HELD),
        (
            {"a\x1b[2J\nb": {"count": 1, "tasks": [7, "x" * 1000]}},
            {"a [2J b": {"count": 1, "tasks": ["7", "x" * 119 + "…"]}},
        ),
        ({"long": {"count": 9, "tasks": list("abcdefgh")}}, {"long": {"count": 9, "tasks": ["a", "b", "c"]}}),
        ({"no count": {"tasks": []}, "no object": 7}, {}),
        (["x"], {}),
    ],
)
def test_what_a_machine_says_it_holds_back_is_checked(said: object, held: object) -> None:
    assert describe_machine(machine(held=said), "seat").held == held


def test_a_machine_may_say_a_million_reasons_and_a_few_are_shown() -> None:
    said = {f"reason {number}": {"count": 1, "tasks": []} for number in range(1000)}
    assert len(describe_machine(machine(held=said), "seat").held) == 20


@pytest.mark.parametrize(
    ("said", "known"),
    [(SUMMARY, True), ({**SUMMARY, "of a later version": 1}, False), ("x", False), (None, False), ({}, False)],
)
def test_the_machine_that_leads_says_how_the_court_is(said: object, known: bool) -> None:
    found = describe_machine(machine(leads=True, court=said), "builder").court
    assert (found and asdict(found)) == (SUMMARY if known else None)
    assert describe_machine(machine(court=said), "builder").court is None  # another machine does not know


@pytest.mark.parametrize("here", ["seat", "spare", "builder"])
def test_a_machine_without_its_database_says_nothing_of_the_others(here: str) -> None:
    machines = court(here, silent=120.0)
    (problem,) = machine_problems(machines)
    assert problem.what == f"machine {here}"
    assert problem.why.startswith("it has not reached the database for a minute or longer")
    assert not list(homeless_generals(machines, [GENERAL]))
