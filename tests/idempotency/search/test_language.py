"""One line becomes terms, or an error that names its place."""

import pytest

from idempotency.search.fields import RULES, Field
from idempotency.search.language import (
    DAY_MS,
    ENDED_AT_MOST,
    NAMED_MS,
    DeliveryTerms,
    QueryError,
    parse,
)
from idempotency.search.wording import ENGLISH, completions, error_phrase, explained, sentence
from message.delivery import Origin

NOW = 1_790_000_000_000


def test_a_line_of_many_terms() -> None:
    terms = parse("lane:sms.* state:parked,REJECTED account:main since:2h", NOW)
    assert terms.lanes == ("sms.verification", "sms.notice", "sms.marketing")
    assert terms.states == ("PARKED", "REJECTED")
    assert terms.accounts == ("main",)
    assert (terms.since, terms.until) == (NOW - 7_200_000, NOW + 1)
    assert terms.by_end


def test_a_bare_name_and_a_quoted_value() -> None:
    terms = parse('biz:"order 1 \\"x\\"" +8613800000001', NOW)
    assert terms.biz_id == 'order 1 "x"'
    assert terms.name == "+8613800000001"
    assert terms.since == NOW + 1 - NAMED_MS
    assert parse("group:ops", NOW).name == "group:ops"


def test_a_place_and_dates() -> None:
    terms = parse(
        "place:h.dispatch.sms.notice/3/4711 since:2026-09-20 until:2026-09-21T08:00+08:00", NOW
    )
    assert terms.place == Origin("h.dispatch.sms.notice", 3, 4711)
    assert terms.until - terms.since == DAY_MS


def test_an_error_class_means_what_ended_unsent() -> None:
    terms = parse("error:attempts_spent", NOW)
    assert "PARKED" in terms.states
    assert terms.by_end


def test_no_line_means_the_last_day() -> None:
    terms = parse("", NOW)
    assert terms.until - terms.since == DAY_MS


@pytest.mark.parametrize(
    ("line", "code", "part"),
    [
        ("stat:PARKED", "search.unknown_field", "stat:"),
        ("lane:sms.notice state:PARKD", "search.unknown_state", "PARKD"),
        ("lane:sms.notice,smss.x", "search.unknown_lane", "smss.x"),
        ("state:", "search.no_value", "state:"),
        ("lane:sms.* lane:email.*", "search.twice", "lane:email.*"),
        ("one two", "search.two_names", "two"),
        ('biz:"open', "search.open_quote", '"open'),
        ("since:yesterday", "search.bad_time", "yesterday"),
        ("place:x", "search.bad_place", "x"),
        ("since:8d", "search.too_wide", "since:8d"),
        ("biz:x since:401d", "search.far_too_wide", "since:401d"),
        ("until:2026-01-01 since:1h", "search.no_time", "since:1h"),
    ],
)
def test_a_wrong_line_names_the_place_of_its_error(line: str, code: str, part: str) -> None:
    with pytest.raises(QueryError) as found:
        parse(line, NOW)
    assert found.value.code == code
    assert line[found.value.start : found.value.end] == part
    assert error_phrase(found.value).english


@pytest.mark.parametrize(
    ("line", "added"),
    [
        ("since:40d", "state:PARKED"),
        ("since:94d", "receiver:"),
        ("state:SENT since:40d", "receiver:"),
        ("template:SMS_1 since:40d", "receiver:"),
        ("template:SMS_1 state:PARKED since:40d", "receiver:"),
        ("place:hongyan.dispatch.sms.notice/3/4711 since:10d", "receiver:"),
    ],
)
def test_a_line_that_is_too_wide_is_allowed_with_the_term_that_is_advised(
    line: str, added: str
) -> None:
    with pytest.raises(QueryError) as found:
        parse(line, NOW)
    assert found.value.values["add"] == added
    term = f"{added}+8613800000001" if added.endswith(":") else added
    assert parse(f"{line} {term}", NOW).since


def test_near_words_are_offered() -> None:
    with pytest.raises(QueryError) as found:
        parse("recever:x", NOW)
    assert found.value.values["near"] == "receiver"


def test_names_and_ends_may_be_searched_for_longer() -> None:
    assert parse("biz:x since:300d", NOW).since
    assert parse("state:PARKED since:90d", NOW).since
    assert parse("lane:sms.notice since:7d", NOW).since
    with pytest.raises(QueryError):
        parse("state:PARKED since:94d", NOW)
    assert ENDED_AT_MOST == 93 * DAY_MS


def test_an_explanation_in_words() -> None:
    terms = parse("lane:sms.notice state:PARKED since:2026-09-20 until:2026-09-21", NOW)
    assert sentence(explained(terms)) == (
        "Deliveries in sms.notice now PARKED that ended from 2026-09-20 00:00:00 to 2026-09-21 00:00:00 UTC"
    )


def test_completions_offer_fields_and_values() -> None:
    assert [one.text for one in completions("re")] == ["receiver:"]
    assert "state:" not in [one.text for one in completions("state:PARKED ")]
    assert [one.text for one in completions("state:PARKED,UN")] == ["UNDELIVERED", "UNKNOWN"]
    assert completions("account:m", accounts=["main", "other"])[0].text == "main"
    (one,) = completions("lane:sms.noti")
    assert "lane:sms.noti"[: one.start] + one.text == "lane:sms.notice"
    assert completions('biz:"x') == []


def test_every_phrase_has_its_english() -> None:
    for field in Field:
        assert RULES[field].help
    terms = DeliveryTerms(
        name="n", message_id="m", delivery_key="k", biz_id="b", receiver="r", provider_id="p",
        place=Origin("t", 1, 2), copy_of="c", template="t", lanes=("l",), accounts=("a",),
        states=("s",), error="e", since=1, until=2,
    )  # fmt: skip
    assert all(phrase.key in ENGLISH and phrase.english for phrase in explained(terms))
