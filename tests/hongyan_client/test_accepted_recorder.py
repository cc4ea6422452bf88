"""The trace of acknowledged notifications: whatever becomes of it, sends go on."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from hongyan_client import BufferLimits, Publisher, Record, SendInDoubt
from hongyan_client.accepted_recorder import BUFFER_EVENTS, AcceptedRecorder
from tests.harness.waiting import await_
from tests.hongyan_client.looking import NOWHERE, PATIENCE_S
from tracing.drops import FULL
from tracing.events import Stage, TraceEvent
from tracing.trace_records import RECORD_BYTES, RECORD_EVENTS

Opened = Callable[..., Publisher]


def events(count: int) -> list[TraceEvent]:
    """Events of about half a KiB each."""
    one = TraceEvent(at=1, stage=Stage.ACCEPTED, message_id="n-1", detail="d" * 400)
    return [one] * count


def test_a_trace_topic_that_takes_nothing_leaves_the_buffer_to_the_sends(opened: Opened) -> None:
    limits = BufferLimits(bytes=8 << 20)
    publisher = opened(NOWHERE, limits=limits)
    recorder = AcceptedRecorder(publisher, "hongyan.trace", "p")
    for _ in range(BUFFER_EVENTS // RECORD_EVENTS):
        recorder.record(events(RECORD_EVENTS))
    looks: list[int] = []

    def rests() -> bool:
        looks.append(len(recorder._queue))
        return len(set(looks[-5:])) == 1 and looks[-1] < BUFFER_EVENTS and len(looks) > 5

    await_(rests, what="the recorder writes no more")
    taken = publisher.use.taken_bytes - publisher.use.done_bytes
    assert 0 < taken < limits.bytes // 8 + RECORD_BYTES
    recorder.record(events(BUFFER_EVENTS))
    assert recorder.dropped() == {FULL: BUFFER_EVENTS}
    recorder.close(0)


def test_events_go_on_once_there_is_room_again(opened: Opened) -> None:
    publisher = opened(NOWHERE, limits=BufferLimits(bytes=8 << 20), delivery_timeout_s=1)
    recorder = AcceptedRecorder(publisher, "hongyan.trace", "p")
    for _ in range(20):
        recorder.record(events(RECORD_EVENTS))
    await_(
        lambda: recorder.dropped().get("msg_timed_out") == 20 * RECORD_EVENTS,
        what="each record was tried",
    )
    recorder.close(0)


def test_an_old_trace_record_takes_no_send_back(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = opened(NOWHERE, together=True)
    recorder = AcceptedRecorder(publisher, "hongyan.trace", "p")
    recorder.record(events(RECORD_EVENTS))
    await_(lambda: publisher.unacknowledged == 1, what="the trace's record is in the buffer")
    ages = publisher.use.ages
    assert ages is not None
    before = ages.now()
    monkeypatch.setattr(ages, "_monotonic", lambda: time.monotonic() + 3_600)
    await_(lambda: publisher.use.age > before + 100, what="a poll an hour later")
    assert not ages.is_overdue()
    assert publisher.unacknowledged == 1
    sent = publisher.publish(Record("lane", b"k", b"v"), 1)
    monkeypatch.setattr(ages, "_monotonic", lambda: time.monotonic() + 7_200)
    assert isinstance(sent.exception(PATIENCE_S), SendInDoubt), "an old send takes all back"
    recorder.close(0)
