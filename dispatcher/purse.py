"""What one worker holds of an account's rate: tokens, and the time within which they may be used."""

from __future__ import annotations

from typing import Final

from backends.token_bucket import Grant
from channels.channel import Account

LEASE_S: Final = 1.0
"""How long tokens may be held: later they would come on top of what the bucket gained meanwhile."""


class Purse:
    """One account's tokens in this worker. Guarded by the lock of `dispatcher.rates.Rates`."""

    __slots__ = (
        "again_at",
        "back",
        "burst",
        "name",
        "rate",
        "spent",
        "tokens",
        "until",
        "usable_at",
    )

    def __init__(self, account: Account, rate: float) -> None:
        self.name = account.name
        self.rate = rate
        self.burst = account.burst or max(1, int(rate))
        self.tokens = 0
        self.usable_at = 0.0
        self.until = 0.0
        """When the tokens must be used or given back."""
        self.again_at = 0.0
        """Before this time the bucket has nothing."""
        self.back = 0
        """Tokens to be given back."""
        self.spent = 0
        """Tokens used that the fleet's bucket does not know of."""

    def usable(self, now: float) -> int:
        """Tokens that may be used now."""
        return self.tokens if self.usable_at <= now <= self.until else 0

    def expire(self, now: float) -> None:
        """Put what was held for too long aside, to be given back."""
        if self.tokens and now > self.until:
            self.back += self.tokens
            self.tokens = 0

    def wants(self, now: float) -> bool:
        """Whether asking for tokens may bring some."""
        return self.tokens == 0 and (now >= self.again_at or self.back > 0)

    def accept(self, grant: Grant, now: float) -> None:
        """What a bucket answered at `now`."""
        self.tokens = grant.tokens
        self.again_at = self.usable_at = now + grant.wait_ms / 1_000
        self.until = self.usable_at + LEASE_S
