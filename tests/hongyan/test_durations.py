"""One grammar for the durations of all commands."""

from __future__ import annotations

import pytest
import typer

from backends.durations import milliseconds
from hongyan.errors import WrongUsage
from hongyan.flags import age_ms, duration_ms
from hongyan.usage.durations import days, seconds
from tests.hongyan.conftest import Run, make_ledger

S, M, H, D = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *[("500ms", 500), ("30s", 30 * S), ("90m", 90 * M), ("90min", 90 * M), ("6h", 6 * H)],
        *[("2d", 2 * D), ("1h30m", 90 * M), ("1h30min", 90 * M), ("1d2h3m4s5ms", 93_784_005)],
        *[("0s", 0), ("1.5h", 90 * M), ("0.25s", 250), (" 5m ", 5 * M)],
    ],
)
def test_a_duration_is_read(text: str, found: int) -> None:
    assert milliseconds(text) == found


@pytest.mark.parametrize(
    "text",
    [
        *["", "30", "m", "1x", "1 h", "-1h", "30m1h", "1h1h", "1h1min1m", "1h30", "1.h", "1e3s"],
        *["٣٠s", "1h,30m", "9999999999s", "999999999d", "yesterday", "P1D"],
    ],
)
def test_another_text_is_refused_with_the_grammar(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"^--since .*: write a number and s, m or min, h, or d"):
        duration_ms("--since", text)


def test_an_age_of_nothing_is_refused_and_is_not_the_same_as_none() -> None:
    assert (age_ms("--since", "1s"), age_ms("--since", ""), age_ms("--since", None)) == (
        S,
        None,
        None,
    )
    for text in ("0s", "0ms", "0d", "0h0m", "0.0s"):
        with pytest.raises(WrongUsage, match=f"^--since '{text}': give a time above 0"):
            age_ms("--since", text)


@pytest.mark.parametrize(
    "command",
    [
        ("resend", "--state", "PARKED", "--since", "0s", "--discard", "--reason", "r"),
        (
            "resend",
            "jobs",
            "new",
            "--state",
            "PARKED",
            "--lane",
            "*",
            "--since",
            "0s",
            "--reason",
            "r",
        ),
        (
            *("resend", "jobs", "new", "--state", "PARKED", "--lane", "*", "--since", "1h"),
            *("--until", "0s", "--reason", "r"),
        ),
        ("deliveries", "list", "--since", "0s"),
        ("trace", "order-1", "--since", "0s"),
        ("trace", "--template", "t", "--since", "0s"),
        ("dead", "list", "--since", "0s"),
        ("dead", "replay", "--since", "0s"),
        ("lost", "list", "--since", "0s"),
        ("lost", "dismiss", "--since", "0s", "--reason", "r"),
    ],
)
def test_no_command_takes_an_age_of_nothing_for_all_time(
    hongyan: Run, command: tuple[str, ...]
) -> None:
    make_ledger()
    said = hongyan(*command)
    assert (said.code, said.out) == (2, "")
    assert " '0s': give a time above 0" in said.err


def test_a_bare_number_has_the_unit_of_its_option() -> None:
    assert milliseconds("2", bare="s") == 2 * S
    assert (seconds()("30"), seconds()("1.5"), seconds()("5m"), seconds()(7.0)) == (30, 1.5, 300, 7)
    assert (days("30"), days("30d"), days("48h"), days(7)) == (30, 30, 2, 7)


def test_an_option_has_its_bounds() -> None:
    with pytest.raises(typer.BadParameter, match=r"'2h' is too long: give 3600s at most"):
        seconds(0, 3_600)("2h")
    with pytest.raises(typer.BadParameter, match="no whole number of days"):
        days("36h")
