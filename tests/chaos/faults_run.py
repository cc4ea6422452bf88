"""A fault run: real workers, a real recovery and one provider that fails every fifth call.

The driver produces, waits until the ledger says that every delivery has ended, and hands the books to the
judge. Nothing is killed: what is in doubt here is in doubt because the provider answered so.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from deploy.local.stack import Stack
from simulator import LedgerRecord, spawn
from tests.chaos import logs
from tests.chaos.faults_judge import ENDED, Account, Judge
from tests.chaos.faults_plan import (
    KINDS,
    Case,
    Extent,
    accounts_of,
    cases,
    chosen,
    doubtful,
    lanes_of,
    policy_of,
    rules,
    traffic,
)
from tests.chaos.faults_proofs import TTL_MS, behaviours, life_ms, lists, proof_of
from tests.conformance.samples import Sample
from tests.harness import Fleet, ground_on
from tests.harness.worker import Metrics

_CHUNK: Final = 500
_LOOK_S: Final = 0.5
_TOLD_S: Final = 5.0
_STALL_S: Final = 400.0
"""Without a delivery ending for so long the run is given up, and judged as it stands. An adapter may wait
for two minutes before it believes a list (Aliyun), and recovery looks once a minute."""
_LEASE_S: Final = 20.0
_DUPLICATES: Final = "recovery_possible_duplicates"
_SETTINGS: Final = {
    "recovery": {
        "poll_s": 0.2,
        "share": 1.0,
        "rate_per_s": 100_000,
        "lease_s": _LEASE_S,
        "health_address": "127.0.0.1:0",
    },
}

Say = Callable[[str], None]


class FaultRun:
    """Does one run and keeps its books. `say` is told how far it is."""

    def __init__(self, fleet: Fleet, extent: Extent, samples: Sequence[Sample], say: Say) -> None:
        self.troubles: list[str] = []
        self.cases: dict[str, list[Case]] = {one.provider: [] for one in samples}
        self.states: Counter[str] = Counter()
        self.seconds = 0.0
        self._fleet, self._extent, self._samples = fleet, extent, samples
        self._say = say

    def run(self, workers: int) -> list[Account]:
        """From the first process's start to the judgement; one account an adapter."""
        self._fleet.start(workers)
        recovery = self._fleet.recovery()
        recovery.wait_ready()
        begun = time.monotonic()
        self._produce()
        self._await_ended()
        self.seconds = time.monotonic() - begun
        found = self._judge()
        self._check_doubles(found, recovery.metrics())
        self._check_processes()
        return found

    def _produce(self) -> None:
        by_name, chunk = {one.provider: one for one in self._samples}, []
        for notification in traffic(self._samples, self._extent):
            provider = str(notification.account)
            self.cases[provider] += cases(by_name[provider], notification)
            chunk.append(notification)
            if len(chunk) == _CHUNK:
                self._fleet.send(chunk)
                chunk = []
        self._fleet.send(chunk)

    def _await_ended(self) -> None:
        """Until every delivery has ended, or none has for a while."""
        total, stall_s = sum(map(len, self.cases.values())), self._stall_s()
        ended, ended_at, told_at = -1, time.monotonic(), 0.0
        while ended < total:
            self._look()
            now, count = time.monotonic(), sum(self.states[state] for state in ENDED)
            if count != ended:
                ended, ended_at = count, now
            elif now - ended_at > stall_s:
                self.troubles.append(f"nothing ended for {stall_s:.0f} s: {dict(self.states)}")
                return
            if now - told_at > _TOLD_S:
                told_at = now
                self._say(f"{ended:,} of {total:,} ended; {dict(sorted(self.states.items()))}")
            time.sleep(_LOOK_S)

    def _stall_s(self) -> float:
        """As long as the most patient doubt waits for its provider: half of the shortest life."""
        lives = [life_ms(one.provider, self._extent.messages) for one in self._samples]
        return _STALL_S + min(lives) / 2_000 if min(lives) < TTL_MS else _STALL_S

    def _look(self) -> None:
        rows = self._fleet.books.query("SELECT state, count(*) AS n FROM deliveries GROUP BY state")
        self.states = Counter({row.state: int(row.n) for row in rows})

    def _judge(self) -> list[Account]:
        rows, records = self._fleet.books.rows(), self._records()
        found = []
        for one in self._samples:
            judge = Judge(
                one.provider,
                proof_of(one, switched=self._extent.switched),
                partial(doubtful, one.channel),
            )
            found.append(judge.judge(self.cases[one.provider], rows, records[one.provider]))
        return found

    def _records(self) -> dict[str, dict[str, list[LedgerRecord]]]:
        """The provider's ledger, by protocol, then by receiver and by key: whatever names a delivery."""
        found: dict[str, dict[str, list[LedgerRecord]]] = defaultdict(lambda: defaultdict(list))
        for record in self._fleet.provider.records():
            of_protocol = found[record.protocol]
            of_protocol[record.receiver].append(record)
            of_protocol[record.key].append(record)
        return found

    def _check_doubles(self, found: Sequence[Account], told: Metrics) -> None:
        """What recovery counted as possible duplicates is what the provider saw come again."""
        resent: Counter[str] = Counter()
        for one, account in zip(self._samples, found, strict=True):
            resent[one.channel.channel] += account.resent
        for channel, seen in resent.items():
            lanes = [f"{channel}.{kind}" for kind in KINDS]
            counted = sum(told.value(_DUPLICATES, lane=lane) for lane in lanes)
            if counted != seen:
                self.troubles.append(
                    f"{channel}: recovery counted {counted:.0f} possible duplicates, and the"
                    f" provider saw {seen}"
                )

    def _check_processes(self) -> None:
        for process in (*self._fleet.workers, *self._fleet.recoveries):
            if not process.running:
                self.troubles.append(f"{process.id} ended with code {process.code}")
            self.troubles += [
                f"{process.id}: {line}" for line in logs.complaints(process.log_text())
            ]


@contextmanager
def faults_on(
    stack: Stack, extent: Extent, folder: Path, say: Say, threads: int = 8
) -> Iterator[FaultRun]:
    """A run ready to be run; its logs and the provider's ledger stay in `folder`."""
    samples = chosen(extent)
    lanes = lanes_of(samples)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        ground_on(stack) as ground,
        spawn(
            folder,
            rules=rules(samples, extent),
            seed=str(extent.seed),
            smtp_port=0,
            lists=lists(switched=extent.switched),
            behaviours=behaviours(),
        ) as provider,
        Fleet(
            ground,
            folder,
            lanes=lanes,
            policy=policy_of(lanes, threads),
            accounts=accounts_of(
                samples,
                {"http": provider.url, "smtp": provider.smtp},
                switched=extent.switched,
            ),
            settings=_SETTINGS,
            lease_s=_LEASE_S,
            session_timeout_s=30.0,
            provider=provider,
        ) as fleet,
    ):
        yield FaultRun(fleet, extent, samples, say)
