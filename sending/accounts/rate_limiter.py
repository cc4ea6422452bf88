"""Rates per account over the whole fleet: tokens come in chunks, so that no message costs a round trip.

    Redis answers    one bucket for everybody, per account or, where its rate is the provider's limit, per
                     application (`Account.bucket`); each worker takes up to a tenth of a second's
                     tokens at a time, divided by the workers, and gives back what it does not use
    Redis is away,   every worker has a bucket of its own with its fair share of rate and burst,
    or there is none by the number of live workers

A provider's refusals (sending/accounts/paces.py) lower an account's rate, or give it one, and shut it for a
while: then nothing goes.

An outage allows no second burst: tokens used meanwhile are taken off the fleet's bucket afterwards. A
worker that sees Redis again keeps to its share until every other one must have seen it too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from backends.metrics import worker_families
from backends.metrics.readings import Reading
from backends.redis.outage_guard import PAUSE_S, OutageGuard
from backends.redis.paces import Pace, Paces
from backends.redis.token_bucket import Ask, Buckets, Grant, LocalBuckets
from channels.channel import Account
from sending.accounts.paces import AccountPaces, Meter
from sending.accounts.token_lease import TokenLease

CHUNK_S: Final = 0.1
"""Seconds of the rate whose tokens the whole fleet may be promised at once, beyond one token each."""
CHUNK: Final = 0.1
"""Part of the burst that the whole fleet may hold at once, beyond one token each."""
TRUST_S: Final = 1.5 * PAUSE_S
"""Time after an outage until the fleet's buckets decide again: a busy worker asks once every PAUSE_S."""
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
        """`buckets` and `paces` are the fleet's, None without Redis. `workers` is `FleetSize.workers`."""
        self.bell = threading.Event()
        """Set to have `tidy` called soon: a refusal waits for the way to the fleet."""
        self.shared = False
        """Whether the fleet's buckets answered last time. `_note` writes it under `_asking`."""
        self._asked = False
        """Whether they were asked: until then `shared` tells nothing of Redis. Written as `shared`."""
        self._fleet = buckets
        self._trusted_at = float("-inf")
        """Time from which the fleet's buckets decide; infinite while Redis is away. Under `_asking`."""
        self._workers = workers
        self._monotonic = monotonic
        self._own = LocalBuckets(monotonic)
        self._patience = OutageGuard(
            "rates", "each worker keeps to its fair share", monotonic=monotonic
        )
        self._accounts: dict[str, Account] = {}
        self._leases: dict[str, TokenLease] = {}
        """Leases of the accounts with a rate, own or learnt; `serve` and `_pace` replace the dict."""
        self._paces = AccountPaces(paces, workers=workers, apply=self._pace, monotonic=monotonic)
        self._lock = threading.Lock()  # guards the token leases; never held while waiting
        self._asking = threading.Lock()  # one query at a time; a thread that waited looks again
        self.serve(accounts)

    def serve(self, accounts: Iterable[Account]) -> None:
        """Adds these accounts' rates; known ones stay as they are."""
        every = {account.name: account for account in accounts}
        with self._lock:
            self._accounts = every | self._accounts
            new = [a for a in every.values() if a.rate_per_s and a.name not in self._leases]
            # A new dict, since other threads may iterate over the old one.
            self._leases = self._leases | {a.name: TokenLease(a) for a in new}
        self._paces.serve(every.values())  # last: the upkeep thread may apply a pace at once

    def limits(self, account: str) -> bool:
        """Whether the account has a rate now, its own or a learnt one."""
        return account in self._leases

    def meter(self, account: str) -> Meter:
        """Returns the meter of deliveries that the account's provider took."""
        return self._paces.meter(account)

    def refused(self, account: str, wait_ms: int, begun_at: float | None) -> None:
        """Notes a refusal for the account's pace: see `AccountPaces.refused`. Does no I/O."""
        self._paces.refused(account, wait_ms, self._monotonic() if begun_at is None else begun_at)
        self.bell.set()

    def login_refused(self, account: str, wait_ms: int, code: str, begun_at: float | None) -> None:
        """Notes a refusal of the account's login: see `AccountPaces.login_refused`. Does no I/O."""
        begun_at = self._monotonic() if begun_at is None else begun_at
        self._paces.login_refused(account, wait_ms, code, begun_at)
        self.bell.set()

    def refused_logins(self) -> list[str]:
        """Returns the accounts whose login the provider refused lately."""
        return self._paces.refused_logins()

    def shut_s(self, account: str) -> float:
        """Returns seconds of the pause that the provider asked for; 0: none."""
        lease = self._leases.get(account)
        return 0.0 if lease is None else max(0.0, lease.shut_until - self._monotonic())

    def rooms(self, accounts: Sequence[str]) -> list[int]:
        """Returns the deliveries that may go through each account now; at most one query for all."""
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
        """Uses one token at hand. Returns False if there is none."""
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
        """Gives back tokens that were taken and not used."""
        if (lease := self._leases.get(account)) is not None:
            with self._lock:
                lease.back += count
                lease.spent = max(0, lease.spent - count)

    def wait_s(self, account: str) -> float:
        """Returns seconds until the account may have room; 0 if it has, or if only a query shows."""
        lease = self._leases.get(account)
        if lease is None:
            return 0.0
        now = self._monotonic()
        with self._lock:
            return lease.wait_s(now)

    def tidy(self) -> None:
        """Follows the fleet's paces. Gives back tokens held for too long, for others to use. Asks a Redis
        that was away, also while nothing is sent."""
        self._paces.tick()
        now = self._monotonic()
        with self._lock:
            for lease in self._leases.values():
                lease.expire(now)
            lost = self._asked and not self.shared
            idle = [p for p in self._leases.values() if lost or (p.back and not p.tokens)]
        if idle:
            self._exchange(idle, want=False)

    def close(self) -> None:
        """Gives back all tokens; idempotent."""
        with self._lock:
            leases = list(self._leases.values())
            for lease in leases:
                lease.back += lease.tokens
                lease.tokens = 0
            held = [lease for lease in leases if lease.back]
        if held:
            self._exchange(held, want=False)

    def rate_of(self, name: str) -> float | None:
        """Returns the deliveries a second that the fleet may send through the account; None: any."""
        lease = self._leases.get(name)
        return None if lease is None else lease.rate

    def readings(self) -> Iterator[Reading]:
        """Yields what `/metrics` shows."""
        if self._leases and self._asked:
            yield Reading(worker_families.RATES_SHARED, {}, float(self.shared))
        for lease in self._leases.values():
            account = {"account": lease.name}
            yield Reading(worker_families.RATE_TOKENS, account, lease.tokens)
            yield Reading(worker_families.RATE_WORKERS, account, self._workers(lease.name))
            yield Reading(worker_families.RATE, account, lease.rate)
            yield Reading(worker_families.RATE_SHUT_SECONDS, account, self.shut_s(lease.name))
        for name, refused in self._paces.refusals.items():
            yield Reading(worker_families.PACED, {"account": name}, refused)

    def _pace(self, name: str, pace: Pace | None) -> None:
        """Lets an account follow a pace; None: its own rate, or none."""
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
        """Asks the fleet's buckets, or reports the use to them and asks our own. Under `_asking`."""
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
        """Returns the grants of Redis; None if it is away, or was until just now."""
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
        """Sets which buckets decide from now on."""
        if not answered:
            self._trusted_at = float("inf")
            if self.shared:
                self._own.empty()  # the fleet's buckets gave out what would be in ours
        elif not trusted:
            self._trusted_at = min(self._trusted_at, self._monotonic() + TRUST_S)
        self.shared = answered and trusted
        self._asked = True

    def _of_own(
        self, leases: Sequence[TokenLease], wanted: Sequence[tuple[int, int]], backs: Sequence[int]
    ) -> list[Grant]:
        asks = []
        for lease, chunk, back in zip(leases, wanted, backs, strict=True):
            rate = lease.rate / max(1, self._workers(lease.name))
            asks.append(Ask(lease.bucket, rate, self._share(lease), *chunk, back))
        return self._own.take(asks)

    def _share(self, lease: TokenLease) -> int:
        """Returns this worker's part of the burst."""
        return max(1, lease.burst // max(1, self._workers(lease.name)))

    def _chunk(self, lease: TokenLease) -> tuple[int, int]:
        """Returns the tokens to take at once, and the tokens to have promised."""
        workers = max(1, self._workers(lease.name))
        ahead = max(1, min(lease.burst, int(lease.rate * CHUNK_S / workers)))
        return max(ahead, int(lease.burst * CHUNK / workers)), ahead
