"""This worker's view of the paces that providers' refusals teach (backends/redis/paces.py).

    refused         by any thread with an answer: slows the account here at once, without I/O
    login_refused   the same where the provider refuses the account's login: shut for `LOGIN_MS`
    tick            by the upkeep thread: tells the fleet of refusals, asks it for every account's pace
    meter           counts what a provider took, so that a refusal knows which rate went well

A limit has the name by which the provider counts, a refused login one made of the credentials: of two
accounts of one application one may have a wrong secret. A process with the mended secret does not meet the
refusal. The slower of the fleet's and this worker's pace holds. So a Redis that is away, or that lost its
keys, lifts nothing that this worker learnt itself.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

import structlog

from backends.redis.outage_guard import OutageGuard
from backends.redis.paces import LocalPaces, Pace, Paces, Refusal
from channels.channel import Account
from channels.tokens.seal import TokenCipher

SEEN_S: Final = 1.0
"""Time over which the rate that went well is measured, or little more."""
LOGIN_MS: Final = 60_000
"""One call a minute of the whole fleet is enough for a login that is still wrong."""
LATE_MS: Final = 10_000
"""Each process tries such a login up to so much later, by chance: the others learn from the first."""
SHARE_S: Final = 10.0
"""Time over which the share of refusals is measured."""
STRAYS: Final = 2
STRAY: Final = 0.1
"""Up to so many refusals without a time, or up to this share of the calls, slow no account: a lower rate
does not help where one of a provider's twenty servers is overloaded."""
SURE: Final = 3.0
"""The share must be above `STRAY` by so many standard deviations of a count: of the first thirty calls of a
process three are refused by chance."""
_log = structlog.get_logger(__name__)

Apply = Callable[[str, Pace | None], None]
"""Takes an account and its pace; None: nothing slows it."""


class _Mark(NamedTuple):
    """The counts of a `Meter` at one moment, monotonic."""

    at: float
    total: int
    refused: int


class Meter:
    """Deliveries that one account's provider took, and calls that it refused for pace.

    `AccountSelector.record` adds to `total`, `AccountPaces.refused` to `refused`; a lost count is worth no
    lock.
    """

    __slots__ = ("_marks", "refused", "total")

    def __init__(self, now: float) -> None:
        self.total = 0
        self.refused = 0
        self._marks: tuple[_Mark, ...] = (_Mark(now, 0, 0),)
        """Oldest first, of the last `SHARE_S`. `AccountPaces.tick` replaces it as a whole, since other
        threads may iterate over the old one."""

    def mark(self, now: float) -> None:
        """Remembers the counts of this moment."""
        marks = self._marks
        oldest = 0
        while oldest + 1 < len(marks) and marks[oldest + 1].at <= now - SHARE_S:
            oldest += 1
        self._marks = (*marks[oldest:], _Mark(now, self.total, self.refused))

    def begin(self, now: float) -> None:
        """Starts to count anew: a time in which nothing may go shows no rate."""
        self._marks = (_Mark(now, self.total, self.refused),)

    def per_s(self, now: float) -> float:
        """Returns deliveries a second over the last `SEEN_S`; after a shorter time too few rather than too
        many."""
        marks = self._marks
        mark = next((one for one in reversed(marks) if one.at <= now - SEEN_S), marks[0])
        return max(0, self.total - mark.total) / max(now - mark.at, SEEN_S)

    def is_stray(self, now: float) -> bool:
        """Returns True if refusals are few: no limit refuses so few.

        Few are one or two over `SEEN_S`, or fewer than what went well then; and over `SHARE_S` no more than
        what chance makes of a share of `STRAY`.
        """
        marks = self._marks
        mark = next((one for one in reversed(marks) if one.at <= now - SEEN_S), marks[0])
        lately = self.refused - mark.refused
        if lately > STRAYS and lately >= self.total - mark.total:
            return False
        refused = self.refused - marks[0].refused
        calls = self.total - marks[0].total + refused
        by_chance = SURE * math.sqrt(STRAY * (1 - STRAY) * calls)
        return refused <= max(STRAYS, STRAY * calls + by_chance)


_LOGIN: Final = "login:"
_CHECK: Final = "check its id and secret, the addresses that may call, our clock, and that it is on"


class _Refused(NamedTuple):
    """A refusal that the fleet is to hear of."""

    key: str
    wait_ms: int
    begun_at: float
    seen_per_s: float


class _Served(NamedTuple):
    """The accounts at one moment. `AccountPaces.serve` replaces it as a whole, so that its maps always
    agree."""

    meters: Mapping[str, Meter]
    keys: Mapping[str, str]
    """Account to the name under which its provider counts."""
    logins: Mapping[str, str]
    """Account to the name of its login."""
    buckets: Mapping[str, str]
    """Account to the name of its rate's bucket."""

    def counted_as(self, key: str) -> list[str]:
        """Returns the accounts that their provider counts under this name."""
        return [account for account, of_account in self.keys.items() if of_account == key]

    def taken_per_s(self, account: str, now: float) -> float:
        """Returns the rate of all accounts that share the bucket of this one."""
        bucket = self.buckets[account]
        names = (name for name, of_account in self.buckets.items() if of_account == bucket)
        return sum(self.meters[name].per_s(now) for name in names)


class AccountPaces:
    """Any thread calls `refused`, that of `LimitsMaintenance` `tick`, the policy thread `serve`."""

    def __init__(
        self,
        fleet: Paces | None,
        *,
        workers: Callable[[str], int],
        apply: Apply,
        monotonic: Callable[[], float] = time.monotonic,
        luck: Callable[[], float] = random.random,
    ) -> None:
        """`fleet` is None without Redis; `workers` is `FleetSize.workers`; `luck` draws from [0, 1)."""
        self.refusals: dict[str, int] = {}
        """Calls refused for pace, by account; a lost count is worth no lock."""
        self._fleet = fleet
        self._workers = workers
        self._apply = apply
        self._monotonic = monotonic
        self._own = LocalPaces(monotonic)
        self._patience = OutageGuard("paces", "each worker learns for itself", monotonic=monotonic)
        self._served = _Served({}, {}, {}, {})
        self._tries: dict[str, float] = {}
        """Account to when this process tries its login again, monotonic; as `_shut_out`."""
        self._late_ms = LATE_MS * luck()
        self._shut_out: frozenset[str] = frozenset()
        """Accounts whose login the provider refused lately. `login_refused` and `tick` replace it."""
        self._slowed: set[str] = set()
        """Accounts with a pace; `refused` adds, `tick` adds and takes away."""
        self._untold: deque[_Refused] = deque()

    def serve(self, accounts: Iterable[Account]) -> None:
        """Adds these accounts."""
        every = {a.name: a for a in accounts}
        before, now = self._served, self._monotonic()
        self.refusals = dict.fromkeys(every, 0) | self.refusals
        self._served = _Served(
            {name: Meter(now) for name in every} | dict(before.meters),
            dict(before.keys) | {name: a.counted for name, a in every.items()},
            dict(before.logins) | {n: f"{_LOGIN}{TokenCipher(a).name}" for n, a in every.items()},
            dict(before.buckets) | {name: a.bucket or name for name, a in every.items()},
        )

    def meter(self, account: str) -> Meter:
        """Returns the meter of deliveries that the account's provider took."""
        return self._served.meters[account]

    def refused(self, account: str, wait_ms: int, begun_at: float) -> None:
        """Notes that a call, begun at monotonic `begun_at`, was refused for the account's pace. No I/O."""
        self.refusals[account] += 1
        now, served = self._monotonic(), self._served
        key, meter = served.keys[account], served.meters[account]
        meter.refused += 1
        if not wait_ms and meter.is_stray(now):
            return
        seen = served.taken_per_s(account, now) * max(1, self._workers(account))
        age_ms = int((now - begun_at) * 1_000)
        pace = self._own.refused(Refusal(key, wait_ms, age_ms, seen))
        self._untold.append(_Refused(key, wait_ms, begun_at, seen))
        for name in served.counted_as(key):
            self._note(name, pace)
            self._apply(name, pace)

    def login_refused(self, account: str, wait_ms: int, code: str, begun_at: float) -> None:
        """Notes that a call, begun at monotonic `begun_at`, was refused for the account's login, with the
        provider's `code`. Shuts the account for `wait_ms`, at most `LOGIN_MS`. No I/O."""
        if account not in self._shut_out:
            _log.error("login_refused", account=account, code=code, check=_CHECK)
        key, wait_ms = self._served.logins[account], min(wait_ms or LOGIN_MS, LOGIN_MS)
        age_ms = int((self._monotonic() - begun_at) * 1_000)
        pace = self._late(account, self._own.refused(Refusal(key, wait_ms, age_ms, 0.0)))
        self._untold.append(_Refused(key, wait_ms, begun_at, 0.0))
        self._shut_out = self._shut_out | {account}
        self._note(account, pace)
        self._apply(account, pace)

    def refused_logins(self) -> list[str]:
        """Returns the accounts whose login was refused lately, anywhere in the fleet."""
        return sorted(self._shut_out)

    def tick(self) -> None:
        """Sends refusals to the fleet, asks for its paces, and lets every account follow them."""
        now, served = self._monotonic(), self._served
        for meter in served.meters.values():
            meter.mark(now)
        keys = list(dict.fromkeys([*served.keys.values(), *served.logins.values()]))
        self._tell()
        fleet = self._asked(keys)
        paces = {
            key: _careful(own, other)
            for key, own, other in zip(keys, self._own.paces(keys), fleet, strict=True)
        }
        self._follow(served, paces)

    def _tell(self) -> None:
        fleet, served = self._fleet, self._served
        while self._untold:
            one = self._untold.popleft()
            if fleet is None:
                continue
            age_ms = int((self._monotonic() - one.begun_at) * 1_000)
            buckets = tuple(
                dict.fromkeys(served.buckets[name] for name in served.counted_as(one.key))
            )
            refusal = Refusal(one.key, one.wait_ms, age_ms, one.seen_per_s, buckets)
            if self._patience.ask(partial(fleet.refused, refusal)) is None:
                self._untold.clear()  # this worker keeps to it; old news would shut the fleet anew
                return

    def _asked(self, keys: list[str]) -> Collection[Pace | None]:
        fleet = self._fleet
        answer = None if fleet is None else self._patience.ask(lambda: fleet.paces(keys))
        return [None] * len(keys) if answer is None else answer

    def _follow(self, served: _Served, paces: Mapping[str, Pace | None]) -> None:
        logins = served.logins
        self._shut_out = frozenset(n for n, login in logins.items() if paces[login] is not None)
        for account, key in served.keys.items():
            login = paces[logins[account]]
            pace = _careful(paces[key], None if login is None else self._late(account, login))
            if pace is None and account not in self._slowed:
                continue
            self._note(account, pace)
            self._apply(account, pace)
            if pace is not None and pace.shut_ms:
                served.meters[account].begin(self._monotonic())

    def _late(self, account: str, pace: Pace) -> Pace:
        """Returns the pace of a refused login, shut for longer by this process's own lateness."""
        now = self._monotonic()
        if pace.shut_ms:
            self._tries[account] = now + (pace.shut_ms + self._late_ms) / 1_000
        left_ms = math.ceil(max(0.0, self._tries.get(account, now) - now) * 1_000)
        return pace._replace(shut_ms=max(pace.shut_ms, left_ms))

    def _note(self, account: str, pace: Pace | None) -> None:
        if pace is None:
            self._slowed.discard(account)
            _log.info("account_paced_no_more", account=account)
        elif account not in self._slowed:
            self._slowed.add(account)
            shut_s = pace.shut_ms / 1_000
            _log.warning(
                "account_paced", account=account, per_s=round(pace.rate_per_s, 2), shut_s=shut_s
            )


def _careful(own: Pace | None, fleet: Pace | None) -> Pace | None:
    """Returns the slower of two."""
    if own is None or fleet is None:
        return own or fleet
    return Pace(min(own.rate_per_s, fleet.rate_per_s), max(own.shut_ms, fleet.shut_ms))
