"""The tokens that one worker holds of an account's rate, and the time within which they may be used."""

from __future__ import annotations

from typing import Final

from backends.redis.paces import Pace
from backends.redis.token_bucket import Grant
from channels.channel import Account

LEASE_S: Final = 1.0
"""Longest time to hold tokens: later they would come on top of the bucket's gain meanwhile."""
PACED_BURST_S: Final = 0.1
"""Seconds of a learnt rate whose tokens may go at once."""


class TokenLease:
    """One account's tokens in this worker. Guarded by the lock of `RateLimiter`."""

    __slots__ = (
        "_burst",
        "_rate",
        "again_at",
        "back",
        "bucket",
        "burst",
        "name",
        "rate",
        "shut_until",
        "spent",
        "tokens",
        "until",
        "usable_at",
    )

    def __init__(self, account: Account) -> None:
        self.name = account.name
        self.bucket = account.bucket or account.name
        """The name of the bucket that its tokens come from; others may share it."""
        self._rate = account.rate_per_s
        self._burst = account.burst
        self.rate = 0.0
        self.burst = 1
        self.shut_until = 0.0
        """Before this time nothing may go: the provider asked for a pause."""
        self.tokens = 0
        self.usable_at = 0.0
        self.until = 0.0
        """Time by which the tokens must be used or given back."""
        self.again_at = 0.0
        """Before this time the bucket has nothing."""
        self.back = 0
        """Tokens to be given back."""
        self.spent = 0
        """Tokens used that the fleet's bucket does not know of."""
        self.follow(None, 0.0)

    @property
    def bounded(self) -> bool:
        """Whether the account has a rate of its own."""
        return self._rate is not None

    def follow(self, pace: Pace | None, now: float) -> None:
        """Follows the account's own rate, or the learnt pace if that is lower."""
        own = self._rate if self._rate is not None else 0.0
        self.rate, self.burst = own, self._burst or max(1, int(own))
        self.shut_until = now
        if pace is None:
            return
        if not self.bounded or pace.rate_per_s < own:
            self.rate = pace.rate_per_s
            paced = max(1, int(self.rate * PACED_BURST_S))
            self.burst = min(self.burst, paced) if self.bounded else paced
        self.shut_until = now + pace.shut_ms / 1_000
        if pace.shut_ms:
            self.tokens = self.back = 0  # of a bucket that is empty now
            self.again_at = self.shut_until
        self.tokens = min(self.tokens, self.burst)

    def usable(self, now: float) -> int:
        """Returns the tokens that may be used now."""
        if now < self.shut_until:
            return 0
        return self.tokens if self.usable_at <= now <= self.until else 0

    def expire(self, now: float) -> None:
        """Moves tokens that were held for too long to `back`."""
        if self.tokens and now > self.until:
            self.back += self.tokens
            self.tokens = 0

    def wants(self, now: float) -> bool:
        """Whether asking for tokens may bring some."""
        if now < self.shut_until:
            return False
        return self.tokens == 0 and (now >= self.again_at or self.back > 0)

    def wait_s(self, now: float) -> float:
        """Returns seconds until tokens may be at hand; 0 if they are, or if only a query shows."""
        usable_at = self.usable_at if self.tokens else self.again_at
        return max(0.0, usable_at - now, self.shut_until - now)

    def accept(self, grant: Grant, now: float) -> None:
        """Takes a bucket's answer of `now`."""
        self.tokens = grant.tokens
        self.again_at = self.usable_at = now + grant.wait_ms / 1_000
        self.until = self.usable_at + LEASE_S
