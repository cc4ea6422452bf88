"""Findings as a Spark job leaves them, and the job that decides about them, on a real ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from idempotency.ledger import Claim, Claimed
from idempotency.lost.findings import Finding
from idempotency.payload_cipher import PayloadCipher
from message.delivery import Delivery, Origin
from policy.loading import parse
from policy.schema import Policy
from recovery.lost.job import EVERY_S, EntryStores, LostDeliveries
from recovery.lost.silence import SilentQuestions
from recovery.lost.telemetry import LostTelemetry
from sending.runtime.clock import Clock
from tests.idempotency.making import World, worker
from tracing.events import TraceEvent
from tracing.masks import hasher

RUN = 7
HASH_KEY = "k" * 32


class Records:
    """Kafka as the job sees it, in memory."""

    def __init__(self) -> None:
        self.there: dict[Origin, bytes] = {}
        self.letters: set[str] = set()
        self.error: Exception | None = None
        self.asked: list[int] = []

    def begin(self) -> None: ...

    def bodies(self, origins: Collection[Origin]) -> Mapping[Origin, bytes]:
        return {o: self.there[o] for o in origins if o in self.there}

    def dead(self, since_ms: int) -> frozenset[str]:
        if self.error is not None:
            raise self.error
        self.asked.append(since_ms)
        return frozenset(self.letters)


class Killed(Exception):
    """The process ends here."""


class Entering:
    """The ledger, with a hook right before and right after each claim."""

    def __init__(self, ledger: Any) -> None:
        self._ledger = ledger
        self.before: Any = lambda: None
        self.after: Any = lambda: None
        self.now_ms = ledger.now_ms

    def claim(self, claims: Sequence[Claim], owner: str, *, ordered: bool = False) -> list[Claimed]:
        if claims:
            self.before()
        answers: list[Claimed] = self._ledger.claim(claims, owner, ordered=ordered)
        if claims:
            self.after()
        return answers


class LostField:
    """One ledger, its findings, and as many jobs as a test wants."""

    def __init__(self, world: World, payload_key: str = "", policy: str = "") -> None:
        self.world = world
        self.ledger = world.open()
        self.ledger.register(worker("w1"))
        self.ledger.register(worker("r1"))
        self.findings = self.ledger.findings()
        self.records = Records()
        self.sealer = PayloadCipher(payload_key)
        self.policy = self.with_policy(policy)
        self.traced: list[TraceEvent] = []
        self.registry = CollectorRegistry()
        world.rows_changed(
            "INSERT INTO spark_runs (job, holder, started_at, state) VALUES ('lost', 't', 0, 'DONE')"
        )

    def with_policy(self, lines: str) -> Policy:
        self.policy = parse("policy.toml", lines.encode(), version="v1:test")
        return self.policy

    # -- findings --

    def found(
        self, item: Delivery, cause: str = "passed", *, kept: bool = False, **fields: Any
    ) -> int:
        """Returns the id of a finding about the delivery; its record is in Kafka unless `kept`."""
        assert item.origin is not None
        if not kept:
            self.records.there[item.origin] = item.payload
        body = self.sealer.seal(item.payload, item.notification.id) if kept else None
        row = {
            "subject": item.key,
            "cause": cause,
            "lane": item.lane,
            "message_id": item.notification.id,
            "biz_id": item.notification.biz_id,
            "receiver": "***",
            "origin": str(item.origin),
            "created_at": item.notification.created_at,
            "expires_at": item.expires_at,
            "certain": int(cause in ("passed", "removed")),
            "detail": "below the committed offset",
            "body": body,
            "first_run": RUN,
            "last_run": RUN,
            "found_at": self.world.now,
            "status": "NEW" if cause in ("passed", "removed") else "ASKED",
        } | fields
        return self.insert(row)

    def insert(self, row: dict[str, Any]) -> int:
        from sqlalchemy import text

        names = ", ".join(row)
        marks = ", ".join(f":{name}" for name in row)
        statement = text(f"INSERT INTO lost_findings ({names}) VALUES ({marks}) RETURNING id")
        with self.ledger.database.begin() as connection:
            return int(connection.execute(statement, row).scalar_one())

    def finding(self, number: int) -> Finding:
        (one,) = self.findings.named(str(number))
        return one

    def status(self, number: int) -> tuple[str, str]:
        one = self.finding(number)
        return one.status.value, one.decided_why or ""

    # -- the job --

    def job(self, ledger: Any = None, name: str = "r1", silence: Any = None) -> LostDeliveries:
        queries = self.ledger.queries()
        stores = EntryStores(
            self.findings,
            ledger or self.ledger,
            queries.by_keys,
            self.ledger.archived(base=self.world.url.removeprefix("sqlite:///")),
            self.records,
        )
        nobody: Any = None
        silence = silence or SilentQuestions(
            self.findings, queries, {}, nobody, stopping=lambda: False
        )
        recorder: Any = self
        return LostDeliveries(
            stores,
            self.policy,
            name=name,
            silence=silence,
            report=LostTelemetry(
                recorder,
                CollectorRegistry(),
                clock=Clock(),
                name=name,
                hash_receiver=hasher(HASH_KEY),
            ),
            hold=lambda duty, lease_ms: self.ledger.duties().hold(duty, name, lease_ms),
            stopping=lambda: False,
            monotonic=lambda: self.world.now / 1_000,
        )

    def run(self, **options: Any) -> int:
        """One round of a job that began just now."""
        return self.job(**options).run_once()

    def later(self) -> None:
        self.world.advance(int(EVERY_S * 1_000))

    def record(self, events: Sequence[TraceEvent]) -> None:
        self.traced += events

    # -- the ledger --

    def row(self, item: Delivery) -> tuple[str, str | None]:
        row = self.ledger.queries().by_key(item.key)
        return ("", None) if row is None else (row.state, row.reason)
