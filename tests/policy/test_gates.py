"""Gates in policy.toml: what they may say, who is exempt, and when it is quiet."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.vocabulary import Lane, lane_named
from policy.gates import CountLimit, QuietAction, QuietHours, Scope
from policy.loading import PolicyError, load, parse
from policy.quiet_hours import quiet_ms
from policy.schema import InDoubt, LanePolicy, Policy, TraceLevel

NIGHT = QuietHours(windows=["22:00-08:00"], zone="UTC")
HOUR_MS = 3_600_000
BEST_EFFORT_HOLDS = """[lanes."sms.notice"]
quiet_hours = { windows = ["22:00-08:00"], action = "hold" }
guarantee = "best_effort"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "policy.toml"


def policy_of(file: Path, text: str, lane: str) -> LanePolicy:
    file.write_text(text, "utf-8")
    found = lane_named(lane)
    assert found is not None
    return load(file).of(found)


def problems(file: Path, text: str) -> list[str]:
    file.write_text(text, "utf-8")
    with pytest.raises(PolicyError) as caught:
        load(file)
    return [f"{p.line} {p.key}: {p.text}" for p in caught.value.problems]


def gates_of(policy: LanePolicy) -> list[bool]:
    return [policy.quiet_hours.holds, policy.frequency.holds, policy.dedup.holds]


def at(text: str, zone: str = "UTC") -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000)


def test_gates_are_read_field_by_field_from_the_nearest_table(file: Path) -> None:
    text = (
        '[defaults.quiet_hours]\nwindows = ["22:00-08:00"]\n'
        '[defaults.marketing.quiet_hours]\naction = "drop"\n'
        '[lanes."sms.marketing".frequency]\nscope = "channel"\n'
        "limits = [{ most = 1, span_ms = 60_000 }]\n"
    )
    policy = policy_of(file, text, "sms.marketing")
    assert policy.quiet_hours == QuietHours(windows=["22:00-08:00"], action=QuietAction.DROP)
    assert policy.frequency.limits == [CountLimit(most=1, span_ms=60_000)]
    assert policy.frequency.scope is Scope.CHANNEL
    assert policy_of(file, text, "sms.notice").quiet_hours.action is QuietAction.HOLD


def test_verification_is_exempt_from_what_the_defaults_say(file: Path) -> None:
    text = (
        '[defaults.quiet_hours]\nwindows = ["22:00-08:00"]\n'
        "[defaults.frequency]\nlimits = [{ most = 1, span_ms = 60_000 }]\n"
        "[defaults.dedup]\nwindow_ms = 1_000\n"
    )
    exempt = policy_of(file, text, "sms.verification")
    assert gates_of(exempt) == [False] * 3
    other = policy_of(file, text, "sms.notice")
    assert gates_of(other) == [True] * 3


def test_verification_has_gates_where_its_own_table_says_so(file: Path) -> None:
    text = "[defaults.verification.dedup]\nwindow_ms = 1_000\nexempt = false\n"
    assert policy_of(file, text, "sms.verification").dedup.holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[defaults.verification.dedup]\nwindow_ms = 5\n",
            (
                "2 defaults.verification.dedup.window_ms: changes nothing, since verification is "
                "exempt; add dedup.exempt = false"
            ),
        ),
        (
            '[defaults.quiet_hours]\nwindows = ["8-9"]\n',
            (
                r"2 defaults.quiet_hours.windows: expected str matching regex "
                r"'^\\d\\d:\\d\\d-\\d\\d:\\d\\d$', got ['8-9']"
            ),
        ),
        (
            '[defaults.quiet_hours]\nwindows = ["25:00-09:00"]\n',
            "2 defaults.quiet_hours.windows: '25:00' is no time of day; write HH:MM-HH:MM",
        ),
        (
            '[defaults.quiet_hours]\nwindows = ["09:00-09:00"]\n',
            (
                "2 defaults.quiet_hours.windows: '09:00-09:00' is no stretch of the day; "
                "write HH:MM-HH:MM"
            ),
        ),
        (
            '[defaults.notice.quiet_hours]\nwindows = ["08:00-22:00", "22:00-08:00"]\n',
            "2 defaults.notice.quiet_hours.windows: leave no time of the day open",
        ),
        (
            '[defaults.quiet_hours]\nzone = "Asia/Shangai"\n',
            (
                "2 defaults.quiet_hours.zone: there is no time zone 'Asia/Shangai'; "
                "did you mean Asia/Shanghai?"
            ),
        ),
        (
            '[defaults.quiet_hours]\naction = "wait"\n',
            "2 defaults.quiet_hours.action: 'wait' is none of hold, drop",
        ),
        (
            "[defaults.frequency]\nlimits = [{ most = 0, span_ms = 60_000 }]\n",
            (
                "2 defaults.frequency.limits: expected int >= 1, got "
                "[{'most': 0, 'span_ms': 60000}] (at limits[0].most)"
            ),
        ),
        (
            BEST_EFFORT_HOLDS,
            (
                '2 lanes."sms.notice".quiet_hours.action: "hold" needs the ledger, which guarantee '
                '"best_effort" does without; say "drop"'
            ),
        ),
        (
            '[lanes."sms.notice"]\nguarantee = "at_most_once"\nunknown = "resend"\n',
            (
                '3 lanes."sms.notice".unknown: cannot be "resend" where guarantee is '
                '"at_most_once"; park it'
            ),
        ),
        (
            '[lanes."sms.notice"]\nretention_days = 1\n',
            (
                '2 lanes."sms.notice".retention_days: 1 days are less than max_ttl_ms 604800000; '
                "raise it, or lower that"
            ),
        ),
        (
            '[defaults]\ntrace = "troubles"\n',
            ("2 defaults.trace: 'troubles' is none of all, trouble, none; did you mean trouble?"),
        ),
    ],
)
def test_a_mistake_in_a_gate_is_told_with_line_and_key(file: Path, text: str, said: str) -> None:
    assert problems(file, text) == [said]


def test_what_is_in_doubt_follows_the_guarantee_unless_the_policy_says_otherwise() -> None:
    assert not policy_with('guarantee = "at_most_once"').resends_unproven
    assert policy_with("").resends_unproven
    assert not policy_with('unknown = "park"').resends_unproven
    assert policy_with('unknown = "park"').unknown is InDoubt.PARK


def policy_with(line: str) -> LanePolicy:
    text = f'[lanes."sms.notice"]\n{line}\n'.encode()
    return parse("policy.toml", text, version="v1").of(Lane("sms", "notice"))


def test_the_longest_retention_of_all_lanes_counts() -> None:
    assert Policy().retention_days == 90
    assert Policy(lanes={"sms.notice": LanePolicy(retention_days=400)}).retention_days == 400
    assert policy_with('trace = "none"').trace is TraceLevel.NONE


@pytest.mark.parametrize(
    ("now", "hours"),
    [
        ("2026-03-01T21:59:59.999", 0),
        ("2026-03-01T22:00", 10),
        ("2026-03-02T00:00", 8),
        ("2026-03-02T07:00", 1),
        ("2026-03-02T08:00", 0),
    ],
)
def test_a_window_past_midnight_is_quiet_until_its_end(now: str, hours: int) -> None:
    assert quiet_ms(NIGHT, at(now)) == hours * HOUR_MS


def test_windows_that_follow_one_another_are_one() -> None:
    quiet = QuietHours(windows=["00:00-06:00", "20:00-24:00", "06:00-07:30"], zone="UTC")
    assert quiet_ms(quiet, at("2026-03-01T20:00")) == 11.5 * HOUR_MS


def test_the_clock_is_the_zones_and_keeps_summer_time() -> None:
    berlin = QuietHours(windows=["22:00-08:00"], zone="Europe/Berlin")
    night_before = at("2026-03-28T22:00", "Europe/Berlin")
    assert quiet_ms(berlin, night_before) == 9 * HOUR_MS, "that night has nine hours"
    assert quiet_ms(berlin, at("2026-10-24T22:00", "Europe/Berlin")) == 11 * HOUR_MS
    shanghai = QuietHours(windows=["22:00-08:00"])
    assert quiet_ms(shanghai, at("2026-03-01T14:00")) == 10 * HOUR_MS


def test_one_that_is_exempt_is_never_quiet() -> None:
    assert quiet_ms(QuietHours(windows=["00:00-23:00"], exempt=True), at("2026-03-01T12:00")) == 0


@given(
    st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1)),  # noqa: DTZ001 (the zone's own)
    st.sampled_from(["UTC", "Asia/Shanghai", "Europe/Berlin", "America/St_Johns"]),
)
def test_when_it_opens_it_is_open_and_a_moment_before_it_was_not(now: datetime, zone: str) -> None:
    quiet = QuietHours(windows=["21:30-07:00", "12:00-13:00"], zone=zone)
    now_ms = int(now.replace(tzinfo=ZoneInfo(zone)).timestamp() * 1_000)
    left = quiet_ms(quiet, now_ms)
    assert 0 <= left <= timedelta(hours=10, minutes=30) / timedelta(milliseconds=1)
    assert quiet_ms(quiet, now_ms + left) == 0
    assert not left or quiet_ms(quiet, now_ms + left - 1) == 1
