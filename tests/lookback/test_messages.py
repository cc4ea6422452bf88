"""The wire format: what is taken, and what a wrong value is told."""

import msgspec
import pytest

from message.lookback import (
    CommitRecord,
    LookbackMessageError,
    PrepareRecord,
    check_arrival,
    created_ms,
    decode,
    encode,
)
from tests.lookback.making import tx_at

TX = tx_at(1_790_000_000_000)
FIELDS = {"type": "prepare", "biz_type": "order", "biz_id": "1", "tx_id": TX, "topic": "t"}


def test_a_record_comes_back_as_it_went() -> None:
    record = PrepareRecord(
        biz_type="order",
        biz_id="1001",
        tx_id=TX,
        topic="hongyan.dispatch.sms.notice",
        payload=bytes(range(256)),
        key="k",
        headers={"hongyan-id": "x"},
    )
    assert decode(encode(record)) == record
    assert created_ms(TX) == 1_790_000_000_000


def test_unknown_fields_are_ignored() -> None:
    value = msgspec.json.encode({**FIELDS, "type": "commit", "later": 1})
    assert decode(value) == CommitRecord(biz_type="order", biz_id="1", tx_id=TX)


@pytest.mark.parametrize(
    ("changes", "code", "path"),
    [
        ({"type": "abort"}, "wrong_type", "$.type"),
        ({"payload": 1}, "wrong_type", "$.payload"),
        ({"payload": "äh"}, "wrong_type", "$.payload"),
        ({"payload": "", "v": 2}, "unknown_version", "$.v"),
        ({"payload": "", "tx_id": "1"}, "bad_tx_id", "$.tx_id"),
        ({"payload": "", "tx_id": TX.upper()}, "bad_tx_id", "$.tx_id"),
        ({"payload": "", "tx_id": TX[:12] + "4" + TX[13:]}, "bad_tx_id", "$.tx_id"),
        ({"payload": "", "biz_id": ""}, "wrong_type", "$.biz_id"),
        ({"payload": "", "biz_id": "a\nb"}, "control_character", "$.biz_id"),
        ({"payload": "", "key": "\0*"}, "control_character", "$.key"),
        ({"payload": "", "biz_type": "a b"}, "bad_biz_type", "$.biz_type"),
        ({"payload": "", "topic": "a b"}, "bad_topic", "$.topic"),
        ({"payload": "", "topic": "look_back_msg"}, "bad_topic", "$.topic"),
        ({"payload": "", "headers": {"hongyan-tx-id": "1"}}, "bad_header", "$.headers"),
        (
            {"payload": "", "headers": {str(n): "" for n in range(33)}},
            "too_many_headers",
            "$.headers",
        ),
        ({"payload": "A" * (1_398_108 + 4)}, "too_large", "$.payload"),
        ({"payload": "A" * (2 << 20)}, "too_large", "$"),
    ],
)
def test_a_wrong_value_is_told_its_fault(changes: dict[str, object], code: str, path: str) -> None:
    with pytest.raises(LookbackMessageError) as caught:
        decode(msgspec.json.encode({**FIELDS, **changes}))
    assert (caught.value.code, caught.value.path) == (code, path)


@pytest.mark.parametrize(
    "value", [None, b"", b"x", b"[]", b"\xff", b'{"type":"commit"' + b"[" * 99]
)
def test_foreign_bytes_are_no_record(value: bytes | None) -> None:
    with pytest.raises(LookbackMessageError):
        decode(value)


def test_a_tx_id_of_the_future_is_refused_and_one_of_the_past_is_not() -> None:
    record = CommitRecord(biz_type="order", biz_id="1", tx_id=TX)
    check_arrival(record, created_ms(TX) - 600_000)
    check_arrival(record, created_ms(TX) + 10**10)
    with pytest.raises(LookbackMessageError, match="check the clock of its maker"):
        check_arrival(record, created_ms(TX) - 601_000)


def test_the_hash_covers_all_that_is_forwarded() -> None:
    one = PrepareRecord(biz_type="order", biz_id="1", tx_id=TX, topic="t", payload=b"x")
    others = [
        msgspec.structs.replace(one, topic="u"),
        msgspec.structs.replace(one, payload=b"y"),
        msgspec.structs.replace(one, key="k"),
        msgspec.structs.replace(one, headers={"a": "b"}),
    ]
    assert len({one.body_hash, *(other.body_hash for other in others)}) == 5
    assert msgspec.structs.replace(one, key="1").body_hash == one.body_hash, "the key is the biz_id"
