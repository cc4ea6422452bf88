"""Causes of a loss, each with its proof: pure transforms. The ledger is asked between them.

`proposed` looks at offsets alone; `explained` takes away what a dead letter, a recall or the trace answers
for. `record_candidates` is given what is left after the ledger's answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from message.loss import LossCause
from spark_jobs.lost.candidates import as_candidates
from spark_jobs.lost.places import PLACE, origin
from tracing.events import LANE_RECALL, Stage

_LETTER_EARLY_MS = 7_200_000
"""Most by which a dead letter may seem older than its record. The record may have the time of a producer
whose clock is ahead. The ingest believes that time up to ten minutes after the positions that it reads to.
An older letter is of a topic of that name that was deleted."""


def proposed(deliveries: DataFrame, lanes: DataFrame, taken_at: int) -> DataFrame:
    """Returns deliveries with a cause by their place and time: adds `cause`, `expires_at` and `origin`.

    `deliveries` are those of `places.deliveries_of`, `lanes` has the columns of `terms.LANES`. A lane that
    had no ledger at the record's time or later proves nothing. Past its TTL nothing may be sent, so no
    cause waits for a horizon.
    """
    terms = lanes.select("lane", "ttl_ms", "max_ttl_ms", "best_effort_until")
    terms = f.broadcast(terms.withColumnRenamed("ttl_ms", "lane_ttl_ms"))
    found = deliveries.join(terms, "lane", "inner")
    lifetime = f.least(f.coalesce("ttl_ms", "lane_ttl_ms"), f.col("max_ttl_ms"))
    expires_at = f.col("created_at") + lifetime
    cause = (
        f.when(f.col("below"), LossCause.REMOVED.value)
        .when(f.col("read"), LossCause.PASSED.value)
        .when(expires_at < taken_at, LossCause.UNREAD.value)
    )
    kept = f.col("best_effort_until").isNull() | (f.col("timestamp") > f.col("best_effort_until"))
    found = found.withColumns({"expires_at": expires_at, "cause": cause, "origin": origin()})
    return found.where(kept & f.col("cause").isNotNull())


def explained(
    found: DataFrame, claimed: DataFrame, letters: DataFrame, events: DataFrame, recalls: DataFrame
) -> DataFrame:
    """Returns the proposed ones that nothing explains but, perhaps, the ledger.

    `claimed` are keys; `letters` and `events` the warehouse's dead letters and events; `recalls` the
    ledger's recalls (kind, name, made_at).
    """
    at_letter = letters.select("origin", f.col("timestamp").alias("letter_at"))
    left = found.alias("x").join(
        at_letter.alias("l"),
        (f.col("x.origin") == f.col("l.origin"))
        & (f.col("l.letter_at") >= f.col("x.timestamp") - _LETTER_EARLY_MS),
        "left_anti",
    )
    return not_recalled(left.join(claimed, "delivery_key", "left_anti"), events, recalls)


def not_recalled(found: DataFrame, events: DataFrame, recalls: DataFrame) -> DataFrame:
    """Returns those that no recall names: by message, everywhere or in their lane, or by business id after
    they were made."""
    every = events.where(f.col("stage") == Stage.RECALL_ASKED)
    bound = f.coalesce(f.col("reason") == LANE_RECALL, f.lit(False))
    asked = every.where(~bound)
    messages = _names(
        asked.where(f.col("message_id") != "").select(f.col("message_id")),
        recalls.where(f.col("kind") == "message").select(f.col("name").alias("message_id")),
    )
    in_lane = f.split("name", ":", 2)  # the lane, then the id, which may have colons
    in_lanes = _names(
        every.where(bound).select("lane", "message_id"),
        recalls.where(f.col("kind") == "lane").select(
            in_lane[0].alias("lane"), in_lane[1].alias("message_id")
        ),
    )
    business = (
        asked.where((f.col("message_id") == "") & f.col("biz_id").isNotNull())
        .select("biz_id", f.col("at").alias("made_at"))
        .union(recalls.where(f.col("kind") == "biz").select("name", "made_at"))
        .groupBy("biz_id")
        .agg(f.max("made_at").alias("recalled_at"))
    )
    left = found.join(messages, "message_id", "left_anti")
    left = left.join(in_lanes, ["lane", "message_id"], "left_anti")
    left = left.join(business, "biz_id", "left")
    taken_back = f.coalesce(f.col("recalled_at") >= f.col("created_at"), f.lit(False))
    return left.where(~taken_back).drop("recalled_at")


def record_candidates(left: DataFrame, records: DataFrame, doubtful_until: int) -> DataFrame:
    """Returns candidates for deliveries whose keys the ledger does not have.

    `records` give the sealed body where Kafka has the record no more. `doubtful_until`: a record up to this
    broker's time may have had a dead letter that was removed unread, or a row that a restore of the ledger
    took away; 0: none may.
    """
    bodies = records.select(*PLACE, "offset", "body")
    found = left.join(bodies, [*PLACE, "offset"], "left")
    found = found.withColumn("body", f.when(f.col("below"), f.col("body")))
    sure = f.col("cause").isin(LossCause.PASSED.value, LossCause.REMOVED.value)
    certain = sure & (f.col("timestamp") > doubtful_until)
    detail = (
        f.when(
            f.col("cause") == LossCause.PASSED.value,
            f.concat(
                f.lit("the group has passed offset "),
                "offset",
                f.coalesce(f.concat(f.lit(" (committed "), "committed", f.lit(")")), f.lit("")),
                f.lit(", and the ledger has no row"),
            ),
        )
        .when(
            f.col("cause") == LossCause.UNREAD.value,
            f.lit("no worker has read it, and its time to live is over"),
        )
        .when(
            f.col("log_first").isNull(),
            f.lit("its topic was deleted or made anew before it was read"),
        )
        .otherwise(
            f.concat(
                f.lit("the log begins at offset "),
                "log_first",
                f.lit(": Kafka removed it before it was read"),
            )
        )
    )
    return as_candidates(found, cause=f.col("cause"), detail=detail, certain=certain)


def silent_candidates(sent: DataFrame, lanes: DataFrame) -> DataFrame:
    """Returns candidates for deliveries that are SENT in the ledger and whose receipt is overdue."""
    lag = f.broadcast(lanes.select("lane", "receipt_lag_ms"))
    detail = f.concat(
        f.lit("sent through "), "account", f.lit(", which reports, and no receipt has come")
    )
    return as_candidates(sent.join(lag, "lane", "inner"), cause=LossCause.SILENT, detail=detail)


def overdue(
    sent: DataFrame, lanes: DataFrame, accounts: DataFrame, now: int, seen_until: int
) -> DataFrame:
    """Returns the sent ones whose receipt is overdue at `now` and was not yet at `seen_until`, of accounts
    that report."""
    lag = f.broadcast(lanes.select("lane", "receipt_lag_ms"))
    due = f.col("sent_at") + f.col("receipt_lag_ms")
    found = sent.join(lag, "lane", "inner").where((due < now) & (due >= seen_until))
    return found.join(f.broadcast(accounts), "account", "left_semi").drop("receipt_lag_ms")


def differing(claims: DataFrame, rows: DataFrame) -> DataFrame:
    """Returns the claims of hours whose count in the ledger is another one.

    `claims` are those of `claimed.claims_by_hour`, `rows` the ledger's (lane, hour, rows).
    """
    counted = claims.groupBy("lane", "hour").agg(f.count("*").alias("claims"))
    both = counted.join(rows, ["lane", "hour"], "left")
    other = both.where(f.col("claims") != f.coalesce("rows", f.lit(0))).select("lane", "hour")
    return claims.join(f.broadcast(other), ["lane", "hour"], "left_semi")


def forgotten_candidates(claims: DataFrame) -> DataFrame:
    """Returns candidates for deliveries that the trace shows in the ledger and whose row is gone."""
    detail = f.concat(
        f.lit("the trace has it as "),
        f.coalesce(f.nullif("state", f.lit("")), f.lit("claimed")),
        f.lit(", and the ledger has no row: was a backup restored?"),
    )
    return as_candidates(claims, cause=LossCause.FORGOTTEN, detail=detail)


def open_candidates(
    rows: DataFrame, versions: DataFrame, lanes: DataFrame, now: int, grace_ms: int
) -> DataFrame:
    """Returns candidates for open rows that nobody works on. `rows` are those of `LedgerReader.open_rows`.

    An IN_FLIGHT row is there because its owner is dead. A RETRY or UNKNOWN row is one if its time to live,
    or the horizon of its policy version, is over. A version without a text on record counts as the current.
    """
    terms = f.broadcast(versions.select("policy_version", "lane", "horizon_ms"))
    current = f.broadcast(lanes.select("lane", f.col("horizon_ms").alias("own_horizon"), "version"))
    found = rows.join(terms, ["policy_version", "lane"], "left").join(current, "lane", "left")
    ends_at = f.least(
        f.col("expires_at"), f.col("created_at") + f.coalesce("horizon_ms", "own_horizon")
    )
    over = f.col("state").isin("RETRY", "UNKNOWN") & (ends_at < now - grace_ms)
    unowned = f.col("state") == "IN_FLIGHT"
    guessed = f.when(
        f.col("horizon_ms").isNull(),
        f.concat(
            f.lit("; no text of policy "),
            "policy_version",
            f.lit(", "),
            "version",
            f.lit(" counts"),
        ),
    ).otherwise("")
    detail = f.when(
        unowned, f.concat(f.lit("IN_FLIGHT, and its owner "), "owner", f.lit(" is not alive"))
    ).otherwise(f.concat("state", f.lit(" past its time: recovery is not at work"), guessed))
    return as_candidates(found.where(over | unowned), cause=LossCause.OPEN, detail=detail)


def given_back_candidates(rows: DataFrame, positions: DataFrame) -> DataFrame:
    """Returns candidates for rows that recovery has not taken, and that were given back to the next reader
    of a record that nobody will read: the group has passed it, or Kafka has it no more. `rows`: those of
    `LedgerReader.given_back`."""
    known = f.broadcast(positions.select("topic", "partition", "committed", "first", "end"))
    found = rows.join(known, ["topic", "partition"], "left")
    offset = f.col("offset")
    never = f.col("end").isNull() | (offset < f.col("first")) | (offset < f.col("committed"))
    detail = f.lit("given back, and no worker will read its record again: recovery is not at work")
    return as_candidates(
        found.where(f.coalesce(never, f.lit(False))), cause=LossCause.OPEN, detail=detail
    )


def _names(*frames: DataFrame) -> DataFrame:
    first, *others = frames
    for other in others:
        first = first.union(other)
    return first.distinct()


def subjects(frames: Sequence[DataFrame], column: str = "delivery_key") -> DataFrame:
    """Returns the different keys of the frames, each once."""
    return _names(*(frame.select(f.col(column).alias("delivery_key")) for frame in frames))


def exploded(records: DataFrame) -> DataFrame:
    """Returns one row per delivery of placed records: delivery_key, day, lane, place and `read`."""
    names = ("day", "lane", *PLACE, "offset", "read")
    return records.select(*names, f.explode("deliveries.delivery_key").alias("delivery_key"))


def unnamed(deliveries: DataFrame, records: DataFrame, rows: DataFrame) -> DataFrame:
    """Returns the records of which some deliveries have no key, and that have fewer rows in the ledger than
    deliveries. `rows` has (message_id, delivery_key). Adds `cause`, `expires_at`, `rows` and `wanted`."""
    counted = rows.groupBy("message_id").agg(f.count("*").alias("rows"))
    wanted = deliveries.select(*PLACE, "offset", "cause", "expires_at").distinct()
    found = records.join(wanted, [*PLACE, "offset"], "inner").join(counted, "message_id", "left")
    found = found.withColumn("wanted", f.size("deliveries")).fillna(0, ["rows"])
    return found.where(f.col("rows") < f.col("wanted"))


def unnamed_candidates(found: DataFrame) -> DataFrame:
    """Returns one candidate for each record of `unnamed`."""
    found = found.withColumns(
        {
            "origin": origin(),
            "subject": f.concat_ws("-", origin(), "offset"),
            "body": f.when(f.col("below"), f.col("body")),
        }
    )
    detail = f.concat(
        f.lit("the ledger has "),
        "rows",
        f.lit(" rows for its "),
        "wanted",
        f.lit(" receivers, of which some are not in canonical form"),
    )
    return as_candidates(found, cause=f.col("cause"), detail=detail, subject="subject")


def still(
    carried: DataFrame, has_row: DataFrame, is_sent: DataFrame, restored_until: int = 0
) -> DataFrame:
    """Returns those of the open findings whose proof still holds: no row, or SENT where a receipt lacks.
    None is certain of a delivery that was made before the ledger was restored."""
    silent = f.col("cause") == LossCause.SILENT.value
    sent_keys = is_sent.select(f.col("delivery_key").alias("subject"))
    keys = has_row.select(f.col("delivery_key").alias("subject"))
    kept = (
        carried.where(silent)
        .join(sent_keys, "subject", "left_semi")
        .unionByName(carried.where(~silent).join(keys, "subject", "left_anti"))
    )
    after = f.coalesce(f.col("created_at") > restored_until, f.lit(not restored_until))
    return kept.withColumns(
        {
            "certain": f.when(after, f.col("certain")).otherwise(0).cast("smallint"),
            "body": f.lit(None).cast("binary"),
        }
    )
