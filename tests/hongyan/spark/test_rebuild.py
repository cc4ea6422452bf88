"""The program's side of a rebuild: keys from sealed bodies."""

from __future__ import annotations

from base64 import b64encode

import msgspec
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from hongyan.spark.rebuild import keys_by
from idempotency.payload_cipher import PayloadCipher
from message.keys import delivery_key
from spark_jobs.rebuild.unkeyed import SealedRecord

KEY = b64encode(bytes(range(32))).decode()
BODY = msgspec.json.encode(
    {
        "v": 1,
        "id": "m1",
        "channel": "sms",
        "kind": "notice",
        "receivers": ["+86 138 0000 0001", "tel:+8613800000002"],
        "content": {"text": "hello"},
        "created_at": 1_790_000_000_000,
    }
)
KEYS = [delivery_key("m1", "sms", receiver) for receiver in ("+8613800000001", "+8613800000002")]


@pytest.mark.parametrize("key", ["", KEY])
def test_a_body_names_its_receivers_as_a_worker_does(key: str) -> None:
    body = PayloadCipher(key).seal(BODY, "m1")
    assert keys_by(key)(SealedRecord("m1", "sms.notice", body)) == KEYS


def test_a_body_that_cannot_be_opened_names_nobody() -> None:
    sealed = PayloadCipher(KEY).seal(BODY, "m1")
    assert keys_by("")(SealedRecord("m1", "sms.notice", sealed)) == ()
    assert keys_by(KEY)(SealedRecord("m2", "sms.notice", sealed)) == ()
    assert keys_by("")(SealedRecord("m1", "sms.notice", b"{")) == ()
