"""Lanes, their topics and the patterns that choose them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from message.vocabulary import (
    CHANNELS,
    KINDS,
    LANES,
    Lane,
    LanePatternError,
    dead_letter_topic,
    lane_named,
    lane_of_topic,
    lanes_matching,
    trace_topic,
)


def test_there_is_a_lane_for_every_channel_and_kind() -> None:
    assert len(LANES) == len(CHANNELS) * len(KINDS)
    assert lane_named("sms.verification") == Lane("sms", "verification")
    assert lane_named("fax.notice") is None


@given(st.sampled_from(LANES), st.sampled_from(["hongyan", "t.x", "a_b"]))
def test_a_lane_and_its_topic_name_each_other(lane: Lane, prefix: str) -> None:
    assert lane_of_topic(lane.topic(prefix), prefix) == lane


def test_other_topics_are_no_lane() -> None:
    for topic in (
        dead_letter_topic(),
        trace_topic(),
        "hongyan.dispatch.sms",
        "x.dispatch.sms.notice",
    ):
        assert lane_of_topic(topic) is None


@pytest.mark.parametrize(
    ("patterns", "count"),
    [(["*"], 30), (["*.*"], 30), (["sms.*"], 3), (["*.notice"], 10), (["sms.*", "sms.notice"], 3)],
)
def test_patterns_choose_lanes_once_each(patterns: list[str], count: int) -> None:
    assert len(lanes_matching(patterns)) == count


@pytest.mark.parametrize("pattern", ["", "sms", "fax.*", "sms.notice.x", "SMS.*", "sms,email"])
def test_a_pattern_that_names_no_lane_is_refused(pattern: str) -> None:
    with pytest.raises(LanePatternError, match="no lane matches"):
        lanes_matching(["sms.*", pattern])
