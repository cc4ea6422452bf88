"""Records of the dispatch topics → `records`. The envelope is read by native expressions.

`problem` names what is certainly no envelope, by the codes of `message.envelope`. In doubt a record
counts as an envelope: a worker that refuses it writes a dead letter, which is known by its origin. A
delivery that was left out here could never be found lost. Names that a worker refuses are kept so that a
database takes them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from message.envelope import (
    MAX_BYTES,
    MAX_ID,
    MAX_RECEIVER,
    MAX_RECEIVERS,
    MAX_TIME_MS,
    VERSION,
)
from message.vocabulary import CHANNELS, KINDS
from spark_jobs.frames import day_of, kept
from spark_jobs.ingest.receivers import delivery_key, mask, normalised, receiver_hash
from spark_jobs.warehouse import columns_of

_ENVELOPE: Final = """
v STRING, id STRING, biz_id STRING, channel STRING, kind STRING, receivers ARRAY<STRING>, account STRING,
template STRUCT<id: STRING>, content STRUCT<x: STRING>, created_at STRING, ttl_ms STRING,
ordering_key STRING, resend_of STRING"""
"""Numbers as texts: a whole number may be written as 5.0 or 5e0. Of `content` only its presence."""
_STRICT: Final = {
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "mode": "PERMISSIVE",
}
_ID: Final = rf"^[\x20-\x7e]{{1,{MAX_ID}}}\z"
_TRACEPARENT: Final = "traceparent"


def records_of(kafka: DataFrame) -> DataFrame:
    """Returns rows of `records` for Kafka's records with the columns of secrets."""
    text = F.col("value").cast("string")
    sized = F.col("value").isNotNull() & (F.octet_length("value") <= MAX_BYTES)
    parsed = kafka.withColumn(
        "envelope", F.when(sized & F.is_valid_utf8(text), F.from_json(text, _ENVELOPE, _STRICT))
    )
    judged = parsed.withColumn("problem", _problem(F.col("envelope")))
    kept = judged.withColumn("envelope", F.when(F.col("problem").isNull(), F.col("envelope")))
    return kept.select(*_columns(F.col("envelope"))).select(*columns_of("records"))


def _columns(envelope: Column) -> list[Column]:
    return [
        day_of(F.col("timestamp")).alias("day"),
        *(F.col(name) for name in ("topic", "topic_id", "partition", "offset", "timestamp")),
        envelope["id"].alias("message_id"),
        *(kept(envelope[name]).alias(name) for name in ("biz_id", "account")),
        # Empty, they name nothing (`message.envelope`).
        *(
            F.nullif(kept(envelope[name]), F.lit("")).alias(name)
            for name in ("ordering_key", "resend_of")
        ),
        F.col("lane"),
        _number(envelope["created_at"]).alias("created_at"),
        _number(envelope["ttl_ms"]).alias("ttl_ms"),
        kept(envelope["template"]["id"]).alias("template"),
        _header(_TRACEPARENT).alias("traceparent"),
        _deliveries(envelope).alias("deliveries"),
        F.col("problem"),
        _body(envelope["id"]).alias("body"),
    ]


def _header(name: str) -> Column:
    from spark_jobs.frames import header

    return F.when(F.col("problem").isNull(), header(name, F.col("headers")))


def _number(text: Column) -> Column:
    return F.coalesce(text.try_cast("bigint"), text.try_cast("double").try_cast("bigint"))


def _deliveries(envelope: Column) -> Column:
    """Returns an entry per different receiver; null for no envelope."""
    channel = envelope["channel"]

    def named(receiver: Column) -> Column:
        found = normalised(channel, receiver)
        return F.struct(found.alias("known"), F.coalesce(found, receiver).alias("shown"))

    def entry(one: Column) -> Column:
        hashed = receiver_hash(F.col("hash_inner"), F.col("hash_outer"), channel, one["known"])
        return F.struct(
            delivery_key(envelope["id"], channel, one["known"]).alias("delivery_key"),
            mask(channel, one["shown"]).alias("receiver"),
            hashed.alias("receiver_hash"),
        )

    different = F.array_distinct(F.transform(envelope["receivers"], named))
    return F.transform(different, entry)


def _body(message_id: Column) -> Column:
    """Returns the value as `idempotency.payload_cipher` seals it; plain without a key."""
    value = F.col("value")
    sealed = F.aes_encrypt(
        *(value, F.col("seal_key"), F.lit("GCM"), F.lit("DEFAULT"), F.lit(""), message_id)
    )
    stored = F.when(F.col("seal_key").isNull(), value).otherwise(
        F.concat(F.col("seal_head"), sealed)
    )
    return F.when(F.col("problem").isNull(), stored)


def _problem(envelope: Column) -> Column:
    """Returns the code of what is certainly wrong, in the order of `message.envelope`; null for nothing."""
    value = F.col("value")
    wanted = ("id", "channel", "kind", "receivers")
    created_at = _number(envelope["created_at"])
    missing = created_at.isNull() | ~created_at.between(0, MAX_TIME_MS)
    for name in wanted:
        missing = missing | envelope[name].isNull()
    text = value.cast("string")
    broken = ~F.is_valid_utf8(text) | F.try_parse_json(text).isNull()
    version = F.coalesce(_number(envelope["v"]), F.lit(VERSION))
    return (
        F.when(value.isNull(), "not_json")
        .when(F.octet_length(value) > MAX_BYTES, "too_large")
        .when(missing & broken, "not_json")
        .when(version != VERSION, "unknown_version")
        .when(missing, "wrong_type")
        .when(~envelope["id"].rlike(_ID), "bad_id")
        .when(~envelope["channel"].isin(*CHANNELS), "unknown_channel")
        .when(~envelope["kind"].isin(*KINDS), "unknown_kind")
        .when(_no_content(envelope), "no_content")
        .when(_number(envelope["ttl_ms"]) <= 0, "bad_ttl")
        .when(~F.size(envelope["receivers"]).between(1, MAX_RECEIVERS), "bad_receivers")
        .when(F.exists(envelope["receivers"], _bad_receiver), "bad_receiver")
        .when(
            F.concat_ws(".", envelope["channel"], envelope["kind"]) != F.col("lane"), "wrong_topic"
        )
    )


def _no_content(envelope: Column) -> Column:
    return envelope["template"].isNull() == envelope["content"].isNull()


def _bad_receiver(receiver: Column) -> Column:
    return receiver.isNull() | ~F.length(receiver).between(1, MAX_RECEIVER)
