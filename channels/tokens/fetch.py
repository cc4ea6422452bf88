"""One search for a token: through the stores of the whole fleet, then at the provider under their lease."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from backends.redis.token_cache import CacheAway, Leased, StoredToken, TokenCache
from channels.channel import (
    Account,
    Failure,
    LoginRefused,
    Token,
    TokenRefused,
    TokenSource,
)
from channels.engine import Sender
from channels.tokens.contract import LoginUnavailable, TokenUnavailable
from channels.tokens.seal import TokenCipher, digest_of

log = structlog.get_logger(__name__)

ASK_S: Final = 3.0
"""Time of the provider to give a token, if the caller's wait leaves so long."""
LEAST_ASK_S: Final = 0.25
"""A caller with less of its wait left does not ask: the answer would come too late for it."""
REFUSED_S: Final = 60.0
"""Time for which a refused login is the answer for the whole fleet."""
_REFUSED: Final = "\0refused "
"""Prefix of a refusal that is kept in place of a token; no token has a NUL."""
_REFUSED_DIGEST: Final = "login refused"
_CHECK: Final = "check its id and secret, the addresses that may call, our clock, and that it is on"
LEASE_MS: Final = 4_500
"""Time in which nobody else asks, should the asking process die: `ASK_S` and the store's own time."""
_POLL_S: Final = (0.02, 0.06)
"""Pause between two looks at the store while another process asks: from and to, evenly spread."""
_MS: Final = 1_000


class TokenNeed(NamedTuple):
    """The requirements of a search."""

    source: TokenSource
    text: str
    """The token to be replaced; empty: any will do."""
    deadline: float
    """On the monotonic clock."""
    fresh_s: float
    """A token that the provider gave no longer ago is not asked for again, even if it is `text`."""
    beside: bool = False
    """`text` is still good: a process that asks already may do so alone."""


class FoundToken(NamedTuple):
    """A token and its remaining life in seconds."""

    text: str
    left_s: float


class TokenFetcher:
    """Safe from many threads; holds nothing itself."""

    def __init__(
        self,
        sender: Sender,
        caches: Sequence[TokenCache],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        luck: Callable[[], float] = random.random,
    ) -> None:
        """`caches`: the first that answers serves; the others replace it while it is away."""
        self._sender = sender
        self._caches = caches
        self._monotonic = monotonic
        self._sleep = sleep
        self._luck = luck

    def find(self, account: Account, seal: TokenCipher, wanted: TokenNeed) -> FoundToken | None:
        """Returns a token as wanted; None if `wanted.beside` and another process is asking.

        Raises TokenUnavailable."""
        reasons = []
        for cache in self._caches:
            try:
                return self._through(cache, account, seal, wanted)
            except CacheAway as exc:
                reasons.append(str(exc))
        raise TokenUnavailable(
            f"account {account.name}: no store of tokens can be reached ({'; '.join(reasons)})"
        )

    def close(self) -> None:
        """Closes the stores. Idempotent."""
        for cache in self._caches:
            cache.close()

    def _through(
        self, cache: TokenCache, account: Account, seal: TokenCipher, wanted: TokenNeed
    ) -> FoundToken | None:
        digest, fresh_ms = digest_of(wanted.text), int(wanted.fresh_s * _MS)
        while True:
            found = None
            taken = cache.take(seal.name, digest, fresh_ms, LEASE_MS)
            if isinstance(taken, Leased):
                found = self._asked(cache, account, seal, wanted, taken.fence)
            elif isinstance(taken, StoredToken):
                text = seal.open(taken.sealed)
                if text is not None and text.startswith(_REFUSED):
                    raise LoginUnavailable(text.removeprefix(_REFUSED), taken.left_ms / _MS)
                if text is None:  # damaged: as good as none
                    digest, fresh_ms = taken.digest, 0
                elif text != wanted.text or wanted.beside:
                    return FoundToken(text, taken.left_ms / _MS)
            elif wanted.beside:
                return None
            if found is not None:
                return found
            self._pause(account, wanted)

    def _asked(
        self, cache: TokenCache, account: Account, seal: TokenCipher, wanted: TokenNeed, fence: str
    ) -> FoundToken | None:
        """Asks the provider under the lease. Returns None if the lease was lost meanwhile: another
        process's token is the later one."""
        begun = self._monotonic()
        try:
            token = self._ask(account, wanted)
        except LoginUnavailable as exc:
            self._keep_refusal(cache, seal, fence, exc)
            raise
        except BaseException:  # nobody else may ask before the lease is given up
            with suppress(CacheAway):
                cache.give_up(seal.name, fence)
            raise
        left_s = begun + token.expires_in_s - self._monotonic()
        kept = StoredToken(seal.close(token.text), digest_of(token.text), int(left_s * _MS), 0)
        try:
            if not cache.put(seal.name, fence, kept):
                return None
        except CacheAway as exc:
            log.warning("access_token_not_shared", account=account.name, reason=str(exc))
        return FoundToken(token.text, left_s)

    def _keep_refusal(
        self, cache: TokenCache, seal: TokenCipher, fence: str, refused: LoginUnavailable
    ) -> None:
        """Keeps a refused login for the fleet: one request a minute is enough until a person mends it."""
        sealed = seal.close(f"{_REFUSED}{refused}")
        with suppress(CacheAway):
            cache.put(
                seal.name, fence, StoredToken(sealed, _REFUSED_DIGEST, int(refused.left_s * _MS), 0)
            )

    def _ask(self, account: Account, wanted: TokenNeed) -> Token:
        """Returns the provider's token. Raises TokenUnavailable with one sentence and no secret."""
        whose = f"account {account.name}: {account.provider}"
        try:
            token = self._exchange(account, wanted)
        except LoginRefused as exc:
            log.error("login_refused", account=account.name, reason=str(exc), check=_CHECK)
            text = f"{whose} refused the login: {exc}; {_CHECK}"
            raise LoginUnavailable(text, REFUSED_S) from None
        except TokenRefused as exc:
            raise TokenUnavailable(f"{whose} gave no token: {exc}") from None
        except Exception as exc:  # its text may hold what the request held
            raise TokenUnavailable(
                f"{whose}: the token request broke: {type(exc).__name__}"
            ) from None
        log.info("access_token_given", account=account.name, expires_in_s=token.expires_in_s)
        return token

    def _exchange(self, account: Account, wanted: TokenNeed) -> Token:
        left_s = wanted.deadline - self._monotonic()
        if left_s < LEAST_ASK_S:
            raise TokenRefused("too little of the wait was left to ask")
        request = wanted.source.request(account, wanted.text)
        if isinstance(request, Token):
            return request
        request.extensions["timeout"] = {"total": min(ASK_S, left_s)}
        if account.ca_file:
            request.extensions["ca_file"] = account.ca_file
        answer = self._sender.send(request)
        if isinstance(answer, Failure):
            raise TokenRefused(f"no answer ({answer.code})")
        return wanted.source.read(answer)

    def _pause(self, account: Account, wanted: TokenNeed) -> None:
        low, high = _POLL_S
        pause_s = low + (high - low) * self._luck()
        if self._monotonic() + pause_s >= wanted.deadline:
            raise late(account)
        self._sleep(pause_s)


def late(account: Account) -> TokenUnavailable:
    """Returns the error of a wait that ended without another token."""
    return TokenUnavailable(f"account {account.name}: no other token came in time")
