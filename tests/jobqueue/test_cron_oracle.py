"""Our fires of five years against cronsim's: the same, but where cronsim loses its way at a change of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError

from jobqueue.schedules import expressions
from jobsplatform.errors import Invalid
from tests.cron_oracle import Lost, agree, expressions_from, ours, theirs

# Changes of an hour by night, on other dates each year, of zones at odd offsets, and none at all.
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "Pacific/Chatham",
    "Africa/Casablanca",
    "Asia/Kolkata",
)
# A change of half an hour; changes at midnight.
ODD_ZONES = ("Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "Asia/Beirut")
FIRST_SEED = 20_261_130


def test_forty_expressions_fire_as_cronsim_says() -> None:
    """Each in one of the zones, over a year."""
    asked = [(text, ZONES[n % len(ZONES)]) for n, text in enumerate(expressions_from(FIRST_SEED, 40))]
    assert [one for one in asked if ours(*one, years=1) != theirs(*one, years=1)] == []


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
def test_five_hundred_expressions_fire_as_cronsim_says_for_five_years(zone: str) -> None:
    texts = expressions_from(FIRST_SEED, 500)
    assert [text for text in texts if not agree(text, zone)] == []


@pytest.mark.parametrize("zone", ODD_ZONES)
def test_local_time_is_the_same_also_where_clocks_change_oddly(zone: str) -> None:
    texts = [text for text in expressions_from(FIRST_SEED, 60) if not expressions.fields(text).is_elapsed]
    assert len(texts) > 10
    assert [text for text in texts[:10] if ours(text, zone, 2) != theirs(text, zone, 2)] == []


# The differences, each with what the clock shows (docs/schedules.md)


def test_cronsim_misses_the_first_half_hour_after_a_change_of_half_an_hour() -> None:
    zone = "Australia/Lord_Howe"  # 2026-04-04T15:00Z: the clock shows 02:00, and goes back to 01:30
    extra = _extra("*/15 2 * * *", zone)
    assert [at.strftime("%Y-%m-%dT%H:%MZ") for at in extra[:2]] == ["2026-04-04T15:30Z", "2026-04-04T15:45Z"]
    assert all(_is_near_a_change(at, zone) for at in extra)
    assert not set(theirs("*/15 2 * * *", zone)) - set(ours("*/15 2 * * *", zone))


def test_cronsim_misses_the_first_hours_after_a_midnight_that_is_skipped() -> None:
    zone = "Africa/Cairo"  # 2028-04-27T22:00Z: the 28th begins at 01:00
    extra = _extra("*/25 1-3 */9 * *", zone)
    assert extra
    assert {at.astimezone(ZoneInfo(zone)).date().isoformat() for at in extra} == {"2028-04-28"}


def test_cronsim_fires_at_a_time_that_does_not_match_after_a_midnight_that_is_skipped() -> None:
    zone, text = "Africa/Cairo", "*/20 */4 24-31 * sat"  # 2026-04-24 begins at 01:00, which is not in */4
    extra = set(theirs(text, zone)) - set(ours(text, zone))
    walls = [at.astimezone(ZoneInfo(zone)) for at in extra]
    assert walls
    assert {wall.hour for wall in walls} == {1}


def test_cronsim_gets_lost_in_the_hour_that_chatham_s_clocks_repeat() -> None:
    zone, text = "Pacific/Chatham", "51 */3 2-8/1 3,4,9-11 mon-fri"
    with pytest.raises(Lost) as lost:
        theirs(text, zone)
    mine, found = ours(text, zone), lost.value.found
    assert mine[: len(found)] == found
    assert _is_near_a_change(mine[len(found)], zone)


def test_cronsim_misses_the_first_quarter_that_chatham_s_clocks_repeat() -> None:
    extra = _extra(
        "*/15 2 * * *", "Pacific/Chatham"
    )  # 2026-04-04T14:00Z: the clock goes back from 03:45 to 02:45
    assert extra[0] == datetime(2026, 4, 4, 14, tzinfo=UTC)
    assert {at.astimezone(ZoneInfo("Pacific/Chatham")).strftime("%H:%M") for at in extra} == {"02:45"}


def _extra(text: str, zone: str) -> list[datetime]:
    return sorted(set(ours(text, zone)) - set(theirs(text, zone)))


def _is_near_a_change(at: datetime, zone: str) -> bool:
    before, after = (at + timedelta(hours=hours) for hours in (-2, 2))
    return before.astimezone(ZoneInfo(zone)).utcoffset() != after.astimezone(ZoneInfo(zone)).utcoffset()


# What one reads and the other does not


@pytest.mark.parametrize("text", ["* * * * * *", "0 0 L * *", "0 0 LW * *", "0 0 * * 5L", "0 0 * * 1#2"])
def test_cronsim_reads_more_than_the_contract(text: str) -> None:
    CronSim(text, datetime(2026, 1, 1))
    with pytest.raises(Invalid):
        expressions.fields(text)


@pytest.mark.parametrize("text", ["5-1 * * * *", "*/0 * * * *", "0 24 * * *", "0 0 31 2 *", "@daily"])
def test_both_refuse_what_means_nothing(text: str) -> None:
    with pytest.raises(CronSimError):
        CronSim(text, datetime(2026, 1, 1))
    with pytest.raises(Invalid):
        expressions.fields(text)
