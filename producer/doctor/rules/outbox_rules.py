"""Rules for a business's database with an outbox, and for the relay.

A notification in an outbox is as safe as a row of that database. So these rules are about the business's
own sessions: a relay's session sets its isolation itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from producer.doctor.facts import Facts, OutboxFacts
from producer.doctor.rule import RuleBook, Said, Seen, Severity

DATABASE: Final = RuleBook("outbox", "outbox")
RELAY: Final = RuleBook("outbox", "outbox")
LARGEST_ROW: Final = 4 << 20
"""An envelope of 1 MiB grows by escaping in a statement; key, headers and the rest come on top."""
_VERSION: Final = re.compile(r"(?<!\d)(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_SKIPS_LOCKED: Final = {"mysql": (8, 0, 1), "mariadb": (10, 6, 0), "postgresql": (9, 5, 0)}


def _found(
    facts: Facts, key: str, wrong: Callable[[OutboxFacts, str], bool], wanted: str, fix: str
) -> Said:
    outbox = facts.outbox
    value = outbox.settings.get(key) if outbox is not None else None
    if outbox is not None and value is not None and wrong(outbox, value):
        source = outbox.sources.get(key, "the server's settings")
        yield Seen(outbox.kind, f"{key}={value}", source, wanted, fix)


def _postgres(key: str, value: str) -> str:
    return f"ALTER SYSTEM SET {key} = '{value}'; SELECT pg_reload_conf();"


def _off(outbox: OutboxFacts, value: str) -> bool:
    return outbox.kind == "postgresql" and value == "off"


@DATABASE.rule(
    "outbox-synchronous-commit",
    Severity.ERROR,
    "PostgreSQL: a business's commit is on the disk before it is answered",
    "The server crashes within a second of the commit. The customer was told that the order is placed, and"
    " order and notification are both gone; or a row that was marked SENT goes a second time.",
)
def synchronous_commit(facts: Facts) -> Said:
    """synchronous_commit of the business's sessions."""
    key = "synchronous_commit"
    return _found(facts, key, _off, "on", _postgres(key, "on"))


@DATABASE.rule(
    "outbox-fsync",
    Severity.ERROR,
    "PostgreSQL: the server flushes its log to the disk",
    "A power cut leaves a database that is torn: committed notifications are missing from the outbox, and"
    " nobody publishes them.",
)
def fsync(facts: Facts) -> Said:
    """fsync."""
    return _found(facts, "fsync", _off, "on", _postgres("fsync", "on"))


@DATABASE.rule(
    "outbox-full-page-writes",
    Severity.ERROR,
    "PostgreSQL: torn pages can be restored",
    "A power cut in the middle of a page leaves outbox rows that are half old: a notification is skipped,"
    " or has another one's content.",
)
def full_page_writes(facts: Facts) -> Said:
    """full_page_writes."""
    key = "full_page_writes"
    return _found(facts, key, _off, "on", _postgres(key, "on"))


@DATABASE.rule(
    "outbox-flush-log",
    Severity.ERROR,
    "MySQL, MariaDB: InnoDB flushes its log at every commit",
    "With 0 or 2 the log is flushed once a second. A crash takes the last second's commits along: the"
    " customer was told yes, and order and notification are gone.",
)
def flush_log(facts: Facts) -> Said:
    """innodb_flush_log_at_trx_commit."""
    key = "innodb_flush_log_at_trx_commit"
    return _found(facts, key, lambda _one, value: value != "1", "1", f"SET GLOBAL {key} = 1;")


@DATABASE.rule(
    "outbox-sync-binlog",
    Severity.ERROR,
    "MySQL, MariaDB: the binary log is flushed at every commit",
    "The server crashes and its replica, which never got the last transactions, takes over: committed"
    " orders and their notifications are gone; or rows that were SENT are PENDING again, and go a second"
    " time.",
)
def sync_binlog(facts: Facts) -> Said:
    """sync_binlog, where a binary log is written."""

    def wrong(outbox: OutboxFacts, value: str) -> bool:
        return outbox.settings.get("log_bin", "").upper() in ("ON", "1") and value != "1"

    return _found(facts, "sync_binlog", wrong, "1", "SET GLOBAL sync_binlog = 1;")


@DATABASE.rule(
    "outbox-binlog-format",
    Severity.ERROR,
    "MySQL, MariaDB: the binary log has rows",
    "The relay's claim skips locked rows, so a replica that repeats the statement claims other ones: after"
    " a failover a notification that never went stands as SENT, and nobody publishes it.",
)
def binlog_format(facts: Facts) -> Said:
    """binlog_format, where a binary log is written."""

    def wrong(outbox: OutboxFacts, value: str) -> bool:
        logs = outbox.settings.get("log_bin", "").upper() in ("ON", "1")
        return logs and value.upper() == "STATEMENT"

    return _found(facts, "binlog_format", wrong, "ROW", "SET GLOBAL binlog_format = 'ROW';")


@DATABASE.rule(
    "outbox-isolation",
    Severity.WARNING,
    "MySQL, MariaDB: sessions begin with READ COMMITTED or REPEATABLE READ",
    "With READ UNCOMMITTED the business decides by rows of transactions that roll back, and notifies a"
    " customer of an order that never was. With SERIALIZABLE its reads lock what relays claim: both wait,"
    " and codes expire.",
)
def isolation(facts: Facts) -> Said:
    """transaction_isolation."""
    good = ("READ-COMMITTED", "REPEATABLE-READ")
    fix = "SET GLOBAL TRANSACTION ISOLATION LEVEL READ COMMITTED;"
    return _found(
        facts, "isolation", lambda _one, value: value.upper() not in good, "READ-COMMITTED", fix
    )


@DATABASE.rule(
    "outbox-packet",
    Severity.ERROR,
    "MySQL, MariaDB: the largest notification fits a statement",
    "The business's transaction with a large notification fails (packet too large), and the order with it;"
    " where the business catches the error, the order stands without its notification.",
)
def packet(facts: Facts) -> Said:
    """max_allowed_packet against the largest envelope."""
    key = "max_allowed_packet"

    def wrong(outbox: OutboxFacts, _value: str) -> bool:
        return 0 < outbox.number(key) < LARGEST_ROW

    return _found(facts, key, wrong, f"≥ {LARGEST_ROW}", f"SET GLOBAL {key} = {4 * LARGEST_ROW};")


@DATABASE.rule(
    "outbox-lock-wait",
    Severity.WARNING,
    "MySQL, MariaDB: a wait for a lock ends before the relay's lease",
    "A mark waits for a row lock for longer than its rows are leased. Another relay publishes them"
    " meanwhile: the notification is in Kafka twice, which the ledger absorbs, and a code is late.",
)
def lock_wait(facts: Facts) -> Said:
    """innodb_lock_wait_timeout against relay.lease_s."""
    key = "innodb_lock_wait_timeout"

    def wrong(outbox: OutboxFacts, _value: str) -> bool:
        return outbox.number(key) >= outbox.lease_s

    lease_s = facts.outbox.lease_s if facts.outbox is not None else 0
    wanted = f"below relay.lease_s, {lease_s:g} s"
    return _found(facts, key, wrong, wanted, f"SET GLOBAL {key} = {max(1, int(lease_s / 2))};")


@DATABASE.rule(
    "outbox-version",
    Severity.ERROR,
    "The business's database can skip locked rows",
    "Relays fail at every claim, or wait for each other: what the business committed is never published.",
)
def version(facts: Facts) -> Said:
    """The server's version against the first one with SKIP LOCKED."""
    outbox = facts.outbox
    least = _SKIPS_LOCKED.get(outbox.kind) if outbox is not None else None
    found = _VERSION.search(outbox.version) if outbox is not None else None
    if outbox is None or least is None or found is None:
        return
    if tuple(int(part or 0) for part in found.groups()) < least:
        wanted = f"{'.'.join(map(str, least))} or newer"
        yield Seen(outbox.kind, outbox.version, "the server", wanted, "upgrade the server")


@RELAY.rule(
    "relay-lease",
    Severity.WARNING,
    "A dead relay's rows go to another one before a code expires",
    "A relay dies with rows in its hands. They stay leased for longer than a verification code lives, and"
    " expire unsent.",
)
def lease(facts: Facts) -> Said:
    """relay.lease_s against the shortest TTL of verification lanes."""
    ttls = [lane.ttl_ms for lane in facts.lanes if lane.name.endswith(".verification")]
    if facts.outbox is None or not ttls:
        return
    shortest_s = min(ttls) / 1_000
    if facts.outbox.lease_s >= shortest_s:
        seen = f"relay.lease_s={facts.outbox.lease_s:g}, and the shortest TTL is {shortest_s:g} s"
        fix = f"hongyan.toml: [relay] lease_s = {max(5, shortest_s / 5):g}"
        yield Seen("relay", seen, "relay.lease_s", f"below {shortest_s:g} s", fix)


@RELAY.rule(
    "relay-late",
    Severity.WARNING,
    "Somebody hears of rows that are not published",
    "Kafka is away for the relays, or no relay runs: notifications wait in the business's database until"
    " they expire, and nobody is told.",
)
def late(facts: Facts) -> Said:
    """relay.late_s."""
    if facts.outbox is not None and not facts.outbox.late_s:
        fix = "hongyan.toml: [relay] late_s = 60"
        yield Seen("relay", "relay.late_s=0", "relay.late_s", "above 0", fix)
