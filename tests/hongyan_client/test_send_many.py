"""`send_many`: whatever happens in the middle, each notification has one end, and no count is left over."""

from __future__ import annotations

import copy
import pickle
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any
from unittest import mock

import msgspec
import pytest

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client import (
    BufferFull,
    BufferLimits,
    Client,
    ClientClosed,
    ClientOptions,
    Composition,
    NotDelivered,
    Notification,
    Publisher,
    WrongNotification,
    compose,
)
from hongyan_client.metrics import SendEnd
from hongyan_client.record_report import EndReport
from message.envelope import decode
from tests.hongyan_client.looking import NOWHERE, PATIENCE_S, contents, paused
from tests.hongyan_client.overflows import MemoryOverflow

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LANE = "webhook.notice"
SMALL = BufferLimits(records=5)
MATRIX = pytest.mark.parametrize(
    ("overflows", "watched"),
    [(overflows, watched) for overflows in (False, True) for watched in ("", "observer", "trace")],
)


class SlowOverflow(MemoryOverflow):
    """Keeps each record after a while."""

    keep_s = 0.005


def notice(number: int, key: str | None = None) -> Notification:
    more = Composition(id=f"n-{number}", ordering_key=key)
    return compose(LANE, [f"user-{number}"], content={"n": number}, more=more)


def opened(
    bootstrap: str, prefix: str, *, overflows: bool, watched: str = "", **changes: Any
) -> tuple[Client, list[SendEnd]]:
    ends: list[SendEnd] = []
    key = "of receivers, in this test and nowhere else"
    given: dict[str, Any] = {"trace": watched == "trace", "hash_key": key, "deadline_s": 0.2}
    client = Client(
        bootstrap,
        topic_prefix=prefix,
        options=ClientOptions(**given | changes),
        overflow=SlowOverflow if overflows else None,
        observer=ends.append if watched == "observer" else None,
    )
    return client, ends


def check_counts(client: Client) -> None:
    """Nothing is open, and what the buffer took has ended."""
    use = client.publisher.use
    assert client.flush(PATIENCE_S) == 0
    client.publisher.flush(PATIENCE_S)
    assert client._core._counts.open == 0
    assert (use.taken, use.taken_bytes) == (use.done, use.done_bytes)
    if use.ages is not None:
        with client.publisher._poll_lock:
            use.ages.is_overdue()
            left = {n: count for n, count in use.ages._taken.items() if count}
            assert left == {n: use.ages._ended.get(n, 0) for n in left}


@MATRIX
def test_the_good_ones_are_sent_and_the_wrong_ones_come_back(
    cluster: EmbeddedKafka, overflows: bool, watched: str
) -> None:
    wrong = [msgspec.structs.replace(notice(7), receivers=[]), object()]
    items: list[Any] = [notice(1), wrong[0], notice(2, "k"), wrong[1]]
    items += [notice(n, f"k-{n % 3}") for n in range(3, 150)]
    prefix = f"good-{overflows}-{watched or 'plain'}"
    client, ends = opened(
        cluster.bootstrap, prefix, overflows=overflows, watched=watched, deadline_s=PATIENCE_S
    )
    with client:
        sent, failed = client.send_many(items)
        assert [one.id for one in sent] == [f"n-{n}" for n in range(1, 150)]
        assert [(one.notification, type(one.error)) for one in failed] == [
            (one, WrongNotification) for one in wrong
        ]
        check_counts(client)
        assert client.figures().ends == {(LANE, "acknowledged"): 149}
    places = {
        (m.partition(), m.offset()): decode(m.value()).id
        for m in contents(cluster.bootstrap, f"{prefix}.dispatch.{LANE}", 149)
    }
    assert {(one.partition, one.offset): one.id for one in sent} == places
    if watched == "observer":
        assert [one.code for one in ends] == ["acknowledged"] * 149
        assert all(0 < one.seconds < 2 * PATIENCE_S for one in ends)
    if watched == "trace":
        assert len(contents(cluster.bootstrap, f"{prefix}.trace", 1)) == 1


@MATRIX
def test_what_kafka_does_not_take_is_kept_or_told(overflows: bool, watched: str) -> None:
    """With an overflow all are safe, each key in order; without one the caller hears of each."""
    with EmbeddedKafka() as cluster:
        client, _ = opened(
            cluster.bootstrap,
            "away",
            overflows=overflows,
            watched=watched,
            limits=SMALL,
            delivery_timeout_s=1.0 if overflows else PATIENCE_S,
        )
        assert len(client.send_many([notice(0, "k-0")], timeout_s=PATIENCE_S).sent) == 1
        with paused(cluster):
            items = [notice(n, f"k-{n % 2}") for n in range(1, 13)]
            sent, failed = client.send_many(items, timeout_s=PATIENCE_S if overflows else 0.5)
        assert len(sent) + len(failed) == 12
        if overflows:
            assert [one.id for one in sent if one.is_spooled] == [f"n-{n}" for n in range(1, 13)]
            assert len(client.send_many([notice(13, "k-1")], timeout_s=PATIENCE_S).sent) == 1
            overflow = client._core._overflow
            assert isinstance(overflow, SlowOverflow)
            kept = [decode(one.record.value).id for one in overflow.kept]
            kept = [name for name in kept if name != "n-0"]  # there, too, if Kafka was slow
            for key in range(2):
                numbers = [int(name[2:]) for name in kept if int(name[2:]) % 2 == key]
                assert numbers == sorted(numbers)
            assert len(kept) == 13
            assert client.drain(PATIENCE_S) == 0
        else:
            assert [type(one.error) for one in failed] == [TimeoutError] * 5 + [BufferFull] * 7
            assert [one.notification for one in failed] == items
        check_counts(client)
        client.close(PATIENCE_S)


def test_a_client_that_was_closed_takes_nothing_and_counts_nothing(cluster: EmbeddedKafka) -> None:
    client, _ = opened(cluster.bootstrap, "shut", overflows=False)
    client.close(PATIENCE_S)
    sent, failed = client.send_many([notice(1), notice(2)])
    assert (len(sent), [type(one.error) for one in failed]) == (0, [ClientClosed, ClientClosed])
    assert client._core._counts.open == 0


def test_an_iterable_that_raises_ends_the_call_and_no_send(cluster: EmbeddedKafka) -> None:
    def items() -> Iterator[Notification]:
        yield notice(1)
        yield notice(2)
        raise LookupError("the list ends here")

    client, _ = opened(cluster.bootstrap, "raises", overflows=False)
    with client:
        with pytest.raises(LookupError, match="ends here"):
            client.send_many(items())
        check_counts(client)
        assert client.figures().ends == {(LANE, "acknowledged"): 2}


class PickyProducer:
    """A producer that refuses one key by its type, and hands the others on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def produce(self, *given: Any) -> None:
        if given[2] == b"n-2":
            raise TypeError("a key of another type")
        self._inner.produce(*given)

    def __len__(self) -> int:
        return len(self._inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_a_record_that_librdkafka_refuses_fails_alone(cluster: EmbeddedKafka) -> None:
    client, ends = opened(cluster.bootstrap, "picky", overflows=False, watched="observer")
    with client:
        publisher = client.publisher
        with publisher._poll_lock:
            publisher._client = PickyProducer(publisher._client)  # type: ignore[assignment]
        sent, failed = client.send_many([notice(n) for n in range(1, 4)])
        assert [one.id for one in sent] == ["n-1", "n-3"]
        assert [(one.notification.id, type(one.error)) for one in failed] == [("n-2", NotDelivered)]
        check_counts(client)
        assert sorted(one.code for one in ends) == ["acknowledged", "acknowledged", "wrong_type"]


def test_keys_count_once_they_are_taken() -> None:
    client, _ = opened(NOWHERE, "hot", overflows=False, limits=BufferLimits(records=250))
    items = [notice(n) for n in range(250)] + [notice(n, "whale") for n in range(250, 1_000)]
    client.send_many(items, timeout_s=0)
    assert client.figures().hot_keys == []
    assert client._core._shares._totals == {LANE: 250}
    client.close(0)


def test_the_trace_context_of_each_send_travels_with_it(cluster: EmbeddedKafka) -> None:
    client, _ = opened(cluster.bootstrap, "context", overflows=False)
    with client, mock.patch("hongyan_client.core.current", side_effect=[TRACEPARENT, None]):
        assert len(client.send_many([notice(1), notice(2)]).sent) == 2
    found = contents(cluster.bootstrap, f"context.dispatch.{LANE}", 2)
    headers = {m.key(): dict(m.headers()) for m in found}
    assert headers[b"n-1"]["traceparent"] == TRACEPARENT.encode()
    assert "traceparent" not in headers[b"n-2"]


@pytest.mark.parametrize("traced", [False, True])
def test_a_slow_overflow_is_waited_for(traced: bool) -> None:
    client, _ = opened(
        NOWHERE,
        "slow",
        overflows=True,
        watched="trace" if traced else "",
        limits=SMALL,
        delivery_timeout_s=1.0,
    )
    overflow = client._core._overflow
    assert isinstance(overflow, SlowOverflow)
    overflow.keep_s = 0.05
    for number in range(8):
        client.send(notice(number), deadline_s=0.01)
    if not traced:
        assert client.flush(PATIENCE_S) == 0
    client.close(PATIENCE_S if not traced else 3.0)
    assert len(overflow.kept) == 8
    assert client._core._counts.open == 0


def test_a_signal_leaves_no_lock_behind() -> None:
    """A handler may raise between any two steps of a send."""
    publisher = Publisher(NOWHERE, client_id="signal", limits=BufferLimits(records=20))

    def raise_it(_number: int, _frame: FrameType | None) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, raise_it)
    until = time.monotonic() + 1.5
    try:
        while time.monotonic() < until:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0003)
                for _ in range(1_000):
                    publisher.take(
                        EndReport(publisher.use, 1, 0, lambda _: None), ("t", b"k", b"v", [])
                    )
            except InterruptedError:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert publisher._lock.acquire(timeout=5), "a signal left the publisher's lock held"
            publisher._lock.release()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if publisher._lock.locked():
            publisher._lock.release()
        publisher.close(0)


def test_what_was_sent_copies_and_pickles_as_a_list(cluster: EmbeddedKafka) -> None:
    client, _ = opened(cluster.bootstrap, "copies", overflows=False)
    with client:
        sent = client.send_many([notice(1), notice(2)]).sent
    assert pickle.loads(pickle.dumps(sent)) == copy.deepcopy(sent) == list(sent)
    assert sent == mock.ANY
    assert sent != ()
    assert [sent[-1].id, sent[0].id, len(sent[:1])] == ["n-2", "n-1", 1]
    with pytest.raises(IndexError):
        sent[2]
