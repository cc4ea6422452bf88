"""The client: a notification ends as safe, or its caller hears why not."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, as_completed, wait
from typing import Any

import msgspec
import pytest

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client import (
    AsyncClient,
    BufferFull,
    BufferLimits,
    Client,
    ClientError,
    ClientOptions,
    Composition,
    Notification,
    Publisher,
    SendInDoubt,
    SentNotification,
    WrongNotification,
    WrongProperties,
    compose,
)
from hongyan_client.metrics import SendEnd
from hongyan_client.overflow_queue import OverflowQueue
from hongyan_client.sends.pending_send import PendingSend
from message.envelope import decode
from message.keys import delivery_key
from message.outcome_event import receiver_hash
from tests.harness.waiting import await_
from tests.hongyan_client.looking import NOWHERE, PATIENCE_S, contents, make_topic, paused
from tests.hongyan_client.overflows import BulkMemoryOverflow, MemoryOverflow
from tracing.events import Stage, TraceEvent
from tracing.record_headers import DROPPED, END, FIRST, LIFE

KEY = "of receivers, in this test and nowhere else"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UNTRACED = ClientOptions(trace=False)


def notice(number: int, key: str | None = None, **changes: Any) -> Notification:
    more = Composition(id=f"n-{number}", ordering_key=key)
    return compose(
        "webhook.notice", [f"user-{number}"], content={"n": number}, more=more, **changes
    )


def test_a_notification_is_in_kafka_as_a_worker_reads_it(cluster: EmbeddedKafka) -> None:
    with Client(cluster.bootstrap, topic_prefix="t1", options=UNTRACED) as client:
        plain, keyed = notice(1), notice(2, "order-2", biz_id="b-2", ttl_s=60)
        futures = [client.send(plain), client.send(keyed, traceparent=TRACEPARENT)]
        first, second = (future.result(PATIENCE_S) for future in futures)
    found = {m.key(): m for m in contents(cluster.bootstrap, "t1.dispatch.webhook.notice", 2)}
    assert decode(found[b"n-1"].value()) == plain
    assert decode(found[b"order-2"].value()) == keyed
    assert found[b"n-1"].headers() == [("hongyan-id", b"n-1")]
    assert dict(found[b"order-2"].headers())["traceparent"] == TRACEPARENT.encode()
    assert (first.id, first.topic, first.is_spooled) == ("n-1", "t1.dispatch.webhook.notice", False)
    place = found[b"order-2"]
    assert (second.partition, second.offset) == (place.partition(), place.offset())


def test_many_end_together_and_a_wrong_one_keeps_none_back(cluster: EmbeddedKafka) -> None:
    wrong = msgspec.structs.replace(notice(7), receivers=[])
    with Client(cluster.bootstrap, topic_prefix="t2", options=UNTRACED) as client:
        summary = client.send_many([notice(1), wrong, *(notice(n) for n in range(2, 50))])
    assert [one.id for one in summary.sent] == ["n-1", *(f"n-{n}" for n in range(2, 50))]
    (failed,) = summary.failed
    assert failed.notification is wrong
    assert isinstance(failed.error, WrongNotification)
    assert failed.error.code == "bad_receivers"


def test_futures_are_those_of_the_standard_library(cluster: EmbeddedKafka) -> None:
    called: list[str] = []
    with Client(cluster.bootstrap, topic_prefix="t3", options=UNTRACED) as client:
        futures = [client.send(notice(number)) for number in range(5)]
        futures[0].add_done_callback(lambda one: called.append(one.result().id))
        assert wait(futures, PATIENCE_S, FIRST_COMPLETED).done
        assert {one.result().id for one in as_completed(futures, PATIENCE_S)} == {
            f"n-{number}" for number in range(5)
        }
    assert called == ["n-0"]
    away = paused_client()
    with pytest.raises(TimeoutError):
        away.send(notice(1)).result(0.05)
    away.close(0)


def paused_client(**changes: Any) -> Client:
    options = ClientOptions(trace=False, deadline_s=0.1, **changes)
    return Client(NOWHERE, options=options)


def test_a_buffer_that_stays_full_is_told_within_the_deadline() -> None:
    client = paused_client(limits=BufferLimits(records=2))
    pending = [client.send(notice(1)), client.send(notice(2))]
    with pytest.raises(BufferFull):
        client.send(notice(3))
    assert client.flush(0.1) == 2
    assert client.close(0.1) == 2
    assert [type(one.exception(0)) for one in pending] == [SendInDoubt, SendInDoubt]
    assert client.figures().ends == {("webhook.notice", "purge_queue"): 2}


def test_a_notification_past_its_life_is_not_sent() -> None:
    with paused_client() as client:
        old = msgspec.structs.replace(notice(1, ttl_s=1), created_at=1_000)
        with pytest.raises(WrongNotification, match="past its time to live"):
            client.send(old)
        assert client.publisher.unacknowledged == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (ClientOptions(delivery_timeout_s=300), "verification live 300 s"),
        (ClientOptions(lane_ttl_s={"sms.notice": 20}), "sms.notice live 20 s"),
        (ClientOptions(lane_ttl_s={"sms.notices": 20}), "no lane 'sms.notices'"),
    ],
)
def test_a_delivery_timeout_beyond_a_lanes_life_is_refused(
    options: ClientOptions, sentence: str
) -> None:
    with pytest.raises(WrongProperties, match=sentence):
        Client(NOWHERE, options=options)


@pytest.mark.parametrize(
    ("lane", "given", "code"),
    [
        ("sms.none", {"content": {}}, "unknown_lane"),
        ("sms.notice", {}, "no_content"),
        ("sms.notice", {"content": {}, "template": "t"}, "no_content"),
        ("sms.notice", {"content": {}, "ttl_s": 0}, "bad_ttl"),
        ("sms.notice", {"content": {"a": object()}}, "not_json"),
    ],
)
def test_a_wrong_composition_names_its_rule(lane: str, given: Any, code: str) -> None:
    with pytest.raises(WrongNotification) as caught:
        compose(lane, ["+8613800000001"], **given)
    assert caught.value.code == code


def test_acknowledged_notifications_are_in_the_trace_and_countable(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    lane = f"{topic_prefix}.dispatch.sms.notice"
    for topic in (lane, f"{topic_prefix}.trace"):
        make_topic(kafka_bootstrap, topic)
    receivers = ["+8613800000001", "+86 138 0000 0001", "+8613800000002"]
    options = ClientOptions(hash_key=KEY)
    with Client(
        kafka_bootstrap, client_id="shop", topic_prefix=topic_prefix, options=options
    ) as client:
        one = compose("sms.notice", receivers, template="paid", biz_id="o-1")
        sent = client.send(one, traceparent=TRACEPARENT).result(PATIENCE_S)
        assert client.figures().trace_dropped == {}
    records = contents(kafka_bootstrap, f"{topic_prefix}.trace", 2)
    headers = [dict(record.headers()) for record in records]
    (filled,) = [n for n, header in enumerate(headers) if END not in header]
    events = msgspec.json.decode(records[filled].value(), type=list[TraceEvent])
    assert [event.delivery_key for event in events] == [
        delivery_key(one.id, "sms", number) for number in (receivers[0], receivers[2])
    ]
    for event, number in zip(events, (receivers[0], receivers[2]), strict=True):
        assert (event.stage, event.worker, event.lane) == (Stage.ACCEPTED, "shop", "sms.notice")
        assert event.origin == f"{lane}/{sent.partition}/{sent.offset}"
        assert (event.at, event.created_at) == (sent.timestamp_ms, one.created_at)
        assert (event.biz_id, event.template, event.traceparent) == ("o-1", "paid", TRACEPARENT)
        assert event.receiver_hash == receiver_hash(KEY.encode(), "sms", number)
        assert number not in str(event)
    end = headers[1 - filled]
    assert headers[filled][FIRST] == b"0"
    assert (end[LIFE], end[FIRST], end[DROPPED]) == (headers[filled][LIFE], b"2", b"0")


def test_the_current_span_of_opentelemetry_goes_along(cluster: EmbeddedKafka) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("tests")
    with (
        Client(cluster.bootstrap, topic_prefix="t4", options=UNTRACED) as client,
        tracer.start_as_current_span("checkout") as span,
    ):
        client.send(notice(1)).result(PATIENCE_S)
        client.send(notice(2), traceparent="nonsense").result(PATIENCE_S)
    context = span.get_span_context()
    found = {m.key(): m for m in contents(cluster.bootstrap, "t4.dispatch.webhook.notice", 2)}
    expected = (
        f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()
    )
    assert dict(found[b"n-1"].headers())["traceparent"] == expected
    assert "traceparent" not in dict(found[b"n-2"].headers())


def test_an_observer_hears_each_end_and_its_error_harms_nothing(cluster: EmbeddedKafka) -> None:
    heard: list[SendEnd] = []

    def observer(end: SendEnd) -> None:
        heard.append(end)
        raise RuntimeError("of the observer")

    with Client(
        cluster.bootstrap, topic_prefix="t5", options=UNTRACED, observer=observer
    ) as client:
        client.send(notice(1)).result(PATIENCE_S)
        assert client.figures().ends == {("webhook.notice", "acknowledged"): 1}
    assert [(end.lane, end.code) for end in heard] == [("webhook.notice", "acknowledged")]
    assert 0 < heard[0].seconds < PATIENCE_S


def test_a_hot_key_is_named_with_its_share(cluster: EmbeddedKafka) -> None:
    with Client(cluster.bootstrap, topic_prefix="t6", options=UNTRACED) as client:
        client.send_many(notice(n, "whale" if n % 2 else f"fish-{n}") for n in range(400))
        (hot,) = client.figures().hot_keys
    assert (hot.lane, hot.key) == ("webhook.notice", "whale")
    assert 0.45 < hot.share <= 0.5


@pytest.mark.parametrize("kind", [MemoryOverflow, BulkMemoryOverflow])
def test_a_broker_away_leaves_the_records_to_the_overflow_in_order(
    kind: type[MemoryOverflow],
) -> None:
    options = ClientOptions(trace=False, deadline_s=0.2, limits=BufferLimits(records=10))
    with EmbeddedKafka() as late:
        with Client(late.bootstrap, topic_prefix="o", options=options, overflow=kind) as client:
            overflow: Any = client._core._overflow
            with paused(late):
                futures = [client.send(notice(n, f"k{n % 3}")) for n in range(60)]
                ends = [future.result(PATIENCE_S) for future in futures]
                assert all(end.is_spooled for end in ends)
                assert overflow.waiting() == 60
            after = client.send(notice(60, "k0")).result(PATIENCE_S)
            assert after.is_spooled, "an earlier one of its key still waits"
            free = client.send(notice(61, "free")).result(PATIENCE_S)
            assert not free.is_spooled
            assert overflow.drain(PATIENCE_S) == 0
            assert not client.send(notice(63, "k0")).result(PATIENCE_S).is_spooled
        found = contents(late.bootstrap, "o.dispatch.webhook.notice", 63)
    for key in (b"k0", b"k1", b"k2"):
        numbers = [int(decode(m.value()).id[2:]) for m in found if m.key() == key]
        firsts = list(dict.fromkeys(numbers))  # what was in doubt may be there twice
        assert firsts == sorted(firsts)
        assert len(firsts) >= 20


def test_buffered_records_that_grow_too_old_all_go_to_the_overflow() -> None:
    options = ClientOptions(trace=False, delivery_timeout_s=1)
    with Client(NOWHERE, options=options, overflow=MemoryOverflow) as client:
        overflow: Any = client._core._overflow
        futures = [client.send(notice(n, "k")) for n in range(20)]
        assert all(future.result(PATIENCE_S).is_spooled for future in futures)
        assert [decode(one.record.value).id for one in overflow.kept] == [
            f"n-{n}" for n in range(20)
        ]
        assert client.figures().ends == {("webhook.notice", "spooled"): 20}
        first = decode(overflow.kept[0].record.value)
        assert overflow.kept[0].expires_at_ms == first.created_at + 86_400_000


def test_a_full_overflow_is_an_error_of_the_caller() -> None:
    options = ClientOptions(trace=False, delivery_timeout_s=1)
    with Client(NOWHERE, options=options, overflow=MemoryOverflow) as client:
        overflow: Any = client._core._overflow
        overflow.full = True
        with pytest.raises(ClientError, match="the spool is full"):
            client.send(notice(1)).result(PATIENCE_S)


def test_a_callback_before_a_full_buffer_gets_the_error_and_holds_nobody_up() -> None:
    """Records of the buffer go to the overflow first, which is possible only after the callback."""
    options = ClientOptions(trace=False, deadline_s=0.1, limits=BufferLimits(records=5))
    raised: list[BaseException] = []

    with EmbeddedKafka() as late:
        client = Client(late.bootstrap, options=options, overflow=MemoryOverflow)

        def send_on(_future: Future[SentNotification]) -> None:
            try:
                for number in range(10, 20):
                    client.send(notice(number))
            except BufferFull as exc:
                raised.append(exc)

        with client:
            with paused(late):
                client.send(notice(0)).add_done_callback(send_on)
            await_(lambda: raised, what="the callback ends")
            assert client.send(notice(30)).result(PATIENCE_S).id == "n-30"


def test_an_overflow_keeps_at_close_what_kafka_did_not_take() -> None:
    client = Client(NOWHERE, options=ClientOptions(trace=False), overflow=MemoryOverflow)
    overflow: Any = client._core._overflow
    future = client.send(notice(1))
    assert client.close(0.2) == 0
    assert future.result(0).is_spooled
    assert overflow.waiting() == 1


def test_close_counts_what_the_overflow_did_not_keep() -> None:
    client = Client(NOWHERE, options=UNTRACED, overflow=MemoryOverflow)
    overflow: Any = client._core._overflow
    overflow.full = True
    futures = [client.send(notice(number)) for number in range(3)]
    assert client.close(0.2) == 3
    assert [type(future.exception(0)) for future in futures] == [ClientError] * 3
    assert client.close(0.2) == 0


def test_close_counts_notifications_and_no_trace_records() -> None:
    with EmbeddedKafka() as late:
        client = Client(late.bootstrap)
        client.send(notice(1)).result(PATIENCE_S)
        with paused(late):
            assert client.close(0.2) == 0
    assert client.figures().trace_dropped


def test_the_asyncio_twin_sends_by_the_same_core(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        async with AsyncClient(cluster.bootstrap, topic_prefix="t7", options=UNTRACED) as client:
            one = await client.send(notice(1), traceparent=TRACEPARENT)
            wrong = msgspec.structs.replace(notice(2), receivers=[])
            summary = await client.send_many([notice(n) for n in range(3, 40)] + [wrong])
            assert one.offset >= 0
            assert [sent.id for sent in summary.sent] == [f"n-{n}" for n in range(3, 40)]
            assert [failed.notification for failed in summary.failed] == [wrong]
            assert await client.flush(PATIENCE_S) == 0
            assert client.figures().ends == {("webhook.notice", "acknowledged"): 38}

    asyncio.run(main())


def test_the_asyncio_twin_waits_for_room_without_blocking_the_loop() -> None:
    async def main() -> None:
        options = ClientOptions(trace=False, deadline_s=0.5, limits=BufferLimits(records=1))
        client = AsyncClient(NOWHERE, options=options)
        first = asyncio.ensure_future(client.send(notice(1)))
        await asyncio.sleep(0)
        threads, longest, last = threading.active_count(), 0.0, time.monotonic()
        waiting = [asyncio.ensure_future(client.send(notice(n))) for n in range(2, 30)]
        while not all(one.done() for one in waiting):
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert longest < 0.4
        assert threading.active_count() <= threads + 8, "no thread for each send"
        assert {type(one.exception()) for one in waiting} == {BufferFull}
        assert await client.close(0.1) == 1
        assert isinstance(first.exception() if first.done() else await failure(first), SendInDoubt)

    async def failure(task: asyncio.Future[Any]) -> BaseException | None:
        return (await asyncio.gather(task, return_exceptions=True))[0]

    asyncio.run(main())


def test_records_of_a_key_wait_for_room_in_the_order_of_their_calls(
    cluster: EmbeddedKafka,
) -> None:
    async def main() -> list[int]:
        options = ClientOptions(trace=False, limits=BufferLimits(records=20))
        async with AsyncClient(cluster.bootstrap, topic_prefix="line", options=options) as client:
            summary = await client.send_many([notice(n, "k") for n in range(500)])
        return [sent.offset for sent in summary.sent]

    assert asyncio.run(main()) == list(range(500))


def test_a_call_that_gives_up_lets_the_next_one_go(cluster: EmbeddedKafka) -> None:
    async def main() -> None:
        options = ClientOptions(trace=False, limits=BufferLimits(records=1))
        async with AsyncClient(cluster.bootstrap, topic_prefix="gone", options=options) as client:
            with paused(cluster):
                calls = [asyncio.ensure_future(client.send(notice(n, "k"))) for n in range(5)]
                short = asyncio.ensure_future(client.send(notice(5, "k"), deadline_s=0.1))
                last = asyncio.ensure_future(client.send(notice(6, "k")))
                with pytest.raises(BufferFull, match=r"within 0\.1 s"):
                    await short
                calls[1].cancel()
                calls[3].cancel()
            sent = [await call for call in (calls[0], calls[2], calls[4], last)]
        assert [one.offset for one in sent] == [0, 1, 2, 3]

    asyncio.run(main())


def test_what_waits_goes_to_the_overflow_in_the_order_of_the_calls() -> None:
    async def main() -> None:
        options = ClientOptions(trace=False, deadline_s=0.2, limits=BufferLimits(records=5))
        async with AsyncClient(NOWHERE, options=options, overflow=MemoryOverflow) as client:
            overflow: Any = client._core._overflow
            calls = [asyncio.ensure_future(client.send(notice(n, "k"))) for n in range(20)]
            fifteen_wait = lambda: len(client._line) == 15  # noqa: E731 - five are in the buffer
            await asyncio.to_thread(await_, fifteen_wait, what="the others wait")
            calls.append(asyncio.ensure_future(client.send(notice(20, "k"), deadline_s=0)))
            assert all([(await call).is_spooled for call in calls])
        kept = [decode(one.record.value).id for one in overflow.kept]
        assert kept == [f"n-{n}" for n in range(21)]

    asyncio.run(main())


def test_a_call_whose_turn_it_is_waits_for_room_in_a_full_overflow_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, waits = threading.Event(), []
    monkeypatch.setattr(MemoryOverflow, "keep", lambda *_: disk.wait(PATIENCE_S))
    put_new = OverflowQueue.put_new

    def noted(queue: OverflowQueue, send: PendingSend, deadline_s: float) -> None:
        if deadline_s:
            waits.append(deadline_s)
        put_new(queue, send, deadline_s)

    monkeypatch.setattr(OverflowQueue, "put_new", noted)

    async def main() -> None:
        options = ClientOptions(trace=False, limits=BufferLimits(records=1))
        async with AsyncClient(NOWHERE, options=options, overflow=MemoryOverflow) as client:
            sends = [client.send(notice(n, "k"), deadline_s=0) for n in range(3)]
            calls = [asyncio.ensure_future(one) for one in sends]
            await asyncio.to_thread(await_, lambda: len(waits) == 2, what="the queue is full")
            disk.set()
            assert all([(await call).is_spooled for call in calls])

    asyncio.run(main())


def test_closing_twice_is_harmless() -> None:
    client = paused_client()
    assert client.close(0.1) == 0
    assert client.close(0.1) == 0
    await_(lambda: not client.publisher._thread.is_alive(), what="the publisher's thread ends")


def test_a_client_whose_overflow_cannot_be_opened_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())

    def away(_publisher: Publisher) -> MemoryOverflow:
        raise ClientError("the spool's disk is not mounted yet")

    for _ in range(3):
        with pytest.raises(ClientError, match="not mounted"):
            Client(NOWHERE, overflow=away)
    await_(lambda: set(threading.enumerate()) <= before, what="its threads have ended")
