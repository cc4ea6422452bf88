"""Keys, masks and hashes by native expressions, beside the functions that they must equal."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from message.keys import delivery_key, normalise_receiver
from message.outcome_event import receiver_hash
from spark_jobs.frames import frame_of
from spark_jobs.ingest import receivers
from spark_jobs.ingest.secrets import with_secrets
from tests.spark_jobs.conftest import config_for
from tracing.masks import mask

HASH_KEY = "an example key, longer than a block of SHA-256 would be, so that it is hashed first"
CANONICAL = [
    ("sms", "+8613800000001"),
    ("sms", "+12345"),
    ("sms", "+123456789012345"),
    ("email", "Ann.Lee@Example.COM"),
    ("email", "a@b"),
    ("email", "用户@Example.cn"),
    ("email", '"odd@name"@Example.org'),
    ("email", "no address"),
    ("email", "@Example.org"),
    ("wecom", "zhangsan"),
    ("wecom", "group:operations"),
    ("dingtalk", "group:ops"),
    ("feishu", "ou_1234567890"),
    ("chat", "group:"),
    ("push", "token\U0001f600token"),
    ("push", "ab"),
    ("webhook", "group:operations"),
    ("webhook", "Ärger@Example.COM"),
    ("wechat_mini", "oABCD1234"),
]
FOR_THE_DRIVER = [
    ("sms", "+86 138 0000 0001"),
    ("sms", "13800000001"),
    ("sms", "+8613800000001\n"),
    ("sms", "+1234567890123456"),
    ("sms", "+0123456"),
    ("sms", "+٣٤٥٦٧٨٩"),
    ("email", "a@EXÄMPLE.com"),
]
"""Receivers that need libphonenumber, or more than ASCII's lower case."""


def test_native_expressions_equal_the_vocabulary(spark: SparkSession) -> None:
    rows = [{"channel": c, "receiver": r} for c, r in CANONICAL + FOR_THE_DRIVER]
    channel, receiver = F.col("channel"), F.col("receiver")
    frame = frame_of(spark, "channel STRING, receiver STRING", rows)
    keyed = with_secrets(spark, config_for("x", hash_key=HASH_KEY), frame).withColumn(
        "known", receivers.normalised(channel, receiver)
    )
    known = F.col("known")
    found = keyed.select(
        "channel",
        "receiver",
        "known",
        receivers.delivery_key(F.lit("id-1"), channel, known).alias("key"),
        receivers.mask(channel, receiver).alias("mask"),
        receivers.receiver_hash(F.col("hash_inner"), F.col("hash_outer"), channel, known).alias(
            "hash"
        ),
    ).collect()
    assert [tuple(row) for row in found] == [
        *(_judged(c, r, normalise_receiver(c, r)) for c, r in CANONICAL),
        *((c, r, None, None, mask(c, r), None) for c, r in FOR_THE_DRIVER),
    ]


def _judged(channel: str, receiver: str, known: str) -> tuple[str | None, ...]:
    key = delivery_key("id-1", channel, known)
    hashed = receiver_hash(HASH_KEY.encode(), channel, known)
    return channel, receiver, known, key, mask(channel, receiver), hashed
