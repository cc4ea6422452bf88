"""Access tokens, as the engine sees them: kept for the whole fleet, fetched by one process at a time."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from channels.channel import Account, TokenSource


class TokenUnavailable(Exception):
    """No token can be had now, so nothing was sent; the text says why, without a secret."""


class LoginUnavailable(TokenUnavailable):
    """The provider refuses the account's login."""

    def __init__(self, text: str, left_s: float) -> None:
        super().__init__(text)
        self.left_s = left_s
        """Seconds until the fleet asks again."""


class TokenLife(NamedTuple):
    """The token that this process holds for one account, in seconds."""

    age_s: float
    """Since this process got it."""
    left_s: float
    """Until it ends."""


class Tokens(Protocol):
    """A source of tokens; raises TokenUnavailable and nothing else."""

    def get(self, account: Account, source: TokenSource) -> str:
        """Returns a token that is believed to be good."""

    def held(self, account: Account, source: TokenSource) -> str | None:
        """Returns a token that is believed to be good, without a wait; None if `get` might wait."""

    def renew(self, account: Account, source: TokenSource, stale: str) -> str:
        """Returns a token other than `stale`, which the provider has just refused; empty: any. Of many
        callers at once, one in the whole fleet asks the provider."""

    def refused_logins(self) -> list[str]:
        """Returns the accounts whose login was refused when it was last tried, by name."""

    def lives(self) -> dict[str, TokenLife]:
        """Returns account to the token that this process holds, without its text."""


class NoTokens:
    """For processes that make no call with a token."""

    def get(self, account: Account, source: TokenSource) -> str:
        """Raises TokenUnavailable: there is none."""
        raise TokenUnavailable(f"account {account.name} needs a token, and nothing keeps tokens")

    def held(self, account: Account, source: TokenSource) -> str | None:
        """Returns None: there is none."""
        return None

    def renew(self, account: Account, source: TokenSource, stale: str) -> str:
        """Raises TokenUnavailable: there is none."""
        return self.get(account, source)

    def refused_logins(self) -> list[str]:
        """Returns nothing: nobody logs in."""
        return []

    def lives(self) -> dict[str, TokenLife]:
        """Returns nothing: there is no token."""
        return {}
