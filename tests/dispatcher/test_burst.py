"""A burst at a provider that takes two a second, in simulated time: the real adapter, pace, breaker and
back-off around a model of Resend's limit.

https://resend.com/docs/api-reference/rate-limit (read 2026-11-22) says 2 a second, its version as text 5.
The lower one is what an account without a rate keeps to.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from random import Random
from typing import Final

import httpx
import pytest

from channels.channel import Account, Call
from channels.providers.resend.adapter import CHANNELS
from channels.registry import load_accounts
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification
from message.outcomes import is_paced
from message.states import Event
from message.vocabulary import Lane
from policy.schema import DEFAULTS_BY_KIND, LanePolicy
from sending.accounts.rate_limiter import RateLimiter
from sending.accounts.selector import AccountSelector
from sending.settlement import after_call

LANE: Final = Lane("email", "notice")
START_MS: Final = 1_790_000_000_000
TICK_S: Final = 0.05
CALL_S: Final = 0.2
THREADS: Final = 16
MAILS: Final = 1_000
TAKEN_PER_S: Final = 2


class Team:
    """Resend's side: so many requests a second, whoever makes them; the answers as documented."""

    def __init__(self, *, tells: bool) -> None:
        self.calls = 0
        self.accepted = 0
        self._tells = tells
        self._window: Counter[int] = Counter()

    def answer(self, now: float) -> httpx.Response:
        self.calls += 1
        self._window[int(now)] += 1
        if self._window[int(now)] <= TAKEN_PER_S:
            self.accepted += 1
            return httpx.Response(200, json={"id": f"e-{self.accepted}"})
        body = {"statusCode": 429, "name": "rate_limit_exceeded", "message": "Too many requests."}
        headers = {"retry-after": "1", "ratelimit-reset": "1"} if self._tells else {}
        return httpx.Response(429, json=body, headers=headers)


class BurstLoop:
    """A worker and a recovery in one: calls what is due and may go, settles what was answered."""

    def __init__(self, team: Team, account: Account, policy: LanePolicy) -> None:
        self.time = 1_000.0
        self.ends: Counter[Event] = Counter()
        self.last_sent_at = 0.0
        self._team, self._account, self._policy = team, account, policy
        self._luck = Random(7).random
        rates = RateLimiter([account], None, workers=lambda _: 1, monotonic=lambda: self.time)
        self._rates = rates
        self._accounts = AccountSelector(
            LANE, policy, [account], rates, monotonic=lambda: self.time
        )
        self._due: list[tuple[float, int, Delivery]] = []
        self._called: list[tuple[float, int, Delivery]] = []
        self._order = 0

    def run(self, mails: int, *, most_s: float) -> float:
        """Seconds until the last one was sent; all of them come at once."""
        begun = self.time
        for number in range(mails):
            self._wait(delivery(number), begun)
        while (self._due or self._called) and self.time < begun + most_s:
            self.time += TICK_S
            self._rates.tidy()
            while self._called and self._called[0][0] <= self.time:
                self._settle(heappop(self._called)[2])
            self._begin()
        return self.last_sent_at - begun

    def _begin(self) -> None:
        self._rates.rooms([self._account.name])
        while self._due and self._due[0][0] <= self.time and len(self._called) < THREADS:
            if self._accounts.choose(self._due[0][2]) is None:
                return
            _, _, one = heappop(self._due)
            one.attempt += 1
            self._order += 1
            heappush(self._called, (self.time + CALL_S, self._order, one))

    def _settle(self, one: Delivery) -> None:
        begun_at = self.time - CALL_S
        answer = self._team.answer(self.time)
        outcomes = CHANNELS[0].outcomes(Call(self._account, (one,)), answer)
        self._accounts.record(self._account, outcomes, begun_at)
        one.refusals += is_paced(outcomes[0])
        now_ms = START_MS + int(self.time * 1_000)
        end = after_call(one, outcomes[0], now_ms, self._policy, self._luck)
        if end.event is Event.NOT_SENT:
            self._wait(one, self.time + end.delay_ms / 1_000)
            return
        self.ends[end.event] += 1
        self.last_sent_at = self.time

    def _wait(self, one: Delivery, until: float) -> None:
        self._order += 1
        heappush(self._due, (until, self._order, one))


def delivery(number: int) -> Delivery:
    notification = Notification(
        id=f"m-{number}",
        channel="email",
        kind="notice",
        receivers=[f"u{number}@example.com"],
        content={"subject": "x", "text": "y"},
        created_at=START_MS + 1_000_000,
    )
    (one,) = deliveries_of(notification, b"", expires_at=notification.created_at + 86_400_000)
    return one


def account(**more: float) -> Account:
    table = {"provider": "resend", "api_key": "re_x", "sender": "a@example.com", **more}
    return load_accounts({"resend": table})["resend"]


@pytest.mark.parametrize("tells", [True, False], ids=["retry-after", "silent"])
@pytest.mark.parametrize("known", [True, False], ids=["documented", "learnt"])
def test_a_thousand_mails_at_once_are_sent_at_two_a_second_with_few_calls_more(
    known: bool, tells: bool
) -> None:
    team = Team(tells=tells)
    named = account() if known else account(rate_per_s=1_000, burst=1_000)
    loop = BurstLoop(team, named, DEFAULTS_BY_KIND["notice"])
    took_s = loop.run(MAILS, most_s=3_000)
    assert loop.ends == {Event.ACCEPTED: MAILS}
    assert team.accepted == MAILS
    assert team.calls <= 1.2 * MAILS
    assert took_s <= 1.2 * MAILS / TAKEN_PER_S
