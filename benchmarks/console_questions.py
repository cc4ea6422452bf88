"""Questions of the console's benchmark: one line of the query language each, about rows that are there."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import psycopg

from benchmarks.console_sql import DAY_MS, HASH_KEY, LANE_SHARES
from idempotency.search.language import parse
from idempotency.search.store import Search
from message.receiver_hash import hasher

SAMPLES: Final = 1_000
_SAMPLED: Final = """
SELECT delivery_key, message_id, biz_id, provider_id, account, lane, template, resend_of, created_at,
       kafka_topic || '/' || kafka_partition || '/' || kafka_offset AS place,
       convert_from(receiver, 'UTF8') AS receiver, receiver_hash
  FROM deliveries {sampled}
 WHERE owner LIKE 'worker-%%' AND day >= {oldest} {more} LIMIT %(samples)s"""
_PAGES: Final = "TABLESAMPLE SYSTEM ({share}) REPEATABLE ({seed})"
"""Reads the sampled pages alone; each has some five rows."""
_ENDS: Final = ("PARKED", "REJECTED", "EXPIRED", "DROPPED", "UNDELIVERED")
_ERRORS: Final = ("attempts_spent", "unproven", "rejected", "frequency_cap", "undelivered")


class SampledRow(NamedTuple):
    """Names of one row of the ledger."""

    delivery_key: str
    message_id: str
    biz_id: str | None
    provider_id: str | None
    account: str
    lane: str
    template: str | None
    resend_of: str | None
    created_at: int
    place: str
    receiver: str
    receiver_hash: bytes


class Samples(NamedTuple):
    """Rows of all days, of the last week, and copies; `days` is the age of the oldest day."""

    rows: Sequence[SampledRow]
    recent: Sequence[SampledRow]
    copies: Sequence[SampledRow]
    days: int
    now_ms: int


Line = Callable[[random.Random, Samples], str]
"""Makes one line."""


def read_samples(url: str, seed: int = 1) -> Samples:
    """Returns rows to ask about. Raises ValueError for a database without the benchmark's data."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        one = connection.execute(
            "SELECT hongyan_now(), (SELECT min(day) FROM delivery_keys),"
            " (SELECT greatest(reltuples, 1) FROM pg_class WHERE relname = 'delivery_keys')"
        ).fetchone()
        assert one is not None
        now, first, rows = one
        if first is None:
            raise ValueError(
                "the database is empty: fill it with `python -m benchmarks.console_data`"
            )
        today = now // DAY_MS

        def some(days: int, more: str = "", sampled: str = _PAGES) -> list[SampledRow]:
            oldest = max(first, today - days + 1)
            there = rows * (today - oldest + 1) / (today - first + 1)
            share = min(100.0, 100.0 * 3 * SAMPLES / max(there, 1))
            table = sampled.format(share=share, seed=seed)
            query = _SAMPLED.format(sampled=table, oldest=oldest, more=more)
            found = connection.execute(query.encode(), {"samples": SAMPLES * 10}).fetchall()
            picked = [SampledRow(*row) for row in found]
            random.Random(seed).shuffle(picked)
            return picked[:SAMPLES]

        whole = today - first + 1
        recent = some(6)
        all_days = some(whole)
        connection.execute("SET enable_seqscan = off")  # copies have an index of their own
        copies = some(whole, "AND resend_of IS NOT NULL", "")
        found = Samples(all_days, recent, copies, whole, now)
        hashed = hasher(HASH_KEY)
        for row in found.rows[:10]:
            channel = row.lane.partition(".")[0]
            if hashed(channel, row.receiver) != row.receiver_hash.hex():
                raise ValueError(
                    "receivers' hashes are of another key: the data are not the benchmark's"
                )
        return found


def lines() -> dict[str, Line]:
    """Returns the kinds of questions by name. Names are looked for in all days."""

    def of(field: str, name: str) -> Line:
        def line(pick: random.Random, samples: Samples) -> str:
            row = pick.choice([r for r in pick.choices(samples.rows, k=50) if getattr(r, name)])
            return f'{field}"{getattr(row, name)}" since:{samples.days + 1}d'

        return line

    return {
        "id": of("id:", "message_id"),
        "key": of("key:", "delivery_key"),
        "a bare name": of("", "message_id"),
        "biz_id": of("biz:", "biz_id"),
        "provider's id": of("provider:", "provider_id"),
        "receiver": of("receiver:", "receiver"),
        "receiver of no row": lambda pick, s: (
            f"receiver:+86139{pick.randrange(10**8):08d} since:{s.days + 1}d"
        ),
        "copies": lambda pick, s: (
            f"copy_of:{pick.choice(s.copies or s.rows).resend_of or 'none'} since:{s.days + 1}d"
        ),
        "template": lambda pick, s: f"template:{_template(pick, s)} since:7d",
        "lane and state": _ended,
        "state of all lanes": lambda pick, _s: f"state:{pick.choice(_ENDS)} since:7d",
        "in doubt": lambda _pick, _s: "state:UNKNOWN since:7d",
        "account": lambda pick, s: f"account:{pick.choice(s.rows).account}",
        "a rare account": lambda _pick, _s: "account:wecom-c",
        "error class": lambda pick, _s: f"error:{pick.choice(_ERRORS)} since:7d",
        "a window of time": _window,
        "place of a record": lambda pick, s: f"place:{pick.choice(s.recent).place} since:6d",
    }


def asker(search: Search, samples: Samples) -> Callable[[str], int]:
    """Returns a function that answers a line from the database and returns the number of rows."""

    def ask(line: str) -> int:
        return len(search.page(parse(line, samples.now_ms)).rows)

    return ask


def _template(pick: random.Random, samples: Samples) -> str:
    row = pick.choice([one for one in pick.choices(samples.rows, k=50) if one.template])
    return str(row.template)


def _ended(pick: random.Random, _samples: Samples) -> str:
    lanes = [lane for lane, _share in LANE_SHARES]
    return f"lane:{pick.choice(lanes)} state:{pick.choice(_ENDS)} since:7d"


def _window(pick: random.Random, samples: Samples) -> str:
    until = samples.now_ms - pick.randrange((samples.days - 1) * DAY_MS)
    return f"since:{_time(until - 3_600_000)} until:{_time(until)}"


def _time(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1_000, UTC):%Y-%m-%dT%H:%M:%S}"
