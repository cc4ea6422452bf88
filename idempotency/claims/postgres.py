"""Claims and settlements on PostgreSQL: whole columns travel as arrays, one statement a batch.

A claim inserts into `delivery_keys` first: the claim that enters a key there makes its row. Ordered lanes
take an advisory lock per line before it, in one transaction: two claims that do not see each other
would both be first in line (docs/decisions/013).

A recalled delivery enters as DROPPED. The claim names `recalls`, so it holds a lock on that table from
before its snapshot until its end. A recall waits for that lock (idempotency/recalls.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from backends.sql.database import Database
from backends.sql.pg_arrays import ByteArray, array, byte_array
from backends.sql.pg_numbered import fetched, numbered
from idempotency.bounds import usable
from idempotency.claims.rows import ClaimBatch, ClaimRow, ExistingRow, OutcomeRow
from idempotency.claims.store import MS_PER_DAY, ClaimResult, ClaimStore, RerouteRow, TakeoverRow
from idempotency.error_mapping import connected
from idempotency.lines import ASLEEP_AT, Execute, Line, PostgresLines
from idempotency.outcomes.lanes import AnnouncedLanes
from idempotency.outcomes.statements import pg_announced, returned
from idempotency.payload_cipher import PayloadCipher
from message.receiver_hash import HashReceiver, no_hash

_BYTES = frozenset({"receiver", "digest", "payload", "receiver_hash", "receiver_text_hash"})

_IS_WON: Final = "(key IN (SELECT delivery_key FROM won)) IS TRUE"

_FRESH_IN_LINE: Final = f"""
fresh AS MATERIALIZED (
    SELECT *, NOT recalled AND wanted IN ('IN_FLIGHT', 'RETRY') AND ordering_key IS NOT NULL
              AND (message_id <> head OR EXISTS (
               SELECT FROM deliveries AS d
                WHERE d.ordering_key = entering.ordering_key AND d.lane = entering.lane
                  AND d.message_id <> entering.message_id
                  AND d.state IN ('IN_FLIGHT', 'RETRY', 'UNKNOWN'))) AS waits
      FROM (SELECT *, first_value(message_id) OVER (
                          PARTITION BY lane, ordering_key
                          ORDER BY recalled OR wanted NOT IN ('IN_FLIGHT', 'RETRY'), place) AS head
              FROM input
             WHERE {_IS_WON}) AS entering
),"""  # noqa: S608 - ours

# Plans must not depend on statistics. "= ANY (ARRAY[key])" can use an index and nothing else: no join
# in another order, no scan for its sort. "state || ''" matches no partial index's condition.
# "IS TRUE" makes a hashed subplan of IN. A join would be a nested loop: see
# backends.sql.database._FIXED_PLANS. Rows of arrays are made by a list of "unnest(…)": as a table,
# "FROM unnest(…, …)" would keep each column apart before it has the rows (docs/decisions/313).
_CLAIM: Final = """
WITH{settled} clock AS MATERIALIZED (SELECT hongyan_now() AS ms),
input AS MATERIALIZED (
    SELECT i.*, (SELECT EXISTS (SELECT FROM recalls WHERE until > hongyan_now()))
                AND wanted IN ('IN_FLIGHT', 'RETRY', 'PARKED')
                AND hongyan_recalled(message_id, biz_id, noted_at, lane) AS recalled
      FROM (SELECT
        unnest(%(key)s::text[]) AS key, unnest(%(token)s::bigint[]) AS token,
        unnest(%(state)s::text[]) AS wanted, unnest(%(reason)s::text[]) AS why,
        unnest(%(attempt)s::int[]) AS tries, unnest(%(delay_ms)s::bigint[]) AS delay_ms,
        unnest(%(lane)s::text[]) AS lane, unnest(%(message_id)s::text[]) AS message_id,
        unnest(%(biz_id)s::text[]) AS biz_id, unnest(%(ordering_key)s::text[]) AS ordering_key,
        unnest(%(expires_at)s::bigint[]) AS expires_at,
        unnest(%(policy_version)s::text[]) AS policy_version,
        unnest(%(resend_of)s::text[]) AS resend_of, unnest(%(topic)s::text[]) AS topic,
        unnest(%(partition)s::int[]) AS partition, unnest(%(offset)s::bigint[]) AS "offset",
        unnest(%(account)s::text[]) AS account, unnest(%(call_key)s::text[]) AS call_key,
        unnest(%(call_digest)s::text[]) AS call_digest, unnest(%(receiver)s::bytea[]) AS receiver,
        unnest(%(digest)s::bytea[]) AS digest, unnest(%(payload)s::bytea[]) AS payload,
        unnest(%(template)s::text[]) AS template,
        unnest(%(receiver_hash)s::bytea[]) AS receiver_hash,
        unnest(%(receiver_text_hash)s::bytea[]) AS receiver_text_hash,
        unnest(%(noted_at)s::bigint[]) AS noted_at,
        generate_subscripts(%(key)s::text[], 1) AS place) AS i
),
won AS (
    INSERT INTO delivery_keys (delivery_key, day)
    SELECT key, (ms / 86400000)::int FROM input CROSS JOIN clock ORDER BY key COLLATE "C"
    ON CONFLICT DO NOTHING
    RETURNING delivery_key
),{fresh}
kept AS (
    INSERT INTO payloads (message_id, day, body_digest, payload)
    SELECT s.message_id, (ms / 86400000)::int, s.digest, s.payload
      FROM unnest(%(shared_id)s::text[], %(shared_digest)s::bytea[], %(shared_payload)s::bytea[])
               AS s (message_id, digest, payload) CROSS JOIN clock
     WHERE (s.message_id IN (SELECT message_id FROM {table} WHERE {is_won})) IS TRUE
    ON CONFLICT DO NOTHING
),
entered AS (
    INSERT INTO deliveries (
        delivery_key, day, token, created_at, updated_at, expires_at, next_at, kafka_offset,
        kafka_partition, attempt, owner_epoch, state, lane, owner, message_id, receiver,
        body_digest, policy_version, biz_id, reason, ordering_key, resend_of, kafka_topic, payload,
        account, call_key, call_digest, template, receiver_hash, receiver_text_hash,
        called_at)
    SELECT key, (ms / 86400000)::int, token, ms, ms, expires_at,
           CASE WHEN {waits} THEN {asleep} WHEN NOT recalled THEN ms + delay_ms END,
           "offset", partition, CASE WHEN recalled OR {waits} THEN 0 ELSE tries END,
           coalesce(%(epoch)s::int, (SELECT epoch FROM workers WHERE id = %(owner)s), 0),
           CASE WHEN recalled THEN 'DROPPED' WHEN {waits} THEN 'RETRY' ELSE wanted END,
           lane, %(owner)s, message_id, receiver, digest, policy_version, biz_id,
           CASE WHEN recalled THEN 'recalled' WHEN {waits} AND wanted = 'IN_FLIGHT' THEN 'behind'
                ELSE why END,
           ordering_key, resend_of, topic, payload, account, call_key, call_digest,
           template, receiver_hash, receiver_text_hash,
           CASE WHEN wanted = 'IN_FLIGHT' AND NOT (recalled OR {waits}) THEN ms END
      FROM {table} CROSS JOIN clock
     WHERE {is_won}{entered}
){announced}
SELECT ms, (SELECT string_agg(key, ',') FROM input
             WHERE (key IN (SELECT delivery_key FROM won)) IS NOT TRUE),
           (SELECT string_agg(key, ',') FROM {table} WHERE {waits} AND wanted = 'IN_FLIGHT'),
           (SELECT string_agg(key, ',') FROM {table} WHERE recalled AND {is_won}){counted}
  FROM clock"""


def _claim(
    *,
    in_line: bool = False,
    settled: str = "",
    counted: str = "",
    entered: str = "",
    announced: str = "",
) -> str:
    """Returns a claim statement without its indentation: psycopg parses a statement of more than 4,096
    characters anew each time."""
    statement = _CLAIM.format(
        settled=settled,
        fresh=_FRESH_IN_LINE if in_line else "",
        table="fresh" if in_line else "input",
        is_won="true" if in_line else _IS_WON,
        waits="waits" if in_line else "false",
        asleep=ASLEEP_AT,
        entered=entered,
        announced=announced,
        counted=counted,
    )
    return " ".join(statement.split())


CLAIM: Final = _claim()
CLAIM_IN_LINE: Final = _claim(in_line=True)

# It takes no recalled row: recovery drops that one.
_TAKE: Final = """
WITH input AS MATERIALIZED (
    SELECT i.*, day
      FROM unnest(%(key)s::text[], %(token)s::bigint[], %(digest)s::bytea[], %(takes)s::bool[],
                  %(account)s::text[], %(call_key)s::text[], %(call_digest)s::text[],
                  %(policy_version)s::text[])
               AS i (key, token, digest, takes, account, call_key, call_digest, policy_version)
      JOIN delivery_keys ON delivery_key = ANY (ARRAY[key])
),
taken AS (
    UPDATE deliveries AS d
       SET state = 'IN_FLIGHT', token = i.token, attempt = d.attempt + 1, reason = NULL,
           next_at = NULL, updated_at = hongyan_now(), version = d.version + 1,
           account = i.account, call_key = i.call_key, call_digest = i.call_digest,
           policy_version = coalesce(i.policy_version, d.policy_version),
           called_at = hongyan_now(), owner = %(owner)s,
           owner_epoch = coalesce(%(epoch)s::int,
                                  (SELECT epoch FROM workers WHERE id = %(owner)s), 0)
      FROM input AS i
     WHERE i.takes AND d.delivery_key = ANY (ARRAY[i.key]) AND d.day = i.day
       AND d.body_digest = i.digest AND d.state || '' = 'RETRY' AND d.reason = 'given_back'
       AND {usable}
       AND NOT ((SELECT EXISTS (SELECT FROM recalls WHERE until > hongyan_now()))
                AND hongyan_recalled(d.message_id, d.biz_id, d.created_at, d.lane))
    RETURNING d.delivery_key, d.state, d.token, d.attempt
)
SELECT d.delivery_key, coalesce(t.state, d.state), coalesce(t.token, d.token),
       coalesce(t.attempt, d.attempt), d.day, d.body_digest, d.reason, d.provider_id
  FROM input AS i
  JOIN deliveries AS d ON d.delivery_key = ANY (ARRAY[i.key]) AND d.day = i.day
  LEFT JOIN taken AS t ON t.delivery_key = i.key"""
TAKE: Final = _TAKE.format(usable=usable("d"))

SETTLE: Final = """
UPDATE deliveries AS d
   SET state = s.state, reason = s.reason, provider_id = coalesce(s.provider_id, d.provider_id),
       account = coalesce(s.account, d.account),
       next_at = clock.ms + s.delay_ms,
       called_at = CASE WHEN s.state IN ('UNKNOWN', 'SENT') THEN d.called_at END,
       attempt = d.attempt - s.unstarted, refusals = s.refusals, repeats = s.repeats,
       updated_at = clock.ms, version = d.version + 1
  FROM (SELECT unnest(%(key)s::text[]) AS key, unnest(%(day)s::int[]) AS day,
               unnest(%(token)s::bigint[]) AS token, unnest(%(state)s::text[]) AS state,
               unnest(%(reason)s::text[]) AS reason,
               unnest(%(provider_id)s::text[]) AS provider_id,
               unnest(%(account)s::text[]) AS account,
               unnest(%(delay_ms)s::bigint[]) AS delay_ms,
               unnest(%(unstarted)s::int[]) AS unstarted,
               unnest(%(refusals)s::int[]) AS refusals, unnest(%(repeats)s::int[]) AS repeats) AS s,
       (SELECT hongyan_now() AS ms) AS clock
 WHERE d.delivery_key = ANY (ARRAY[s.key]) AND d.day = s.day AND d.token = s.token
   AND d.state || '' = 'IN_FLIGHT'"""

_RETURNING: Final = f"\n    RETURNING {returned()}"
_ENTERED: Final = f"SELECT {returned()} FROM entered"  # noqa: S608 - ours
_BOTH: Final = f"SELECT * FROM settled UNION ALL {_ENTERED}"  # noqa: S608 - ours
_announcing = partial(_claim, entered=_RETURNING, announced=f",\n{pg_announced(_ENTERED)}")
_CLAIM_NUMBERED, _CLAIM_ORDER = numbered(_announcing())
_LINE_NUMBERED, _LINE_ORDER = numbered(_announcing(in_line=True))
SETTLE_ANNOUNCED: Final = f"""
WITH settled AS ({SETTLE}
RETURNING {returned("d")}),
{pg_announced("SELECT * FROM settled")}
SELECT count(*) FROM settled"""  # noqa: S608 - ours

_SETTLED: Final = f" settled AS ({SETTLE.replace('%(', '%(settled_')}\nRETURNING d.day),"
SETTLE_AND_CLAIM: Final = _claim(settled=_SETTLED, counted=", (SELECT count(*) FROM settled)")
_NUMBERED, _ORDER = numbered(SETTLE_AND_CLAIM)
_BOTH_NUMBERED, _BOTH_ORDER = numbered(
    _claim(
        settled=_SETTLED.replace("RETURNING d.day", f"RETURNING {returned('d')}"),
        counted=", (SELECT count(*) FROM settled)",
        entered=_RETURNING,
        announced=f",\n{pg_announced(_BOTH)}",
    )
)

REROUTE: Final = """
UPDATE deliveries AS d
   SET account = i.account, call_key = i.call_key, call_digest = i.call_digest,
       called_at = hongyan_now(), updated_at = hongyan_now(), attempt = d.attempt + 1,
       version = d.version + 1
  FROM unnest(%(key)s::text[], %(day)s::int[], %(token)s::bigint[], %(account)s::text[],
              %(call_key)s::text[], %(call_digest)s::text[])
           AS i (key, day, token, account, call_key, call_digest)
 WHERE d.delivery_key = ANY (ARRAY[i.key]) AND d.day = i.day AND d.token = i.token
   AND d.state || '' = 'IN_FLIGHT'
RETURNING d.delivery_key, d.attempt"""

LOOK: Final = """
WITH input AS MATERIALIZED (
    SELECT key, day
      FROM unnest(%(key)s::text[]) AS i (key)
      JOIN delivery_keys ON delivery_key = ANY (ARRAY[key])
)
SELECT d.delivery_key, d.state, d.token, d.attempt, d.day, d.body_digest, d.reason, d.provider_id
  FROM input AS i
  JOIN deliveries AS d ON d.delivery_key = ANY (ARRAY[i.key]) AND d.day = i.day"""


class PostgresBatches(ClaimStore):
    """Claims and settles; `epochs` holds the epoch of each worker registered by this process."""

    def __init__(
        self,
        database: Database,
        sealer: PayloadCipher,
        epochs: dict[str, int],
        announced: AnnouncedLanes,
        hash_receiver: HashReceiver = no_hash,
    ) -> None:
        super().__init__(sealer, announced, hash_receiver)
        self._database = database
        self._epochs = epochs
        self._lines = PostgresLines()

    def _enter(
        self, batch: ClaimBatch, owner: str, ordered: bool, *, announces: bool
    ) -> ClaimResult:
        parameters = self._entering(batch, owner, announces=announces)
        lines = _lines_entered(batch.rows) if ordered else set()
        with connected(self._database) as connection:
            if not lines:
                row = _claim_row(connection, parameters, in_line=False, announces=announces)
            else:
                with connection.transaction():
                    self._lines.lock(prepared(connection), lines)
                    row = _claim_row(connection, parameters, in_line=True, announces=announces)
        return _entered(row)

    def _change_and_enter(
        self, changes: Sequence[OutcomeRow], batch: ClaimBatch, owner: str, *, announces: bool
    ) -> tuple[int, ClaimResult]:
        parameters = self._entering(batch, owner, announces=announces)
        for name, column in columns(OutcomeRow._fields, changes).items():
            parameters[f"settled_{name}"] = column
        statement, order = (_BOTH_NUMBERED, _BOTH_ORDER) if announces else (_NUMBERED, _ORDER)
        with connected(self._database) as connection:
            row = fetched(connection, statement, [parameters[name] for name in order])
        return row[-1], _entered(row[:-1])

    def _entering(self, batch: ClaimBatch, owner: str, *, announces: bool) -> dict[str, Any]:
        parameters = columns(ClaimRow._fields, batch.rows) | shared_columns(batch.shared)
        parameters |= {"owner": owner, "epoch": self._epochs.get(owner)}
        return parameters | self._announced.arrays() if announces else parameters

    def _take_or_look(self, wanted: Sequence[TakeoverRow], owner: str) -> list[ExistingRow]:
        parameters = columns(TakeoverRow._fields, wanted)
        parameters |= {"owner": owner, "epoch": self._epochs.get(owner)}
        with connected(self._database) as connection:
            return _standings(connection.execute(TAKE, parameters, prepare=True))

    def _change(self, changes: Sequence[OutcomeRow], *, announces: bool) -> int:
        with connected(self._database) as connection:
            return self._settled(connection, changes, announces=announces)

    def _change_in_lines(
        self, changes: Sequence[OutcomeRow], lines: Iterable[Line], *, announces: bool
    ) -> int:
        with connected(self._database) as connection, connection.transaction():
            execute = prepared(connection)
            self._lines.lock(execute, lines)
            changed = self._settled(connection, changes, announces=announces)
            self._lines.wake(execute, lines, 0)
        return changed

    def _settled(self, connection: Any, changes: Sequence[OutcomeRow], *, announces: bool) -> int:
        """Writes the outcomes in one statement, with their batches if it announces. Returns how many."""
        parameters = columns(OutcomeRow._fields, changes)
        if not announces:
            return int(connection.execute(SETTLE, parameters, prepare=True).rowcount)
        parameters |= self._announced.arrays()
        (count,) = connection.execute(SETTLE_ANNOUNCED, parameters, prepare=True).fetchone()
        return int(count)

    def _route(self, rows: Sequence[RerouteRow]) -> dict[str, int]:
        with connected(self._database) as connection:
            return dict(
                connection.execute(REROUTE, columns(RerouteRow._fields, rows), prepare=True)
            )

    def _look(self, keys: Sequence[str]) -> list[ExistingRow]:
        with connected(self._database) as connection:
            return _standings(connection.execute(LOOK, {"key": array(keys)}, prepare=True))


def columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    """Returns one array per column. A column of nulls is an empty array: a list of "unnest(…)" fills it up
    with nulls."""
    found: dict[str, Any] = {}
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        if values[0] is None and values.count(None) == len(values):
            values = ()
        found[name] = byte_array(values) if name in _BYTES else array(values)
    return found


def shared_columns(shared: dict[tuple[str, bytes], bytes]) -> dict[str, str | ByteArray]:
    """Returns the columns of the payloads that several rows share."""
    return {
        "shared_id": array([message_id for message_id, _digest in shared]),
        "shared_digest": byte_array([digest for _message_id, digest in shared]),
        "shared_payload": byte_array(shared.values()),
    }


def _claim_row(
    connection: Any, parameters: dict[str, Any], *, in_line: bool, announces: bool
) -> Any:
    """Returns the one row of a claim statement."""
    if not announces:
        statement = CLAIM_IN_LINE if in_line else CLAIM
        return connection.execute(statement, parameters, prepare=True).fetchone()
    statement = _LINE_NUMBERED if in_line else _CLAIM_NUMBERED
    order = _LINE_ORDER if in_line else _CLAIM_ORDER
    return fetched(connection, statement, [parameters[name] for name in order])


def _entered(row: Sequence[Any]) -> ClaimResult:
    ms, *keys = row
    return ClaimResult(ms // MS_PER_DAY, *(text.split(",") if text else () for text in keys))


def _lines_entered(rows: Sequence[ClaimRow]) -> set[Line]:
    """Returns every line that the batch claims in."""
    return {Line(row.lane, row.ordering_key) for row in rows if row.ordering_key is not None}


def prepared(connection: Any) -> Execute:
    """Returns a runner of statements that the server plans once."""
    return partial(connection.execute, prepare=True)


def _standings(cursor: Any) -> list[ExistingRow]:
    return [ExistingRow(*row) for row in cursor]
