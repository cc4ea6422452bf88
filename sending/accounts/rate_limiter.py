"""Rates per account over the whole fleet: tokens come in chunks, so that no message costs a round trip.

    Redis answers    one bucket for everybody, per account or, where its rate is the provider's limit, per
                     application (`Account.bucket`); each worker takes up to a tenth of a second's
                     tokens at a time, divided by the workers, and gives back what it does not use
    Redis is away,   every worker has a bucket of its own with its fair share of rate and burst,
    or there is none by the number of live workers

A provider's refusals (sending/accounts/paces.py) lower an account's rate, or give it one, and shut it for a
while: then nothing goes, whatever is at hand.

An outage is no second burst: what went meanwhile is taken off the fleet's bucket afterwards, and a worker
that sees Redis again keeps to its share until every other one must have seen it too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from backends.redis.outage_guard import PAUSE_S, OutageGuard
from backends.redis.paces import Pace, Paces
from backends.redis.token_bucket import Ask, Buckets, Grant, LocalBuckets
from channels.channel import Account
from sending.accounts.paces import AccountPaces, Meter
from sending.accounts.token_lease import TokenLease
from sending.runtime.gauges import Gauge

CHUNK_S: Final = 0.1
"""Worth of tokens that the whole fleet may be promised at once, beyond one token each."""
CHUNK: Final = 0.1
"""Part of the burst that the whole fleet may hold at once, beyond one token each."""
TRUST_S: Final = 1.5 * PAUSE_S
"""After an outage, until the fleet's buckets decide again: a busy worker asks once every PAUSE_S."""
UNBOUNDED: Final = 1_000_000
"""The room of an account without a rate."""


class RateLimiter:
    """Thread-safe. Only `rooms`, `tidy` and `close` ask Redis; an account without a rate, its own or a
    learnt one, costs nothing."""

    def __init__(
        self,
        accounts: Iterable[Account],
        buckets: Buckets | None,
        *,
        workers: Callable[[str], int],
        monotonic: Callable[[], float] = time.monotonic,
        paces: Paces | None = None,
    ) -> None:
        """`buckets` and `paces` are the fleet's, None where there is no Redis. `workers` is
        `Fleet.workers`."""
        self.bell = threading.Event()
        """Set where `tidy` should come soon: a refusal waits to be told."""
        self.shared = False
        """Whether the fleet's buckets answered last time; written under `_asking`, read by anyone."""
        self._fleet = buckets
        self._trusted_at = float("-inf")
        """From when on the fleet's buckets decide; infinite while Redis is away. Under `_asking`."""
        self._workers = workers
        self._monotonic = monotonic
        self._own = LocalBuckets(monotonic)
        self._patience = OutageGuard(
            "rates", "each worker keeps to its fair share", monotonic=monotonic
        )
        self._accounts: dict[str, Account] = {}
        self._leases: dict[str, TokenLease] = {}
        """Of the accounts that have a rate, their own or a learnt one; `serve` and `_pace` exchange it."""
        self._paces = AccountPaces(paces, workers=workers, apply=self._pace, monotonic=monotonic)
        self._lock = threading.Lock()  # guards the leases; never held while waiting
        self._asking = threading.Lock()  # one question at a time; those who waited look again
        self.serve(accounts)

    def serve(self, accounts: Iterable[Account]) -> None:
        """Keep to these accounts' rates too; those it knows stay as they are."""
        every = {account.name: account for account in accounts}
        with self._lock:
            self._accounts = every | self._accounts
            new = [a for a in every.values() if a.rate_per_s and a.name not in self._leases]
            # A new dict: others may be walking through the old one.
            self._leases = self._leases | {a.name: TokenLease(a) for a in new}
        self._paces.serve(every.values())  # last: the upkeep thread may apply a pace at once

    def limits(self, account: str) -> bool:
        """Whether the account has a rate now, its own or a learnt one."""
        return account in self._leases

    def meter(self, account: str) -> Meter:
        """Where to count what the account's provider took."""
        return self._paces.meter(account)

    def refused(self, account: str, wait_ms: int, begun_at: float | None) -> None:
        """The provider refused a call for the account's pace: see `AccountPaces.refused`. Does no I/O."""
        self._paces.refused(account, wait_ms, self._monotonic() if begun_at is None else begun_at)
        self.bell.set()

    def login_refused(self, account: str, wait_ms: int, code: str, begun_at: float | None) -> None:
        """The provider refused the account's login: see `AccountPaces.login_refused`. Does no I/O."""
        begun_at = self._monotonic() if begun_at is None else begun_at
        self._paces.login_refused(account, wait_ms, code, begun_at)
        self.bell.set()

    def refused_logins(self) -> list[str]:
        """Accounts whose login the provider refused lately."""
        return self._paces.refused_logins()

    def shut_s(self, account: str) -> float:
        """Seconds for which the provider wants to be left alone; 0 where it does not."""
        lease = self._leases.get(account)
        return 0.0 if lease is None else max(0.0, lease.shut_until - self._monotonic())

    def rooms(self, accounts: Sequence[str]) -> list[int]:
        """Deliveries that may go through each account now; one question for all that need one."""
        leases = self._leases
        limited = [leases[name] for name in accounts if name in leases]
        if not limited:
            return [UNBOUNDED] * len(accounts)
        if self._wanting(limited):
            self._fetch(limited)
        now = self._monotonic()
        with self._lock:
            return [leases[name].usable(now) if name in leases else UNBOUNDED for name in accounts]

    def take(self, account: str) -> bool:
        """Use one token of those at hand."""
        lease = self._leases.get(account)
        if lease is None:
            return True
        with self._lock:
            if not lease.usable(self._monotonic()):
                return False
            lease.tokens -= 1
            lease.spent += not self.shared
            return True

    def give_back(self, account: str, count: int = 1) -> None:
        """So many that were taken are not used after all."""
        if (lease := self._leases.get(account)) is not None:
            with self._lock:
                lease.back += count
                lease.spent = max(0, lease.spent - count)

    def wait_s(self, account: str) -> float:
        """Seconds until the account may have room; 0 where it has, or where asking will tell."""
        lease = self._leases.get(account)
        if lease is None:
            return 0.0
        now = self._monotonic()
        with self._lock:
            return lease.wait_s(now)

    def tidy(self) -> None:
        """Follow what refusals taught the fleet. Give back what was held for too long, so that others may
        use it."""
        self._paces.tick()
        now = self._monotonic()
        with self._lock:
            for lease in self._leases.values():
                lease.expire(now)
            idle = [p for p in self._leases.values() if p.back and not p.tokens]
        if idle:
            self._exchange(idle, want=False)

    def close(self) -> None:
        """Give back everything; idempotent."""
        with self._lock:
            leases = list(self._leases.values())
            for lease in leases:
                lease.back += lease.tokens
                lease.tokens = 0
            held = [lease for lease in leases if lease.back]
        if held:
            self._exchange(held, want=False)

    def gauges(self) -> Iterator[Gauge]:
        """What `/metrics` shows."""
        if self._leases:
            text = "1 while the fleet's buckets answer, 0 while this worker keeps to its share."
            yield "rates_shared", text, {}, float(self.shared)
        for lease in self._leases.values():
            account = {"account": lease.name}
            yield "rate_tokens", "Deliveries that may go without asking.", account, lease.tokens
            workers = self._workers(lease.name)
            yield "rate_workers", "Live workers that share the account.", account, workers
            yield "rate_per_s", "Deliveries a second that the fleet may send.", account, lease.rate
            shut = "Seconds for which the provider wants to be left alone."
            yield "rate_shut_seconds", shut, account, self.shut_s(lease.name)
        for name, refused in self._paces.refusals.items():
            text = "Calls that the provider refused for the account's pace."
            yield "paced", text, {"account": name}, refused

    def _pace(self, name: str, pace: Pace | None) -> None:
        """Let an account follow a pace; None: its own rate, or none."""
        with self._lock:
            lease = self._leases.get(name)
            if lease is None and pace is not None:
                lease = TokenLease(self._accounts[name])
                self._leases = self._leases | {name: lease}
            if lease is None:
                return
            lease.follow(pace, self._monotonic())
            if pace is None and not lease.bounded:
                self._leases = {n: p for n, p in self._leases.items() if n != name}

    # ---- asking ------------------------------------------------------------------------------

    def _wanting(self, leases: Sequence[TokenLease]) -> list[TokenLease]:
        now = self._monotonic()
        with self._lock:
            for lease in leases:
                lease.expire(now)
            return [lease for lease in leases if lease.wants(now)]

    def _fetch(self, leases: Sequence[TokenLease]) -> None:
        with self._asking:
            if wanting := self._wanting(leases):
                self._ask(wanting, want=True)

    def _exchange(self, leases: Sequence[TokenLease], *, want: bool) -> None:
        with self._asking:
            self._ask(leases, want=want)

    def _ask(self, leases: Sequence[TokenLease], *, want: bool) -> None:
        """Ask the fleet's buckets, or tell them what went and ask our own. Under `_asking`."""
        with self._lock:
            backs = [lease.back for lease in leases]
            debts = [min(lease.spent, self._share(lease)) for lease in leases]
        wanted = [self._chunk(p) if want else (0, 0) for p in leases]
        grants = self._of_fleet(leases, wanted, backs, debts)
        if grants is None:
            grants = self._of_own(leases, wanted, backs)
        now = self._monotonic()
        with self._lock:
            for lease, grant, back in zip(leases, grants, backs, strict=True):
                lease.back -= back
                if want:
                    lease.accept(grant, now)

    def _of_fleet(
        self,
        leases: Sequence[TokenLease],
        wanted: Sequence[tuple[int, int]],
        backs: Sequence[int],
        debts: Sequence[int],
    ) -> list[Grant] | None:
        """What Redis grants; None where it is away, or was until just now."""
        if (fleet := self._fleet) is None:
            return None
        trusted = self._monotonic() >= self._trusted_at
        asks = [
            Ask(p.bucket, p.rate, p.burst, *(chunk if trusted else (0, 0)), back - debt)
            for p, chunk, back, debt in zip(leases, wanted, backs, debts, strict=True)
        ]
        grants = self._patience.ask(lambda: fleet.take(asks))
        self._note(grants is not None, trusted)
        if grants is not None:
            with self._lock:
                for lease, debt in zip(leases, debts, strict=True):
                    lease.spent = 0 if debt else lease.spent
        return grants if trusted else None

    def _note(self, answered: bool, trusted: bool) -> None:
        """Whom to ask from now on."""
        if not answered:
            self._trusted_at = float("inf")
            if self.shared:
                self._own.empty()  # the fleet's buckets gave out what would be in ours
        elif not trusted:
            self._trusted_at = min(self._trusted_at, self._monotonic() + TRUST_S)
        self.shared = answered and trusted

    def _of_own(
        self, leases: Sequence[TokenLease], wanted: Sequence[tuple[int, int]], backs: Sequence[int]
    ) -> list[Grant]:
        asks = []
        for lease, chunk, back in zip(leases, wanted, backs, strict=True):
            rate = lease.rate / max(1, self._workers(lease.name))
            asks.append(Ask(lease.bucket, rate, self._share(lease), *chunk, back))
        return self._own.take(asks)

    def _share(self, lease: TokenLease) -> int:
        """This worker's part of the burst."""
        return max(1, lease.burst // max(1, self._workers(lease.name)))

    def _chunk(self, lease: TokenLease) -> tuple[int, int]:
        """Tokens to be taken at once, and tokens to be promised: later ones would only come later."""
        workers = max(1, self._workers(lease.name))
        ahead = max(1, min(lease.burst, int(lease.rate * CHUNK_S / workers)))
        return max(ahead, int(lease.burst * CHUNK / workers)), ahead
