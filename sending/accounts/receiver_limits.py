"""Limits beyond which a provider drops messages or silences an account; one query a batch.

    Redis answers   the fleet's windows decide; this worker also remembers its own deliveries
    Redis is away   every worker lets its share go, by its own memory

The adapters have the limits. They count under the provider's own names (`counted_by`), whatever accounts
and receivers are called here:

    receiver_limits     for each receiver of an application, such as WeCom's 30 a minute and 1,000 an hour,
                        beyond which messages are dropped without a word:
                        https://developer.work.weixin.qq.com/document/path/96212
    silencing_limits    for a robot, such as DingTalk's 20 a minute, beyond which it is silent for ten
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from backends.metrics import worker_families
from backends.metrics.readings import Reading
from backends.redis.outage_guard import OutageGuard
from backends.redis.receiver_windows import LocalWindows, Passage, Window, Windows
from channels.channel import Account, Channel

_MS: Final = 1_000
_SLACK: Final = 0.1
_SLACK_AT_MOST_MS: Final = 2_000
"""Lengthening of a window beyond the provider's: a delivery is sent a little, and varying, time after it is
counted."""


class Limited(NamedTuple):
    """The limits of one account."""

    most: Sequence[tuple[int, float]]
    """(deliveries, seconds)."""
    name: str
    """The name under which its provider counts."""
    each: bool = True
    """Whether each receiver is counted by itself; False: all of them together."""


Limits = Mapping[str, Limited]
"""By account."""
Delays = Callable[[Sequence[tuple[str, str]]], list[int]]
"""`ReceiverLimits.delays`."""


def limits_of(routes: Iterable[tuple[Account, Channel]]) -> Limits:
    """Returns the limits of the accounts whose adapters have some."""
    found = {a.name: _limited(a, channel) for a, channel in routes}
    return {name: limited for name, limited in found.items() if limited.most}


def _limited(account: Account, channel: Channel) -> Limited:
    """Returns one account's limits. A configured rate above a robot's documented limit lifts that."""
    silencing, rate = channel.silencing_limits, account.rate_per_s
    if not silencing:
        return Limited(channel.receiver_limits, account.counted)
    lifted = rate is not None and rate > min(count / seconds for count, seconds in silencing)
    return Limited(() if lifted else silencing, account.counted, each=False)


class ReceiverLimits:
    """Thread-safe; never raises."""

    def __init__(
        self,
        limits: Limits,
        windows: Windows | None,
        *,
        workers: Callable[[str], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`windows` are the fleet's, None without Redis; `workers` is `FleetSize.workers`."""
        self._fleet = windows
        self._workers = workers
        self._own = LocalWindows(monotonic)
        self._patience = OutageGuard(
            "receivers", "each worker lets its fair share go", monotonic=monotonic
        )
        self._held: dict[str, int] = {}
        """Deliveries that had to wait; a lost count is worth no lock."""
        self._names: dict[str, tuple[str, bool]] = {}
        """Account to the name under which it is counted, and whether each receiver counts by itself."""
        self._windows: dict[str, list[Window]] = {}
        self._slack: dict[str, list[Window]] = {}
        self.serve(limits)

    def serve(self, limits: Limits) -> None:
        """Adds these accounts' limits, in new dicts: other threads may iterate over the old ones."""
        windows = {name: _windows(limited.most) for name, limited in limits.items()}
        self._names = self._names | {n: (one.name, one.each) for n, one in limits.items()}
        self._slack = self._slack | {n: _with_slack(some) for n, some in windows.items()}
        self._held = dict.fromkeys(limits, 0) | self._held
        self._windows = self._windows | windows

    def delays(self, batch: Sequence[tuple[str, str]]) -> list[int]:
        """Returns, per (account, receiver), 0 and counts it from now on, or the milliseconds that it must
        wait. One query for the whole batch; none if no account of it has limits."""
        delays = [0] * len(batch)
        places = [n for n, (account, _) in enumerate(batch) if account in self._windows]
        if places:
            limited = [batch[place] for place in places]
            for place, delay in zip(places, self._enter(limited), strict=True):
                delays[place] = delay
                self._held[batch[place][0]] += delay > 0
        return delays

    def readings(self) -> Iterator[Reading]:
        """Yields what `/metrics` shows."""
        for account, held in self._held.items():
            yield Reading(worker_families.RECEIVERS_HELD, {"account": account}, held)

    def _enter(self, batch: Sequence[tuple[str, str]]) -> list[int]:
        fleet = self._fleet
        asked = [Passage(self._name(*pair), self._slack[pair[0]]) for pair in batch]
        delays = None if fleet is None else self._patience.ask(lambda: fleet.enter(asked))
        if delays is None:
            return self._own.enter([Passage(self._name(*p), self._share(p[0])) for p in batch])
        return self._remember(batch, delays)

    def _remember(self, batch: Sequence[tuple[str, str]], delays: Sequence[int]) -> list[int]:
        """Counts here what Redis let go. Delays a delivery only if Redis forgot earlier ones."""
        going = [pair for pair, delay in zip(batch, delays, strict=True) if not delay]
        own = iter(self._own.enter([Passage(self._name(*p), self._windows[p[0]]) for p in going]))
        return [delay or next(own) for delay in delays]

    def _share(self, account: str) -> list[Window]:
        workers = max(1, self._workers(account))
        return [Window(max(1, w.most // workers), w.span_ms) for w in self._slack[account]]

    def _name(self, account: str, receiver: str) -> str:
        """Returns the digest under which Redis counts: receivers are people."""
        counted, each = self._names[account]
        text = f"{counted}\x1f{receiver}" if each else counted
        return blake2b(text.encode(), digest_size=16).hexdigest()


def _windows(limits: Sequence[tuple[int, float]]) -> list[Window]:
    return [Window(most, int(seconds * _MS)) for most, seconds in limits]


def _with_slack(windows: Sequence[Window]) -> list[Window]:
    return [
        Window(w.most, w.span_ms + min(int(w.span_ms * _SLACK), _SLACK_AT_MOST_MS)) for w in windows
    ]
