"""Rules for the ledger's database, Redis and the clocks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from producer.doctor.facts import Facts
from producer.doctor.rule import NotKnown, RuleBook, Said, Seen, Severity

DATABASE: Final = RuleBook("database", "database")
REDIS: Final = RuleBook("redis", "redis")
CLOCKS: Final = RuleBook("clock")
_APART_MS: Final = 1_000
_OLDEST_POSTGRES: Final = 15
_MAJOR: Final = re.compile(r"[0-9]+")
"""As in `17.2`, `18rc1` and `19devel`."""
_FULL: Final = ("2", "3")
"""PRAGMA synchronous: FULL and EXTRA."""


def _setting(facts: Facts, key: str, wrong: Callable[[str], bool], wanted: str, fix: str) -> Said:
    found = facts.database
    if found is None or key not in found.settings:
        return
    value = found.settings[key]
    if wrong(value):
        source = found.sources.get(key, "the server's settings")
        yield Seen(found.kind, f"{key}={value}", source, wanted, fix)


def _system(key: str, value: str) -> str:
    return f"ALTER SYSTEM SET {key} = '{value}'; SELECT pg_reload_conf();"


@DATABASE.rule(
    "database-synchronous-commit",
    Severity.ERROR,
    "A commit is on the disk before it is answered",
    "The server crashes within a second of a commit that was answered, and the commit is gone: a business"
    " system's order with its notification, or what the ledger knows of a send.",
)
def synchronous_commit(facts: Facts) -> Said:
    """synchronous_commit of PostgreSQL; our own sessions switch it on where it is off."""
    key = "synchronous_commit"
    for answer in _setting(facts, key, lambda one: one == "off", "on", _system(key, "on")):
        if isinstance(answer, Seen):
            why = "Hongyan's own sessions switch it on; those of other programs do not"
            yield answer._replace(severity=Severity.WARNING, why=why)


@DATABASE.rule(
    "database-fsync",
    Severity.ERROR,
    "The server flushes its log to the disk",
    "A power cut leaves a ledger that is torn: rows of sent messages are missing, or it does not start.",
)
def fsync(facts: Facts) -> Said:
    """fsync of PostgreSQL."""
    return _setting(facts, "fsync", lambda one: one == "off", "on", _system("fsync", "on"))


@DATABASE.rule(
    "database-full-page-writes",
    Severity.ERROR,
    "Torn pages can be restored",
    "A power cut in the middle of a page leaves one that is half old: rows of the ledger are wrong and"
    " nobody hears of it.",
)
def full_page_writes(facts: Facts) -> Said:
    """full_page_writes of PostgreSQL."""
    key = "full_page_writes"
    return _setting(facts, key, lambda one: one == "off", "on", _system(key, "on"))


@DATABASE.rule(
    "database-standby",
    Severity.INFO,
    "A standby has each commit before it is answered",
    "Only at a failover to a standby that lags: the claims of its lag are gone, and those messages may be"
    " sent twice.",
)
def standby(facts: Facts) -> Said:
    """synchronous_standby_names of PostgreSQL."""
    return _setting(
        facts,
        "synchronous_standby_names",
        lambda one: not one,
        "a standby, if failover may happen",
        "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'; SELECT pg_reload_conf();",
    )


@DATABASE.rule(
    "database-version",
    Severity.WARNING,
    "PostgreSQL is of a version that still gets fixes",
    "Known faults that lose or double rows stay in it.",
)
def version(facts: Facts) -> Said:
    """The server's version."""
    found = facts.database
    if found is None or found.kind != "postgresql":
        return
    major = _MAJOR.match(found.version)
    if major is None:
        yield NotKnown("postgresql", f"the server's version is {found.version!r}")
    elif int(major[0]) < _OLDEST_POSTGRES:
        wanted = f"{_OLDEST_POSTGRES} or newer"
        yield Seen("postgresql", found.version, "the server", wanted, "pg_upgrade to a newer one")


@DATABASE.rule(
    "database-sqlite-synchronous",
    Severity.ERROR,
    "SQLite flushes every commit",
    "A power cut takes the last commits along: what was claimed is sent again.",
)
def sqlite_synchronous(facts: Facts) -> Said:
    """PRAGMA synchronous of our own connections."""
    if facts.database is not None and facts.database.kind == "sqlite":
        yield from _setting(
            facts,
            "synchronous",
            lambda one: one not in _FULL,
            "2 (FULL)",
            "PRAGMA synchronous = FULL",
        )


@DATABASE.rule(
    "database-sqlite",
    Severity.INFO,
    "The ledger is a server that several hosts reach",
    "None on one host. The file is on one disk: if that is lost, so is what became of every message.",
)
def sqlite(facts: Facts) -> Said:
    """SQLite is for one host."""
    if facts.database is not None and facts.database.kind == "sqlite":
        fix = "hongyan.toml: [database] url = postgresql://… (docs/deploy.md)"
        yield Seen("sqlite", "one file", "database.url", "PostgreSQL in production", fix)


@DATABASE.rule(
    "database-schema",
    Severity.ERROR,
    "The schema is the one that this program needs",
    "Workers of this version do not start, and what is short-lived expires in Kafka meanwhile.",
)
def schema(facts: Facts) -> Said:
    """The database's migration."""
    found = facts.database
    if found is not None and not found.runs:
        seen, wanted = f"migration {found.schema or 'none'}", found.program_schema
        yield Seen(found.kind, seen, "hongyan_schema", wanted, "hongyan db upgrade")


def _best_effort(facts: Facts) -> list[str]:
    return [lane.name for lane in facts.lanes if lane.best_effort]


def _for_best_effort(facts: Facts) -> tuple[Severity | None, str]:
    """Returns the severity that counts here: only best_effort lanes rely on Redis alone."""
    lanes = _best_effort(facts)
    if lanes:
        return None, ""
    return (
        Severity.INFO,
        "no lane is best_effort: the ledger alone decides, Redis only saves it work",
    )


@REDIS.rule(
    "redis-eviction",
    Severity.WARNING,
    "Redis forgets no mark before its time",
    "A full Redis evicts marks of what was sent. In best_effort lanes, which have no ledger, a repeated"
    " record is sent again.",
)
def eviction(facts: Facts) -> Said:
    """maxmemory-policy."""
    one = facts.redis
    if one is None or one.refusal or one.eviction in ("", "noeviction"):
        return
    severity, why = _for_best_effort(facts)
    fix = "redis-cli CONFIG SET maxmemory-policy noeviction"
    seen = f"maxmemory-policy={one.eviction}"
    yield Seen("redis", seen, "INFO memory", "noeviction", fix, severity, why)


@REDIS.rule(
    "redis-persistence",
    Severity.WARNING,
    "Redis keeps its marks over a restart",
    "After a restart all marks are gone. In best_effort lanes what Kafka repeats is sent again; receivers'"
    " limits begin anew.",
)
def persistence(facts: Facts) -> Said:
    """appendonly."""
    one = facts.redis
    if one is None or one.refusal or one.append_only:
        return
    severity, why = _for_best_effort(facts)
    fix = "redis-cli CONFIG SET appendonly yes"
    yield Seen("redis", "appendonly=no", "INFO persistence", "appendonly=yes", fix, severity, why)


@REDIS.rule(
    "redis-replicas",
    Severity.INFO,
    "Redis has a replica",
    "None. Without Redis every delivery asks the ledger, which is slower.",
)
def replicas(facts: Facts) -> Said:
    """connected_slaves."""
    one = facts.redis
    if one is not None and not one.refusal and not one.replicas:
        fix = "redis-cli -h REPLICA REPLICAOF HOST PORT"
        yield Seen("redis", "no replica", "INFO replication", "one", fix)


@CLOCKS.rule(
    "clock-apart",
    Severity.ERROR,
    "The clocks of host, database, Redis and brokers are within a second",
    "TTLs end early or late: codes are sent after their end, or expire before it. An envelope more than 10"
    " minutes ahead becomes a dead letter.",
)
def apart(facts: Facts) -> Said:
    """The clocks that were read, each against this host's."""
    for one in facts.clocks:
        if one.ahead_ms is None:
            yield Seen(
                one.name,
                "not known",
                one.reason,
                "within a second",
                "chronyc tracking, on its host",
                Severity.INFO,
                "Kafka has no request that answers its time",
            )
        elif abs(one.ahead_ms) - one.within_ms > _APART_MS:
            word = "ahead of" if one.ahead_ms > 0 else "behind"
            seen = f"{abs(one.ahead_ms) / 1_000:.1f} s {word} this host"
            source = f"compared in {one.within_ms} ms"
            yield Seen(one.name, seen, source, "within a second", "chronyc makestep, on its host")
