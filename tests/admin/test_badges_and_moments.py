"""Badges and moments are written by functions; they escape as templates do."""

from __future__ import annotations

import html

import pytest
from markupsafe import Markup

from admin.web.badges import _LEVELS, LEVEL_OF, badge
from admin.web.foreign_text import exact, with_marks_shown
from admin.web.moments import iso, moment, utc

AT = 1_790_172_191_042


@pytest.mark.parametrize(
    ("state", "level"),
    [
        *[("SENT", "good"), ("RETRY", "info"), ("UNKNOWN", "warn"), ("LOST", "bad")],
        *[("ended", "quiet"), ("no such state", "quiet")],
    ],
)
def test_a_badge_has_the_word_and_the_level_of_its_state(state: str, level: str) -> None:
    assert str(badge(state)) == f'<span class="badge {level}">{state}</span>'


def test_no_state_has_two_levels() -> None:
    assert set(LEVEL_OF.values()) == {"good", "info", "warn", "bad"}
    assert len(LEVEL_OF) == sum(len(states.split()) for states in _LEVELS.values())


def test_a_strange_state_is_escaped_and_its_marks_are_shown() -> None:
    assert "<b>" not in badge("<b>\u202e")
    assert "&lt;b&gt;⟨U+202E⟩" in badge("<b>\u202e")


def test_a_moment_is_utc_for_people_and_iso_for_programs() -> None:
    assert (utc(AT), iso(AT)) == ("2026-09-23 14:03:11", "2026-09-23T14:03:11.042Z")
    assert str(moment(AT)) == (
        '<time datetime="2026-09-23T14:03:11.042Z" title="2026-09-23T14:03:11.042Z" data-local>'
        "2026-09-23 14:03:11</time>"
    )


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (253_402_300_800_000, "9999-12-31 23:59:59"),
        ((1 << 63) - 1, "9999-12-31 23:59:59"),
        (-62_135_596_800_001, "0001-01-01 00:00:00"),
        (-(1 << 63), "0001-01-01 00:00:00"),
    ],
)
def test_a_moment_outside_of_the_calendar_costs_no_page(at: int, shown: str) -> None:
    assert utc(at) == shown
    assert iso(at).startswith(shown[:10])
    assert shown in moment(at)


@pytest.mark.parametrize("nothing", [None, 0])
def test_no_time_is_a_dash(nothing: int | None) -> None:
    assert (utc(nothing), iso(nothing), str(moment(nothing))) == ("–", "", "–")


@pytest.mark.parametrize("mark", ["\u115f", "\u1160", "\u17b4", "\u17b5", "\u202e", "\x07", "\r"])
@pytest.mark.parametrize("text", ["a{}b", "鸿{}雁", "a line\n{}"])
def test_every_expression_shows_an_unseen_mark_by_its_number(mark: str, text: str) -> None:
    """Python counts the first four as printable."""
    assert with_marks_shown(text.format(mark)) == text.format(f"⟨U+{ord(mark):04X}⟩")


def test_lines_and_tabs_are_no_marks() -> None:
    assert with_marks_shown("a\n\tb") == "a\n\tb"


@pytest.mark.parametrize("joined", ["👨\u200d👩\u200d👧", "می\u200cخواهم"])
def test_joiners_are_no_marks(joined: str) -> None:
    assert with_marks_shown(joined) == joined


def test_a_field_keeps_its_marks_and_the_page_has_none_of_them() -> None:
    kept = exact("<b>\u202etxt\u200b\u200d\r")
    assert kept == Markup("&lt;b&gt;&#x202E;txt&#x200B;\u200d&#xD;")
    assert html.unescape(kept) == "<b>\u202etxt\u200b\u200d\r"
    assert with_marks_shown(kept) is kept
    assert exact("a\x85b") == "a\x85b", "its reference would mean another character"
    assert exact("\0\ud800") == "⟨U+0000⟩⟨U+D800⟩"
