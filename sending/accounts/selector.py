"""Selects the account of each delivery of a lane, within breakers and rates.

    named in the notification   that account or none
    its receiver                only accounts that reach it, person or group (accounts/reach.py)
    its template has forms      only those for whose provider it has one
    an adapter refuses it       only those whose adapter does not
    otherwise                   by weight, among those whose breaker lets it pass and whose rate has room;
                                a reserve (weight 0) only when no other may send

An account that a person paused (sending/accounts/held.py) may send nothing, named or not. If no account is
left, any is chosen, and its adapter refuses the delivery: nothing is sent.

A choice uses a token and, at a half-open breaker, a place among the probes. `release` gives both back for
a delivery that is not sent after all; `record` takes the outcomes of a call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import structlog

from backends.metrics import worker_families
from backends.metrics.readings import Reading
from channels.channel import Account
from channels.http_client.failures import TOO_LATE, WITHDRAWN
from channels.judging.retry_after import MAX_MS as MAX_PACED_MS
from message.delivery import Delivery, Rendered
from message.outcomes import Accepted, AnyOutcome, Limit, NotSent, Rejected
from message.receivers import CHATS, group_of
from message.vocabulary import Lane
from policy.schema import LanePolicy
from sending.accounts.circuit_breaker import BreakerState, CircuitBreaker, judgement_of
from sending.accounts.held import HELD_LOOK_S, HeldAccounts
from sending.accounts.paces import Meter
from sending.accounts.rate_limiter import UNBOUNDED, RateLimiter

ACCOUNT_SHUT: Final = "account_shut"
"""Reason of a delivery that did not begin: its account was shut since the choice."""
_UNREACHED: Final = frozenset(
    {"closed", "connect", "dns", "pool", "reset", "timeout", "tls", "token_unavailable"}
)
"""Codes under which a NotSent says that the provider was not reached; a provider's own codes are not among
them, and a timeout after the request was written is no NotSent."""
_TAKEN_BACK: Final = frozenset({WITHDRAWN, TOO_LATE})
"""Codes under which a NotSent says that its caller ended the call: by a TTL, a pause, a stop or a lease."""
_log = structlog.get_logger(__name__)

Refuses = Callable[[Account], bool]
"""Whether the account's adapter refuses one delivery."""


def may_fail_over(delivery: Delivery, outcome: AnyOutcome) -> bool:
    """Whether another account may be tried at once: nothing was sent, the account is the cause, and the
    notification names none."""
    if delivery.notification.account is not None:
        return False
    if isinstance(outcome, NotSent):
        return outcome.account or outcome.code in _UNREACHED
    return isinstance(outcome, Rejected) and outcome.account


def _is_taken_back(outcome: AnyOutcome) -> bool:
    """Returns whether the call was not made for a reason of its caller's."""
    return type(outcome) is NotSent and outcome.code in _TAKEN_BACK


class _Route:
    """One account of the lane."""

    __slots__ = ("account", "breaker", "credit", "meter", "name", "weight")

    def __init__(
        self, account: Account, weight: int, breaker: CircuitBreaker, meter: Meter
    ) -> None:
        self.account = account
        self.name = account.name
        self.meter = meter
        self.weight = weight
        self.breaker = breaker
        self.credit = 0
        """Turns it is owed, in units of all weights; guarded by the lock of `AccountSelector`."""


class AccountSelector:
    """Thread-safe. May ask Redis, for a chunk of tokens at a time (sending/accounts/rate_limiter.py)."""

    def __init__(
        self,
        lane: Lane,
        policy: LanePolicy,
        accounts: Sequence[Account],
        rates: RateLimiter,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        before: AccountSelector | None = None,
        held: HeldAccounts | None = None,
    ) -> None:
        """`accounts` are the lane's, as `channels.registry.accounts_for` gives them; the worker's lanes
        share `rates` and `held`. Breakers of `before` with the same account and policy go on."""
        self.failovers: int = before.failovers if before is not None else 0
        """Deliveries that another account took over; a lost count is worth no lock."""
        self._lane, self._channel = lane.name, lane.channel
        self._rates = rates
        self._monotonic = monotonic
        self._held = held or HeldAccounts()
        known = before.breakers(policy) if before is not None else {}
        routes = [
            _Route(
                a,
                policy.weight(a.name),
                known.get(a.name) or CircuitBreaker(policy.breaker),
                rates.meter(a.name),
            )
            for a in accounts
        ]
        self._routes = {route.account.name: route for route in routes}
        self._regular = [route for route in routes if route.weight]
        self._reserve = [route for route in routes if not route.weight]
        self._apart = lane.channel in CHATS and len({a.reach for a in accounts}) > 1
        """Whether not everybody is reached by the same accounts."""
        self._turns = threading.Lock()
        self._simple = self._regular[0] if len(self._regular) == 1 else None
        """The one account of a lane whose choice is none: regular, and without a rate."""
        if self._simple is not None and self._simple.account.rate_per_s is not None:
            self._simple = None

    def choose(self, delivery: Delivery, refuses: Refuses | None = None) -> Account | None:
        """Returns the account for one delivery; None if none may send it before `seconds_until_room`.

        Raises KeyError for a named account that is not the lane's; the source lets none in.
        """
        named = delivery.notification.account
        if named is not None:
            return self._one_of([self._routes[named]], ())
        unfit = self._unfit(delivery) if self._apart or delivery.rendered is not None else ()
        simple = self._simple
        if (
            simple is not None
            and not unfit
            and simple.breaker.closed
            and simple.name not in self._held.names
            and not self._rates.limits(simple.name)
        ):
            account: Account | None = simple.account
        else:
            account = self._next(unfit)
        if account is None or refuses is None or len(self._routes) < 2 or not refuses(account):
            return account
        refusing = self._refusing(unfit, refuses)
        if not refusing:
            return account
        self.release(account)
        return self._next(refusing)

    def restricted_to(self, delivery: Delivery, refuses: Refuses | None = None) -> tuple[str, ...]:
        """Returns the names of the only accounts that may send it; empty: any of the lane's."""
        named = delivery.notification.account
        if named is not None:
            return (named,)
        unfit = self._unfit(delivery)
        if refuses is not None and len(self._routes) > 1:
            unfit = self._refusing(unfit, refuses) or unfit
        return tuple(name for name in self._routes if name not in unfit) if unfit else ()

    def any_account(self) -> Account | None:
        """Returns an account for a delivery that will not be sent; it has to be released as any other."""
        return self._next(())

    def follows(self, policy: LanePolicy, accounts: Sequence[Account]) -> bool:
        """Whether a selector made of these would be equal."""
        wanted = {account.name: policy.weight(account.name) for account in accounts}
        mine = {name: route.weight for name, route in self._routes.items()}
        return mine == wanted and len(self.breakers(policy)) == len(mine)

    def breakers(self, policy: LanePolicy) -> dict[str, CircuitBreaker]:
        """Returns the breakers that follow this policy's rules."""
        of_all = {name: route.breaker for name, route in self._routes.items()}
        return {name: b for name, b in of_all.items() if b.policy == policy.breaker}

    def failover(
        self,
        delivery: Delivery,
        outcome: AnyOutcome,
        tried: Collection[str],
        refuses: Refuses | None = None,
    ) -> Account | None:
        """Returns another account after a definite non-send that is the account's fault.

        Returns None after any other outcome, above all Unknown; if the notification names its account; if
        no account reaches the receiver. The ledger must have the account before the call.
        """
        if not may_fail_over(delivery, outcome):
            return None
        away = self._away(delivery)
        if len(away) == len(self._routes):
            return None
        unfit = self._unfit(delivery)
        if refuses is not None:
            unfit = self._refusing((*tried, *unfit), refuses) or unfit
        account = self._next((*tried, *unfit))
        self.failovers += account is not None
        return account

    def reacquire(self, account: Account, count: int = 1) -> int:
        """Chooses this very account for up to `count` more deliveries. Returns for how many it did: fewer
        than `count` if the account may take no more now."""
        route, taken = self._routes.get(account.name), 0
        if route is None:
            return 0
        while taken < count and self._one_of([route], ()) is not None:
            taken += 1
        return taken

    def release(self, account: Account, count: int = 1) -> None:
        """Gives back choices of deliveries that are not sent: duplicates, expired, given back. An account
        that left the lane has no breaker any more."""
        self._rates.give_back(account.name, count)
        if (route := self._routes.get(account.name)) is not None:
            for _ in range(count):
                route.breaker.give_back()

    def record(
        self, account: Account, outcomes: Sequence[AnyOutcome], begun_at: float | None = None
    ) -> bool:
        """Records the end of one call. Returns whether all of it was accepted. `begun_at` is its monotonic
        start, so that a late answer does not judge a later state. A call that its caller took back says
        nothing of the account: its choices are given back."""
        well = [type(outcome) for outcome in outcomes].count(Accepted)
        accepted = well == len(outcomes)
        if not accepted and all(map(_is_taken_back, outcomes)):
            self.release(account, len(outcomes))
            return False
        if not accepted:
            self._heed(account, outcomes, begun_at)
        route = self._routes.get(account.name)
        if route is None:  # the account left the lane during the call
            return accepted
        route.meter.total += well
        now, breaker = self._monotonic(), route.breaker
        if accepted and breaker.well(now):
            return True
        if outcomes:
            judgement = judgement_of(outcomes)
            turned = breaker.record(now, judgement, deliveries=len(outcomes), begun_at=begun_at)
            if turned is not None:
                self._tell(account, turned, breaker.wait_s(now), outcomes)
        return accepted

    def still_allowed(self, account: Account) -> bool:
        """Whether a call chosen earlier should still be made: its breaker is not open, its provider asked
        for no pause, and no person paused the account."""
        route = self._routes[account.name]
        if account.name in self._held.names:
            return False
        if not route.breaker.closed and route.breaker.state(self._monotonic()) is BreakerState.OPEN:
            return False
        return not self._rates.shut_s(account.name)

    def opens_in_s(self, delivery: Delivery, account: Account) -> float:
        """Returns seconds until a delivery that this account may not send can be sent: 0 if another account
        may take it now."""
        others = self.restricted_to(delivery) or tuple(self._routes)
        here = max(
            self._routes[account.name].breaker.wait_s(self._monotonic()),
            self._rates.shut_s(account.name),
            self._held_s(account.name),
        )
        there = [name for name in others if name != account.name]
        return min(here, self.seconds_until_room(*there)) if there else here

    def room(self) -> int:
        """Returns how many deliveries may be claimed now, by rates and breakers; at most UNBOUNDED."""
        return min(UNBOUNDED, self._room_of(self._regular) or self._room_of(self._reserve))

    def seconds_until_room(self, *accounts: str) -> float:
        """Returns seconds until `room` may be above 0, by time alone; with `accounts`, until one of those
        may send. 0 if one may now, or if only a query shows."""
        routes = [self._routes[name] for name in accounts or self._routes]
        now = self._monotonic()
        return min(
            max(r.breaker.wait_s(now), self._rates.wait_s(r.name), self._held_s(r.name))
            for r in routes
        )

    def held(self) -> list[str]:
        """Returns the lane's accounts that a person paused here."""
        return sorted(self._held.names & self._routes.keys())

    def states(self) -> dict[str, BreakerState]:
        """Returns account to the state of its breaker in this lane."""
        now = self._monotonic()
        return {name: route.breaker.state(now) for name, route in self._routes.items()}

    def open_breakers(self) -> list[str]:
        """Returns the accounts whose breaker is not closed."""
        now = self._monotonic()
        shut = (name for name, r in self._routes.items() if r.breaker.state(now))
        return sorted(shut)

    def readings(self) -> Iterator[Reading]:
        """Yields what `/metrics` shows."""
        now, lane = self._monotonic(), {"lane": self._lane}
        for name, route in self._routes.items():
            labels = {"lane": self._lane, "account": name}
            yield Reading(worker_families.BREAKER_STATE, labels, float(route.breaker.state(now)))
            yield Reading(worker_families.BREAKER_OPENED, labels, route.breaker.opened)
        yield Reading(worker_families.FAILOVERS, lane, self.failovers)
        rates = [self._rates.rate_of(name) for name in self._routes]
        known = [rate for rate in rates if rate is not None]
        if len(known) == len(rates):
            yield Reading(worker_families.LANE_RATE, lane, sum(known))

    def _heed(
        self, account: Account, outcomes: Sequence[AnyOutcome], begun_at: float | None
    ) -> None:
        """Slows the account down after a refusal for its pace; shuts it after a refusal of its login."""
        waits = [
            outcome.retry_after_ms or 0
            for outcome in outcomes
            if isinstance(outcome, NotSent) and outcome.limit is Limit.ACCOUNT
        ]
        if waits:
            self._rates.refused(account.name, min(max(waits), MAX_PACED_MS), begun_at)
        for one in outcomes:
            if isinstance(one, NotSent) and one.limit is Limit.LOGIN:
                wait_ms = one.retry_after_ms or 0
                self._rates.login_refused(account.name, wait_ms, one.code, begun_at)
                return

    # ---- choosing ----------------------------------------------------------------------------

    def _unfit(self, delivery: Delivery) -> Collection[str]:
        """Returns the accounts that do not reach the receiver or whose provider has no form of its
        template. A condition that would leave no account is ignored."""
        rendered, away = delivery.rendered, self._away(delivery) if self._apart else ()
        if len(away) == len(self._routes):
            return ()
        if rendered is None or not rendered.providers:
            return away
        unfit = {*away, *self._without_form(rendered)}
        return unfit if len(unfit) < len(self._routes) else away

    def _away(self, delivery: Delivery) -> Collection[str]:
        """Returns the accounts that do not reach the receiver."""
        group = group_of(self._channel, delivery.receiver)
        return [name for name, r in self._routes.items() if not r.account.reach.takes(group)]

    def _without_form(self, rendered: Rendered) -> list[str]:
        routes = self._routes.items()
        return [name for name, route in routes if rendered.of(route.account.provider).empty]

    def _refusing(self, unfit: Collection[str], refuses: Refuses) -> Collection[str]:
        """Returns the unfit accounts and those whose adapter refuses; none if that leaves no account."""
        routes = self._routes.items()
        found = [name for name, r in routes if name in unfit or refuses(r.account)]
        return found if len(found) < len(routes) else ()

    def _next(self, tried: Collection[str]) -> Account | None:
        """Chooses by weight among the regular accounts, else one of the reserve."""
        return self._one_of(self._regular, tried) or self._one_of(self._reserve, tried)

    def _one_of(self, group: Sequence[_Route], tried: Collection[str]) -> Account | None:
        """Chooses an account that gives a token and a place. Other threads choose at the same time, so a
        ready account may refuse: then it looks again."""
        while ready := self._ready(group, tried):
            for route in self._in_turn(ready):
                if self._take(route):
                    return route.account
        return None

    def _ready(self, group: Sequence[_Route], tried: Collection[str]) -> list[_Route]:
        """Returns the accounts that may send now."""
        now, held = self._monotonic(), self._held.names
        away = (*tried, *held) if held else tried
        passing = [r for r in group if r.name not in away and r.breaker.room(now) != 0]
        rooms = self._rates.rooms([route.account.name for route in passing])
        return [route for route, room in zip(passing, rooms, strict=True) if room]

    def _in_turn(self, routes: list[_Route]) -> list[_Route]:
        """Orders by smooth weighted round-robin: the account whose turn it is first, then substitutes."""
        if len(routes) < 2:
            return routes
        with self._turns:
            for route in routes:
                route.credit += max(1, route.weight)
            routes.sort(key=lambda route: -route.credit)
            routes[0].credit -= sum(max(1, route.weight) for route in routes)
        return routes

    def _take(self, route: _Route) -> bool:
        if not self._rates.take(route.account.name):
            return False
        if route.breaker.take(self._monotonic()):
            return True
        self._rates.give_back(route.account.name)
        return False

    def _held_s(self, account: str) -> float:
        """Returns seconds until a paused account is looked at again; 0 if it is not paused."""
        return HELD_LOOK_S if account in self._held.names else 0.0

    def _room_of(self, group: Sequence[_Route]) -> int:
        now, held = self._monotonic(), self._held.names
        free = [r for r in group if r.name not in held] if held else group
        passing = [(r, room) for r in free if (room := r.breaker.room(now)) != 0]
        rooms = self._rates.rooms([route.account.name for route, _ in passing])
        return sum(
            room if probes is None else min(room, probes)
            for (_, probes), room in zip(passing, rooms, strict=True)
        )

    def _tell(
        self, account: Account, state: BreakerState, wait_s: float, outcomes: Sequence[AnyOutcome]
    ) -> None:
        about = {"lane": self._lane, "account": account.name}
        if state is BreakerState.OPEN:
            codes = sorted({o.code for o in outcomes if not isinstance(o, Accepted)})
            _log.warning("breaker_opened", **about, codes=codes, for_s=round(wait_s, 3))
        else:
            _log.info("breaker_closed", **about)
