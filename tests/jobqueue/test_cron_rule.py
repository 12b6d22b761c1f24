"""When an expression fires: exact instants at gaps, repeats and leap days, and what is no expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobqueue.policy.catchup import CATCH_UP_MAX, due
from jobqueue.policy.cron import Fields, Rule
from jobqueue.schedules import expressions
from jobqueue.schedules.words import words
from jobsplatform.errors import Invalid
from tests.schedules_cast import utc

NEW_YORK, BERLIN = "America/New_York", "Europe/Berlin"


def fires(text: str, zone: str, after: str, count: int) -> list[str]:
    found = islice(expressions.rule(text, zone).fires(utc(after)), count)
    return [at.strftime("%Y-%m-%dT%H:%MZ") for at in found]


# Gaps and repeats (S57, S59)


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        ("30 2 * * *", NEW_YORK, "2026-03-07 12:00", ["2026-03-08T07:00Z", "2026-03-09T06:30Z"]),
        ("30 2 * * *", BERLIN, "2026-03-28 12:00", ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]),
        (
            "0,30 2 * * *",
            BERLIN,
            "2026-03-28 12:00",
            ["2026-03-29T01:00Z", "2026-03-30T00:00Z", "2026-03-30T00:30Z"],
        ),
        ("30 1 * * *", NEW_YORK, "2026-10-31 12:00", ["2026-11-01T05:30Z", "2026-11-02T06:30Z"]),
        ("30 2 * * *", BERLIN, "2026-10-24 12:00", ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]),
    ],
)
def test_local_time_fires_once_on_the_nights_when_clocks_change(
    text: str, zone: str, after: str, expected: list[str]
) -> None:
    assert fires(text, zone, after, len(expected)) == expected


@pytest.mark.parametrize(
    "after", ["2026-10-25 00:30", "2026-10-25 00:59", "2026-10-25 01:00", "2026-10-25 01:31"]
)
def test_asking_in_the_repeated_hour_gives_no_second_fire(after: str) -> None:
    assert fires("30 2 * * *", BERLIN, after, 1) == ["2026-10-26T01:30Z"]


def test_a_fire_at_the_end_of_the_gap_falls_together_with_those_inside() -> None:
    assert fires("0 2,3 * * *", BERLIN, "2026-03-28 12:00", 2) == ["2026-03-29T01:00Z", "2026-03-30T00:00Z"]


def test_elapsed_time_passes_the_repeated_hour_twice() -> None:
    assert fires("*/30 2 * * *", BERLIN, "2026-10-24 12:00", 5) == [
        "2026-10-25T00:00Z",
        "2026-10-25T00:30Z",
        "2026-10-25T01:00Z",
        "2026-10-25T01:30Z",
        "2026-10-26T01:00Z",
    ]


def test_elapsed_time_never_meets_what_is_skipped() -> None:
    assert fires("*/30 2 * * *", BERLIN, "2026-03-28 12:00", 1) == ["2026-03-30T00:00Z"]


@pytest.mark.parametrize("text", ["*/15 * * * *", "30 * * * *", "* * * * *"])
@pytest.mark.parametrize("night", ["2026-03-29 00:00", "2026-10-25 00:00"])
def test_elapsed_time_keeps_its_distance_over_a_change(text: str, night: str) -> None:
    found = list(islice(expressions.rule(text, BERLIN).fires(utc(night)), 20))
    assert len({later - earlier for earlier, later in pairwise(found)}) == 1


def test_an_hour_field_with_a_star_follows_elapsed_time() -> None:
    assert fires("0 */2 * * *", BERLIN, "2026-10-24 22:01", 3) == [
        "2026-10-25T00:00Z",
        "2026-10-25T01:00Z",
        "2026-10-25T03:00Z",
    ]


def test_elapsed_time_meets_both_passings_also_from_far_away() -> None:
    assert fires("*/30 2 25 10 *", BERLIN, "2026-01-01 00:00", 5) == [
        "2026-10-25T00:00Z",
        "2026-10-25T00:30Z",
        "2026-10-25T01:00Z",
        "2026-10-25T01:30Z",
        "2027-10-25T00:00Z",
    ]


def test_a_change_of_half_an_hour_is_a_gap_too() -> None:
    assert fires("15 2 * * *", "Australia/Lord_Howe", "2026-10-03 00:00", 2) == [
        "2026-10-03T15:30Z",
        "2026-10-04T15:15Z",
    ]


def test_a_day_that_a_place_never_had_is_one_gap() -> None:
    """Samoa went from 29 to 31 December 2011."""
    assert fires("0 9 * * *", "Pacific/Apia", "2011-12-29 00:00", 3) == [
        "2011-12-29T19:00Z",
        "2011-12-30T10:00Z",
        "2011-12-30T19:00Z",
    ]


def test_a_change_at_midnight_belongs_to_the_day_before() -> None:
    """In 2010 St John's went back at 00:01, to 23:01 of the day before: midnight passed twice."""
    assert fires("*/30 23,0 * * *", "America/St_Johns", "2010-11-07 02:00", 5) == [
        "2010-11-07T02:30Z",
        "2010-11-07T03:00Z",
        "2010-11-07T03:30Z",
        "2010-11-07T04:00Z",
        "2010-11-08T02:30Z",
    ]
    assert fires("0 0 * * *", "America/St_Johns", "2010-11-07 02:00", 2) == [
        "2010-11-07T02:30Z",
        "2010-11-08T03:30Z",
    ]


# Days (S61)


def test_a_leap_day_comes_in_leap_years() -> None:
    assert fires("0 9 29 2 *", "UTC", "2026-01-01 00:00", 2) == ["2028-02-29T09:00Z", "2032-02-29T09:00Z"]


def test_other_expressions_fire_as_ever_on_a_leap_day() -> None:
    assert fires("0 12 * * *", "UTC", "2028-02-28 13:00", 2) == ["2028-02-29T12:00Z", "2028-03-01T12:00Z"]


def test_the_end_of_a_century_without_a_leap_day_is_passed_over() -> None:
    assert fires("0 0 29 2 *", "UTC", "2096-03-01 00:00", 1) == ["2104-02-29T00:00Z"]


def test_a_leap_day_on_a_weekday_is_found_within_the_bound() -> None:
    assert fires("0 0 29 2 */7", "UTC", "2026-01-01 00:00", 1) == ["2032-02-29T00:00Z"]


def test_day_or_weekday_is_enough_when_both_are_restricted() -> None:
    assert fires("0 0 13 * 5", "UTC", "2026-02-01 00:00", 3) == [
        "2026-02-06T00:00Z",
        "2026-02-13T00:00Z",
        "2026-02-20T00:00Z",
    ]


def test_day_and_weekday_must_both_match_when_one_starts_with_a_star() -> None:
    assert fires("0 0 */2 * 5", "UTC", "2026-02-01 00:00", 3) == [
        "2026-02-13T00:00Z",
        "2026-02-27T00:00Z",
        "2026-03-13T00:00Z",
    ]


@pytest.mark.parametrize("text", ["0 0 * * 7", "0 0 * * 0", "0 0 * * sun", "0 0 * * SUN"])
def test_sunday_has_its_names(text: str) -> None:
    assert fires(text, "UTC", "2026-11-30 00:00", 1) == ["2026-12-06T00:00Z"]


@pytest.mark.parametrize("text", ["0 0 * * 7/2", "0 0 * * 7/1"])
def test_a_step_from_the_end_of_a_week_is_sunday_alone(text: str) -> None:
    assert expressions.fields(text) == expressions.fields("0 0 * * 7")


def test_a_step_from_the_end_of_any_field_is_the_end() -> None:
    assert expressions.fields("59/5 23/5 31/5 12/5 7/5") == expressions.fields("59 23 31 12 7")


def test_nothing_fires_after_the_last_year() -> None:
    assert fires("0 0 1 1 *", "UTC", "9998-06-01 00:00", 3) == ["9999-01-01T00:00Z"]


# What is no expression (S61)


@pytest.mark.parametrize(
    "text",
    [
        "0 0 31 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 30 feb *",
        "*/0 * * * *",
        "0 24 * * *",
        "60 * * * *",
        "0 0 0 * *",
        "0 0 32 * *",
        "0 0 * 13 *",
        "0 0 * * 8",
        "@reboot",
        "@daily",
        "* * * * * *",
        "* * * *",
        "\uff11 * * * *",
        "1\u00a0* * * *",
        "5-1 * * * *",
        "0 0 * * sat-sun",
        "0 0 L * *",
        "0 0 15W * *",
        "0 0 LW * *",
        "0 0 * * 5L",
        "0 0 * * 1#2",
        "0 0 ? * *",
        "H * * * *",
        "R * * * *",
        "1,,2 * * * *",
        ",1 * * * *",
        "*,* * * *",
        "1.5 * * * *",
        "-1 * * * *",
        "+1 * * * *",
        "1e1 * * * *",
        "** * * * *",
        "*/ * * * *",
        "*/-1 * * * *",
        "1-2-3 * * * *",
        "*-5 * * * *",
        "jan * * * *",
        "0 0 * mon *",
        "0 0 * * *\n",
        "0 0\n* * *",
        "",
        " ",
        "0 0 1 1 *; DROP",
        "0," * 300 + "0 * * * *",
    ],
)
def test_what_is_no_expression_is_refused_at_its_member(text: str) -> None:
    with pytest.raises(Invalid) as refusal:
        expressions.rule(text, "UTC")
    assert [error.pointer for error in refusal.value.errors] == ["/cron"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("5-10/2 * * * *", (5, 7, 9)),
        ("*/25 * * * *", (0, 25, 50)),
        ("50/5 * * * *", (50, 55)),
        ("1,3,2,3 * * * *", (1, 2, 3)),
        ("07 * * * *", (7,)),
        ("5-5 * * * *", (5,)),
        ("5-5/7,9-09 * * * *", (5, 9)),
    ],
)
def test_fields_hold_lists_ranges_and_steps(text: str, values: tuple[int, ...]) -> None:
    assert expressions.fields(text).minutes == values


def test_a_range_of_one_value_is_that_value_in_every_field() -> None:
    assert expressions.fields("5-5 4-4 3-3 feb-2 mon-1") == expressions.fields("5 4 3 2 1")


def test_blanks_between_fields_do_not_count() -> None:
    assert expressions.normal(" 0  9\t* * mon-fri ") == "0 9 * * mon-fri"


@pytest.mark.parametrize("name", ["utc", "Berlin", "CET+1", "", "../UTC", "Europe/berlin", "/UTC", "UTC\0"])
def test_a_zone_is_exactly_one_that_is_known(name: str) -> None:
    with pytest.raises(Invalid) as refusal:
        expressions.rule("* * * * *", name)
    assert refusal.value.errors[0].pointer == "/timezone"


# Properties


FIELDS = st.builds(
    Fields,
    minutes=st.sets(st.integers(0, 59), min_size=1, max_size=4).map(lambda s: tuple(sorted(s))),
    hours=st.sets(st.integers(0, 23), min_size=1, max_size=4).map(lambda s: tuple(sorted(s))),
    days=st.sets(st.integers(1, 28), min_size=1).map(lambda s: tuple(sorted(s))),
    months=st.sets(st.integers(1, 12), min_size=1).map(lambda s: tuple(sorted(s))),
    weekdays=st.sets(st.integers(0, 6), min_size=1).map(lambda s: tuple(sorted(s))),
    is_elapsed=st.booleans(),
    either_day=st.booleans(),
)
ZONES = st.sampled_from(
    [NEW_YORK, BERLIN, "Australia/Lord_Howe", "Pacific/Chatham", "America/St_Johns", "UTC"]
)
INSTANTS = st.datetimes(datetime(2005, 1, 1), datetime(2030, 1, 1)).map(lambda at: at.replace(tzinfo=UTC))


@settings(max_examples=60)
@given(FIELDS, ZONES, INSTANTS)
def test_fires_rise_and_the_first_after_any_instant_between_is_the_next(
    fields: Fields, zone: str, after: datetime
) -> None:
    rule = Rule(fields, ZoneInfo(zone))
    found = list(islice(rule.fires(after), 6))
    assert all(earlier < later for earlier, later in zip([after, *found], found, strict=False))
    for earlier, later in pairwise(found):
        assert rule.next(earlier + (later - earlier) / 2) == later
        assert rule.next(later - timedelta(microseconds=1)) == later


@settings(max_examples=60)
@given(FIELDS, ZONES, INSTANTS)
def test_every_fire_of_local_time_is_the_instant_of_a_matching_wall_time(
    fields: Fields, zone: str, after: datetime
) -> None:
    """The other way round: each wall time of the days around, mapped by the contract's rule, is among the fires."""
    rule = Rule(
        Fields(**{n: getattr(fields, n) for n in Fields.__slots__} | {"is_elapsed": False}), ZoneInfo(zone)
    )
    until = after + timedelta(days=3)
    wall = (after - timedelta(days=2)).replace(tzinfo=None, second=0, microsecond=0)
    expected = set()
    for minutes in range(7 * 24 * 60):
        moment = wall + timedelta(minutes=minutes)
        if rule.fields.has_wall(moment):
            expected.add(_by_hand(moment, ZoneInfo(zone)))
    found = set()
    for at in rule.fires(after):
        if at > until:
            break
        found.add(at)
    assert found == {at for at in expected if after < at <= until}


def _by_hand(wall: datetime, zone: ZoneInfo) -> datetime:
    """The first minute whose clock shows `wall` or more, walking forward from before any change."""
    at = wall.replace(tzinfo=UTC) - timedelta(hours=26)
    at = max(at, wall.replace(tzinfo=zone, fold=0).astimezone(UTC) - timedelta(hours=2))
    while at.astimezone(zone).replace(tzinfo=None) < wall:
        at += timedelta(minutes=1)
    return at


@settings(max_examples=40)
@given(FIELDS, ZONES, INSTANTS)
def test_elapsed_time_fires_at_each_passing_minute_that_matches(
    fields: Fields, zone: str, after: datetime
) -> None:
    rule = Rule(
        Fields(**{n: getattr(fields, n) for n in Fields.__slots__} | {"is_elapsed": True}), ZoneInfo(zone)
    )
    start = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    days = [start + timedelta(minutes=n) for n in range(2 * 24 * 60)]
    expected = [at for at in days if rule.fields.has_wall(at.astimezone(rule.zone).replace(tzinfo=None))]
    found = []
    for at in rule.fires(after):
        if at > days[-1]:
            break
        found.append(at)
    assert found == expected


@settings(max_examples=40)
@given(FIELDS, INSTANTS, st.integers(0, 60 * 24 * 40))
def test_what_is_due_is_the_end_of_all_that_fired(fields: Fields, after: datetime, minutes: int) -> None:
    rule = Rule(fields, ZoneInfo(BERLIN))
    first = rule.next(after)
    assert first is not None
    now = first + timedelta(minutes=minutes)
    everything = [first]
    for at in rule.fires(first):
        if at > now:
            break
        everything.append(at)
    found = due(rule, first, now)
    assert list(found.newest) == everything[-CATCH_UP_MAX:]
    assert found.count == min(len(everything), 1_000)
    assert found.following == rule.next(now)


# In words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", "Every minute"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("30 2 * * *", "At 02:30 every day"),
        ("0 9,17 * * mon-fri", "At 09:00 and 17:00 on Monday to Friday"),
        ("0 9 29 2 *", "At 09:00 on the 29th in February"),
        ("0 0 13 * 5", "At 00:00 on the 13th or Friday"),
        ("0 0 */2 * 5", "At 00:00 on every 2nd day from the 1st if it is Friday"),
        ("5 */2 * 1-3 *", "At minute 5 of every 2nd hour from midnight in January to March"),
        ("0,30 8-18 * * *", "At minutes 0 and 30 of the hours 8 to 18 every day"),
    ],
)
def test_an_expression_is_told_in_words(text: str, expected: str) -> None:
    assert words(text) == expected
