"""Permits for dead letters, what is shown of one, and sending it again once."""

from __future__ import annotations

from hashlib import sha256
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from dispatcher.dead_letters.quota import DeadLetterQuota
from dispatcher.dead_letters.writer import DeadLetterWriter, Poison
from dispatcher.kafka.offsets import Offsets
from dispatcher.pipeline.work import Assignment
from idempotency.sql_ledger import SqlLedger
from message.envelope import encode
from message.vocabulary import Lane
from sending.dead_letters.reader import DeadLetter, DeadLetterFilter, letter_of, newest
from sending.dead_letters.replay import REPLAY_OF, Replayer, ReplayStatus
from sending.dead_letters.stub import STUB, facts_of, stub_in
from tests.dispatcher.fakes import KafkaError
from tests.harness import notification
from tests.idempotency.making import World
from tracing.events import NoRecorder

LANE, OTHER = Lane("webhook", "notice"), Lane("sms", "notice")


class Time:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1_000)


class Producer:
    """Answers at once, or not at all."""

    def __init__(
        self, error: KafkaError | None = None, *, silent: bool = False, limit: int = 0
    ) -> None:
        """With `limit` a batch of more bytes is refused as a whole, as brokers do."""
        self.limit = limit
        self._bytes = 0
        self.produced: list[tuple[str, Any, Any, Any]] = []
        self.error, self.silent = error, silent
        self._waiting: list[Any] = []

    def produce(self, topic: str, *, key: Any, value: Any, headers: Any, on_delivery: Any) -> None:
        self.produced.append((topic, key, value, headers))
        self._bytes += len(key or b"") + len(value or b"")
        self._bytes += sum(len(name) + len(text or b"") for name, text in headers)
        if not self.silent:
            self._waiting.append(on_delivery)

    def flush(self, _timeout: float) -> None:
        large = KafkaError("MSG_SIZE_TOO_LARGE") if 0 < self.limit < self._bytes else None
        for told in self._waiting:
            told(large or self.error, None)
        self._waiting, self._bytes = [], 0


class Stage:
    """The dead letters' stage, a round at a time."""

    def __init__(self, burst: int, rate_per_s: float) -> None:
        self.time, self.producer = Time(), Producer()
        self.done: list[Poison] = []
        self.stage = DeadLetterWriter(
            self.producer,
            "dead",
            on_done=self.done.extend,
            on_count=lambda _: None,
            permits=DeadLetterQuota(burst, rate_per_s, self.time.monotonic),
            recorder=NoRecorder(),
            clock=self.time,  # type: ignore[arg-type]
            worker="w1",
        )

    def put(self, count: int, lane: Lane = LANE, code: str = "not_json") -> None:
        assignment = Assignment(lane.topic(), 0, lane, Offsets(0))
        for offset in range(count):
            poison = Poison(
                assignment, offset, key=None, payload=b"x", headers=[], code=code, detail=""
            )
            self.stage.put(poison)

    def round(self) -> None:
        self.stage._waiting += self.stage._gather()
        permitted = self.stage._permitted()
        assert not permitted or not self.stage._write(permitted)


def poison(payload: bytes, *, offset: int = 0, **more: Any) -> Poison:
    fields: dict[str, Any] = {"key": None, "headers": [], "code": "not_json", "detail": ""} | more
    return Poison(Assignment(LANE.topic(), 0, LANE, Offsets(0)), offset, payload=payload, **fields)


# -- what their topic does not take --


def test_what_is_too_large_in_any_form_becomes_a_stub() -> None:
    one = Stage(burst=10, rate_per_s=1.0)
    one.producer.limit = 2_000
    value = b"x" * 600_000
    left = [poison(value, key=b"k" * 5_000, headers=[("hongyan-id", b"m-1"), ("h", b"y" * 9_000)])]
    for _ in range(3):
        left = one.stage._write(left)
    assert left == []
    _, key, kept, headers = one.producer.produced[-1]
    assert (key, kept) == (None, b"x" * 512)
    facts = stub_in(headers)
    assert facts is not None
    assert (facts.key_bytes, facts.value_bytes, facts.headers) == (5_000, 600_000, 2)
    assert facts.sha256 == sha256(value).hexdigest()
    names = dict(headers)
    assert names["hongyan-id"] == b"m-1"
    assert names["hongyan-dead-origin"] == f"{LANE.topic()}/0/0".encode()


def test_a_long_value_is_cut_before_it_becomes_a_stub() -> None:
    one = Stage(burst=10, rate_per_s=1.0)
    one.producer.limit = 600_000
    left = one.stage._write([poison(b"x" * 900_000)])
    assert one.stage._write(left) == []
    _, _, kept, headers = one.producer.produced[-1]
    assert (len(kept), dict(headers)["hongyan-dead-truncated"]) == (512 * 1024, b"900000")


def test_what_only_shared_a_batch_with_what_is_too_large_is_kept_whole() -> None:
    one = Stage(burst=10, rate_per_s=1.0)
    one.producer.limit = 2_000
    small, large = poison(b"s" * 100), poison(b"x" * 5_000, offset=1)
    left = one.stage._write([small, large])
    assert left == [small, large], "the broker refused the batch"
    left = one.stage._write(left)
    assert left == [large]
    assert one.stage._write(left) == []
    assert [value for _, _, value, _ in one.producer.produced][-3:] == [
        b"s" * 100,
        b"x" * 5_000,
        b"x" * 512,
    ]


def test_a_header_of_the_producers_makes_no_stub_of_a_letter() -> None:
    forged = poison(b"{}", headers=[(STUB, b"{}")])
    assert stub_in(forged.letter()[2]) is None


# -- permits --


def test_a_burst_is_written_and_the_rest_waits_for_what_time_earns() -> None:
    one = Stage(burst=3, rate_per_s=2.0)
    one.put(6)
    one.round()
    assert [p.offset for p in one.done] == [0, 1, 2]
    assert one.stage.held == {(LANE, "not_json"): 3}
    assert one.stage.spent == {LANE}, "the lane is paused, not the poison dropped"
    one.time.now += 1.0
    one.round()
    assert [p.offset for p in one.done] == [0, 1, 2, 3, 4], "in the order in which it came"
    one.time.now += 0.5
    one.round()
    assert len(one.done) == 6
    assert (one.stage.held, one.stage.spent) == ({}, frozenset())


def test_one_lanes_flood_holds_no_other_lane_and_no_other_reason() -> None:
    one = Stage(burst=2, rate_per_s=0.001)
    one.put(5)
    one.put(2, lane=OTHER)
    one.put(2, code="unknown_account")
    one.round()
    assert len(one.done) == 6
    assert one.stage.spent == {LANE}
    assert one.stage.held == {(LANE, "not_json"): 3}


def test_permits_never_pile_up_beyond_the_burst() -> None:
    time = Time()
    permits = DeadLetterQuota(2, 10.0, time.monotonic)
    time.now += 1_000
    assert [permits.take("l", "r") for _ in range(3)] == [True, True, False]
    assert permits.wait_s("l", "r") == pytest.approx(0.1)


# -- what is shown --


def letter(value: bytes | None, **changes: Any) -> DeadLetter:
    fields: dict[str, Any] = {
        "place": "dead/0/1",
        "origin": f"{LANE.topic()}/0/7",
        "at": 1_000,
        "reason": "bad_ttl",
        "detail": "",
        "lane": LANE.name,
        "key": b"k",
        "value": value,
        "headers": [("theirs", b"kept"), ("hongyan-dead-reason", b"bad_ttl")],
        "truncated": 0,
    }
    return DeadLetter(**{**fields, **changes})


def test_a_body_shows_its_shape_and_neither_receivers_nor_what_was_said() -> None:
    value = {
        "id": "m-1",
        "channel": "sms",
        "receivers": ["+8613800000001"],
        "template": {"id": "SMS_1", "params": {"code": "471147"}},
        "content": {"text": ["secret words", 4711]},
    }
    shown = letter(msgspec.json.encode(value)).body()
    for secret in ("13800000001", "471147", "secret words", "4711"):
        assert secret not in shown
    assert "SMS_1" in shown
    assert "+86138***0001" in shown


_NUMBER, _MAIL = "+8613800000001", "ann@example.com"
_BASE = {"v": 1, "id": "m-1", "channel": "sms", "kind": "notice", "created_at": 1_764_000_000_000}


@pytest.mark.parametrize(
    "value",
    [
        _BASE | {"receivers": _NUMBER},
        _BASE | {"receivers": [13_800_000_001, {"phone": _NUMBER}, [_MAIL]]},
        _BASE | {"receivers": {_NUMBER: _MAIL}},
        _BASE | {"receiver": _NUMBER, "Receivers": [_MAIL]},
        _BASE | {"to": [{"id": 13_800_000_001, "phones": [[_NUMBER]], "mail": _MAIL}]},
        _BASE | {"to": 13_800_000_001.5},
        _BASE | {"ordering_key": _NUMBER},
        _BASE | {"content": {"id": _NUMBER, "text": {_MAIL: "hello"}}},
        _BASE | {"id": {"of": _NUMBER}, "account": [_MAIL]},
        {_NUMBER: 1, "+8613900000002": 2},
        [_BASE | {"receivers": [_NUMBER]}, _NUMBER],
        _NUMBER,
        13_800_000_001,
    ],
)
def test_a_receiver_is_masked_wherever_a_producer_put_it(value: Any) -> None:
    one = letter(msgspec.json.encode(value).replace(b"@", b"\\u0040"))
    for secret in ("13800000001", "13900000002", "ann@", "u0040"):
        assert secret not in one.body()
        assert secret not in one.message_id
    assert "***" in one.body()


def test_ids_account_and_times_of_an_envelope_are_shown() -> None:
    value = _BASE | {"biz_id": "order-4711471147", "account": "ali-10001", "resend_of": "1" * 32}
    value |= {"ttl_ms": 3_600_000, "template": {"id": "SMS_471147114"}}
    shown = msgspec.json.decode(letter(msgspec.json.encode(value)).body())
    assert shown == value


def test_what_is_no_json_shows_neither_numbers_nor_addresses_and_is_bounded() -> None:
    shown = letter(b"\xffto +8613800000001, ann@example.com: hi").body()
    assert (shown.count("***"), "13800000001" in shown, "ann@" in shown) == (2, False, False)
    assert letter(b"x " * 5_000).body().endswith("(8,000 more characters)")
    assert letter(None).body() == ""


def test_a_record_is_read_back_as_it_was_written() -> None:
    class Message:
        topic, partition, offset = (lambda _: "dead"), (lambda _: 2), (lambda _: 9)
        key, value = (lambda _: b"k"), (lambda _: b"{")

        def timestamp(self) -> tuple[int, int]:
            return 1, 1_234

        def headers(self) -> Any:
            origin = f"{OTHER.topic('p')}/0/5".encode()
            return [("hongyan-dead-reason", b"not_json"), ("hongyan-dead-origin", origin)]

    found = letter_of(Message(), "p")
    assert (found.place, found.lane, found.reason, found.at) == (
        "dead/2/9",
        "sms.notice",
        "not_json",
        1_234,
    )
    assert found.topic == OTHER.topic("p")


def test_a_foreign_record_whose_headers_cannot_be_read_is_a_letter_without_any() -> None:
    class Odd:
        topic, partition, offset = (lambda _: "dead"), (lambda _: 2), (lambda _: 9)
        key, value, timestamp = (lambda _: b"k"), (lambda _: b"{"), (lambda _: (1, 1_234))
        set_headers = Mock()

        def headers(self) -> Any:
            raise SystemError("returned a result with an exception")

    found = letter_of(Odd(), "p")
    assert (found.origin, found.reason, found.headers, found.value) == ("", "", [], b"{")


def test_the_newest_come_first_and_a_repeat_once() -> None:
    made = [letter(b"", at=n, origin=f"t/0/{n}") for n in range(10)]
    found = newest([*made, letter(b"", at=50, origin="t/0/9")], DeadLetterFilter(), 3)
    assert [one.origin for one in found] == ["t/0/9", "t/0/8", "t/0/7"]
    assert not newest(made, DeadLetterFilter(reason="other"), 3)
    assert len(newest(made, DeadLetterFilter(since_ms=8, lane=LANE.name), 9)) == 2


# -- sending it again --


@pytest.fixture
def ledger(sqlite_database: str) -> SqlLedger:
    return World(sqlite_database).open()


def test_a_letter_is_replayed_as_it_came_and_only_once(ledger: SqlLedger) -> None:
    producer = Producer()
    replayer = Replayer(producer, ledger.replays())
    one = letter(encode(notification()))
    (dry,) = replayer.plan([one], again=False)
    assert (dry.fate, dry.target, producer.produced) == (ReplayStatus.WOULD, LANE.topic(), [])
    (done,) = replayer.run([one], again=False)
    assert done.fate is ReplayStatus.REPLAYED
    headers = [("theirs", b"kept"), (REPLAY_OF, one.origin.encode())]
    assert producer.produced == [(LANE.topic(), b"k", one.value, headers)]
    (second,) = replayer.run([one], again=False)
    assert second.fate is ReplayStatus.BEFORE
    assert len(producer.produced) == 1
    (insisted,) = Replayer(producer, ledger.replays(), target="elsewhere").run([one], again=True)
    assert (insisted.fate, producer.produced[1][0]) == (ReplayStatus.REPLAYED, "elsewhere")


def test_what_the_broker_surely_refused_may_be_replayed_again(ledger: SqlLedger) -> None:
    one = letter(b"x")
    refusing = Producer(KafkaError("TOPIC_AUTHORIZATION_FAILED"))
    (done,) = Replayer(refusing, ledger.replays()).run([one], again=False)
    assert done.fate is ReplayStatus.FAILED
    (done,) = Replayer(Producer(), ledger.replays()).run([one], again=False)
    assert done.fate is ReplayStatus.REPLAYED


@pytest.mark.parametrize(
    "producer", [Producer(silent=True), Producer(KafkaError("_MSG_TIMED_OUT"))]
)
def test_what_may_stand_there_is_not_replayed_unasked(
    ledger: SqlLedger, producer: Producer
) -> None:
    one = letter(b"x")
    (done,) = Replayer(producer, ledger.replays()).run([one], again=False)
    assert done.fate is ReplayStatus.FAILED
    (done,) = Replayer(Producer(), ledger.replays()).run([one], again=False)
    assert (done.fate, done.why) == (ReplayStatus.BEFORE, f"to {LANE.topic()}, unacknowledged")


def test_what_is_not_whole_or_belongs_nowhere_is_not_replayed(ledger: SqlLedger) -> None:
    producer = Producer()
    replayer = Replayer(producer, ledger.replays())
    facts = facts_of(b"k", b"x" * 9_000, [])
    letters = [
        letter(b"x", truncated=9_000_000),
        letter(b"x", origin=""),
        letter(b"x", stub=facts),
    ]
    done = replayer.run(letters, again=True)
    assert [one.fate for one in done] == [
        ReplayStatus.TRUNCATED,
        ReplayStatus.NO_ORIGIN,
        ReplayStatus.STUB,
    ]
    assert done[2].why == f"the original (9,000 bytes) is at {done[2].letter.origin} alone"
    assert producer.produced == []
