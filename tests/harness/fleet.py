"""A fleet: real worker processes on real servers, a real provider, and the oracle over all of it.

with ground_on(stack) as ground, Fleet(ground, folder) as fleet:
    worker = fleet.worker().wait_ready()
    fleet.send(notifications(100))
    fleet.await_settled()
    fleet.verify()
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from backends.kafka.topics import Wish, apply
from backends.settings import KafkaSettings
from message.envelope import Notification
from message.vocabulary import lane_named
from simulator import Faults, KeyReport, Lists, Simulator
from tests.harness.books import Books
from tests.harness.ground import Ground
from tests.harness.intruder import Intruder
from tests.harness.notifications import LANE, webhook
from tests.harness.oracle import LedgerVerdict, check, judge
from tests.harness.secret_files import secrets_aside
from tests.harness.simulators import spawn
from tests.harness.waiting import DEADLINE_S, await_
from tests.harness.wire import Committed, DeadLetter, Place, Sent, Wire
from tests.harness.worker import RecoveryProcess, WorkerProcess

Table = Mapping[str, Any]


class Fleet:
    """Workers that share one configuration. Leaving it ends every process it started.

    `lanes` get topics; `policy` maps lanes to their tables; `settings` are further tables of
    hongyan.toml, merged over ours. Times are short, so that what waits for them waits not long.
    """

    def __init__(
        self,
        ground: Ground,
        folder: Path,
        *,
        lanes: Sequence[str] = (LANE,),
        partitions: int = 4,
        policy: Mapping[str, Table] | None = None,
        accounts: Mapping[str, Table] | None = None,
        settings: Mapping[str, Table] | None = None,
        protocol: str = "classic",
        lease_s: float = 3.0,
        session_timeout_s: float = 6.0,
        drain_s: float = 10.0,
        provider: Simulator | None = None,
        make_topics: bool = True,
    ) -> None:
        self.ground = ground
        self.folder = folder
        self.lanes = list(lanes)
        self.lease_s = lease_s
        self.workers: list[WorkerProcess] = []
        self.recoveries: list[RecoveryProcess] = []
        self.sent: list[Sent] = []
        """Every notification that Kafka acknowledged, in order."""
        self.explained: set[str] = set()
        """Keys that may be accepted twice; the test says why."""
        self.wire = Wire(ground.bootstrap, ground.topic_prefix, f"{ground.topic_prefix}-group")
        self.books = Books(ground.database_url)
        self._partitions = partitions
        self._policy = dict(policy or {})
        self._provider = provider
        self._own_provider = provider is None
        self._accounts = accounts
        self._make_topics = make_topics
        self._settings = _merged(
            {
                "kafka": {
                    "bootstrap": ground.bootstrap,
                    "topic_prefix": ground.topic_prefix,
                    "group_id": self.wire.group,
                    "group_protocol": protocol,
                    "session_timeout_s": session_timeout_s,
                    # A member hears of a rebalance at its next heartbeat: by default within 3 s.
                    "client": {"heartbeat.interval.ms": 500} if protocol == "classic" else {},
                },
                "database": {"url": ground.database_url},
                "redis": {"url": ground.redis_url},
                "worker": {
                    "lanes": self.lanes,
                    "lease_s": lease_s,
                    "drain_s": drain_s,
                    "health_address": "127.0.0.1:0",
                },
                "log": {"format": "json"},
            },
            settings or {},
        )
        self._held = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.show_logs()
        self.close()

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._provider is None:
            self._provider = self._held.enter_context(
                spawn(self.folder, lists=Lists(status_query=True))
            )
        self.configure()
        if self._make_topics:
            self.apply_topics()

    def close(self) -> None:
        """End every worker, every recovery and the provider; idempotent."""
        for process in (*self.workers, *self.recoveries):
            process.discard()
        self.wire.close()
        self.books.close()
        self._held.close()

    # -- configuration --

    @property
    def config(self) -> Path:
        """hongyan.toml."""
        return self.folder / "hongyan.toml"

    def configure(self, policy: Mapping[str, Table] | None = None) -> None:
        """Write hongyan.toml and policy.toml; workers started from now on read them."""
        accounts = self._accounts
        if accounts is None:
            accounts = {"demo": webhook(f"{self.provider.url}/send")}
        self._policy = dict(policy) if policy is not None else self._policy
        aside = {name: secrets_aside(self.folder, name, one) for name, one in accounts.items()}
        allowed = {"allow_literal_secrets": True}  # the stack's password is in its URL
        self.config.write_text(toml({**allowed, **self._settings, "accounts": aside}))
        (self.folder / "policy.toml").write_text(toml({"lanes": self._policy}))

    def apply_topics(self) -> None:
        """What `hongyan topics apply` makes."""
        lanes = [lane for name in self.lanes if (lane := lane_named(name)) is not None]
        kafka = KafkaSettings(
            bootstrap=self.ground.bootstrap, topic_prefix=self.ground.topic_prefix
        )
        wish = Wish(
            partitions=self._partitions,
            dead_partitions=1,
            trace_partitions=1,
            outcome_partitions=2,
        )
        reports = apply(kafka, lanes, wish)
        assert {r.status for r in reports} <= {"created", "exists"}, reports
        names = [report.name for report in reports]
        await_(lambda: all(self.wire.partitions(n) for n in names), what=f"{names} are there")

    # -- processes --

    @property
    def provider(self) -> Simulator:
        """The simulator the accounts point to."""
        assert self._provider is not None, "the fleet is not open"
        return self._provider

    def slow(self, milliseconds: int, **faults: Any) -> None:
        """Let the provider take so long from now on."""
        self.provider.control(rules=[Faults(latency_ms=str(milliseconds), **faults)])

    def worker(
        self,
        id: str = "",  # noqa: A002 (what the setting is called)
        lanes: Sequence[str] = (),
        *,
        fault: str = "",
        **environment: str,
    ) -> WorkerProcess:
        """Start one; `environment` are settings by their variables' names without HONGYAN_."""
        number = len(self.workers)
        variables = {"HONGYAN_CONFIG": str(self.config)}
        variables |= {f"HONGYAN_{name}": value for name, value in environment.items()}
        name = id or f"{self.ground.topic_prefix}-{chr(ord('a') + number % 26)}{number // 26 or ''}"
        worker = WorkerProcess(name, self.folder, variables, lanes=lanes, fault=fault)
        self.workers.append(worker)
        return worker

    def recovery(self) -> RecoveryProcess:
        """Start one."""
        variables = {"HONGYAN_CONFIG": str(self.config)}
        name = f"{self.ground.topic_prefix}-recovery-{len(self.recoveries)}"
        recovery = RecoveryProcess(name, self.folder, variables)
        self.recoveries.append(recovery)
        return recovery

    def start(self, count: int) -> list[WorkerProcess]:
        """Start so many, wait until all are ready and the partitions are shared out."""
        workers = [self.worker() for _ in range(count)]
        for worker in workers:
            worker.wait_ready()
        self.await_shared_out(workers)
        return workers

    def await_shared_out(self, workers: Sequence[WorkerProcess] | None = None) -> None:
        """Until these workers (or all that run) and nobody else hold every partition, each some."""
        wanted = [w for w in self.workers if w.running] if workers is None else workers
        places = {p for t in self.topics for p in self._places(t)}
        share = len(places) >= len(wanted)

        def shared_out() -> bool:
            held = self.wire.members()
            assert set(held) == {w.id for w in wanted}, held
            return set().union(*held.values()) == places and (not share or all(held.values()))

        await_(shared_out, what=f"the partitions are shared out among {[w.id for w in wanted]}")

    def show_logs(self) -> None:
        """The end of every process's log, on standard output."""
        for process in (*self.workers, *self.recoveries):
            print(f"--- {process.id} ({process.log})\n{process.tail()}", file=sys.stdout)

    # -- Kafka --

    @property
    def topics(self) -> list[str]:
        """The dispatch topics of the lanes."""
        return [self.wire.topic(lane) for lane in self.lanes]

    def send(
        self,
        items: Iterable[Notification | bytes | None],
        partition: int | None = None,
        **raw: Any,
    ) -> list[Sent]:
        """Produce, wait for every acknowledgement, remember for the oracle; see `Wire.send`."""
        sent = self.wire.send(items, partition, **raw)
        self.sent += sent
        return sent

    def committed(self) -> dict[Place, Committed]:
        """Offsets and metadata of the group."""
        return self.wire.committed(self.topics)

    def dead_letters(self) -> list[DeadLetter]:
        """Everything in the dead-letter topic."""
        return self.wire.dead_letters()

    def intruder(self) -> Intruder:
        """A member that holds partitions and does nothing; enter it."""
        protocol = self._settings["kafka"]["group_protocol"]
        return Intruder(self.ground.bootstrap, self.wire.group, self.topics, protocol)

    def _places(self, topic: str) -> list[Place]:
        return [Place(topic, n) for n in range(self.wire.partitions(topic))]

    # -- waiting --

    @property
    def keys(self) -> list[str]:
        """The delivery keys of everything sent."""
        return list(dict.fromkeys(key for record in self.sent for key in record.keys))

    def await_states(self, timeout: float = DEADLINE_S, **wanted: int) -> None:
        """Until the deliveries sent stand exactly so: `await_states(SENT=9, UNKNOWN=1)`."""
        await_(
            lambda: self.books.states(self.keys) == wanted,
            timeout,
            lambda: f"{wanted}, but {dict(self.books.states(self.keys))}",
        )

    def await_settled(self, timeout: float = DEADLINE_S) -> None:
        """Until every delivery sent has a row, none of them in flight or given back."""
        keys = self.keys

        def settled() -> bool:
            rows = self.books.rows(keys).values()
            done = [r for r in rows if r.state != "IN_FLIGHT" and r.reason != "given_back"]
            return len(done) == len(keys)

        await_(settled, timeout, lambda: f"all {len(keys)}, but {self.books.states(keys)}")

    def await_in_flight(self, count: int, timeout: float = DEADLINE_S) -> None:
        """Until so many deliveries at least are at the provider or in a lane's queue."""
        await_(
            lambda: self.books.states(self.keys)["IN_FLIGHT"] >= count,
            timeout,
            f"{count} in flight",
        )

    def await_committed(self, timeout: float = DEADLINE_S) -> None:
        """Until the group committed the end of every partition."""

        def at_the_end() -> bool:
            committed = self.committed()
            ends = {p: end for topic in self.topics for p, end in self.wire.ends(topic).items()}
            return all(committed[p].offset >= end or not end for p, end in ends.items())

        await_(at_the_end, timeout, lambda: f"all committed, but {self.committed()}")

    # -- the oracle --

    def seen(self) -> dict[str, KeyReport]:
        """What the provider saw, per delivery key, by its file on disk."""
        return {report.key: report for report in self.provider.ledger_report().keys}

    def order(self) -> list[str]:
        """The ids of what the provider accepted, in the order of arrival."""
        return [record.id for record in self.provider.records() if record.accepted]

    def accepted(self) -> int:
        """Acceptances so far, doubles counted, of deliveries that this fleet sent."""
        seen = self.seen()
        return sum(seen[key].accepted for key in self.keys if key in seen)

    def judge(self, *, all_read: bool = True) -> LedgerVerdict:
        """The account of this run."""
        mine = set(self.keys)
        unkept = [
            self.wire.topic(lane)
            for lane, table in self._policy.items()
            if table.get("guarantee") == "best_effort"
        ]
        return judge(
            self.sent,
            self.books.rows(mine),
            {key: report for key, report in self.seen().items() if key in mine},
            self.committed(),
            all_read=all_read,
            unkept=unkept,
            explained=self.explained,
        )

    def verify(self, *, all_read: bool = True) -> LedgerVerdict:
        """The account of this run; raises AssertionError when a promise was broken.

        `all_read=False` for a run that was stopped early: what is above the committed offsets may
        still be waiting in Kafka.
        """
        return check(self.judge(all_read=all_read))


def toml(tables: Table, path: Collection[str] = ()) -> str:
    """Tables of plain values as TOML."""
    plain = {k: v for k, v in tables.items() if not isinstance(v, Mapping)}
    lines = [f"[{'.'.join(map(json.dumps, path))}]"] if path and plain else []
    lines += [f"{json.dumps(key)} = {_value(value)}" for key, value in plain.items()]
    nested = [toml(v, [*path, k]) for k, v in tables.items() if isinstance(v, Mapping)]
    return "\n".join([*lines, *nested]) + "\n"


def _value(value: Any) -> str:
    """Tables in a list are inline ones."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(k)} = {_value(v)}' for k, v in value.items())} }}"
    return json.dumps(value)


def _merged(tables: Mapping[str, Table], more: Mapping[str, Table]) -> dict[str, Table]:
    return {name: {**tables.get(name, {}), **more.get(name, {})} for name in {**tables, **more}}
