"""Outcome events: each end is announced, and names of events and receivers repeat."""

import hmac
from hashlib import sha256

import pytest

from message.outcome_event import ANNOUNCED, codes_of, event_id_of, receiver_hash
from message.states import SETTLED, State


def test_every_settled_state_is_announced_and_no_open_one() -> None:
    assert set(ANNOUNCED) == SETTLED


def test_an_event_id_repeats_and_differs_by_key_state_and_version() -> None:
    first = event_id_of("a" * 32, "SENT", 2)
    assert first == event_id_of("a" * 32, State.SENT, 2)
    others = {
        event_id_of("b" * 32, "SENT", 2),
        event_id_of("a" * 32, "PARKED", 2),
        event_id_of("a" * 32, "SENT", 3),
    }
    assert len(others | {first}) == 4
    assert len(first) == 32


def test_a_receiver_is_hashed_as_the_page_says() -> None:
    expected = hmac.new(b"secret", b"sms\x1f+8613800000001", sha256).hexdigest()
    assert receiver_hash(b"secret", "sms", "+8613800000001") == expected
    assert receiver_hash(b"other", "sms", "+8613800000001") != expected


@pytest.mark.parametrize(
    ("state", "reason", "codes"),
    [
        (State.PARKED, "refused_in_doubt:isv.X", ("refused_in_doubt", "isv.X")),
        (State.SENT, None, (None, None)),
        (State.REJECTED, "isv.MOBILE:ILLEGAL", (None, "isv.MOBILE:ILLEGAL")),
        (State.UNDELIVERED, "MK:0012", (None, "MK:0012")),
        (State.PARKED, "attempts_spent:http_503", ("attempts_spent", "http_503")),
        (State.PARKED, "paced:http_429", ("paced", "http_429")),
        (State.PARKED, "ttl_in_doubt", ("ttl_in_doubt", None)),
        (State.DROPPED, "operator:ann: the shop's phone is 13800000001", ("operator", None)),
    ],
)
def test_a_persons_words_are_in_no_event(
    state: State, reason: str | None, codes: tuple[str | None, str | None]
) -> None:
    assert codes_of(state, reason, 1) == codes


def test_no_event_names_a_code_of_ours_as_the_providers() -> None:
    for attempt in (0, 1):
        assert codes_of(State.REJECTED, "bad_number", attempt) == ("bad_number", None)
    doubted = "refused_in_doubt:adapter_error"
    assert codes_of(State.PARKED, doubted, 2) == ("refused_in_doubt", None)
    # Slack answers so, and Twilio's adapter refuses so.
    assert codes_of(State.REJECTED, "no_text", 1) == (None, "no_text")
    assert codes_of(State.REJECTED, "no_text", 0) == ("no_text", None)
