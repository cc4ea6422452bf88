"""SQL that makes one day of deliveries for the console's benchmark. Pure.

A row follows from seed, day and number alone: the same database comes out each time. One in ten messages
has a second receiver. Numbers are spread by digits of an MD5, not by `random()`.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final, NamedTuple

import msgspec

from message.envelope import Notification, Template, encode
from message.receiver_hash import TEXT_HASH_BYTES
from tracing.events import Stage, TraceEvent

DAY_MS: Final = 86_400_000
HASH_KEY: Final = "console benchmark, receivers' hash"
LANE_SHARES: Final = (
    ("sms.verification", 300),
    ("sms.notice", 250),
    ("sms.marketing", 100),
    ("email.notice", 100),
    ("wechat_mini.notice", 80),
    ("push.notice", 70),
    ("webhook.marketing", 60),
    ("wecom.notice", 40),
)
"""Lanes, and their shares of a thousand. `webhook.notice` is left to the worker beside."""
END_SHARES: Final = (
    ("SENT", 300),
    ("DELIVERED", 590),
    ("PARKED", 15),
    ("REJECTED", 30),
    ("EXPIRED", 15),
    ("UNDELIVERED", 30),
    ("DROPPED", 20),
)
"""Ends, and their shares of a thousand."""
OPEN_SHARES: Final = (("UNKNOWN", 10), ("RETRY", 20))
"""Open states, and their shares of a thousand of the last hour; the others have ended."""
TEMPLATES: Final = 40
PARTITIONS: Final = 12
_REPORTING: Final = ("sms", "email", "push")
"""Channels whose providers report arrivals."""
_ROW, _TIME, _CLAIMED, _ANSWERED = "@message", 111_111_111_111, 222_222_222_222, 333_333_333_333


class DayOfRows(NamedTuple):
    """One day to make; `width_ms` is shorter than a day for today."""

    seed: int
    day: int
    rows: int
    width_ms: int
    people: int
    """Receivers of each channel."""
    now_ms: int


def day_of_rows(day: DayOfRows, without: Container[str] = ()) -> str:
    """Returns the statement that makes the day's deliveries, without some columns."""
    columns = {name: spelt for name, spelt in _COLUMNS.items() if name not in without}
    names, values = ", ".join(columns), ", ".join(columns.values())
    return f"INSERT INTO deliveries ({names}) SELECT {values} FROM {_rows(day)}"


def keys_of(day: int) -> str:
    """Returns the statement that notes the keys of a day's deliveries."""
    return (
        "INSERT INTO delivery_keys (delivery_key, day)"
        f" SELECT delivery_key, day FROM deliveries WHERE day = {day}"
    )


def receipts_of(day: int) -> str:
    """Returns the statement that makes the receipts of a day's deliveries."""
    return f"""
INSERT INTO receipts (account, provider_id, call_key, receivers, state, code, at, received_at, applied,
                      applied_at, delivery_key)
SELECT account, provider_id, '', '', state, CASE state WHEN 'DELIVERED' THEN 'DELIVRD' ELSE 'UNDELIV' END,
       updated_at, updated_at, 'applied', updated_at, delivery_key
  FROM deliveries WHERE day = {day} AND state IN ('DELIVERED', 'UNDELIVERED')"""


def trace_of(day: int) -> str:
    """Returns the statement that makes the trace of a day's deliveries that were claimed and ended."""
    return f"""
INSERT INTO trace_events (day, at, message_id, events)
SELECT day, updated_at, message_id,
       format({_literal(_events())}, message_id, delivery_key, lane, account, state, created_at,
              created_at + 40, updated_at, encode(receiver_hash, 'hex'), provider_id)
  FROM deliveries WHERE day = {day} AND attempt > 0 AND state NOT IN ('IN_FLIGHT', 'RETRY')"""


def padded_key(byte: int) -> str:
    """Returns HMAC's inner (0x36) or outer (0x5c) pad of the hash key, in hex."""
    return bytes(one ^ byte for one in HASH_KEY.encode().ljust(64, b"\0")).hex()


_ANY: Final = "''"
"""In place of a channel: the receiver's text alone is hashed."""


def _hmac(channel: str) -> str:
    """Returns the expression of a receiver's keyed hash; `channel` is an expression, too."""
    said = f"convert_to({channel} || chr(31) || receiver, 'UTF8')"
    inner = f"sha256('\\x{padded_key(0x36)}'::bytea || {said})"
    return f"sha256('\\x{padded_key(0x5C)}'::bytea || {inner})"


_COLUMNS: Final = {
    "delivery_key": "key",
    "day": "day",
    "token": "('x' || substr(key, 1, 15))::bit(60)::bigint | 1",
    "created_at": "made",
    "updated_at": "ended",
    "expires_at": "made + 86400000",
    "next_at": """CASE WHEN state = 'RETRY' THEN ended + 30000
        WHEN state = 'UNKNOWN' THEN ended + 60000 END""",
    "kafka_offset": "day::bigint * 1000000 + n",
    "kafka_partition": f"mod(n, {PARTITIONS})",
    "attempt": "CASE WHEN state = 'DROPPED' THEN 0 WHEN state = 'PARKED' THEN 5 ELSE 1 END",
    "owner_epoch": "1",
    "state": "state",
    "lane": "lane",
    "owner": "'worker-' || mod(n, 8)",
    "message_id": "message",
    "receiver": "convert_to(receiver, 'UTF8')",
    "body_digest": "substring(sha256(payload) FROM 1 FOR 16)",
    "policy_version": "'v' || day / 7",
    "biz_id": "CASE WHEN spread_b < 800 THEN 'order-' || day || '-' || m END",
    "reason": """CASE state
        WHEN 'PARKED' THEN CASE WHEN mod(spread_b, 3) = 0 THEN 'unproven' ELSE 'attempts_spent' END
        WHEN 'REJECTED' THEN 'rejected:isv.MOBILE_NUMBER_ILLEGAL'
        WHEN 'EXPIRED' THEN 'ttl_at_intake' WHEN 'UNDELIVERED' THEN 'undelivered:UNDELIV'
        WHEN 'DROPPED'
        THEN CASE WHEN mod(spread_b, 2) = 0 THEN 'frequency_cap' ELSE 'quiet_hours' END
        WHEN 'RETRY' THEN 'provider_busy' WHEN 'UNKNOWN' THEN 'timeout' END""",
    "provider_id": """CASE WHEN state IN ('SENT', 'DELIVERED', 'UNDELIVERED')
        THEN '9' || substr(key, 12, 18) END""",
    "account": "account",
    "resend_of": "CASE WHEN spread_b = 999 AND n > 500 THEN earlier END",
    "kafka_topic": "'hongyan.dispatch.' || lane",
    "payload": "payload",
    "call_key": "substr(key, 1, 24)",
    "refusals": "0",
    "repeats": "0",
    "receiver_hash": _hmac("channel"),
    "receiver_text_hash": f"substring({_hmac(_ANY)} FROM 1 FOR {TEXT_HASH_BYTES})",
    "template": "template",
}


def _rows(day: DayOfRows) -> str:
    """Returns the rows in the words of `_COLUMNS`. `OFFSET 0` keeps the planner from repeating a word."""
    return f"""
(SELECT s.*, convert_to(format({_literal(_payload())}, message, channel, kind, receiver, template, n,
                               made), 'UTF8') AS payload
   FROM (SELECT d.*, split_part(lane, '.', 2) AS kind, channel || CASE WHEN spread_b < 700 THEN '-a'
                     WHEN spread_b < 950 THEN '-b' ELSE '-c' END AS account,
                CASE channel WHEN 'sms' THEN '+86138' || lpad(person::text, 8, '0')
                     WHEN 'email' THEN 'user' || person || '@example.com'
                     ELSE 'user-' || person END AS receiver,
                CASE WHEN spread_c < 750 THEN upper(channel) || '_' || floor({TEMPLATES}
                     * power(spread_c / 750.0, 2))::int END AS template,
                made + CASE state WHEN 'PARKED' THEN 600000 WHEN 'EXPIRED' THEN 10 WHEN 'DROPPED' THEN 10
                       ELSE 200 END + spread_a AS ended
           FROM (SELECT c.*, {_state(day)} AS state
                   FROM (SELECT b.*, split_part(lane, '.', 1) AS channel
                           FROM (SELECT a.*, {_share("spread_l", LANE_SHARES)} AS lane
                                   FROM {_numbers(day)} AS a
                                 OFFSET 0) AS b
                          OFFSET 0) AS c OFFSET 0) AS d OFFSET 0) AS s OFFSET 0) AS r"""


def _numbers(day: DayOfRows) -> str:
    """Returns the day's numbers with their time, names and spreads from 0 to 999."""
    return f"""
(SELECT n, m, {day.day} AS day, key, made, {_message("made", "message_key")} AS message,
        {_message(_made(day, "n - 500"), _key(day, "m", "n - 500"))} AS earlier,
        {_spread("key", 1)} AS spread_a, {_spread("key", 8)} AS spread_s, {_spread("key", 15)} AS spread_b,
        {_spread("message_key", 1)} AS spread_l, {_spread("message_key", 8)} AS spread_c,
        mod(('x' || substr(key, 22, 7))::bit(28)::int, {day.people}) AS person
   FROM (SELECT n, m, {_key(day, "k", "n")} AS key, {_key(day, "m", "m")} AS message_key,
                {_made(day, "m")} AS made
           FROM (SELECT n, n - CASE WHEN mod(n, 10) = 0 THEN 1 ELSE 0 END AS m
                   FROM generate_series(1, {day.rows}) AS n) AS pairs OFFSET 0) AS named OFFSET 0)"""


def _key(day: DayOfRows, mark: str, number: str) -> str:
    return f"md5('{mark}/{day.seed}/{day.day}/' || ({number}))"


def _made(day: DayOfRows, number: str) -> str:
    return f"{day.day}::bigint * {DAY_MS} + ({number})::bigint * {day.width_ms} / {day.rows + 1}"


def _message(made: str, key: str) -> str:
    """Returns an id that begins with its time, as a UUIDv7 does."""
    return f"lpad(to_hex({made}), 12, '0') || '7' || substr({key}, 1, 19)"


def _spread(key: str, place: int) -> str:
    return f"mod(('x' || substr({key}, {place}, 7))::bit(28)::int, 1000)"


def _share(spread: str, shares: tuple[tuple[str, int], ...]) -> str:
    """Returns a CASE that gives each word its share of the spread; the last one has the rest."""
    whens, below = [], 0
    for word, share in shares:
        below += share
        whens.append(f"WHEN {spread} < {below} THEN '{word}'")
    return f"CASE {' '.join(whens)} ELSE '{shares[-1][0]}' END"


def _state(day: DayOfRows) -> str:
    reporting = ", ".join(f"'{channel}'" for channel in _REPORTING)
    ended = _share("spread_s", END_SHARES)
    for silent, spoken in (("SENT", "DELIVERED"), ("REJECTED", "UNDELIVERED")):
        ended = ended.replace(
            f"THEN '{spoken}'",
            f"THEN CASE WHEN channel IN ({reporting}) THEN '{spoken}' ELSE '{silent}' END",
        )
    late = day.now_ms - DAY_MS // 24
    below, opened = 0, []
    for word, share in OPEN_SHARES:
        below += share
        opened.append(f"WHEN made > {late} AND spread_c < {below} THEN '{word}'")
    return f"CASE {' '.join(opened)} ELSE {ended} END"


def _payload() -> str:
    """Returns an ordinary notification as a format of `format()`."""
    one = Notification(
        id="@1@", channel="sms", kind="notice", receivers=["@4@"],
        template=Template(id="@5@", params={"order": "@6@", "text": "您的订单预计明天送达，请注意查收。"}),
        created_at=_TIME, ttl_ms=DAY_MS, attributes={"source": "console benchmark"},
    )  # fmt: skip
    spelt = encode(one).decode().replace('"sms"', '"@2@"').replace('"notice"', '"@3@"')
    return _format(spelt.replace(str(_TIME), "@7@"))


def _events() -> str:
    """Returns the trace of one call as a format of `format()`."""
    one = TraceEvent(
        at=_ANSWERED, stage=Stage.SETTLED, message_id="@1@", delivery_key="@2@", lane="@3@",
        receiver="138****0000", receiver_hash="@9@", worker="worker-1", attempt=1, state="@5@",
        account="@4@", provider_id="@10@", policy_version="v1", created_at=_TIME, claimed_at=_TIME,
        started_at=_CLAIMED, answered_at=_ANSWERED,
    )  # fmt: skip
    spelt = msgspec.json.encode([one]).decode()
    for value, place in ((_TIME, "@6@"), (_CLAIMED, "@7@"), (_ANSWERED, "@8@")):
        spelt = spelt.replace(str(value), place)
    return _format(spelt)


def _format(spelt: str) -> str:
    return re.sub(r"@(\d+)@", r"%\1$s", spelt.replace("%", "%%"))


def _literal(spelt: str) -> str:
    return "'" + spelt.replace("'", "''") + "'"
