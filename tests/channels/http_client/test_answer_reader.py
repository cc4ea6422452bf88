"""Many answers read by one thread: each told once, none late without an end, none lost with the thread."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from time import monotonic

import httpx
import pytest

from channels.channel import Failure, Phase
from channels.http_client import answer_reader as answers_module
from channels.http_client.answer_reader import AnswerReader
from channels.http_client.exchange import Exchange
from channels.http_client.response import LeanResponse
from channels.http_client.transport import Transport
from tests.conformance import wire as w
from tests.conformance.senders import post
from tests.conformance.wire import Wire

WAIT_S = 30.0
Told = SimpleQueue[LeanResponse | Failure]


@pytest.fixture
def transport() -> Iterator[Transport]:
    transport = Transport()
    yield transport
    transport.close()


def begin(transport: Transport, told: Told, url: str, total_s: float = WAIT_S) -> None:
    assert transport.begin(post(url, total_s), told.put) is None


def status(told: Told) -> int:
    answer = told.get(timeout=WAIT_S)
    assert isinstance(answer, httpx.Response), answer
    return answer.status_code


def test_many_calls_are_under_way_at_once_and_each_is_told_once(transport: Transport) -> None:
    told: Told = SimpleQueue()
    go = threading.Event()

    def held(wire: Wire, connection: socket.socket) -> bool:
        return go.wait(WAIT_S) and w.ok(wire, connection)

    with Wire(*[held] * 50) as provider:
        for _ in range(50):
            begin(transport, told, provider.url)
        assert told.empty()
        go.set()
        assert [status(told) for _ in range(50)] == [200] * 50
        assert (provider.requests, provider.connections) == (50, 50)
        assert transport.idle == 50
    with pytest.raises(Empty):
        told.get(timeout=0.05)


def test_one_connection_carries_call_after_call(transport: Transport) -> None:
    told: Told = SimpleQueue()
    with Wire() as provider:
        for _ in range(20):
            begin(transport, told, provider.url)
            assert status(told) == 200
        assert (provider.requests, provider.connections) == (20, 1)


def test_what_is_told_may_begin_the_next_call(transport: Transport) -> None:
    told: Told = SimpleQueue()

    with Wire() as provider:

        def again(answer: LeanResponse | Failure) -> None:
            told.put(answer)
            begin(transport, told, provider.url)

        assert transport.begin(post(provider.url), again) is None
        assert [status(told), status(told)] == [200, 200]
        assert provider.connections == 1


def test_one_that_hangs_ends_at_its_deadline_and_holds_up_nobody(transport: Transport) -> None:
    told, quick = Told(), Told()
    with Wire(w.stall, w.ok) as provider:
        begun = monotonic()
        begin(transport, told, provider.url, 0.3)
        assert provider.stalled.wait(WAIT_S)
        begin(transport, quick, provider.url)
        assert status(quick) == 200
        failure = told.get(timeout=WAIT_S)
        took = monotonic() - begun
    assert isinstance(failure, Failure)
    assert (failure.phase, failure.code) == (Phase.WRITTEN, "timeout")
    assert 0.3 <= took < 5


def test_a_deadline_is_kept_by_a_thread_that_was_at_rest(transport: Transport) -> None:
    told: Told = SimpleQueue()
    with Wire(w.ok, w.stall) as provider:
        begin(transport, told, provider.url)
        assert status(told) == 200
        pause(0.1)  # long enough to come to rest
        begin(transport, told, provider.url, 0.2)
        failure = told.get(timeout=WAIT_S)
    assert isinstance(failure, Failure)
    assert failure.code == "timeout", "not what ended the connection in the end"


def test_an_answer_that_comes_in_pieces_is_told_when_it_is_whole(transport: Transport) -> None:
    told: Told = SimpleQueue()
    parts = [b"a" * 5_000 for _ in range(40)]
    with Wire(w.chunks(parts)) as provider:
        begin(transport, told, provider.url)
        answer = told.get(timeout=WAIT_S)
    assert isinstance(answer, httpx.Response)
    assert answer.content == b"".join(parts)


def test_who_is_told_and_fails_over_it_harms_nobody_else(transport: Transport) -> None:
    told: Told = SimpleQueue()

    def fails(_: LeanResponse | Failure) -> None:
        raise RuntimeError("out of everything")

    with Wire() as provider:
        assert transport.begin(post(provider.url), fails) is None
        begin(transport, told, provider.url)
        assert status(told) == 200


def test_what_the_thread_dies_of_leaves_its_calls_in_doubt_and_the_next_are_read(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: Told = SimpleQueue()
    with Wire(w.stall) as provider:
        with monkeypatch.context() as patch:
            patch.setattr(AnswerReader, "_expire", broken)
            begin(transport, told, provider.url)
            failure = told.get(timeout=WAIT_S)
        assert isinstance(failure, Failure)
        assert (failure.phase, failure.code) == (Phase.WRITTEN, "thread_died")
        begin(transport, told, provider.url)
        assert status(told) == 200
        assert provider.connections == 2, "nobody reads what may still come over the first"


def test_an_answer_that_cannot_be_read_harms_no_other_call(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, other = Told(), Told()
    holds, go = threading.Event(), threading.Event()

    def held(wire: Wire, connection: socket.socket) -> bool:
        holds.set()
        return go.wait(WAIT_S) and w.ok(wire, connection)

    with Wire(held, w.ok) as provider:
        begin(transport, other, provider.url)
        assert holds.wait(WAIT_S), "so that the first act is not the second call's"
        others_until, advance = monotonic() + WAIT_S, Exchange.advance

        def broken_for_one(exchange: Exchange) -> object:
            if exchange.deadline > others_until:
                broken()
            return advance(exchange)

        with monkeypatch.context() as patch:
            patch.setattr(Exchange, "advance", broken_for_one)
            begin(transport, told, provider.url, 2 * WAIT_S)
            failure = told.get(timeout=WAIT_S)
        assert isinstance(failure, Failure)
        assert (failure.phase, failure.code) == (Phase.WRITTEN, "not_read")
        go.set()
        assert status(other) == 200


def test_a_call_whose_end_itself_fails_is_told_of_all_the_same(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: Told = SimpleQueue()
    monkeypatch.setattr(Exchange, "expire", broken)
    with Wire(w.stall) as provider:
        begin(transport, told, provider.url, 0.1)
        failure = told.get(timeout=WAIT_S)
    assert isinstance(failure, Failure)
    assert (failure.phase, failure.code) == (Phase.WRITTEN, "not_read")


def broken(*_: object) -> None:
    raise RuntimeError("out of everything")


def test_what_cannot_be_watched_is_waited_for(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(answers_module, "watch", full)
    told: Told = SimpleQueue()
    with Wire() as provider:
        answer = transport.begin(post(provider.url), told.put)
    assert isinstance(answer, httpx.Response)
    assert told.empty()


def test_closing_lets_calls_under_way_end_and_then_the_thread(transport: Transport) -> None:
    told: Told = SimpleQueue()
    go = threading.Event()

    def held(wire: Wire, connection: socket.socket) -> bool:
        return go.wait(WAIT_S) and w.ok(wire, connection)

    with Wire(held) as provider:
        begin(transport, told, provider.url)
        thread = transport._answers._thread
        assert thread is not None
        transport.close()
        go.set()
        assert status(told) == 200
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert transport.idle == 0
        assert isinstance(transport.begin(post(provider.url), told.put), Failure)


def test_a_thread_at_rest_ends_when_it_is_closed(transport: Transport) -> None:
    told: Told = SimpleQueue()
    with Wire() as provider:
        begin(transport, told, provider.url)
        assert status(told) == 200
    thread = transport._answers._thread
    assert thread is not None
    pause(0.1)
    transport.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_nothing_is_started_for_one_that_is_closed() -> None:
    answers = AnswerReader()
    answers.close()
    assert answers._start() is None


def test_a_call_added_as_the_thread_ends_is_read_by_it(transport: Transport) -> None:
    """The thread has looked for the last time, and watches no socket any more."""
    told: Told = SimpleQueue()
    with Wire() as provider:
        begin(transport, told, provider.url)
        assert status(told) == 200
        answers = transport._answers
        with answers._starting:
            answers._closed = True
            os.eventfd_write(answers._wakeup_fd, 1)
            pause(0.1)  # it stands before the lock
            begin(transport, told, provider.url)
        assert status(told) == 200


class Interrupted(AnswerReader):
    """Who adds sees that the thread rests, and goes on once the thread has ended."""

    _rests = False
    adder: threading.Thread | None = None

    @property
    def _idle(self) -> bool:
        if self._rests and threading.current_thread() is self.adder:
            self.adder, thread = None, self._thread
            assert thread is not None
            self.close()
            thread.join(WAIT_S)
            assert not thread.is_alive()
            return True
        return self._rests

    @_idle.setter
    def _idle(self, rests: bool) -> None:
        self._rests = rests


def test_who_adds_wakes_nobody_once_the_thread_has_ended(transport: Transport) -> None:
    """The number of its eventfd may be another file's by then."""
    told: Told = SimpleQueue()
    transport._answers = answers = Interrupted()
    with Wire() as provider:
        begin(transport, told, provider.url)
        assert status(told) == 200
        while not answers._idle:
            pause(0.01)
        answers.adder = threading.current_thread()
        begin(transport, told, provider.url)
        assert status(told) == 200


def test_a_reader_that_stands_still_is_seen(transport: Transport) -> None:
    told: Told = SimpleQueue()
    go = threading.Event()
    assert transport.beat == pytest.approx(monotonic(), abs=1), "there is none yet"

    def hang(_: LeanResponse | Failure) -> None:
        go.wait(WAIT_S)

    with Wire() as provider:
        assert transport.begin(post(provider.url), hang) is None
        pause(0.5)
        assert monotonic() - transport.beat > 0.2
        go.set()
        begin(transport, told, provider.url)
        assert status(told) == 200
        deadline = monotonic() + WAIT_S
        while monotonic() - transport.beat > 0.2:
            assert monotonic() < deadline
            pause(0.01)


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)
