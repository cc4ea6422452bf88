"""Builds the limits that a worker's lanes share: accounts, rates, receivers.

Redis is optional, as for the pre-filter: without one, or while it is away, every worker keeps to its share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

from backends.metrics.readings import Reading
from backends.redis.paces import RedisPaces
from backends.redis.receiver_windows import RedisWindows
from backends.redis.token_bucket import RedisBuckets
from backends.settings import Settings, SettingsError
from message.vocabulary import Lane
from policy.schema import Policy
from sending.accounts.fleet_size import FleetSize, LimitsMaintenance, SendingLanes
from sending.accounts.held import HeldAccounts
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.receiver_limits import ReceiverLimits, limits_of
from sending.accounts.selector import AccountSelector
from sending.lane_routes import Route
from sending.runtime.clock import Clock

AccountsByLane = Mapping[Lane, Mapping[str, Route]]
"""Lane to account name to its route."""


class SharedBySelectors(NamedTuple):
    """The things that the selectors of all lanes share."""

    rates: RateLimiter
    held: HeldAccounts
    clock: Clock


class SendLimits(NamedTuple):
    """The limits of one worker."""

    accounts: dict[str, AccountSelector]
    """Selectors by the lane's name; lanes without an account have none."""
    receivers: ReceiverLimits
    rates: RateLimiter
    fleet: FleetSize
    upkeep: LimitsMaintenance
    """Runs in a thread; gives back unused tokens when it is stopped."""
    clock: Clock
    held: HeldAccounts
    """Accounts that a person paused; the selectors share it."""

    def follow(self, policy: Policy, routes: AccountsByLane) -> None:
        """Follows another policy's accounts, weights and breakers. Unchanged ones stay as they are."""
        every = _every(routes)
        self.rates.serve(account for account, _ in every)
        self.receivers.serve(limits_of(every))
        self.fleet.serve(_lanes_of(routes))
        for lane, of_lane in routes.items():
            if of_lane:
                before = self.accounts.get(lane.name)
                shared = SharedBySelectors(self.rates, self.held, self.clock)
                self.accounts[lane.name] = _accounts(lane, policy, of_lane, shared, before)

    def readings(self) -> Iterator[Reading]:
        """Yields what `/metrics` shows."""
        for accounts in tuple(self.accounts.values()):  # `follow` may add one
            yield from accounts.readings()
        yield from self.rates.readings()
        yield from self.receivers.readings()


def open_quotas(
    settings: Settings,
    policy: Policy,
    routes: AccountsByLane,
    ledger: SendingLanes,
    identity: str,
    clock: Clock,
    stack: ExitStack,
) -> SendLimits:
    """Returns the limits of the lanes in `routes`, for a ledger's identity; `stack` closes connections.

    The worker must be in the ledger's list already, since it counts itself. Raises SettingsError for a
    redis.url that cannot be read; a Redis or ledger that is away is no error.
    """
    fleet = FleetSize(ledger, _lanes_of(routes))
    fleet.refresh()
    buckets, windows, paces = _shared(settings, identity, stack)
    every = _every(routes)
    limited = [account for account, _ in every]
    rates = RateLimiter(
        limited, buckets, workers=fleet.workers, monotonic=clock.monotonic, paces=paces
    )
    rates.tidy()  # an account may be shut since before this process began
    held = HeldAccounts()
    receivers = ReceiverLimits(
        limits_of(every), windows, workers=fleet.workers, monotonic=clock.monotonic
    )
    return SendLimits(
        accounts={
            lane.name: _accounts(lane, policy, of_lane, SharedBySelectors(rates, held, clock))
            for lane, of_lane in routes.items()
            if of_lane
        },
        receivers=receivers,
        rates=rates,
        fleet=fleet,
        upkeep=LimitsMaintenance(fleet.refresh, rates.tidy, rates.close, rates.bell),
        clock=clock,
        held=held,
    )


def _accounts(
    lane: Lane,
    policy: Policy,
    of_lane: Mapping[str, Route],
    shared: SharedBySelectors,
    before: AccountSelector | None = None,
) -> AccountSelector:
    accounts = [account for account, _ in of_lane.values()]
    if before is not None and before.follows(policy.of(lane), accounts):
        return before
    return AccountSelector(
        lane,
        policy.of(lane),
        accounts,
        shared.rates,
        monotonic=shared.clock.monotonic,
        before=before,
        held=shared.held,
    )


def _every(routes: AccountsByLane) -> list[Route]:
    """Each account once, with its adapter."""
    return list(
        {name: pair for of_lane in routes.values() for name, pair in of_lane.items()}.values()
    )


def _lanes_of(routes: AccountsByLane) -> dict[str, set[str]]:
    """Returns the lanes of every account, with those of accounts that its provider counts as the same."""
    lanes: dict[str, set[str]] = {}
    for lane, of_lane in routes.items():
        for account, _ in of_lane.values():
            lanes.setdefault(account.counted, set()).add(lane.name)
    return {account.name: lanes[account.counted] for account, _ in _every(routes)}


def _shared(
    settings: Settings, identity: str, stack: ExitStack
) -> tuple[RedisBuckets, RedisWindows, RedisPaces] | tuple[None, None, None]:
    if not settings.redis.url:
        return None, None, None
    try:
        buckets = RedisBuckets(settings.redis, identity)
        windows = RedisWindows(settings.redis, identity)
        paces = RedisPaces(settings.redis, identity)
    except ValueError as exc:
        raise SettingsError(f"redis.url: {exc}") from exc
    stack.callback(buckets.close)
    stack.callback(windows.close)
    stack.callback(paces.close)
    return buckets, windows, paces
