"""What a trace says of a call that brought no answer."""

import pytest

from message.outcomes import (
    Accepted,
    AnyOutcome,
    CallEnd,
    NotSent,
    Rejected,
    Unknown,
    end_without_answer,
)


@pytest.mark.parametrize(
    ("outcome", "end"),
    [
        (Accepted("7"), ""),
        (Rejected("isv.MOBILE_NUMBER_ILLEGAL"), ""),
        (NotSent("http_429"), ""),
        (Unknown("http_500"), ""),
        (Unknown("timeout"), CallEnd.TIMED_OUT),
        (Unknown("reset"), CallEnd.LOST),
        (Unknown("protocol"), CallEnd.LOST),
        (NotSent("connect"), CallEnd.NOT_STARTED),
        (NotSent("timeout"), CallEnd.NOT_STARTED),
    ],
)
def test_only_a_call_that_nobody_answered_has_another_end(outcome: AnyOutcome, end: str) -> None:
    assert end_without_answer(outcome) == end
