"""The ledger, asked by JDBC: only about keys that something else left open, over few connections.

PostgreSQL: `delivery_keys`, then the row's day; then the archive's tables. SQLite: `deliveries`, then the
archive's files. Keys go into the statements as literals, in ranges of the key: a replica takes no table of
ours. `claimed.KEY` bounds their form.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.config import JdbcLogin
from spark_jobs.errors import SparkTrouble
from spark_jobs.lost import statements as sql
from spark_jobs.lost.day_filters import ArchivedDay, DayFilters
from spark_jobs.lost.frames import Kept, empty, kept
from spark_jobs.warehouse import cause_of

ROWS: Final = "delivery_key STRING, state STRING"
KEYS_PER_QUESTION: Final = 2_000
"""Most keys, about, of one statement: 70 KB of text."""
MESSAGES_PER_QUESTION: Final = 1_000
PLACES_PER_QUESTION: Final = 1_000
MOST_KEYS: Final = 1_000_000
"""With more keys to ask about, whole ranges of the newest days are read instead."""
RANGES: Final = 256
WORTH_A_FILTER: Final = 10_000
"""With fewer keys, the archive's indexes are asked directly."""
MOST_FILTERED: Final = 20_000_000
"""A larger day has no filter: its keys would take this process too long to read."""
_HEX: Final = "0123456789abcdef"
_AFTER_HEX: Final = "g"
_FETCH: Final = "10000"
_POLL_S: Final = 0.5
_ARCHIVED: Final = re.compile(r"deliveries[_-](\d{8})(\.jsonl\.gz)?")
_JDBC_WORDS: Final = (
    "FAILED_JDBC",
    "SQLException",
    "PSQLException",
    "SQLITE_",
    "java.sql.",
    "org.postgresql",
)


class LedgerAway(SparkTrouble):
    """The ledger, or its replica, did not answer, or is behind: this run finds nothing."""


class LedgerReader:
    """Answers are kept by Spark until `release`. Every method may raise LedgerAway."""

    def __init__(
        self,
        spark: SparkSession,
        login: JdbcLogin,
        connections: int,
        archive: str = "",
        filters: DayFilters | None = None,
    ) -> None:
        """`archive`: the folder of SQLite's archive files. `filters`: of PostgreSQL's archived days."""
        self.rows_read = 0
        self.spared = 0
        """Look-ups of a key in an archived day that a filter made needless."""
        self._filters = filters
        self._spark = spark
        self._login = login
        self._connections = connections
        self._archive = archive
        self._kept: list[DataFrame] = []
        self.is_postgres = login.url.startswith("jdbc:postgresql:")

    def wait_for(self, run_id: int, patience_s: float) -> int:
        """Waits until the database has the run's row with its positions: then it has everything that was
        committed before these. Returns the wait in milliseconds, a replica's lag."""
        begun = time.monotonic()
        statement = sql.RUN.format(run_id=int(run_id))
        while True:
            found = self._answer(statement, "found INT").collect()
            waited = time.monotonic() - begun
            if found:
                return int(waited * 1000)
            if waited >= patience_s:
                raise LedgerAway(
                    f"the ledger's replica is more than {waited:.0f} s behind: nothing is looked for in"
                    " this run; wait, or empty spark.ledger_url"
                )
            time.sleep(_POLL_S)

    def now(self) -> int:
        """Returns the ledger's clock, epoch milliseconds."""
        if not self.is_postgres:
            return time.time_ns() // 1_000_000
        return int(self._answer(sql.NOW, "now BIGINT").collect()[0][0])

    def rows(self, keys: DataFrame, since: date | None) -> DataFrame:
        """Returns those of the keys (column delivery_key) that have a row, with its state; ARCHIVED for a
        row that left with its day. `since`: the earliest day on which one can have been claimed."""
        keys, asked = self._keep(keys.distinct())
        found = self._empty()
        if asked > MOST_KEYS:
            found = self._answer(sql.of_days(since), ROWS, _ranges()).join(
                keys, "delivery_key", "left_semi"
            )
            keys, asked = self._keep(keys.join(found, "delivery_key", "left_anti"))
        named = sql.ROWS_BY_NAME if self.is_postgres else sql.ROWS
        here = self._answer(named, ROWS, _questions(keys, asked), keyed=True)
        left = self._keep(keys.join(here, "delivery_key", "left_anti"))
        return found.unionByName(here).unionByName(self._archived(*left, since))

    def messages(self, names: DataFrame) -> DataFrame:
        """Returns (message_id, delivery_key) of the rows of these messages (column message_id)."""
        found = self._keep(names.distinct()).frame
        return self._answer(
            sql.MESSAGES, "message_id STRING, delivery_key STRING", _of_messages(found), keyed=True
        )

    def counts(self, since: int) -> DataFrame:
        """Returns the number of rows by lane and hour of their claim, from that hour on."""
        return self._answer(sql.counts(since), "lane STRING, hour BIGINT, rows BIGINT")

    def open_rows(self, lanes: Sequence[str], now: int, grace_ms: int) -> DataFrame:
        """Returns the rows IN_FLIGHT whose owner is not alive, and those that are long due."""
        statement = sql.open_rows(now - grace_ms, is_postgres=self.is_postgres)
        return self._answer(statement, sql.OPEN_ROWS, _lanes(lanes))

    def given_back(self, lanes: Sequence[str], before: int) -> DataFrame:
        """Returns the rows that a worker gave back and that were due for recovery before that time."""
        return self._answer(sql.given_back(before), sql.GIVEN_BACK_ROWS, _lanes(lanes))

    def sent(self, lanes: Sequence[str], since: int, until: int) -> DataFrame:
        """Returns the rows of these lanes that became SENT in that time and are still."""
        return self._answer(sql.sent(since, until), sql.SENT_ROWS, _lanes(lanes))

    def last_offsets(self, places: Sequence[tuple[str, int, int, int]]) -> DataFrame:
        """Returns (topic, partition, offset): the greatest offset with a row within each of the places,
        given as topic, partition, first and next."""
        schema = "topic STRING, partition INT, offset BIGINT"
        found = self._empty(schema)
        for start in range(0, len(places), PLACES_PER_QUESTION):
            some = places[start : start + PLACES_PER_QUESTION]
            found = found.unionByName(self._answer(sql.last_offsets(some), schema))
        return found

    def recalls(self) -> DataFrame:
        """Returns the recalls that are in force."""
        return self._answer(sql.RECALLS, "kind STRING, name STRING, made_at BIGINT")

    def findings(self, most: int) -> DataFrame:
        """Returns the open findings that no run finds by itself again; at most `most` + 1."""
        return self._answer(sql.findings(most + 1), sql.FINDINGS)

    def release(self) -> None:
        """Lets Spark forget the answers."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    def _archived(self, keys: DataFrame, asked: int, since: date | None) -> DataFrame:
        if not asked:
            return self._empty()
        if not self.is_postgres:
            return self._in_files(keys, since)
        tables = self._answer(sql.ARCHIVED, "name STRING, identity STRING").collect()
        every = [ArchivedDay(*row) for row in tables if _ARCHIVED.fullmatch(row[0])]
        wanted = [day for day in every if _left_since(day.name, since)]
        admitted = self._admitted(every, wanted, keys, asked)
        rest = [day.name for day in wanted if day not in admitted]
        some = sorted(set().union(*admitted.values()))
        few = self._spark.createDataFrame([(key,) for key in some], "delivery_key STRING")
        found = self._in_tables(rest, keys, asked)
        admitting = [day.name for day, names in admitted.items() if names]
        return found.unionByName(self._in_tables(admitting, few, len(some)))

    def _in_tables(self, names: list[str], keys: DataFrame, asked: int) -> DataFrame:
        if not names:
            return self._empty()
        return self._answer(sql.in_archive(names), ROWS, _questions(keys, asked), keyed=True)

    def _admitted(
        self,
        every: Sequence[ArchivedDay],
        wanted: Sequence[ArchivedDay],
        keys: DataFrame,
        asked: int,
    ) -> dict[ArchivedDay, set[str]]:
        """Returns, for each wanted day with a filter, the keys that may be of it. Makes one filter that is
        missing, the newest day's, in each run."""
        if self._filters is None or asked < WORTH_A_FILTER:
            return {}
        names = [row[0] for row in keys.collect()]
        self._filters.drop_others(every)
        whole = sorted((day for day in wanted if day.identity), reverse=True)
        admitted = self._filters.admitted(whole, names)
        missing = next((day for day in whole if day not in admitted), None)
        if missing is not None and self._make_filter(missing):
            admitted |= self._filters.admitted([missing], names)
        self.spared += sum(asked - len(some) for some in admitted.values())
        return admitted

    def _make_filter(self, day: ArchivedDay) -> bool:
        assert self._filters is not None
        with ledger_errors():
            counted = self._read(sql.count_in_archive(day.name), "rows BIGINT", None)
            count = int(counted.collect()[0][0])
            if count > MOST_FILTERED:
                return False
            ranges = [_between(digit) for digit in _HEX]
            keys = self._read(sql.keys_in_archive(day.name), "delivery_key STRING", ranges)
            return self._filters.build(day, (row[0] for row in keys.toLocalIterator()), count)

    def _in_files(self, keys: DataFrame, since: date | None) -> DataFrame:
        folder = Path(self._archive)
        files = sorted(folder.glob("deliveries-*.jsonl.gz")) if self._archive else []
        wanted = [str(path) for path in files if _left_since(path.name, since)]
        if not wanted:
            return self._empty()
        lines = self._spark.read.schema("kind STRING, delivery_key STRING").json(wanted)
        rows = lines.where(f.col("kind") == "delivery").join(keys, "delivery_key", "left_semi")
        return rows.select("delivery_key", f.lit("ARCHIVED").alias("state")).distinct()

    def _answer(
        self,
        statement: str,
        schema: str,
        predicates: list[str] | None = None,
        *,
        keyed: bool = False,
    ) -> DataFrame:
        """Runs the statement, once for each predicate. Returns the rows, read already.

        SQLite gets one connection at a time: an open and a close in two threads of one JVM once waited
        for each other without end, in the driver's native code (its version 3.51.1)."""
        if predicates == []:
            return self._empty(schema)
        with ledger_errors():
            frame = self._read(statement, schema, predicates, keyed=keyed)
            answer = kept(frame.coalesce(self._connections if self.is_postgres else 1))
        self.rows_read += answer.rows
        self._kept.append(answer.frame)
        return answer.frame

    def _read(
        self, statement: str, schema: str, predicates: list[str] | None, *, keyed: bool = False
    ) -> DataFrame:
        """Returns the rows as Spark will read them: one question for each predicate."""
        properties = {"driver": self._login.driver, "fetchsize": _FETCH, "customSchema": schema}
        if self._login.user:
            properties |= {"user": self._login.user, "password": self._login.password}
        if self.is_postgres:
            properties["sessionInitStatement"] = sql.KEYED_SESSION if keyed else sql.SESSION
        table = f"({statement}) AS asked"
        return self._spark.read.jdbc(
            self._login.url, table, predicates=predicates or ["1 = 1"], properties=properties
        )

    def _keep(self, frame: DataFrame) -> Kept:
        found = kept(frame)
        self._kept.append(found.frame)
        return found

    def _empty(self, schema: str = ROWS) -> DataFrame:
        return empty(self._spark, schema)


def _questions(keys: DataFrame, count: int) -> list[str]:
    """Returns a condition for each range of the keys. They are digests, so that ranges are of one size."""
    digits = 0
    while count > KEYS_PER_QUESTION * len(_HEX) ** digits:
        digits += 1
    within = keys.groupBy(f.substring("delivery_key", 1, digits).alias("head")).agg(
        f.concat_ws("','", f.sort_array(f.collect_list("delivery_key"))).alias("keys")
    )
    return [
        f"{_between(row['head'])} AND delivery_key IN ('{row['keys']}')"
        for row in within.sort("head").collect()
    ]


def _of_messages(names: DataFrame) -> list[str]:
    """Returns a condition for each thousand of the names. A producer chose them: quotes are doubled."""
    literal = f.concat(f.lit("'"), f.replace("message_id", f.lit("'"), f.lit("''")), f.lit("'"))
    part = f.floor(f.monotonically_increasing_id() / MESSAGES_PER_QUESTION)
    within = names.select(literal.alias("name"), part.alias("part")).groupBy("part")
    rows = within.agg(f.concat_ws(",", f.collect_list("name")).alias("names")).collect()
    return [f"message_id IN ({row['names']})" for row in rows]


def _ranges() -> list[str]:
    return [_between(f"{number:02x}") for number in range(RANGES)]


def _between(head: str) -> str:
    return f"delivery_key >= '{head}' AND delivery_key < '{head}{_AFTER_HEX}'"


def _lanes(lanes: Sequence[str]) -> list[str]:
    """Returns one condition for the lanes; their names are those of message/vocabulary.py."""
    named = ", ".join(f"'{lane}'" for lane in sorted(lanes))
    return [f"lane IN ({named})"] if named else []


def _left_since(name: str, since: date | None) -> bool:
    found = _ARCHIVED.fullmatch(name)
    if found is None:
        return False
    day = found[1]
    return since is None or day >= f"{since - timedelta(days=1):%Y%m%d}"


@contextmanager
def ledger_errors() -> Iterator[None]:
    """Maps the database's errors to LedgerAway; others pass unchanged."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as exc:
        text = cause_of(exc)
        if not any(word in text or word in str(exc) for word in _JDBC_WORDS):
            raise
        raise LedgerAway(
            f"the ledger did not answer, so nothing is looked for in this run: {text}"
        ) from exc
