"""Dispatch records by native expressions, beside the worker's own decoder."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from pyspark.sql import SparkSession

from idempotency.payload_cipher import PayloadCipher
from message.envelope import MAX_BYTES, EnvelopeError, check_arrival, decode
from message.keys import delivery_key, normalise_receiver
from message.outcome_event import receiver_hash
from message.vocabulary import Lane
from spark_jobs.ingest.records import records_of
from spark_jobs.ingest.secrets import with_secrets
from tests.foreign.envelope_cases import good
from tests.spark_jobs.conftest import config_for
from tests.spark_jobs.ingest.making import AT, envelope, kafka_frame, wire

PAYLOAD_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
HASH_KEY = "0123456789abcdef0123456789abcdef"
LANE = Lane("sms", "notice")
CASES: list[Any] = [
    envelope(),
    good(),
    envelope(ttl_ms=5_000, account="main", ordering_key="k", resend_of="m-0"),
    envelope(ordering_key="", resend_of=""),
    envelope(template=..., content={"text": "hello"}),
    envelope(receivers=["+8613800000001", "+8613800000002", "+8613800000001"]),
    envelope(receivers=["+86 138 0000 0001"]),
    envelope(v=..., biz_id=...),
    envelope(id="x" * 64),
    envelope(attributes={"deep": [[{"a": 1}]]}, unknown=5),
    # No envelopes.
    b"",
    b"{",
    b"[]",
    b"null",
    b"5",
    b'"text"',
    b"\xef\xbb\xbf" + wire(envelope()),
    wire(envelope())[:-1],
    b'{"id":"\xff"}',
    wire(envelope())[:-1] + b',"x":"\xff\xfe"}',
    b"{'id':'a'}",
    envelope(v=2),
    envelope(id=...),
    envelope(receivers=...),
    envelope(created_at=...),
    envelope(receivers="+8613800000001"),
    envelope(created_at="soon"),
    envelope(created_at=2**63 - 1),
    envelope(created_at=-1),
    envelope(id=""),
    envelope(id="x" * 65),
    envelope(id="a\n"),
    envelope(channel="fax"),
    envelope(kind="poem"),
    envelope(template=...),
    envelope(content={}),
    envelope(ttl_ms=0),
    envelope(receivers=[]),
    envelope(receivers=["+8613800000001"] * 1_001),
    envelope(receivers=[""]),
    envelope(receivers=["x" * 257]),
    envelope(kind="marketing"),
    b'{"id":"' + b"x" * MAX_BYTES + b'"}',
]
LENIENT: list[Any] = [
    envelope(id=5),
    envelope(biz_id="x" * 257),
    envelope(biz_id="\u0007"),
    envelope(template={"id": "T\u0000", "params": {}}, account="a\u0000b"),
    envelope(ordering_key="k" * 300, resend_of="\u0085"),
    envelope(attributes=5),
    wire(envelope()) + b" x",
]
"""Refused by the decoder alone: their dead letters are known by origin, so that they may count here."""


def judged(value: Any) -> str | None:
    """The code by which a worker refuses it; None for an envelope."""
    try:
        check_arrival(decode(wire(value)), LANE, AT)
    except EnvelopeError as exc:
        return exc.code
    return None


def test_envelopes_are_judged_as_a_worker_does(spark: SparkSession) -> None:
    values = [*CASES, *LENIENT, None]
    frame = with_secrets(spark, config_for("x", hash_key=HASH_KEY), kafka_frame(spark, values))
    rows = sorted(records_of(frame).collect(), key=lambda row: row.offset)
    problems = [row.problem for row in rows]
    assert problems[: len(CASES)] == [judged(value) for value in CASES]
    assert all(judged(value) for value in LENIENT)
    assert problems[len(CASES) :] == [None] * len(LENIENT) + ["not_json"]
    for row, value in zip(rows, CASES, strict=False):
        assert (row.day, row.lane, row.timestamp) == (date(2026, 11, 23), "sms.notice", AT)
        if row.problem is None:
            _assert_same(row, wire(value))
        else:
            assert (row.message_id, row.deliveries, row.body) == (None, None, None)


def _assert_same(row: Any, value: bytes) -> None:
    said = decode(value)
    template = said.template.id if said.template else None
    assert (row.message_id, row.biz_id, row.created_at, row.ttl_ms, row.template) == (
        *(said.id, said.biz_id, said.created_at, said.ttl_ms, template),
    )
    assert (row.account, row.ordering_key, row.resend_of) == (
        *(said.account, said.ordering_key, said.resend_of),
    )
    assert bytes(row.body) == value
    known = dict.fromkeys(said.receivers)
    assert [one.delivery_key for one in row.deliveries] == [
        delivery_key(said.id, "sms", one) if " " not in one else None for one in known
    ]
    hashes = [receiver_hash(HASH_KEY.encode(), "sms", normalise_receiver("sms", r)) for r in known]
    assert [one.receiver_hash for one in row.deliveries] == [
        one if " " not in r else None for r, one in zip(known, hashes, strict=True)
    ]


def test_names_that_a_worker_refuses_are_kept_as_a_database_takes_them(spark: SparkSession) -> None:
    values = [
        envelope(template={"id": "T\u0000" + "x" * 300, "params": {}}, account="a\u0000b"),
        envelope(biz_id="b\u0007", ordering_key="k" * 300, resend_of="\u0085"),
    ]
    frame = with_secrets(spark, config_for("x", hash_key=HASH_KEY), kafka_frame(spark, values))
    one, other = sorted(records_of(frame).collect(), key=lambda row: row.offset)
    assert (one.template, one.account) == ("T\ufffd" + "x" * 254, "a\ufffdb")
    assert (other.biz_id, other.resend_of) == ("b\ufffd", "\ufffd")
    assert len(other.ordering_key) == 256


def test_bodies_are_sealed_as_the_ledger_seals_them(spark: SparkSession) -> None:
    values = [wire(envelope(id=f"m-{n}")) for n in range(3)]
    config = config_for("x", payload_key=PAYLOAD_KEY)
    rows = records_of(with_secrets(spark, config, kafka_frame(spark, values))).collect()
    sealed = {row.offset: bytes(row.body) for row in rows}
    cipher = PayloadCipher(PAYLOAD_KEY)
    assert [cipher.open(sealed[n], f"m-{n}") for n in range(3)] == values
    assert len({body[5:17] for body in sealed.values()}) == 3  # a nonce each
    assert rows[0].deliveries[0].receiver_hash is None


def test_the_traceparent_is_the_records_header(spark: SparkSession) -> None:
    header = {"traceparent": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    frame = kafka_frame(spark, [json.dumps(envelope()).encode()], headers=[header])
    (row,) = records_of(with_secrets(spark, config_for("x"), frame)).collect()
    assert row.traceparent == header["traceparent"].decode()
