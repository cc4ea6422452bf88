"""Due times against instants that were written by hand from the zones' published changes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from producer.campaigns.contract import CampaignRefused, CampaignSchedule
from producer.campaigns.schedule import next_due, once_at, zone_of


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1_000)


def due_times(cron: str, zone: str, after: str, count: int) -> list[str]:
    schedule, at, found = CampaignSchedule(cron=cron, zone=zone), ms(after), []
    for _ in range(count):
        following = next_due(schedule, at)
        assert following is not None
        at = following
        found.append(datetime.fromtimestamp(at / 1_000, UTC).strftime("%m-%dT%H:%M"))
    return found


NEW_YORK, BERLIN, LORD_HOWE = "America/New_York", "Europe/Berlin", "Australia/Lord_Howe"


@pytest.mark.parametrize(
    ("cron", "zone", "after", "wanted"),
    [
        # No changes of the clock in China.
        ("0 9 * * *", "Asia/Shanghai", "2026-03-08T00:00Z", ["03-08T01:00", "03-09T01:00"]),
        # 2:30 is skipped on 8 March 2026 (07:00Z): it runs at 3:00 EDT, once.
        ("30 2 * * *", NEW_YORK, "2026-03-07T12:00Z", ["03-08T07:00", "03-09T06:30"]),
        # 2:00, 2:30 and 3:00 fall together.
        ("*/30 2-3 * * *", NEW_YORK, "2026-03-08T06:59Z", ["03-08T07:00", "03-08T07:30"]),
        # 1:30 comes twice on 1 November 2026 (05:30Z and 06:30Z): it runs at the first.
        ("30 1 * * *", NEW_YORK, "2026-10-31T12:00Z", ["11-01T05:30", "11-02T06:30"]),
        # Every half hour: the hour that comes twice runs once.
        (
            "*/30 * * * *",
            NEW_YORK,
            "2026-11-01T04:59Z",
            ["11-01T05:00", "11-01T05:30", "11-01T07:00"],
        ),
        # Asked in the second 1:40, the next 1:50 is tomorrow's.
        ("50 1 * * *", NEW_YORK, "2026-11-01T06:40Z", ["11-02T06:50"]),
        ("30 2 * * *", BERLIN, "2026-03-28T12:00Z", ["03-29T01:00", "03-30T00:30"]),
        ("30 2 * * *", BERLIN, "2026-10-24T12:00Z", ["10-25T00:30", "10-26T01:30"]),
        # Half an hour is skipped here: 2:15 on 4 October 2026 runs at 2:30+11 = 15:30Z.
        ("15 2 * * *", LORD_HOWE, "2026-10-03T00:00Z", ["10-03T15:30", "10-04T15:15"]),
        # Weekdays at nine.
        ("0 9 * * MON-FRI", BERLIN, "2026-03-27T12:00Z", ["03-30T07:00", "03-31T07:00"]),
    ],
)
def test_a_time_shown_twice_runs_once_and_a_skipped_one_at_the_next(
    cron: str, zone: str, after: str, wanted: list[str]
) -> None:
    assert due_times(cron, zone, after, len(wanted)) == wanted


def test_a_day_that_a_clock_skipped_runs_once() -> None:
    # Samoa had no 30 December 2011: the clock went from the 29th 24:00 (-10) to the 31st 0:00 (+14).
    found = due_times("0 9 * * *", "Pacific/Apia", "2011-12-29T20:00Z", 2)
    assert found == ["12-30T10:00", "12-30T19:00"]


def test_one_time_is_read_on_the_zones_clock_or_with_its_offset() -> None:
    shanghai = zone_of("Asia/Shanghai")
    assert once_at("2026-12-24 09:00", shanghai) == ms("2026-12-24T01:00Z")
    assert once_at("2026-12-24T09:00+02:00", shanghai) == ms("2026-12-24T07:00Z")
    assert once_at("2026-03-08 02:30", zone_of(NEW_YORK)) == ms("2026-03-08T07:00Z")
    assert once_at("2026-11-01 01:30", zone_of(NEW_YORK)) == ms("2026-11-01T05:30Z")


@pytest.mark.parametrize(
    "text", ["0001-01-01", "1970-01-01", "1999-12-31 23:59", "9999-12-31 23:59-12:00", "9999-01-01"]
)
@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York", "UTC"])
def test_a_time_near_the_ends_of_the_calendar_is_refused(text: str, zone: str) -> None:
    with pytest.raises(CampaignRefused, match="give a year from 2000 to 9998"):
        once_at(text, zone_of(zone))


@pytest.mark.parametrize("text", ["2000-01-01 00:00+14:00", "9998-12-31 23:59-12:00"])
def test_the_first_and_the_last_time_can_be_shown_on_each_clock(text: str) -> None:
    at = once_at(text, zone_of("UTC"))
    for zone in ("Pacific/Kiritimati", "Etc/GMT+12"):
        assert datetime.fromtimestamp(at / 1_000, UTC).astimezone(zone_of(zone)).year in (
            *(1999, 2000),
            *(9998, 9999),
        )


def test_a_single_time_that_is_over_is_not_due_again() -> None:
    schedule = CampaignSchedule(at=1_000)
    assert next_due(schedule, 999) == 1_000
    assert next_due(schedule, 1_000) is None


@pytest.mark.parametrize(
    ("cron", "text"),
    [
        ("0 9 * *", "write five fields"),
        ("61 9 * * *", "Bad minute"),
        ("* * * * * *", "five fields"),
        ("0 9 30 2 *", "Bad day-of-month"),
    ],
)
def test_a_wrong_expression_is_one_sentence(cron: str, text: str) -> None:
    with pytest.raises(CampaignRefused, match=text):
        next_due(CampaignSchedule(cron=cron), 0)


def test_an_unknown_zone_is_refused_with_a_near_one() -> None:
    with pytest.raises(CampaignRefused, match="did you mean Asia/Shanghai"):
        zone_of("Asia/Shanghia")
