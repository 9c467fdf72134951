"""Cron expressions: what they mean, what is refused, and the two odd nights of the year."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from kingdom.court.cron import parse_cron

BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def slots_between(cron: str, start: str, end: str, tz: ZoneInfo) -> list[datetime]:
    parsed, found = parse_cron(cron), [at(start)]
    while (slot := parsed.next_after(found[-1], tz)) <= at(end):
        found.append(slot)
    return found[1:]


def slots(cron: str, start: str, end: str, tz: ZoneInfo) -> list[str]:
    return [slot.astimezone(tz).strftime("%m-%d %H:%M") for slot in slots_between(cron, start, end, tz)]


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("* * * * *", "2026-03-01T10:00:00", "2026-03-01T10:01:00"),
        ("* * * * *", "2026-03-01T10:00:59", "2026-03-01T10:01:00"),
        ("*/15 * * * *", "2026-03-01T10:46:00", "2026-03-01T11:00:00"),
        ("5/20 * * * *", "2026-03-01T10:26:00", "2026-03-01T10:45:00"),
        ("1-9/4 * * * *", "2026-03-01T10:06:00", "2026-03-01T10:09:00"),
        ("0,30 9,17 * * *", "2026-03-01T09:10:00", "2026-03-01T09:30:00"),
        ("30 9 * * MON-FRI", "2026-02-27T09:30:00", "2026-03-02T09:30:00"),  # from Friday to Monday
        ("0 0 * * 0", "2026-03-02T00:00:00", "2026-03-08T00:00:00"),
        ("0 0 * * 7", "2026-03-02T00:00:00", "2026-03-08T00:00:00"),
        ("0 0 * * sun", "2026-03-02T00:00:00", "2026-03-08T00:00:00"),
        ("0 0 * * FRI-SUN", "2026-03-07T00:00:00", "2026-03-08T00:00:00"),
        ("0 0 * * 7-0", "2026-03-02T00:00:00", "2026-03-08T00:00:00"),
        ("5-5/20 * * * *", "2026-03-01T10:06:00", "2026-03-01T11:05:00"),
        ("0 0 L * *", "2026-03-02T00:00:00", "2026-03-31T00:00:00"),
        ("0 0 * * MON#2", "2026-03-03T00:00:00", "2026-03-09T00:00:00"),
        ("0 0 1 JAN *", "2026-03-02T00:00:00", "2027-01-01T00:00:00"),
        ("0 0 29 2 *", "2026-03-02T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 29 2 *", "2096-03-02T00:00:00", "2104-02-29T00:00:00"),
        ("0 0 13 * 5", "2026-03-02T00:00:00", "2026-03-06T00:00:00"),  # both restricted: either
        ("0 0 */2 * 5", "2026-03-02T00:00:00", "2026-03-13T00:00:00"),  # one begins with *: both
        ("@daily", "2026-03-02T00:00:00", "2026-03-03T00:00:00"),
        ("@hourly", "2026-03-02T00:00:00", "2026-03-02T01:00:00"),
        ("@weekly", "2026-03-02T00:00:00", "2026-03-08T00:00:00"),
        ("@monthly", "2026-03-02T00:00:00", "2026-04-01T00:00:00"),
        ("@yearly", "2026-03-02T00:00:00", "2027-01-01T00:00:00"),
    ],
)
def test_the_next_slot_is_the_first_one_after_the_moment(cron: str, after: str, expected: str) -> None:
    assert parse_cron(cron).next_after(at(after), UTC) == at(expected)


@pytest.mark.parametrize(
    ("cron", "told"),
    [
        ("", "five fields are needed (minute, hour, day of month, month, day of week), not 0"),
        ("* * * *", "not 4"),
        ("60 * * * *", "minute '60': use 0-59, *, a list, a range or a step"),
        ("* 24 * * *", "hour '24': use 0-23"),
        ("* * 0 * *", "day of month '0': use 1-31"),
        ("* * * FOO *", "month 'FOO': use 1-12 or JAN-DEC"),
        ("* * * * 8", "day of week '8': use 0-7 or SUN-SAT"),
        ("30-10 * * * *", "minute '30-10'"),
        ("*/0 * * * *", "minute '*/0'"),
        ("*/90 * * * *", "minute '*/90': the step must be a number from 1 to 59"),
        ("1,,2 * * * *", "minute '1,,2'"),
        ("-5 * * * *", "minute '-5'"),
        ("٣ * * * *", "minute '٣'"),
        (f"{'9' * 5000} * * * *", "minute '9999"),
        ("* * * * MON-0-1", "day of week 'MON-"),
        ("0 0 31 2,4 *", "day of month '31': it is never due in the months given"),
        ("0 0 */31 2 1#5", "it is never due in the months given"),
        ("@often", "@often is unknown; use one of @yearly"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_field_and_what_it_may_be(cron: str, told: str) -> None:
    with pytest.raises(ValueError, match="cron") as caught:
        parse_cron(cron)
    assert told in str(caught.value)


def test_a_time_the_clock_skips_is_run_once_at_the_next_minute_there_is() -> None:
    assert slots("30 2 * * *", "2026-03-28T12:00:00", "2026-03-30T12:00:00", BERLIN) == ["03-29 03:00", "03-30 02:30"]
    assert slots("*/20 2 * * *", "2026-03-28T12:00:00", "2026-03-29T12:00:00", BERLIN) == ["03-29 03:00"]
    assert slots("*/30 * * * *", "2026-03-29T00:20:00", "2026-03-29T02:00:00", BERLIN) == [
        "03-29 01:30",
        "03-29 03:00",
        "03-29 03:30",
        "03-29 04:00",
    ]


def test_a_time_the_clock_shows_twice_is_run_the_first_time_only() -> None:
    found = slots_between("30 1 * * *", "2026-10-31T12:00:00", "2026-11-02T04:00:00", NEW_YORK)
    assert found == [at("2026-11-01T05:30:00")]
    second_pass = at("2026-11-01T06:10:00")  # 01:10 for the second time
    assert parse_cron("30 1 * * *").next_after(second_pass, NEW_YORK) == at("2026-11-02T06:30:00")


def test_each_slot_of_a_year_follows_from_the_one_before_it_and_none_comes_twice() -> None:
    cron, moment = parse_cron("*/30 0-4 * * *"), at("2026-01-01T00:00:00")
    seen: list[datetime] = []
    while len(seen) < 3700:
        moment = cron.next_after(moment, BERLIN)
        seen.append(moment)
    assert seen == sorted(set(seen))
    assert [cron.last_between(before, slot, BERLIN) for before, slot in pairwise(seen)] == seen[1:]
    walls = [slot.astimezone(BERLIN).strftime("%Y%m%dT%H%M") for slot in seen]
    assert len(set(walls)) == len(walls)


def test_the_last_slot_of_a_long_span_is_found_from_its_end() -> None:
    cron = parse_cron("0 9 * * MON")
    assert cron.last_between(at("2016-01-01T00:00:00"), at("2026-03-04T00:00:00"), UTC) == at("2026-03-02T09:00:00")
    assert cron.last_between(at("2026-03-02T09:00:00"), at("2026-03-04T00:00:00"), UTC) is None
    every = parse_cron("* * * * *")
    now = at("2026-03-04T00:00:30")
    assert every.last_between(now - timedelta(minutes=5), now, UTC) == at("2026-03-04T00:00:00")


def test_the_last_slot_is_found_while_the_clock_shows_an_hour_for_the_second_time() -> None:
    cron = parse_cron("30 1 * * *")
    second_pass = at("2026-11-01T06:10:00")  # 01:10 for the second time: 01:30 was due forty minutes ago
    assert cron.last_between(at("2026-10-31T12:00:00"), second_pass, NEW_YORK) == at("2026-11-01T05:30:00")


@pytest.mark.parametrize(
    "cron", ["* * * * *", "*/30 * * * *", "30 2 * * *", "15 1-3 * * *", "0 0 L * *", "0 2 * * SUN"]
)
@pytest.mark.parametrize("tz", [BERLIN, NEW_YORK, ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia")])
def test_both_directions_find_the_same_slots_around_every_change_of_the_clock(cron: str, tz: ZoneInfo) -> None:
    parsed = parse_cron(cron)
    for day in (date(2011, 12, 29), date(2026, 3, 8), date(2026, 3, 29), date(2026, 4, 5), date(2026, 10, 25)):
        moment = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=30)
        for _ in range(60):
            slot = parsed.next_after(moment, tz)
            assert slot > moment
            assert parsed.last_between(moment, slot, tz) == slot
            assert parsed.last_between(moment, slot - timedelta(seconds=1), tz) is None
            moment = slot if slot - moment < timedelta(hours=1) else slot + timedelta(minutes=7)
